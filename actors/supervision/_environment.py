"""What all actors of one tree share: time, chance, the launcher, slots by name, dead letters, who asks whom.

Source: DESIGN.md ("The tree", "Races are tested without sleeping"), rule 9.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from actors.supervision._clock import Clock, SystemClock
from actors.supervision._dead_letters import DeadLetters
from actors.supervision._slot import Slot

if TYPE_CHECKING:
    from actors.supervision._actor import GuardedActor


def launch_thread(actor: GuardedActor) -> None:
    """Run the actor's life on a daemon thread of its own: one stuck in C must not keep the process alive."""
    threading.Thread(target=actor.run, name=actor.context.name, daemon=True).start()


class Environment:
    """The surroundings of one tree. Tests replace ``clock``, ``random``, ``launch`` and ``drive``; nothing is global.

    ``drive`` runs a virtual scheduler until a condition holds; where it is set, replies and waits never block.
    ``observe`` sees each message as it is picked up: actor, incarnation, the message's type name.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        random_source: random.Random | None = None,
        launch: Callable[[GuardedActor], None] = launch_thread,
        drive: Callable[[Callable[[], bool]], None] | None = None,
        observe: Callable[[str, int, str], None] | None = None,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        own_clock = SystemClock()
        self._own_clock = own_clock if clock is None else None
        self.clock: Clock = own_clock if clock is None else clock
        self.random = random_source or random.Random()
        self.launch = launch
        self.drive = drive
        self.observe = observe
        self.dead_letters = dead_letters or DeadLetters()
        self._lock = threading.Lock()
        self._slots: dict[str, Slot] = {}
        self._asks: dict[str, set[str]] = {}

    def slot(self, name: str) -> Slot:
        """The slot of the actor called ``name`` (a path), made with its ancestors when it is new."""
        with self._lock:
            return self._slot(name)

    def forget(self, name: str) -> None:
        """Drop the slot of an actor that never comes back under its name; handles on it keep refusing."""
        with self._lock:
            slot = self._slots.pop(name, None)
            if slot is not None and slot.parent is not None:
                slot.parent.children.pop(name, None)
            self._asks.pop(name, None)
            for asked in self._asks.values():
                asked.discard(name)

    def slots(self) -> tuple[Slot, ...]:
        """All slots, parents before children, in the order of their making."""
        with self._lock:
            return tuple(self._slots.values())

    def declare_ask(self, asker: str, asked: str) -> None:
        """``asker`` may ask ``asked`` from now on; raises ``ValueError`` if that closes a cycle of askers."""
        with self._lock:
            seen, open_ends = {asked}, [asked]
            while open_ends:
                for further in self._asks.get(open_ends.pop(), ()):
                    if further not in seen:
                        seen.add(further)
                        open_ends.append(further)
            if asker in seen:
                raise ValueError(f"{asker} asking {asked} would close a cycle of actors that wait for each other")
            self._asks.setdefault(asker, set()).add(asked)

    def asks(self) -> frozenset[tuple[str, str]]:
        """Every declared pair (asker, asked)."""
        with self._lock:
            return frozenset((asker, asked) for asker, all_asked in self._asks.items() for asked in all_asked)

    def close(self) -> None:
        """Stop the timers of a clock that was made here."""
        if self._own_clock is not None:
            self._own_clock.close()

    def _slot(self, name: str) -> Slot:
        found = self._slots.get(name)
        if found is None:
            head, separator, _ = name.rpartition("/")
            parent = self._slot(head) if separator else None
            found = self._slots[name] = Slot(self, name, parent)
            if parent is not None:
                parent.children[name] = found
        return found
