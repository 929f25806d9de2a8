"""A call on its way to its one answer, and how it goes on from one reply to the next. Any thread.

Source: DESIGN.md (One request, rule 2), decisions.md section 6 (An answer happens when its bytes are handed over).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar, assert_never

from actors.authority import Permit, PermitGate
from actors.supervision import Reply, log_defect
from messages.envelope import Call
from messages.errors import (
    Busy,
    DeadlineExceeded,
    FailedClosed,
    InternalError,
    KnowledgeError,
    Quarantined,
    Restarting,
)
from messages.json_types import JsonObject
from messages.provider import ProviderCall
from messages.system_memory import StewardCall, SystemMemoryCall
from messages.tools import CATALOGUE

logger = logging.getLogger(__name__)

R = TypeVar("R")


class Pending(Protocol):
    """What waits for an answer."""

    @property
    def correlation_id(self) -> str: ...

    def fail(self, error: KnowledgeError) -> None: ...


class PendingCall:
    """One call on its way. Any thread. Logs its outcome under the correlation id: never arguments, never text."""

    __slots__ = ("_call", "_gate", "_may_answer", "_permit", "_reply", "_shape", "_started")

    def __init__(self, gate: PermitGate, call: Call | ProviderCall | SystemMemoryCall | StewardCall) -> None:
        self._gate = gate
        self._call = call
        self._started = time.monotonic()
        self._reply: Reply[JsonObject] = Reply()
        self._permit: Permit | None = None
        self._may_answer: Callable[[], object] | None = None
        self._shape: Callable[[JsonObject], JsonObject] = lambda result: result

    def add_done_callback(self, callback: Callable[[PendingCall], None]) -> None:
        """Run ``callback(self)`` once the answer is there: at once if it is, else on the answering thread."""
        self._reply.add_done_callback(lambda _: callback(self))

    def done(self) -> bool:
        return self._reply.done()

    @property
    def correlation_id(self) -> str:
        return self._call.correlation_id

    def deliver(self, hand_over: Callable[[JsonObject], None]) -> None:
        """Hand the answer over under the read lease: the last check of access and the hand-over are one step.

        Raises the typed failure instead: the call's own, or the loss of the right to read its answer.
        """
        result = self._reply.result()
        if self._permit is not None:
            with self._gate.lease(self._permit):
                hand_over(self._shape(result))
        elif self._may_answer is not None:
            self._may_answer()
            hand_over(self._shape(result))
        else:
            raise InternalError("An answer without a permit is never handed over.")

    def _may_write(self) -> bool:
        match self._call:
            case ProviderCall():
                return False
            case SystemMemoryCall() | StewardCall():
                return self._call.writes
            case Call():
                spec = CATALOGUE.get(self._call.tool)
                return spec is None or spec.action == "write"
            case _:
                assert_never(self._call)

    def _known(self) -> bool:
        return not isinstance(self._call, Call) or self._call.tool in CATALOGUE

    def cancel(self) -> None:
        """Ask for the call to end before it is accepted; an accepted write gives its normal answer."""
        self._call.cancellation.cancel()

    def wait(self) -> None:
        """Block until the answer is there. Not from an actor's thread."""
        answered = threading.Event()
        self._reply.add_done_callback(lambda _: answered.set())
        answered.wait()

    def claim(self) -> bool:
        """Whether whoever asks may send the call to its lane: once, and not after its deadline was answered."""
        return self._reply.begin(0)

    def expire(self) -> None:
        """The deadline has come: answer, unless a lane was asked, which watches the same deadline itself."""
        if self.claim():
            self.fail(
                DeadlineExceeded(
                    "The deadline passed before the store could be asked; the call did not run. Try again."
                )
            )

    def fail(self, error: KnowledgeError) -> None:
        """Answer with a typed error, unless there is an answer already."""
        if error.retry == "unknown" and not self._may_write():
            # A read has no effect, however far it came.
            late = isinstance(error, DeadlineExceeded)
            message = "There was no answer by the deadline. Ask again, with more time." if late else error.message
            error = type(error)(message, retry="safe", **error.fields)
        if isinstance(error, FailedClosed):
            # Nested: a field may be called as something that every log record has.
            logger.error("store fails closed", extra={"code": error.code, "fields": dict(error.fields)})
            error = error.for_agents()
        error = _for_agents(error, self._call.correlation_id)
        if self._reply.fail(error):
            # A refusal is a normal answer; only what nobody could foresee is worth an operator's attention.
            self._log(logging.ERROR if isinstance(error, InternalError) else logging.INFO, error.code)

    def take(
        self, permit: Permit, reply: Reply[JsonObject], shape: Callable[[JsonObject], JsonObject] | None = None
    ) -> None:
        """Answer with what the lane answers; ``shape`` makes the answer of it under the read lease."""
        self._permit = permit
        self._shape = shape or self._shape
        reply.add_done_callback(self._settle)

    def answer(
        self,
        result: JsonObject,
        may_answer: Callable[[], object],
        shape: Callable[[JsonObject], JsonObject] | None = None,
    ) -> None:
        """Answer with what is not in any store. ``may_answer`` raises when the caller may not hear it any more."""
        self._may_answer = may_answer
        self._shape = shape or self._shape
        if self._reply.succeed(result):
            self._log(logging.DEBUG, "ok")

    def _settle(self, reply: Reply[JsonObject]) -> None:
        error = reply.error()
        if error is not None:
            self.fail(error)
        elif self._reply.succeed(reply.result(0)):
            self._log(logging.DEBUG, "ok")

    def _log(self, level: int, outcome: str) -> None:
        if logger.isEnabledFor(level):
            permit = self._permit
            logger.log(
                level,
                "call answered",
                extra={
                    "correlation_id": self._call.correlation_id,
                    "tool": self._call.tool if self._known() else "unknown",
                    "outcome": outcome,
                    "ms": round((time.monotonic() - self._started) * 1000, 2),
                    "store": None if permit is None else permit.vault_id,
                    "partition": None if permit is None else permit.partition.kind,
                },
            )


def guarded(pending: Pending, reply: Reply[R], proceed: Callable[[R], None]) -> None:
    """Continue a call with an earlier reply's value; whatever goes wrong becomes the call's answer."""
    error = reply.error()
    if error is not None:
        pending.fail(error)
        return
    try:
        proceed(reply.result(0))
    except KnowledgeError as refusal:
        pending.fail(refusal)
    except Exception as defect:  # noqa: BLE001 - whatever it is, the caller must not wait for ever
        log_defect(logger, "call could not be continued", defect, {"correlation_id": pending.correlation_id})
        pending.fail(InternalError("A defect ended the call before it ran; the log has the details."))


def _for_agents(error: KnowledgeError, correlation_id: str) -> KnowledgeError:
    """The same refusal as an agent may see it: no names of files, actors or places, but how to find it in the log."""
    if isinstance(error, InternalError):
        did = "did not run" if error.retry == "safe" else "may have run; a write is repeated with the same request id"
        message = f"A defect ended the call, which {did}. The log has the details under {correlation_id}."
        return InternalError(message, retry=error.retry, correlationId=correlation_id)
    if isinstance(error, Busy | Quarantined | Restarting):
        return type(error)(error.message, retry=error.retry, **{**error.fields, "correlationId": correlation_id})
    return error
