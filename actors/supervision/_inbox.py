"""A mailbox that is bounded, fair and closable.

Source: DESIGN.md rules 1, 2, 6, 8 and 10.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from pykka._envelope import Envelope as PykkaEnvelope

from actors.supervision._messages import Control, Drain, DrainExpired, Envelope, Finish, ForeignStop, Idle
from actors.supervision._reply import Phase
from actors.supervision._settings import InboxLimits
from messages.errors import Busy, KnowledgeError, LimitExceeded

Refusal: TypeAlias = Callable[[Phase], KnowledgeError]
"""Makes the answer of a request that will not be served, for the phase it had reached."""

_ENDINGS: Final = (Drain, DrainExpired, Finish, ForeignStop)
_Line: TypeAlias = tuple[Literal["tell", "passing", "ordinary"], str]


class Inbox:
    """The mailbox of one incarnation: after :meth:`close` nothing can be put in and nothing in it stays unanswered.

    Control messages go ahead of data. Data is served in turn, one message of each fairness key after another; all
    tells together are one more line in that turn. A request counts against the limits from its admission until its
    answer, so that parked requests are bounded as queued ones are. Any thread may put; one thread takes.
    """

    def __init__(self, name: str, limits: InboxLimits, foreign: Callable[[Inbox, PykkaEnvelope[object]], None]) -> None:
        """``foreign`` gets every envelope that plain pykka code puts in, outside the mailbox's lock."""
        self.name = name
        self._limits = limits
        self._foreign = foreign
        self._condition = threading.Condition(threading.Lock())
        self._control: deque[Control] = deque()
        self._lines: dict[_Line, deque[Envelope]] = {}
        self._turns: deque[_Line] = deque()
        self._unanswered: dict[int, Envelope] = {}
        self._by_audience: Counter[str] = Counter()
        self._bytes = 0
        self._tells = 0
        self._coalesced: dict[object, Envelope] = {}
        self._burst = 0
        self._held = False
        self._refusal: Refusal | None = None
        self._shut = False
        self._closed = False
        self._idle_due = False
        self._waker: Callable[[], None] | None = None

    # --- pykka's inbox protocol -------------------------------------------------------------------------------

    def put(self, envelope: PykkaEnvelope[object], /) -> None:
        """The gate for plain pykka code: nothing from there becomes data."""
        self._foreign(self, envelope)

    def get(self) -> PykkaEnvelope[object]:
        """Not a way in: the guarded actor takes through :meth:`wait` and :meth:`take`."""
        raise NotImplementedError("a guarded actor's mailbox is read through wait() and take()")

    def empty(self) -> bool:
        """Whether :meth:`take` would return nothing."""
        return not self.ready()

    # --- putting in: any thread -------------------------------------------------------------------------------

    def admit(self, envelope: Envelope) -> KnowledgeError | None:
        """Queue a request, or the typed reason why not; then its reply is the caller's to answer."""
        reply = envelope.reply
        assert reply is not None
        limits = self._limits
        with self._condition:
            if self._refusal is not None:
                return self._refusal(Phase.QUEUED)
            if envelope.size > limits.bytes:
                return LimitExceeded(
                    f"{self.name} takes at most {limits.bytes} bytes, the request has {envelope.size}. Split it.",
                    limit=limits.bytes,
                )
            scope = (
                "requests"
                if len(self._unanswered) >= limits.requests
                else "bytes"
                if self._bytes + envelope.size > limits.bytes
                else "audience"
                if self._by_audience[envelope.fairness_key] >= limits.per_audience
                else ""
            )
            if scope:
                return Busy(f"{self.name} has a full mailbox ({scope}); the request did not run. Try again later.",
                            scope=scope)  # fmt: skip
            if not reply.on_settle(lambda phase: self._release(envelope, phase)):
                return None
            self._unanswered[id(envelope)] = envelope
            self._by_audience[envelope.fairness_key] += 1
            self._bytes += envelope.size
            self._queue(("passing" if envelope.passes_hold else "ordinary", envelope.fairness_key), envelope)
        return None

    def tell(self, envelope: Envelope) -> Literal["queued", "merged", "full", "closed"]:
        """Queue a one-way message; one with the same ``coalesce`` that still waits is replaced where it stands."""
        with self._condition:
            if self._shut:
                return "closed"
            key = envelope.coalesce
            if key is not None and (waiting := self._coalesced.get(key)) is not None:
                line = self._lines["tell", ""]
                line[line.index(waiting)] = envelope
                self._coalesced[key] = envelope
                return "merged"
            if self._tells >= self._limits.tells:
                return "full"
            self._tells += 1
            if key is not None:
                self._coalesced[key] = envelope
            self._queue(("tell", ""), envelope)
            return "queued"

    def control(self, message: Control) -> bool:
        """Queue a control message; false once the mailbox is closed."""
        with self._condition:
            if self._closed:
                return False
            self._control.append(message)
            self._signal()
            return True

    # --- gates ------------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Leave ordinary requests waiting (control, tells and passing requests go on): the actor is opening."""
        with self._condition:
            self._held = True

    def resume(self) -> None:
        """Serve ordinary requests again."""
        with self._condition:
            self._held = False
            self._signal()

    @property
    def held(self) -> bool:
        return self._held

    def refuse(self, refusal: Refusal) -> None:
        """Refuse new requests from now on; admitted ones, tells and control go on. :class:`Idle` comes at the end."""
        with self._condition:
            if self._refusal is None:
                self._refusal = refusal
            self._idle_due = True
            self._held = False
            self._signal()

    def fail_unanswered(self, refusal: Refusal) -> None:
        """Answer everything admitted and unanswered, queued or parked, as new requests are refused already."""
        with self._condition:
            left = list(self._unanswered.values())
            given = self._refusal
        _fail(left, given or refusal)

    def fail_due_before(self, at: float, refusal: Refusal) -> None:
        """Answer every unanswered request whose deadline comes before ``at``."""
        with self._condition:
            left = [envelope for envelope in self._unanswered.values() if envelope.deadline.at < at]
        _fail(left, refusal)

    @property
    def refusal(self) -> Refusal | None:
        """How new requests are refused; ``None`` while they are admitted."""
        return self._refusal

    def shut(self, refusal: Refusal) -> None:
        """As :meth:`close` for requests and tells; control still reaches the actor, so that it can end."""
        self._empty(refusal)

    def close(self, refusal: Refusal) -> tuple[tuple[Envelope, ...], tuple[Control, ...]]:
        """Nothing gets in any more, and everything admitted is answered with ``refusal``.

        The mailbox is closed and emptied under the lock that :meth:`admit` takes, so no request can slip in between;
        the answers are given outside of it, since they run callbacks. Returns the tells and control messages left.
        """
        with self._condition:
            self._closed = True
            control = tuple(self._control)
            self._control.clear()
        return self._empty(refusal), control

    def _empty(self, refusal: Refusal) -> tuple[Envelope, ...]:
        with self._condition:
            self._shut = True
            self._refusal = refusal
            left = list(self._unanswered.values())
            tells = tuple(self._lines.get(("tell", ""), ()))
            self._lines.clear()
            self._turns.clear()
            self._coalesced.clear()
            self._tells = 0
            self._signal()
        _fail(left, refusal)
        return tells

    @property
    def accepting(self) -> bool:
        """Whether new requests are admitted (as far as there is room)."""
        return self._refusal is None

    @property
    def closed(self) -> bool:
        return self._closed

    def leaving(self) -> bool:
        """Whether the actor was told to end, and has only not come to it: long work in hand is given up."""
        with self._condition:
            return self._closed or any(isinstance(message, _ENDINGS) for message in self._control)

    # --- taking out: the actor's thread -----------------------------------------------------------------------

    def wait(self) -> None:
        """Block until :meth:`take` has something to give or the mailbox is closed."""
        with self._condition:
            while not self._deliverable() and not self._closed:
                self._condition.wait()

    def wake_by(self, waker: Callable[[], None] | None) -> None:
        """Call ``waker`` as well, under the mailbox's lock, whenever a wait might end: for an actor that waits for
        something of the operating system beside its mailbox. It must not block; ``None`` ends it.
        """
        with self._condition:
            self._waker = waker

    def ready(self) -> bool:
        """Whether :meth:`take` would give something now."""
        with self._condition:
            return self._deliverable()

    def take(self) -> Envelope | Control | None:
        """The next message in the order of the class's promise, or ``None``. Requests are not yet running."""
        with self._condition:
            line = self._next_line()
            if self._control and (line is None or self._burst < self._limits.control_burst):
                self._burst += 1
                return self._control.popleft()
            self._burst = 0
            if line is not None:
                return self._pop(line)
            if self._is_idle():
                self._idle_due = False
                return Idle()
            return None

    # --- figures ----------------------------------------------------------------------------------------------

    def figures(self) -> tuple[int, int, int]:
        """Messages queued, requests unanswered, bytes of unanswered requests."""
        with self._condition:
            return sum(map(len, self._lines.values())), len(self._unanswered), self._bytes

    # --- under the lock ---------------------------------------------------------------------------------------

    def _signal(self) -> None:
        self._condition.notify_all()
        if self._waker is not None:
            self._waker()

    def _queue(self, line: _Line, envelope: Envelope) -> None:
        waiting = self._lines.get(line)
        if waiting is None:
            waiting = self._lines[line] = deque()
            self._turns.append(line)
        waiting.append(envelope)
        self._signal()

    def _pop(self, line: _Line) -> Envelope:
        waiting = self._lines[line]
        envelope = waiting.popleft()
        self._turns.remove(line)
        if waiting:
            self._turns.append(line)
        else:
            del self._lines[line]
        if line[0] == "tell":
            self._tells -= 1
            if envelope.coalesce is not None:
                del self._coalesced[envelope.coalesce]
        return envelope

    def _next_line(self) -> _Line | None:
        if not self._held:
            return self._turns[0] if self._turns else None
        return next((line for line in self._turns if line[0] != "ordinary"), None)

    def _is_idle(self) -> bool:
        return self._idle_due and not self._lines and not self._unanswered

    def _deliverable(self) -> bool:
        return bool(self._control) or self._next_line() is not None or self._is_idle()

    def _release(self, envelope: Envelope, phase: Phase) -> None:
        with self._condition:
            if self._unanswered.pop(id(envelope), None) is None:
                return
            self._by_audience[envelope.fairness_key] -= 1
            if not self._by_audience[envelope.fairness_key]:
                del self._by_audience[envelope.fairness_key]
            self._bytes -= envelope.size
            if phase is Phase.QUEUED:
                self._drop(("passing" if envelope.passes_hold else "ordinary", envelope.fairness_key), envelope)
            if self._is_idle():
                self._signal()

    def _drop(self, line: _Line, envelope: Envelope) -> None:
        waiting = self._lines.get(line)
        if waiting is None or envelope not in waiting:
            return
        waiting.remove(envelope)
        if not waiting:
            del self._lines[line]
            self._turns.remove(line)


def _fail(envelopes: list[Envelope], refusal: Refusal) -> None:
    for envelope in envelopes:
        assert envelope.reply is not None
        envelope.reply.fail_by_phase(refusal)
