"""The way into the gate: from a host's call to a turn, or to the reason why there is none. Any thread; never blocks.

Whoever may not have the private partition, or has no store, is skipped: nothing is sent, and the host hears why. Only
a call without a readable audience, or under one that is over, is refused.

Source: memory-provider.md (Recall gate, Details), decisions.md section 7 (``recall.gate``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from actors.authority import Permit, PermitGate, Unbound
from actors.calls import PendingCall
from actors.recall_gate.gate import BeginTurn
from actors.recall_gate.settings import GateSettings
from actors.recall_gate.turn import OpenTurn, TurnWork
from actors.replies import then
from actors.supervision import ActorHandle, Clock, Reply, log_defect
from messages.audience import Audience, Conversation, OwnerPrivate, originating
from messages.envelope import Deadline
from messages.errors import AudienceMissing, AudienceStale, Cancelled, Denied, KnowledgeError, Sandboxed
from messages.json_types import JsonObject
from messages.provider.calls import ProviderCall
from messages.provider.decision import DecisionProvider
from messages.provider.gate import USER_TRIGGER, GateResult, RecallGateRequest, SkipReason
from messages.vocabulary import PRIVATE

logger = logging.getLogger(__name__)

Decisions: TypeAlias = Callable[[str], DecisionProvider | None]
"""The Decision model of an agent as the configuration says now; ``None``: it has none."""


class RecallDesk:
    """Begins the turns of one runtime. ``gate`` is the actor once it is started; ``settings`` and ``decisions`` are
    asked anew for every turn."""

    def __init__(
        self,
        access: PermitGate,
        gate: Reply[ActorHandle],
        clock: Clock,
        settings: Callable[[], GateSettings],
        decisions: Decisions,
    ) -> None:
        self._access = access
        self._gate = gate
        self._clock = clock
        self._settings = settings
        self._decisions = decisions

    def start(self, pending: PendingCall, call: ProviderCall, request: RecallGateRequest) -> None:
        """Begin a turn. Raises ``AudienceMissing``, ``AudienceStale`` and what is wrong with a token; everything else
        is an outcome."""
        audience = self._access.audience_of(call.audience)
        if audience is None:
            raise AudienceMissing("This call carries no audience; the host must mint one for it.")
        settings = self._settings()
        turn = OpenTurn(settings.mode, self._clock, correlation_id=call.correlation_id, turn_id=request.turn_id)
        found = self._allowed(settings, request, audience)
        if not pending.claim():
            return  # its deadline has passed, and was the answer
        if not isinstance(found, Permit):
            turn.add_done_callback(lambda _, answer: pending.answer(answer, lambda: None))
            turn.settle(found)
            return
        permit = found
        turn.add_done_callback(lambda result, answer: _deliver(pending, permit, result, answer))
        budget = min(call.deadline.at, self._clock.monotonic() + settings.timeout_ms / 1000)
        overdue = self._clock.call_later(
            max(budget - self._clock.monotonic(), 0.0), lambda: turn.unavailable("deadline")
        )
        turn.add_done_callback(lambda *_: overdue.cancel())

        def cancel() -> None:
            pending.fail(Cancelled("The caller cancelled the turn; nothing is injected."))
            turn.unavailable("cancelled")

        call.cancellation.add_callback(cancel)
        if turn.over:
            return  # cancelled, or without time, before it began
        try:
            self._begin(turn, request, permit, settings, Deadline(budget))
        except Exception as defect:  # noqa: BLE001 - the registry of providers is foreign code
            log_defect(logger, "a turn of the recall gate failed", defect, {"correlation_id": call.correlation_id})
            turn.defect()

    def _begin(
        self, turn: OpenTurn, request: RecallGateRequest, permit: Permit, settings: GateSettings, deadline: Deadline
    ) -> None:
        turn.stage = "provider"
        assert isinstance(permit.audience, OwnerPrivate | Conversation), "the gate is asked for audiences only"
        # Whose memory it is decides who may read it: a child's own model is none of its owner's choice.
        provider = self._decisions(originating(permit.audience).agent)
        if provider is None:
            turn.unavailable("not-configured")
            return
        turn.stage = "admission"
        work = TurnWork(turn, request.message, permit, settings, provider, deadline)

        def begin(gate: ActorHandle) -> None:
            begun = gate.ask(BeginTurn(work), deadline=deadline, correlation_id=turn.correlation_id)
            then(begun, lambda _: None, turn.fail)

        then(self._gate, begin, turn.fail)

    def _allowed(self, settings: GateSettings, request: RecallGateRequest, audience: Audience) -> Permit | GateResult:
        """The permit of a turn that is run, or what is answered instead."""
        if settings.mode == "off":
            return _skipped("off")
        if request.trigger != USER_TRIGGER:
            return _skipped("not_user_turn")
        try:
            permit = self._access.resolve(audience, write=False)
        except AudienceStale:
            raise
        except Sandboxed:
            return _skipped("not_private")
        except Denied:
            return _skipped("no_store")  # an agent that nobody knows has none
        except KnowledgeError as refusal:
            return GateResult(outcome="unavailable", stage="access", reason=refusal.code)
        if isinstance(permit, Unbound):
            return _skipped("no_store")
        return permit if permit.partition == PRIVATE else _skipped("not_private")


def _skipped(reason: SkipReason) -> GateResult:
    return GateResult(outcome="none", reason=reason)


def _deliver(pending: PendingCall, permit: Permit, result: GateResult, answer: JsonObject) -> None:
    """Give the answer to the call; one that tells of the store only under the read lease."""
    if not result.tells:
        pending.answer(answer, lambda: None)
        return
    reply: Reply[JsonObject] = Reply()
    reply.succeed(answer)
    pending.take(permit, reply)
