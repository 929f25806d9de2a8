"""``python -m stress processes``: who may own a state directory, tried with real processes, and judged.

Each scene has a state directory of its own and real commands on it. One owner at a time, whatever happens; every
command is answered or refused by name; what was acknowledged before an owner's end is there after it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from host_bridge.owner.client import Holder, OwnerError, reach, read_holder
from messages.json_types import JsonObject
from stress.clients import written_records

CLIENTS: Final = 8
ASLEEP_SECONDS: Final = 3.0
PATIENCE_SECONDS: Final = 45.0
_ROOT: Final = Path(__file__).resolve().parents[1]
_DISGUISE: Final = """\
import os

import host_bridge
import host_bridge.owner.lock

host_bridge.__version__ = os.environ.get("STRESS_VERSION", host_bridge.__version__)
if "STRESS_FILE_SYSTEM" in os.environ:
    host_bridge.owner.lock.file_system_of = lambda _path: os.environ["STRESS_FILE_SYSTEM"]
"""
"""Of a child that is to be of another version, or to see another file system: run as its interpreter starts."""


@dataclass(slots=True)
class Scene:
    """How one went: ``wrong`` is empty when all was as promised."""

    name: str
    answers: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def expect(self, kept: bool, otherwise: str) -> None:
        if not kept:
            self.wrong.append(otherwise)


@dataclass(frozen=True, slots=True)
class Said:
    """What a command ended with: ``code`` is ``ok`` or the error's."""

    code: str
    facts: JsonObject


class World:
    """A state directory, the environment that points to it, and commands on it."""

    def __init__(self, folder: Path) -> None:
        self.state_dir = folder / "state"
        self.state_dir.mkdir(parents=True)
        (self.state_dir / "knowledge.yaml").write_text("agents: {list: [{id: ana}]}\n")
        (folder / "run").mkdir(mode=0o700)
        disguise = folder / "disguise"
        disguise.mkdir()
        (disguise / "sitecustomize.py").write_text(_DISGUISE)
        self._environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "PYTHONPATH": os.pathsep.join([str(disguise), str(_ROOT)]),
        }
        self._started: list[subprocess.Popen[bytes]] = []
        self._pids: set[int] = set()

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "host_bridge", *arguments, "--state-dir", str(self.state_dir)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self._environment, **environment},
            cwd="/",
        )
        self._started.append(process)
        return process

    def call(self, tool: str, arguments: JsonObject, **environment: str) -> subprocess.Popen[bytes]:
        """A command that calls a tool; :meth:`said` waits for what it says."""
        return self.start("call", tool, json.dumps(arguments), "--agent", "ana", "--json", **environment)

    def said(self, process: subprocess.Popen[bytes], scene: Scene) -> Said:
        try:
            out, err = process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            scene.wrong.append("a command was not answered")
            return Said("no_answer", {})
        try:
            facts = json.loads(out or err)
        except ValueError:
            scene.wrong.append(f"a command said what nobody can read: {(out or err)[-200:]!r}")
            return Said("protocol_error", {})
        error = facts.get("error") if process.returncode else None
        found = Said("ok", facts) if error is None else Said(str(error.get("code")), error)
        scene.answers[found.code] = scene.answers.get(found.code, 0) + 1
        return found

    def holder(self) -> Holder | None:
        """Who holds the directory, as its lock file says."""
        found = read_holder(str(self.state_dir / "knowledge"))
        if found is not None:
            self._pids.add(found.pid)
        return found

    def owner(self, scene: Scene) -> int:
        """The process that answers at the socket; 0, and wrong, when none does."""
        os.environ["XDG_RUNTIME_DIR"] = self._environment["XDG_RUNTIME_DIR"]
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            with contextlib.suppress(OwnerError):
                connection = reach(str(self.state_dir), start=False, timeout=5.0)
                connection.close()
                pid = connection.hello.get("pid")
                if isinstance(pid, int):
                    self._pids.add(pid)
                    return pid
            if time.monotonic() >= until:
                scene.wrong.append("nobody owns the directory")
                return 0
            time.sleep(0.05)

    def owner_of_lock(self) -> int:
        """The process that the lock file names; 0 for none."""
        found = self.holder()
        return 0 if found is None else found.pid

    def owners_up(self) -> int:
        """How many owners have come up so far."""
        log = self.state_dir / "knowledge" / "owner.log"
        return log.read_text("utf-8").count('"owner up"') if log.exists() else 0

    def end(self) -> None:
        """Nothing that was started here is left."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.holder()
        for pid in self._pids:
            with contextlib.suppress(OSError):
                if str(self.state_dir).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
            _wait_gone(pid, 5.0)


def _eight_at_once(world: World, scene: Scene) -> None:
    facts = [_fact(number) for number in range(CLIENTS)]
    said = [world.said(process, scene) for process in [world.call("remember", fact) for fact in facts]]
    scene.expect(all(one.code == "ok" for one in said), "not every client was answered")
    scene.expect(world.owners_up() == 1, f"{world.owners_up()} owners came up")
    _all_there(world, scene, said)


def _owner_found_dead(world: World, scene: Scene) -> None:
    facts = [_fact(number) for number in range(CLIENTS)]
    first = [world.said(world.call("remember", fact), scene) for fact in facts[:2]]
    before = world.owner(scene)
    os.kill(before, signal.SIGKILL)
    again = [world.said(process, scene) for process in [world.call("remember", fact) for fact in facts]]
    scene.expect(all(one.code == "ok" for one in again), "not every client was answered")
    for one, other in zip(first, again, strict=False):
        scene.expect(_ids(one) == _ids(other), "a request that was sent again had another receipt")
    scene.expect(world.owner(scene) != before, "a dead owner answers")
    scene.expect(world.owners_up() == 2, f"{world.owners_up()} owners came up")
    _all_there(world, scene, again)


def _killed_under_clients(world: World, scene: Scene) -> None:
    """The owner is killed while eight clients ask it; each is answered or told that the call may have run."""
    world.said(world.call("status", {}), scene)
    facts = [_fact(number) for number in range(CLIENTS)]
    asking = [world.call("remember", fact) for fact in facts]
    os.kill(world.owner(scene), signal.SIGKILL)
    for process in asking:
        code = world.said(process, scene).code
        scene.expect(code in ("ok", "restarting", "stopping", "store_opening"), f"a client is told {code}")
    again = [world.said(world.call("remember", fact), scene) for fact in facts]
    scene.expect(all(one.code == "ok" for one in again), "a request that was sent again was not answered")
    ids = [record for one in again for record in _ids(one)]
    scene.expect(len(set(ids)) == len(facts), "a request that was sent again had two effects")
    _all_there(world, scene, again)


def _stale_lock(world: World, scene: Scene) -> None:
    """The lock file of an owner that was killed names a process that lives and is somebody else's."""
    said = world.said(world.call("remember", _fact(0)), scene)
    os.kill(world.owner(scene), signal.SIGKILL)
    _wait_gone(world.owner_of_lock(), PATIENCE_SECONDS)
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        lock = world.state_dir / "knowledge" / "owner.lock"
        lock.write_text(json.dumps({"pid": stranger.pid, "version": "9", "socket": "/nowhere/at/all.sock"}) + "\n")
        _all_there(world, scene, [said])
        scene.expect(world.owner(scene) != stranger.pid, "a stranger counts as the owner")
        scene.expect(stranger.poll() is None, "a stranger was ended")
    finally:
        stranger.kill()
        stranger.wait()


def _four_in_the_foreground(world: World, scene: Scene) -> None:
    """Four want to own the directory at once: one does, and the others are told who."""
    serving = [world.start("serve") for _ in range(4)]
    owner = world.owner(scene)
    until = time.monotonic() + PATIENCE_SECONDS
    while sum(process.poll() is None for process in serving) > 1 and time.monotonic() < until:
        time.sleep(0.05)
    left = [process for process in serving if process.poll() is None]
    scene.expect([process.pid for process in left] == [owner], f"{len(left)} are left, {owner} answers")
    for process in serving:
        if process not in left:
            out, err = process.communicate(timeout=PATIENCE_SECONDS)
            scene.expect(str(owner).encode() in out + err, "one that was refused is not told who the owner is")
    _all_there(world, scene, [world.said(world.call("remember", _fact(0)), scene)])
    for process in left:
        process.terminate()
        scene.expect(process.wait(PATIENCE_SECONDS) == 0, "the owner does not end in order")


def _older_owner(world: World, scene: Scene) -> None:
    """An idle owner of an older version makes room for a newer client; a newer one stays for an older client."""
    said = world.said(world.call("remember", _fact(0), STRESS_VERSION="0.0.1"), scene)
    old = world.owner_of_lock()
    _all_there(world, scene, [said])
    new = world.owner(scene)
    scene.expect(new != old, "an idle owner of an older version stays")
    _wait_gone(old, PATIENCE_SECONDS)
    scene.expect(not _lives(old), "an owner that made room does not end")
    world.said(world.call("status", {}, STRESS_VERSION="0.0.1"), scene)
    scene.expect(world.owner(scene) == new, "an older client ended a newer owner")


def _owner_asleep(world: World, scene: Scene) -> None:
    """An owner that is stopped for a while keeps its directory, and answers who has waited."""
    said = world.said(world.call("remember", _fact(0)), scene)
    owner = world.owner(scene)
    os.kill(owner, signal.SIGSTOP)
    try:
        asking = [world.call("remember", _fact(number)) for number in range(1, 4)]
        time.sleep(ASLEEP_SECONDS)
    finally:
        os.kill(owner, signal.SIGCONT)
    answers = [world.said(process, scene) for process in asking]
    scene.expect(all(one.code == "ok" for one in answers), "not every client was answered in the end")
    scene.expect(world.owner(scene) == owner, "another owner took the directory")
    scene.expect(world.owners_up() == 1, f"{world.owners_up()} owners came up")
    _all_there(world, scene, [said, *answers])


def _network_file_system(world: World, scene: Scene) -> None:
    """Seen through a child that is told so: this machine mounts none."""
    for kind in ("nfs4", "cifs", "fuse.sshfs"):
        said = world.said(world.call("remember", _fact(0), STRESS_FILE_SYSTEM=kind), scene)
        scene.expect(said.code == "store_unavailable", f"on {kind} a client is told {said.code}")
        scene.expect(kind in json.dumps(said.facts), f"{kind} is not named")
    scene.expect(world.holder() is None, "somebody owns a directory whose locks cannot be trusted")
    stores = world.state_dir / "knowledge" / "stores"
    scene.expect(not stores.exists() or not any(stores.iterdir()), "a store was made there")


SCENES: Final[Mapping[str, Callable[[World, Scene], None]]] = {
    "eight clients starting at once": _eight_at_once,
    "clients that find the owner dead": _owner_found_dead,
    "an owner killed under eight clients": _killed_under_clients,
    "a stale lock that names a stranger": _stale_lock,
    "four owners at once": _four_in_the_foreground,
    "an owner that is asleep": _owner_asleep,
    "an owner of another version": _older_owner,
    "a lock on a network file system": _network_file_system,
}


def main(arguments: Sequence[str]) -> int:
    """Play every scene, or those that are named; 1 when one did not go as promised."""
    parser = argparse.ArgumentParser(prog="python -m stress processes", description=__doc__)
    parser.add_argument("--scene", action="append", choices=SCENES, metavar="NAME", help="only this one")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    scenes = [play(name) for name in options.scene or SCENES]
    if options.json:
        print(json.dumps({"kept": not any(scene.wrong for scene in scenes), "scenes": [_shown(one) for one in scenes]}))
    else:
        table = Table("scene", "kept", "answers", "seconds", "wrong")
        for scene in scenes:
            answers = ", ".join(f"{code} {count}" for code, count in scene.answers.items())
            kept = "NO" if scene.wrong else "yes"
            table.add_row(scene.name, kept, answers, f"{scene.seconds:.1f}", "; ".join(scene.wrong))
        Console().print(table)
    return int(any(scene.wrong for scene in scenes))


def play(name: str) -> Scene:
    """One scene in a folder of its own, of which nothing is left."""
    scene = Scene(name)
    began = time.monotonic()
    with _world() as world:
        SCENES[name](world, scene)
    scene.seconds = time.monotonic() - began
    return scene


@contextlib.contextmanager
def _world() -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="knowledge-stress-"))
    world = World(folder)
    before = os.environ.get("XDG_RUNTIME_DIR")
    try:
        yield world
    finally:
        world.end()
        if before is None:
            os.environ.pop("XDG_RUNTIME_DIR", None)
        else:
            os.environ["XDG_RUNTIME_DIR"] = before
        shutil.rmtree(folder, ignore_errors=True)


def _fact(number: int) -> JsonObject:
    return {
        "requestId": str(uuid.uuid4()),
        "attribution": "a client, in a run",
        "excerpt": f"User: gate {number} was left open.",
        "items": [{"text": f"Gate {number} was left open.", "kind": "fact"}],
    }


def _ids(said: Said) -> list[str]:
    return [record for record, _, _ in written_records(said.facts)]


def _all_there(world: World, scene: Scene, said: Sequence[Said]) -> None:
    """Every record that was acknowledged can be read."""
    records = [record for one in said if one.code == "ok" for record in _ids(one)]
    for record, process in [(record, world.call("record", {"id": record})) for record in records]:
        found = world.said(process, scene)
        scene.expect(found.facts.get("record") is not None, f"{record} was acknowledged and is not there")


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _wait_gone(pid: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    while pid and _lives(pid) and time.monotonic() < until:
        time.sleep(0.02)


def _shown(scene: Scene) -> JsonObject:
    return {
        "name": scene.name,
        "answers": dict(scene.answers),
        "wrong": list(scene.wrong),
        "seconds": round(scene.seconds, 1),
    }
