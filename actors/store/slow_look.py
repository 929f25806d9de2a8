"""What keeps the watch honest beside the requests: a slow look at every file, and a test that the watch still hears.

Plain state of the lane, no thread of its own. A write through a shared memory mapping sends no event while the file
stays open, so the bytes of every known file are compared with the catalogue's, a slice at a time. The auditor reads
them on its own thread; the lane spends one bounded statement on a slice.

Guarantees, while a store is used: a file that changed without an event is found within one round; a watch that has
gone deaf is found at the latest one test and one tick after the first request that it could have misled. A store that
is not used finishes its round and then costs nothing.

Source: PERFORMANCE.md (Freshness), stores-and-access.md (Runtime), DESIGN.md (The tree).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from actors.store.messages import LookAtFiles
from messages.vocabulary import Partition
from storage.session import StoreSession
from storage.state.upkeep import files_after

FILES_PER_SLICE: Final = 64
BYTES_PER_SLICE: Final = 8 * 1024 * 1024
LEAST_PAUSE_SECONDS: Final = 0.02


class SlowLook:
    """Rounds over the files of every open partition, one slice after a pause, so that a round takes ``round_seconds``.

    Not thread-safe: the lane's.
    """

    def __init__(self, round_seconds: float) -> None:
        """No round is made where ``round_seconds`` is 0."""
        self._round_seconds = round_seconds
        self._underway = False
        self._used = False
        self._left: list[Partition] = []
        self._after = ""

    def used(self, session: StoreSession) -> float | None:
        """A request came; when a round begins with it, the seconds to its first slice."""
        self._used = True
        if self._underway or not self._round_seconds:
            return None
        return self._begin(session)

    def slice(self, session: StoreSession) -> LookAtFiles | None:
        """What to look at now; ``None`` where the rest of the round holds no file."""
        opened = {partition.partition: partition for partition in session.opened()}
        while self._left:
            partition = opened.get(self._left[0])
            if partition is None:  # closed meanwhile
                self._go_on(None)
                continue
            if not self._after:
                partition.reload_ontology()
            found = files_after(partition.catalogue, self._after, limit=FILES_PER_SLICE, most_bytes=BYTES_PER_SLICE)
            self._go_on(found.next)
            if found.files:
                return LookAtFiles(partition.partition, found.files)
        return None

    def pause(self, session: StoreSession) -> float | None:
        """The seconds to the next slice; ``None`` when the round is over and nobody has used the store since."""
        if self._left:
            return self._pace(session)
        self._underway = False
        return self._begin(session) if self._used else None

    def _go_on(self, after: str | None) -> None:
        """Behind a path, or with the next partition."""
        self._after = after or ""
        if after is None:
            del self._left[0]

    def _begin(self, session: StoreSession) -> float:
        self._underway = True
        self._used = False
        self._after = ""
        self._left = [partition.partition for partition in session.opened()]
        return self._pace(session)

    def _pace(self, session: StoreSession) -> float:
        # Anew for each slice: a round that began in an empty store must not crawl through what came since. Folders are
        # counted along, so a round ends a little early rather than late.
        slices = sum(math.ceil(partition.entries / FILES_PER_SLICE) for partition in session.opened())
        return max(self._round_seconds / max(slices, 1), LEAST_PAUSE_SECONDS)


class WatchTest:
    """When the watch is to be tested again: only after it answered for a request, and not more often than ``every``."""

    def __init__(self, every: float, monotonic: Callable[[], float]) -> None:
        self._every = every
        self._monotonic = monotonic
        self._tested = monotonic()
        self._used = False

    def used(self) -> None:
        """A request was answered on the word of the watch."""
        self._used = True

    def due(self) -> bool:
        """Whether to test now; the answer yes counts as the test."""
        now = self._monotonic()
        if not self._used or now - self._tested < self._every:
            return False
        self._used, self._tested = False, now
        return True
