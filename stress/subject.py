"""The owner under test: ``python -m stress.subject STATE_DIR DESCRIPTOR [MUTANT]``.

It is ``knowledge serve`` with a fault handler installed, told over a socket what to do next, one JSON line each way:
``{"do": "arm", "injury": {...}}``, ``{"do": "fired"}``, ``{"do": "disarm"}``, ``{"do": "ping"}``. A mutant breaks one
promise of the runtime on purpose (:mod:`stress.mutants`).
"""

from __future__ import annotations

import functools
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from actors import runtime
from actors.supervision import Environment
from host_bridge.owner.process import run_foreground
from messages.json_types import JsonObject
from storage import faults
from stress.injuries import Injury

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
                self._fired.append({"kind": injury.kind, "actor": actor, "place": place, "at": time.monotonic()})
                return injury
        return None


def main(arguments: Sequence[str]) -> int:
    """Own the directory until told to end, or until the harness is gone."""
    state_dir, descriptor = arguments[0], int(arguments[1])
    injector = Injector()
    if len(arguments) > 2:
        from stress import mutants  # a run without one needs nothing of it

        mutants.apply(arguments[2])
    # A partial in the place of a class: no type checker likes the plain assignment, and it is meant here alone.
    setattr(runtime, "Environment", functools.partial(Environment, observe=injector.at_message))  # noqa: B010
    threading.Thread(target=_obey, args=(descriptor, injector), name="control", daemon=True).start()
    with faults.installed(injector.at_point):
        return run_foreground(state_dir)


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
                    answer = {"fired": list(injector.fired())}
            lines.write(json.dumps(answer) + "\n")
            lines.flush()
    # Whoever started us is gone: nothing is left behind, whatever state we are in.
    os._exit(EXIT_PARENT_GONE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
