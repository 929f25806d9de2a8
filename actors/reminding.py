"""Calls to system memory, from the check of who calls to the lane's answer.

An account is its audience's and nobody else's; a recall that cannot be had is an empty one, so that no turn fails by
it. Starting never blocks. Any thread.

Source: system-memory-contract.md sections 3 and 5; decisions.md sections 6 and 7.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from actors.authority import PermitGate
from actors.calls import PendingCall, guarded
from actors.supervision import ActorHandle, Reply
from actors.system_memory import NOTHING_RECALLED, OfAccount, OfSteward
from messages.errors import Cancelled, InternalError, KnowledgeError, Quarantined, Unavailable
from messages.json_types import JsonObject
from messages.system_memory import RecallMemoriesRequest, StewardCall, SystemMemoryCall

logger = logging.getLogger(__name__)

OUT_OF_SERVICE: Final = (
    "System memory is out of service: its database is damaged, or it failed too often. `knowledge doctor` looks at it. "
    "With the owner stopped, put a backup's file in its place or move it away, then start the owner again."
)


class PendingReminder(PendingCall):
    """A request to system memory, which nobody releases from quarantine but a new start of the owner."""

    __slots__ = ()

    def fail(self, error: KnowledgeError) -> None:
        """Answer with the error, a quarantine's with what mends it."""
        if isinstance(error, Quarantined):
            error = Quarantined(OUT_OF_SERVICE, retry=error.retry, **error.fields)
        super().fail(error)


class PendingRecall(PendingReminder):
    """What a turn is reminded of. Where that cannot be had now, whatever the reason, the turn goes on without it;
    a caller without a right to it is refused like any other."""

    __slots__ = ()

    def fail(self, error: KnowledgeError) -> None:
        """Answer with an empty recall where nobody is at fault but the runtime."""
        if _hinders_no_turn(error):
            logger.warning("a turn goes on without its memories", extra={"code": error.code})
            self.answer(dict(NOTHING_RECALLED), lambda: None)  # it tells nothing that needs a right
        else:
            super().fail(error)

    def deliver(self, hand_over: Callable[[JsonObject], None]) -> None:
        """The same, where access cannot be decided just when the answer is handed over."""
        handed: list[JsonObject] = []

        def once(result: JsonObject) -> None:
            handed.append(result)
            hand_over(result)

        try:
            super().deliver(once)
        except KnowledgeError as error:
            if handed or not _hinders_no_turn(error):
                raise
            hand_over(dict(NOTHING_RECALLED))


def pending_of(gate: PermitGate, call: SystemMemoryCall) -> PendingCall:
    """The pending answer of a call of an account."""
    return (PendingRecall if isinstance(call.request, RecallMemoriesRequest) else PendingReminder)(gate, call)


def _hinders_no_turn(error: KnowledgeError) -> bool:
    return isinstance(error, Unavailable | InternalError) and not isinstance(error, Cancelled)


def _size(request: object) -> int:
    """About the bytes of a request, whatever a program put into it."""
    return len(repr(request))


class Reminding:
    """Asks the lane of system memory. One for each runtime."""

    def __init__(self, gate: PermitGate, lane: Reply[ActorHandle]) -> None:
        """``lane``: once the root has started it."""
        self._gate = gate
        self._lane = lane

    def start(self, pending: PendingCall, call: SystemMemoryCall) -> None:
        """Begin a call of an account; what is raised is its answer. The authority has a view by now."""
        permit = self._gate.resolve_account(self._gate.audience_of(call.audience), write=call.writes)
        size = _size(call.request)

        def ask(lane: ActorHandle) -> None:
            if not pending.claim():
                return
            asked = lane.ask(
                OfAccount(permit, call.request),
                deadline=call.deadline,
                fairness_key=f"account:{permit.agent}",
                size=size,
                cancellation=call.cancellation,
                correlation_id=call.correlation_id,
            )
            pending.take(permit, asked)

        self._lane.add_done_callback(lambda reply: guarded(pending, reply, ask))

    def attend(self, pending: PendingCall, call: StewardCall) -> None:
        """Begin a request from the owner's own machine."""
        size = _size(call.request)

        def ask(lane: ActorHandle) -> None:
            if not pending.claim():
                return
            lane.ask(
                OfSteward(call.request, call.door),
                deadline=call.deadline,
                fairness_key="steward",
                size=size,
                cancellation=call.cancellation,
                correlation_id=call.correlation_id,
            ).add_done_callback(lambda reply: guarded(pending, reply, answered))

        def answered(result: JsonObject) -> None:
            pending.answer(result, lambda: None)

        self._lane.add_done_callback(lambda reply: guarded(pending, reply, ask))
