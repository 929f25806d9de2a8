"""A request on its way: the call as a door hands it in, its deadline and its cancellation."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from messages.audience import Caller
from messages.json_types import JsonObject


@dataclass(frozen=True, slots=True)
class Deadline:
    """An absolute point on the monotonic clock, in seconds. Wall clocks never decide a deadline."""

    at: float

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        return cls(clock() + seconds)

    def remaining(self, clock: Callable[[], float] = time.monotonic) -> float:
        """Seconds left; negative once it has passed."""
        return self.at - clock()

    def passed(self, clock: Callable[[], float] = time.monotonic) -> bool:
        return clock() >= self.at


class Cancellation:
    """A one-way flag that a caller raises; checked at pick-up and between steps, never after acceptance."""

    __slots__ = ("_callbacks", "_event", "_lock")

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []

    def cancel(self) -> None:
        """Any thread."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` once, in the cancelling thread; at once if the flag is up already. It must not block."""
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return
        callback()

    @property
    def requested(self) -> bool:
        return self._event.is_set()


def new_correlation_id() -> str:
    """Twelve hex characters that tie a door's call to every log line below it."""
    return uuid.uuid4().hex[:12]


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call as a door hands it in: arguments are raw JSON, not yet validated."""

    tool: str
    arguments: JsonObject
    audience: Caller | None
    deadline: Deadline
    cancellation: Cancellation = field(default_factory=Cancellation)
    correlation_id: str = field(default_factory=new_correlation_id)
    flush_id: str | None = None
