"""A reply: exactly one terminal answer, whoever gives it first.

Source: DESIGN.md rules 2, 7 and 11.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Generic, TypeVar

from messages.errors import DeadlineExceeded, InternalError, KnowledgeError

logger = logging.getLogger(__name__)

R = TypeVar("R")

SELF_EXPIRY_GRACE_SECONDS: Final = 0.2
"""A waiting caller ends its own wait this long after the deadline, should the clock's thread be held up."""


class Phase(Enum):
    """How far a request came; it decides whether a repeat is ``safe`` or ``unknown``."""

    QUEUED = auto()
    RUNNING = auto()
    ANSWERED = auto()


class _Pending(Enum):
    PENDING = auto()


class Reply(Generic[R]):
    """Exactly one terminal answer: a value or a typed error, given once, from any thread.

    The first of :meth:`succeed`, :meth:`fail` and the deadline wins; every later attempt returns ``False`` and
    changes nothing. Not awaitable on purpose: waiting for it inside an event loop would block the loop; see
    :func:`actors.supervision.as_asyncio_future`.
    """

    __slots__ = (
        "_callbacks",
        "_claimed",
        "_condition",
        "_deadline",
        "_drive",
        "_error",
        "_lock",
        "_phase",
        "_settle",
        "_value",
        "incarnation",
    )

    def __init__(
        self,
        *,
        deadline: float | None = None,
        drive: Callable[[Callable[[], bool]], None] | None = None,
    ) -> None:
        """``deadline`` is on the real monotonic clock. ``drive`` runs a virtual scheduler instead of waiting."""
        self._lock = threading.Lock()
        self._condition: threading.Condition | None = None
        self._phase = Phase.QUEUED
        self._claimed = False
        self._value: R | _Pending = _Pending.PENDING
        self._error: KnowledgeError | None = None
        self._callbacks: list[Callable[[Reply[R]], object]] = []
        self._settle: Callable[[Phase], None] | None = None
        self._deadline = deadline
        self._drive = drive
        self.incarnation: int = 0
        """The incarnation that picked the request up; 0 while none has."""

    def succeed(self, value: R) -> bool:
        """Answer with ``value``; false if there is an answer already."""
        return self._complete(value, None)

    def fail(self, error: KnowledgeError) -> bool:
        """Answer with ``error``; false if there is an answer already."""
        return self._complete(_Pending.PENDING, error)

    def fail_by_phase(self, make: Callable[[Phase], KnowledgeError]) -> bool:
        """Answer with the error made for the phase the request is in at that very moment."""
        with self._lock:
            if self._claimed:
                return False
            self._claimed = True
            phase = self._phase
        try:
            error = make(phase)
        except BaseException as defect:  # noqa: BLE001 - claimed means nobody else can answer any more
            error = InternalError(f"The refusal of a request could not be made: {type(defect).__name__}.")
        self._publish(phase, _Pending.PENDING, error)
        return True

    def begin(self, incarnation: int) -> bool:
        """Queued becomes running; false if it was answered meanwhile and must not run any more."""
        with self._lock:
            if self._claimed or self._phase is not Phase.QUEUED:
                return False
            self._phase = Phase.RUNNING
            self.incarnation = incarnation
            return True

    def done(self) -> bool:
        """Whether the answer is there."""
        return self._phase is Phase.ANSWERED

    def error(self) -> KnowledgeError | None:
        """The typed error of an answered request, ``None`` for a success or while unanswered."""
        return self._error

    def result(self, timeout: float | None = None) -> R:
        """The value, or the typed error raised; never waits past the deadline by more than a grace of 0.2 s.

        Raises ``DeadlineExceeded`` (``unknown``) when ``timeout`` seconds pass first; the reply itself stays open.
        """
        if not self._wait(timeout):
            raise DeadlineExceeded(
                f"No answer within the {timeout} s that this caller waited; the request may still run.", retry="unknown"
            )
        if self._error is not None:
            raise self._error
        assert not isinstance(self._value, _Pending)
        return self._value

    def add_done_callback(self, callback: Callable[[Reply[R]], object]) -> None:
        """Run ``callback(self)`` once the answer is there: at once if it is, else on the answering thread.

        The callback must not block: it may run in an actor's lane or on the clock's thread. What it raises is logged.
        """
        with self._lock:
            if self._phase is not Phase.ANSWERED:
                self._callbacks.append(callback)
                return
        self._call(callback)

    def on_settle(self, settle: Callable[[Phase], None]) -> bool:
        """Install the mailbox's release, run before anybody sees the answer; false if it is answered already."""
        with self._lock:
            if self._claimed:
                return False
            self._settle = settle
            return True

    def _complete(self, value: R | _Pending, error: KnowledgeError | None) -> bool:
        with self._lock:
            if self._claimed:
                return False
            self._claimed = True
            phase = self._phase
        self._publish(phase, value, error)
        return True

    def _publish(self, phase: Phase, value: R | _Pending, error: KnowledgeError | None) -> None:
        # The place in the mailbox is free before the caller wakes: its next request must not meet its last one.
        # It is let go as well: mailbox, envelope and reply would form a cycle per request.
        settle, self._settle = self._settle, None
        if settle is not None:
            settle(phase)
        with self._lock:
            self._value, self._error = value, error
            self._phase = Phase.ANSWERED
            callbacks, self._callbacks = self._callbacks, []
            if self._condition is not None:
                self._condition.notify_all()
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback: Callable[[Reply[R]], object]) -> None:
        try:
            callback(self)
        except BaseException as error:  # noqa: BLE001 - a caller's callback must not end the lane that answers it
            logger.error("reply callback failed", extra={"error_type": type(error).__name__})

    def _wait(self, timeout: float | None) -> bool:
        if self.done():
            return True
        if self._drive is not None:
            self._drive(self.done)
            return self.done()
        limit = None if timeout is None else time.monotonic() + timeout
        while True:
            own_end = None if self._deadline is None else self._deadline + SELF_EXPIRY_GRACE_SECONDS
            ends = [at for at in (limit, own_end) if at is not None]
            with self._lock:
                if self._condition is None:
                    self._condition = threading.Condition(self._lock)
                while not self.done():
                    remaining = min(ends) - time.monotonic() if ends else threading.TIMEOUT_MAX
                    if remaining <= 0:
                        break
                    self._condition.wait(min(remaining, threading.TIMEOUT_MAX))
                else:
                    return True
            if limit is not None and time.monotonic() >= limit:
                return self.done()
            self._deadline = None
            self.fail_by_phase(deadline_error)


def deadline_error(phase: Phase) -> KnowledgeError:
    """The plain deadline answer: ``safe`` while queued, ``unknown`` once running."""
    if phase is Phase.QUEUED:
        return DeadlineExceeded("The deadline passed while the request waited; it did not run. Send it again.")
    return DeadlineExceeded(
        "The deadline passed while the request ran; it may have taken effect. Repeat it with the same request id.",
        retry="unknown",
    )
