"""The way into the gate: from a host's call to a turn, or to the reason why there is none. Any thread; never blocks.

Whoever may not have the private partition, or has no store, is skipped: nothing is sent, and the host hears why. Only
a call without a readable audience, or under one that is over, is refused.

Source: memory-provider.md (Recall gate, Details), decisions.md section 7 (``recall.gate``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from actors.authority import Permit, PermitGate, Unbound
from actors.calls import PendingCall, guarded
from actors.recall_gate.gate import BeginTurn
from actors.recall_gate.settings import GateSettings
from actors.recall_gate.turn import OpenTurn, TurnWork
from actors.replies import then
from actors.supervision import ActorHandle, Clock, Reply, log_defect
from messages.audience import Audience, AudienceToken, Conversation, OwnerPrivate, originating
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
    asked anew for every turn; ``await_access`` answers once access can be decided."""

    def __init__(
        self,
        access: PermitGate,
        gate: Reply[ActorHandle],
        clock: Clock,
        settings: Callable[[], GateSettings],
        decisions: Decisions,
        await_access: Callable[[Deadline], Reply[bool]],
    ) -> None:
        self._access = access
        self._gate = gate
        self._clock = clock
        self._settings = settings
        self._decisions = decisions
        self._await_access = await_access

    def start(self, pending: PendingCall, call: ProviderCall, request: RecallGateRequest) -> None:
        """Begin a turn. Refused, here or as the call's answer, are a call without an audience (``AudienceMissing``),
        under one that is over (``AudienceStale``) and with a token that does not count; everything else is an outcome,
        also that nobody can decide about access within the turn's budget."""
        if call.audience is None:
            raise AudienceMissing("This call carries no audience; the host must mint one for it.")
        settings = self._settings()
        turn = OpenTurn(settings.mode, self._clock, correlation_id=call.correlation_id, turn_id=request.turn_id)
        deadline = Deadline(min(call.deadline.at, self._clock.monotonic() + settings.timeout_ms / 1000))
        overdue = self._clock.call_later(
            max(deadline.at - self._clock.monotonic(), 0.0), lambda: turn.unavailable("deadline")
        )
        turn.add_done_callback(lambda *_: overdue.cancel())
        turn.add_done_callback(partial(_deliver, pending, turn))

        def cancel() -> None:
            pending.fail(Cancelled("The caller cancelled the turn; nothing is injected."))
            turn.unavailable("cancelled")

        def begin() -> None:
            try:
                self._let_in(pending, call, request, turn, settings, deadline)
            except KnowledgeError:
                turn.abandon()
                overdue.cancel()
                raise

        def decidable(reply: Reply[bool]) -> None:
            error = reply.error()
            if error is None:
                guarded(pending, reply, lambda _: begin())
            else:
                turn.fail(error)

        call.cancellation.add_callback(cancel)
        # What is skipped for every audience needs nobody who decides; whose a token is, does.
        unasked = _skipped_for_all(settings, request) is not None and not isinstance(call.audience, AudienceToken)
        if self._access.open() or unasked:
            begin()
        elif not turn.over:
            self._await_access(deadline).add_done_callback(decidable)

    def _let_in(
        self,
        pending: PendingCall,
        call: ProviderCall,
        request: RecallGateRequest,
        turn: OpenTurn,
        settings: GateSettings,
        deadline: Deadline,
    ) -> None:
        """Go on with a turn once access can be decided. Raises what is refused."""
        if turn.over:
            return  # cancelled, or without time, before it began
        audience = self._access.audience_of(call.audience)
        assert audience is not None, "a call without one was refused"
        found = self._allowed(settings, request, audience)
        if not pending.claim():
            turn.abandon()  # its deadline has passed, and was the answer
            return
        if not isinstance(found, Permit):
            turn.settle(found)
            return
        turn.permit = found
        try:
            self._begin(turn, request, found, settings, deadline)
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
        skipped = _skipped_for_all(settings, request)
        if skipped is not None:
            return skipped
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


def _skipped_for_all(settings: GateSettings, request: RecallGateRequest) -> GateResult | None:
    """What a turn is answered that is run for nobody, whoever asks."""
    if settings.mode == "off":
        return _skipped("off")
    return None if request.trigger == USER_TRIGGER else _skipped("not_user_turn")


def _skipped(reason: SkipReason) -> GateResult:
    return GateResult(outcome="none", reason=reason)


def _deliver(pending: PendingCall, turn: OpenTurn, result: GateResult, answer: JsonObject) -> None:
    """Give the answer to the call; one that tells of the store only under the read lease."""
    if turn.permit is None or not result.tells:
        pending.answer(answer, lambda: None)
        return
    reply: Reply[JsonObject] = Reply()
    reply.succeed(answer)
    pending.take(turn.permit, reply)
