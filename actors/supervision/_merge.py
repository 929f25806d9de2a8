"""Merged events: a bounded set of names that never loses anything, because too many become one flag.

Source: DESIGN.md rule 10.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MergedEvents:
    """What happened since the last take: these paths, or (``rescan``) anything at all."""

    paths: frozenset[str]
    rescan: bool = False


class EventMerger:
    """Collects paths, each once; beyond ``limit`` of them everything becomes one rescan. Any thread.

    ``notify`` runs once for each time that it goes from empty to not empty, outside the lock: a taker is told once,
    however many events come before it takes.
    """

    def __init__(self, limit: int, notify: Callable[[], None]) -> None:
        self._limit = limit
        self._notify = notify
        self._lock = threading.Lock()
        self._paths: set[str] = set()
        self._rescan = False

    def add(self, paths: Iterable[str]) -> None:
        """These paths changed."""
        self._merge(set(paths), False)

    def overflow(self) -> None:
        """Something was lost: only a rescan can tell."""
        self._merge(set(), True)

    def take(self) -> MergedEvents:
        """Everything since the last take, and begin anew."""
        with self._lock:
            events = MergedEvents(frozenset() if self._rescan else frozenset(self._paths), self._rescan)
            self._paths.clear()
            self._rescan = False
            return events

    def _merge(self, paths: set[str], rescan: bool) -> None:
        with self._lock:
            was_empty = not self._paths and not self._rescan
            if not self._rescan:
                self._paths |= paths
            if rescan or len(self._paths) > self._limit:
                self._rescan = True
                self._paths.clear()
            is_empty = not self._paths and not self._rescan
        if was_empty and not is_empty:
            self._notify()
