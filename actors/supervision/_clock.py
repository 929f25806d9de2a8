"""Time as a parameter: a monotonic clock with timers, and the thread that runs them.

Source: DESIGN.md ("clock, random source and id source are parameters"), rules 2 and 7.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

logger = logging.getLogger(__name__)

SLOW_CALLBACK_SECONDS: Final = 0.1
MOST_THREADS: Final = 4
CANCELLED_KEPT: Final = 64


class Timer(Protocol):
    """One callback that is still to come."""

    def cancel(self) -> None:
        """The callback will not start any more; one that has started is not waited for. Any thread."""


class Clock(Protocol):
    """What tells the time and calls back. Every method may be called from any thread."""

    def monotonic(self) -> float:
        """Seconds that never go backwards; the scale of every deadline."""

    def utc(self) -> datetime:
        """The wall clock, for people to read; it decides nothing."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Run ``callback`` once after ``delay`` seconds (at once if not positive), on the clock's thread.

        The callback must be short and must not block: it shares its thread with every deadline.
        """


class _Entry:
    __slots__ = ("_clock", "callback")

    def __init__(self, clock: SystemClock, callback: Callable[[], object]) -> None:
        self._clock = clock
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._clock._forget()  # the entry is a part of its clock


class SystemClock:
    """Real time, with daemon threads for the timers, the first started by the first timer.

    Another thread takes over while a callback runs, up to :data:`MOST_THREADS`, so that a callback that blocks holds
    up nobody else's deadline; timers that are due together may therefore run side by side. Cancelled timers are
    dropped in bulk once they outnumber the live ones: a timer per request costs amortised O(log n), and memory stays
    in proportion to what is really pending.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.Lock())
        self._heap: list[tuple[float, int, _Entry]] = []
        self._order = itertools.count()
        self._cancelled = 0
        self._threads: list[threading.Thread] = []
        self._waiting = 0
        self._closed = False

    def monotonic(self) -> float:
        return time.monotonic()

    def utc(self) -> datetime:
        return datetime.now(UTC)

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """As :meth:`Clock.call_later`; on a closed clock the timer never fires."""
        entry = _Entry(self, callback)
        with self._condition:
            if self._closed:
                entry.callback = None
                return entry
            at = time.monotonic() + max(0.0, delay)
            heapq.heappush(self._heap, (at, next(self._order), entry))
            if not self._threads:
                self._add_thread()
            elif self._heap[0][2] is entry:
                self._condition.notify()
        return entry

    def close(self, timeout: float = 1.0) -> bool:
        """No timer fires after this; true once the clock's threads have ended."""
        with self._condition:
            self._closed = True
            self._heap.clear()
            self._condition.notify_all()
            threads = [thread for thread in self._threads if thread is not threading.current_thread()]
        end = time.monotonic() + timeout
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    @property
    def pending(self) -> int:
        """Entries held, cancelled ones included: what the memory bound is about."""
        with self._condition:
            return len(self._heap)

    def _forget(self) -> None:
        # Without the lock, which every request of every store would take once more when it is answered: a count that
        # is lost to another thread only delays the clean-up.
        self._cancelled += 1
        if not self._has_many_cancelled():
            return
        with self._condition:
            if self._has_many_cancelled():
                self._heap = [item for item in self._heap if item[2].callback is not None]
                heapq.heapify(self._heap)
                self._cancelled = 0

    def _has_many_cancelled(self) -> bool:
        return self._cancelled > CANCELLED_KEPT and self._cancelled * 2 > len(self._heap)

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._run, name="supervision-clock", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _run(self) -> None:
        while (callback := self._next()) is not None:
            started = time.monotonic()
            try:
                callback()
            except BaseException as error:  # noqa: BLE001 - one bad callback must not end every deadline
                logger.error("timer callback failed", extra={"error_type": type(error).__name__})
            if (took := time.monotonic() - started) > SLOW_CALLBACK_SECONDS:
                logger.warning("timer callback was slow", extra={"seconds": round(took, 3)})

    def _next(self) -> Callable[[], object] | None:
        with self._condition:
            self._waiting += 1
            try:
                callback = self._wait_for_due()
            finally:
                self._waiting -= 1
            if callback is not None and not self._closed:
                if self._waiting:
                    self._condition.notify()
                elif len(self._threads) < MOST_THREADS:
                    try:
                        self._add_thread()
                    except RuntimeError:
                        logger.warning("no further clock thread can be started")
            return callback

    def _wait_for_due(self) -> Callable[[], object] | None:
        while not self._closed:
            if not self._heap:
                self._condition.wait()
                continue
            at, _, entry = self._heap[0]
            if entry.callback is None:
                heapq.heappop(self._heap)
                self._cancelled = max(0, self._cancelled - 1)
                continue
            remaining = at - time.monotonic()
            if remaining > 0:
                self._condition.wait(min(remaining, threading.TIMEOUT_MAX))
                continue
            heapq.heappop(self._heap)
            callback, entry.callback = entry.callback, None
            return callback
        return None
