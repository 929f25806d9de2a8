"""The owner under test: ``python -m stress.subject STATE_DIR DESCRIPTOR [MUTANT]``.

It is ``knowledge serve`` with a fault handler installed, told over a socket what to do next, one JSON line each way:
``{"do": "arm", "injury": {...}}``, ``{"do": "fired"}``, ``{"do": "disarm"}``, ``{"do": "ping"}``,
``{"do": "deafen", "inode": 17}``. A mutant breaks one promise of the runtime on purpose (:mod:`stress.mutants`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from actors import runtime
from actors.supervision import Environment, GuardedActor
from host_bridge.decisions import DecisionProviders
from host_bridge.owner.process import run_foreground
from messages.json_types import JsonObject
from storage import faults
from stress.injuries import Injury
from stress.ledger import Life
from stress.obliging import Obliging

EXIT_PARENT_GONE: Final = 86


class InjectedDefect(RuntimeError):
    """A defect of nobody's: the actor must die of it, be restarted and lose nothing."""


@dataclass(slots=True)
class _Armed:
    injury: Injury
    skip: int
    times: int


class Injector:
    """Strikes at fault points and at messages. Any thread; costs one look at an empty tuple while nothing is armed."""

    def __init__(self) -> None:
        self._armed: tuple[_Armed, ...] = ()
        self._lock = threading.Lock()
        self._fired: list[JsonObject] = []
        self._lives: list[JsonObject] = []

    def arm(self, injury: Injury) -> None:
        with self._lock:
            self._armed += (_Armed(injury, injury.skip, injury.times),)

    def disarm(self) -> None:
        with self._lock:
            self._armed = ()

    def fired(self) -> list[JsonObject]:
        """What struck since the last time: kind, place, when on the system's monotonic clock."""
        with self._lock:
            found, self._fired = self._fired, []
        return found

    def lives(self) -> list[JsonObject]:
        """Which actors began and ended since the last time, in order."""
        with self._lock:
            found, self._lives = self._lives, []
        return found

    def launch(self, actor: GuardedActor) -> None:
        """Run an actor on a thread of its own, as the runtime does, and note when it begins and ends.

        The end is noted with its last hook: once the parent has heard of it, the next incarnation may begin before this
        thread is over, and the notes would tell of two at once.
        """
        name, incarnation = actor.context.name, actor.context.incarnation
        noted, on_ended = threading.Event(), actor.on_ended

        def note_the_end() -> None:
            if not noted.is_set():
                noted.set()
                self._note("ended", name, incarnation)

        def ended() -> None:
            try:
                on_ended()
            finally:
                note_the_end()

        def live() -> None:
            try:
                actor.run()
            finally:
                note_the_end()

        # A method of this one actor in the place of its class's: no type checker likes it, and it is meant here alone.
        setattr(actor, "on_ended", ended)  # noqa: B010
        self._note("started", name, incarnation)
        threading.Thread(target=live, name=name, daemon=True).start()

    def _note(self, what: str, name: str, incarnation: int) -> None:
        life = Life("started" if what == "started" else "ended", name, incarnation, time.monotonic(), os.getpid())
        with self._lock:
            self._lives.append(asdict(life))

    def at_point(self, point: str) -> None:
        """The fault handler."""
        if self._armed:
            self._strike(threading.current_thread().name, point, at_message=False)

    def at_message(self, actor: str, _incarnation: int, message: str) -> None:
        """The observer of mailboxes."""
        if self._armed:
            self._strike(actor, message, at_message=True)

    def _strike(self, actor: str, place: str, *, at_message: bool) -> None:
        injury = self._next(actor, place, at_message=at_message)
        if injury is None:
            return
        match injury.action:
            case "stall":
                time.sleep(injury.seconds)
            case "errno":
                raise OSError(injury.errno, os.strerror(injury.errno))
            case "crash" | "die":
                raise InjectedDefect(place)

    def _next(self, actor: str, place: str, *, at_message: bool) -> Injury | None:
        with self._lock:
            for armed in self._armed:
                injury = armed.injury
                if (injury.action == "die") is not at_message:
                    continue
                if not actor.endswith(f"/{injury.actor}") or not place.startswith(injury.point):
                    continue
                if armed.skip > 0:
                    armed.skip -= 1
                    continue
                armed.times -= 1
                if armed.times <= 0:
                    self._armed = tuple(other for other in self._armed if other is not armed)
                struck: JsonObject = {"kind": injury.kind, "actor": actor, "place": place, "at": time.monotonic()}
                self._fired.append({**struck, "pid": os.getpid()})
                return injury
        return None


def main(arguments: Sequence[str]) -> int:
    """Own the directory until told to end, or until the harness is gone."""
    state_dir, descriptor = arguments[0], int(arguments[1])
    injector = Injector()
    if len(arguments) > 2:
        from stress import mutants  # a run without one needs nothing of it

        mutants.apply(arguments[2])
    surroundings = functools.partial(Environment, observe=injector.at_message, launch=injector.launch)
    # A partial in the place of a class: no type checker likes the plain assignment, and it is meant here alone.
    setattr(runtime, "Environment", surroundings)  # noqa: B010
    model = Obliging()
    # Nor is there a model to ask: the gate is given one that answers.
    setattr(DecisionProviders, "for_agent", lambda _self, _agent: model)  # noqa: B010
    threading.Thread(target=_obey, args=(descriptor, injector), name="control", daemon=True).start()
    with faults.installed(injector.at_point):
        return run_foreground(state_dir)


def deafen(inode: int) -> int:
    """Take every watch off the inotify instance of this process that watches a folder, and the notice of it too; how
    many. The runtime is not told: it goes on and hears nothing."""
    system = ctypes.CDLL(None, use_errno=True)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") != "anon_inode:inotify":
                continue
            lines = Path(f"/proc/self/fdinfo/{name}").read_text().splitlines()
            watches = [dict(part.split(":", 1) for part in line.split()[1:]) for line in lines if "wd:" in line]
            if all(int(watch["ino"], 16) != inode for watch in watches):
                continue
            for watch in watches:
                system.inotify_rm_watch(int(name), int(watch["wd"], 16))
            with contextlib.suppress(BlockingIOError):
                while os.read(int(name), 1 << 16):
                    pass
            return len(watches)
    return 0


def _obey(descriptor: int, injector: Injector) -> None:
    with socket.socket(fileno=descriptor) as control, control.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            order = json.loads(line)
            answer: JsonObject = {}
            match order["do"]:
                case "arm":
                    injector.arm(Injury(**order["injury"]))
                case "disarm":
                    injector.disarm()
                case "fired":
                    answer = {"fired": list(injector.fired()), "lives": list(injector.lives())}
                case "deafen":
                    answer = {"watches": deafen(int(order["inode"]))}
            lines.write(json.dumps(answer) + "\n")
            lines.flush()
    # Whoever started us is gone: nothing is left behind, whatever state we are in.
    os._exit(EXIT_PARENT_GONE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
