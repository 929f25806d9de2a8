"""What happens to the owner while everybody works: it is injured, killed, suspended, and its stores are damaged."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from stress import aftermath
from stress.damages import NotHere
from stress.doors import Door, McpDoor, ShellDoor
from stress.injuries import plan
from stress.ledger import Caller, Ledger, Life, Ordeal, Struck
from stress.ordeals import DEAF, ORDEALS, ordeals, somebody
from stress.outsiders import Outsider
from stress.owner import Owner

KILL_EVERY: Final = 6
"""One injury in so many is a SIGKILL of the whole owner; the one after it stops the process for a while."""
ORDEAL_AT: Final = 4
"""Of as many, the one that is a damage to the files of a store."""
WATCH_SECONDS: Final = 0.1


class Surgeon:
    """Injures the owner at a pace that it must sustain, and starts it again after it was killed."""

    def __init__(
        self,
        owner: Owner,
        ledger: Ledger,
        *,
        seed: int,
        spacing: float,
        names: Sequence[str],
        patients: Mapping[Caller, Path],
        doors: Sequence[Door],
        outsiders: Sequence[Outsider],
    ) -> None:
        """``patients``: an owner-private caller of each store, and where it lies. ``doors`` and ``outsiders`` are
        everybody's who could come in between."""
        self.outages: list[tuple[float, float]] = []
        """When the owner was killed, suspended or ended on purpose, and when it was back."""
        self.ended: list[str] = []
        """When it ended by itself."""
        self.skipped: dict[str, str] = {}
        """Damages that this machine could not do, and why."""
        self._owner = owner
        self._ledger = ledger
        self._seed = seed
        self._spacing = spacing
        self._names = names
        self._patients = itertools.cycle(patients.items())
        self._doors = doors
        self._outsiders = outsiders
        self._chance = random.Random(f"patients/{seed}")
        self.out_since: float | None = None
        """Since when the owner is killed, suspended or damaged, which is noted when it is over. Any thread may look."""

    def run(self, stop: threading.Event, quiet: float) -> None:
        """Until told to stop; nothing is injured any more from the moment ``quiet`` on."""
        chance = random.Random(f"surgery/{self._seed}")
        injuries = plan(self._seed)
        damages = ordeals(self._seed, self._names)
        turns = itertools.count(1)
        due = time.monotonic() + self._spacing
        while not stop.wait(WATCH_SECONDS):
            self._collect()
            if self._owner.pid and self._owner.usage() is None:
                self.ended.append(f"ended after {len(self._ledger.struck)} injuries")
                self.out_since = time.monotonic()
                self._restart("ended")
                self.out_since = None
            if not self._spacing or time.monotonic() < due:
                continue
            if time.monotonic() >= quiet:
                self._owner.order({"do": "disarm"})
                if DEAF in self._names:
                    self._endure(DEAF)
                quiet = due = float("inf")
                continue
            self._owner.order({"do": "disarm"})
            turn = next(turns)
            self.out_since = time.monotonic()
            if turn % KILL_EVERY == 0:
                self._restart("SIGKILL")
            elif turn % KILL_EVERY == 1 and turn > 1:
                began = time.monotonic()
                with self._owner.suspended():
                    time.sleep(chance.uniform(0.3, 1.5))
                self.outages.append((began, time.monotonic()))
                self._ledger.add(Struck("SIGSTOP", "owner", began))
            elif turn % KILL_EVERY == ORDEAL_AT and self._names:
                self._endure(next(damages))
            else:
                self._owner.arm(next(injuries))
            self.out_since = None
            due = time.monotonic() + self._spacing * chance.uniform(0.7, 1.3)
        self._owner.order({"do": "disarm"})
        self._collect()

    def _endure(self, name: str) -> None:
        """One damage to one store, put right after a while, with everybody at work."""
        trial = ORDEALS[name]
        caller, folder = next(self._patients)
        store = None if trial.everybody else caller.store
        self._collect()
        with contextlib.ExitStack() as others:
            for outsider in self._outsiders:
                if trial.alone and outsider.store is not None and store in (None, outsider.store):
                    others.enter_context(outsider.busy)
            began = time.monotonic()
            try:
                patient = somebody(self._owner, caller, folder, self._chance.choice)
                found = aftermath.record_at(patient.path) if trial.record else None
                treatment = trial.treat(patient)
                with self.out():
                    treatment.__enter__()
            except (NotHere, FileNotFoundError) as reason:
                self.skipped[name] = str(reason)
                return
            try:
                time.sleep(trial.seconds)
                if self._owner.usage() is None:
                    self.ended.append(f"ended during {name}")
            finally:
                with self.out():
                    treatment.__exit__(None, None, None)
        ended = time.monotonic()
        self._ledger.add(Ordeal(name, store, began, ended + trial.unheard, bool(trial.unheard), found))
        if trial.no_way_in:
            self.outages.append((began, ended))

    @contextlib.contextmanager
    def out(self) -> Iterator[None]:
        """No client starts an owner meanwhile; when ours was started again, it was out for so long."""
        starters = [door for door in self._doors if isinstance(door, McpDoor | ShellDoor)]
        began, starts = time.monotonic(), self._owner.starts
        for door in starters:
            door.hold(True)
        try:
            yield
        finally:
            for door in starters:
                door.hold(False)
            if self._owner.starts != starts:
                self.outages.append((began, time.monotonic()))

    def _restart(self, why: str) -> None:
        self._collect()
        with self.out():
            self._ledger.add(Struck(why, "owner", time.monotonic()))
            self._owner.kill()
            self._owner.start()

    def _collect(self) -> None:
        fired, lives = self._owner.fired()
        for struck in fired:
            at, pid = struck["at"], struck["pid"]
            assert isinstance(at, float)
            assert isinstance(pid, int)
            self._ledger.add(Struck(str(struck["kind"]), f"{struck['actor']}: {struck['place']}", at, pid))
        for life in lives:
            match life:
                case {"what": "started" | "ended" as what, "actor": str(actor), "incarnation": int(incarnation),
                      "at": float(at), "pid": int(pid)}:  # fmt: skip
                    self._ledger.add(Life(what, actor, incarnation, at, pid))
