"""Places for turns that run at once: a bound that also counts the threads that a provider does not give back."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from typing import Final

TURNS_MAX: Final = 128
"""Turns at once, each with a thread of its own, answered ones whose provider has not returned among them."""
TURNS_OF_ONE_STORE_MAX: Final = 64
"""Of one store: whose provider hangs leaves half of the places to others."""


class Places:
    """A bounded number of places. Any thread; shared by the incarnations of the gate."""

    def __init__(self, most: int = TURNS_MAX, of_one: int = TURNS_OF_ONE_STORE_MAX) -> None:
        self._lock = threading.Lock()
        self._free = most
        self._of_one = of_one
        self._taken: Counter[str] = Counter()

    def take(self, whose: str) -> Place | None:
        """A place, or ``None`` when none is free or ``whose`` has all that one may have."""
        with self._lock:
            if self._free == 0 or self._taken[whose] >= self._of_one:
                return None
            self._free -= 1
            self._taken[whose] += 1
        return Place(self, whose)

    @property
    def free(self) -> int:
        return self._free

    def _give_back(self, whose: str) -> None:
        with self._lock:
            self._free += 1
            self._taken[whose] -= 1
            if not self._taken[whose]:
                del self._taken[whose]


class Place:
    """One place, given back once: when it is released, or when nobody holds it any more: a turn may never start."""

    __slots__ = ("__weakref__", "_release")

    def __init__(self, places: Places, whose: str) -> None:
        self._release = weakref.finalize(self, places._give_back, whose)  # the place is a part of its places
        self._release.atexit = False

    def release(self) -> None:
        """Idempotent."""
        self._release()
