"""Calls to system memory, from the check of who calls to the lane's answer.

An account is its audience's and nobody else's; a recall that cannot be had is an empty one, so that no turn fails by
it. Starting never blocks. Any thread.

Source: system-memory-contract.md sections 3 and 5; decisions.md sections 6 and 7.
"""

from __future__ import annotations

import logging
from functools import partial

from actors.authority import PermitGate
from actors.calls import PendingCall, guarded
from actors.supervision import ActorHandle, Reply
from actors.system_memory import NOTHING_RECALLED, OfAccount, OfSteward
from messages.errors import InternalError, Unavailable
from messages.json_types import JsonObject
from messages.system_memory import RecallMemoriesRequest, StewardCall, SystemMemoryCall

logger = logging.getLogger(__name__)


class Reminding:
    """Asks the lane of system memory. One for each runtime."""

    def __init__(self, gate: PermitGate, lane: Reply[ActorHandle]) -> None:
        """``lane``: once the root has started it."""
        self._gate = gate
        self._lane = lane

    def start(self, pending: PendingCall, call: SystemMemoryCall) -> None:
        """Begin a call of an account; what is raised is its answer. The authority has a view by now."""
        audience = self._gate.audience_of(call.audience)
        account = self._gate.account_of(audience, write=call.writes)
        message = OfAccount(account, call.request, partial(self._gate.account_of, audience, write=call.writes))
        may_answer = partial(self._gate.account_of, audience, write=False)

        def ask(lane: ActorHandle) -> None:
            if not pending.claim():
                return
            lane.ask(
                message,
                deadline=call.deadline,
                fairness_key=f"account:{account}",
                cancellation=call.cancellation,
                correlation_id=call.correlation_id,
            ).add_done_callback(answered)

        def answered(reply: Reply[JsonObject]) -> None:
            error = reply.error()
            if isinstance(error, Unavailable | InternalError) and isinstance(call.request, RecallMemoriesRequest):
                logger.warning("a turn goes on without its memories", extra={"code": error.code})
                pending.answer(dict(NOTHING_RECALLED), may_answer)
                return
            guarded(pending, reply, lambda result: pending.answer(result, may_answer))

        self._lane.add_done_callback(lambda reply: guarded(pending, reply, ask))

    def attend(self, pending: PendingCall, call: StewardCall) -> None:
        """Begin a request from the owner's own machine."""
        message = OfSteward(call.request, call.door)

        def ask(lane: ActorHandle) -> None:
            if not pending.claim():
                return
            lane.ask(
                message,
                deadline=call.deadline,
                fairness_key="steward",
                cancellation=call.cancellation,
                correlation_id=call.correlation_id,
            ).add_done_callback(lambda reply: guarded(pending, reply, answered))

        def answered(result: JsonObject) -> None:
            pending.answer(result, lambda: None)

        self._lane.add_done_callback(lambda reply: guarded(pending, reply, ask))
