"""Real processes of the ``knowledge`` command against a state directory of a test's own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from host_bridge.owner import address
from host_bridge.owner.client import read_holder
from messages.json_types import JsonObject

ROOT = Path(__file__).resolve().parents[2]
FAKE_SITE = ROOT / "tests" / "host_bridge" / "fake_site"
PATIENCE = 30.0
Typed = Callable[..., subprocess.CompletedProcess[bytes]]
"""Runs one command line of ``knowledge`` and gives what a process would have given."""


class Home:
    """A state directory, the environment that points to it, and whatever was started on it."""

    def __init__(self, *, fake: bool) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="kr-"))
        self.state_dir = self.base / "state"
        self.state_dir.mkdir()
        runtime = self.base / "run"
        runtime.mkdir(mode=0o700)
        path = [str(FAKE_SITE), str(ROOT)] if fake else [str(ROOT)]
        self.env: dict[str, str] = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(self.base),
            "XDG_RUNTIME_DIR": str(runtime),
            "PYTHONPATH": os.pathsep.join(path),
            "KNOWLEDGE_STATE_DIR": str(self.state_dir),
        }
        self._started: list[subprocess.Popen[bytes]] = []

    @property
    def directory(self) -> str:
        return address.knowledge_dir(os.path.realpath(self.state_dir))

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "host_bridge", *arguments]

    def run(
        self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            env={**self.env, **(env or {})},
            cwd="/",
            timeout=PATIENCE,
            check=False,
        )

    def call(self, *arguments: str) -> JsonObject:
        """The answer of ``knowledge call ... --json``, which must succeed."""
        done = self.run("call", *arguments, "--json")
        assert done.returncode == 0, done.stderr.decode()
        answer: JsonObject = json.loads(done.stdout)
        return answer

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self.env, **(env or {})},
            cwd="/",
        )
        self._started.append(process)
        return process

    def foreground(self) -> subprocess.Popen[bytes]:
        """``knowledge serve``, up and listening."""
        process = self.start("serve")
        assert process.stderr is not None
        while b" owns " not in (line := process.stderr.readline()):
            assert line, "the owner ended at its start"
        return process

    def pipe(self, name: str) -> str:
        path = self.base / name
        os.mkfifo(path)
        return str(path)

    def holder_pid(self) -> int | None:
        holder = read_holder(self.directory)
        return None if holder is None else holder.pid

    def close(self) -> None:
        """End everything: first what the test started, then the owner, by their own process ids."""
        for process in self._started:
            if process.poll() is None:
                process.terminate()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=10)
        stopped = self.run("stop", "--json")
        pid = self.holder_pid()
        if stopped.returncode != 0 and pid is not None:
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.base, ignore_errors=True)
        assert stopped.returncode == 0, stopped.stderr.decode()


def kill_and_wait(pid: int) -> None:
    """SIGKILL a process that is not our child, and return when it is gone."""
    descriptor = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGKILL)
        wait_gone(descriptor)
    finally:
        os.close(descriptor)


def wait_gone(pidfd: int) -> None:
    """Return when the process behind a pidfd has ended."""
    import select

    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    assert poller.poll(PATIENCE * 1000), "the process did not end"
