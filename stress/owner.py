"""The harness's hold on the owner under test: start it, injure it, kill it, look at what it uses."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from host_bridge.owner.client import OwnerError, reach, read_holder
from messages.json_types import JsonObject, JsonValue
from stress.injuries import Injury

START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 20.0
_ROOT: Final = Path(__file__).resolve().parents[1]
_READS_EVERYTHING: Final = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""
_LESS: Final = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


@dataclass(frozen=True, slots=True)
class Usage:
    """What the process holds: threads, open descriptors, resident bytes; ``at`` on the monotonic clock."""

    at: float
    threads: int
    descriptors: int
    resident: int


class Owner:
    """One state directory's owner under test, started again as often as wanted. Any thread."""

    def __init__(self, state_dir: Path, environment: dict[str, str], log: Path, mutant: str | None = None) -> None:
        self.state_dir = state_dir
        self.environment = environment
        self.starts = 0
        self._log = log
        self._mutant = mutant
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._lines = b""
        self._lock = threading.RLock()

    @property
    def pid(self) -> int:
        process = self._process
        return 0 if process is None else process.pid

    def start(self) -> None:
        """Start it and return when it answers. A client may have started another one meanwhile: that one is ended."""
        with self._lock:
            until = time.monotonic() + START_SECONDS
            while True:
                self._spawn()
                if self._answers(until):
                    return
                self._reap()
                if time.monotonic() >= until:
                    said = self._log.read_text(errors="replace").splitlines()[-3:]
                    raise RuntimeError(f"the owner under test does not start; it said: {said}")
                self._kill_other()

    def order(self, what: JsonObject) -> JsonObject | None:
        """Tell it something; None when it is not there."""
        with self._lock:
            control = self._control
            if control is None:
                return None
            try:
                control.sendall(json.dumps(what).encode() + b"\n")
                while b"\n" not in self._lines:
                    chunk = control.recv(65536)
                    if not chunk:
                        return None
                    self._lines += chunk
            except OSError:
                return None
            line, _, self._lines = self._lines.partition(b"\n")
            answer: JsonObject = json.loads(line)
            return answer

    def arm(self, injury: Injury) -> None:
        self.order({"do": "arm", "injury": injury.to_json()})

    def fired(self) -> tuple[list[JsonObject], list[JsonObject]]:
        """What struck, and which actors began and ended, since the last time it was asked."""
        answer = self.order({"do": "fired"}) or {}
        return _objects(answer.get("fired")), _objects(answer.get("lives"))

    def deafen(self, folder: Path) -> int:
        """Take the watches off the instance that watches a folder, behind the runtime's back; how many there were."""
        answer = self.order({"do": "deafen", "inode": folder.stat().st_ino}) or {}
        found = answer.get("watches")
        return found if isinstance(found, int) else 0

    def kill(self) -> None:
        """SIGKILL, and the process is gone when this returns."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
            self._reap()

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """All its threads are stopped meanwhile, as on a machine that swaps."""
        process = self._process
        if process is None or process.poll() is not None:
            yield
            return
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """SIGTERM; its exit status."""
        with self._lock:
            process = self._process
            if process is None:
                return 0
            process.terminate()
            try:
                status = process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                status = -signal.SIGKILL
                process.kill()
            self._reap()
            return status

    def usage(self) -> Usage | None:
        """What it holds now, from the system's own records."""
        place = Path(f"/proc/{self.pid}")
        try:
            status = (place / "status").read_text()
            descriptors = len(os.listdir(place / "fd"))
        except OSError:
            return None
        numbers = {line.split(":")[0]: line.split() for line in status.splitlines()}
        if "VmRSS" not in numbers:
            return None  # it has ended and waits to be reaped
        return Usage(time.monotonic(), int(numbers["Threads"][1]), descriptors, int(numbers["VmRSS"][1]) * 1024)

    def reads_everything(self) -> bool:
        """Whether no permission keeps it from a file."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return os.geteuid() == 0
        found = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
        return bool(int(found, 16) & _READS_EVERYTHING)

    def waits(self) -> dict[int, int]:
        """Nanoseconds that each of its threads has been ready to run and had no processor, by thread."""
        found = {}
        for task in Path(f"/proc/{self.pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                found[int(task.parent.name)] = int(task.read_text().split()[1])
        return found

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(START_SECONDS)
        # As a user who reads what the permissions say, and not everything, as the superuser does.
        command = [*_LESS, sys.executable] if os.geteuid() == 0 and shutil.which(_LESS[0]) else [sys.executable]
        arguments = [*command, "-P", "-m", "stress.subject", str(self.state_dir), str(theirs.fileno())]
        with self._log.open("ab") as log, theirs:
            self._process = subprocess.Popen(
                [*arguments, *([self._mutant] if self._mutant else [])],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                env={**self.environment, "PYTHONPATH": str(_ROOT)},
                cwd="/",
            )
        self._control = ours
        self._lines = b""
        self.starts += 1

    def _answers(self, until: float) -> bool:
        while time.monotonic() < until:
            assert self._process is not None
            if self._process.poll() is not None:
                return False
            with contextlib.suppress(OwnerError):
                connection = reach(str(self.state_dir), start=False, timeout=2.0)
                connection.close()
                if connection.hello.get("pid") in (None, self.pid):
                    return self.order({"do": "ping"}) is not None
                return False
            time.sleep(0.02)
        return False

    def _kill_other(self) -> None:
        """End an owner that a client of ours has started here meanwhile: it cannot be injured from inside."""
        holder = read_holder(str(self.state_dir / "knowledge"))
        if holder is not None and holder.pid != self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(holder.pid, signal.SIGKILL)

    def _reap(self) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
        if self._control is not None:
            self._control.close()
            self._control = None
        self._process = None


def _objects(value: JsonValue) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
