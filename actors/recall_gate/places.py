"""Places for turns that run at once: a bound that also counts the threads that a provider does not give back."""

from __future__ import annotations

import threading
import weakref
from typing import Final

TURNS_MAX: Final = 64
"""Turns at once, each with a thread of its own, answered ones whose provider has not returned among them."""


class Places:
    """A bounded number of places. Any thread; shared by the incarnations of the gate."""

    def __init__(self, most: int = TURNS_MAX) -> None:
        self._lock = threading.Lock()
        self._free = most

    def take(self) -> Place | None:
        """A place, or ``None`` when none is free."""
        with self._lock:
            if self._free == 0:
                return None
            self._free -= 1
        return Place(self)

    @property
    def free(self) -> int:
        return self._free

    def _give_back(self) -> None:
        with self._lock:
            self._free += 1


class Place:
    """One place, given back once: when it is released, or when nobody holds it any more: a turn may never start."""

    __slots__ = ("__weakref__", "_release")

    def __init__(self, places: Places) -> None:
        self._release = weakref.finalize(self, places._give_back)  # the place is a part of its places
        self._release.atexit = False

    def release(self) -> None:
        """Idempotent."""
        self._release()
