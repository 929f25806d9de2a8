"""Tool calls, from valid arguments to their store's lane: the first use of a store creates it on the way.

Starting never blocks. Any thread. Source: DESIGN.md (One request); decisions.md sections 5 (First use) and 6.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from actors.authority import BindAgent, Permit, PermitGate, Unbound, require_may_save
from actors.calls import PendingCall, guarded
from actors.directory import StoreHandle
from actors.lanes import Errand, Lanes
from actors.supervision import ActorHandle
from messages.audience import Audience, AudienceToken, require_well_formed
from messages.envelope import Call
from messages.errors import StoreOpening
from messages.tools import ToolRequest, ToolSpec, parse_arguments, tool_spec


@dataclass(frozen=True, slots=True)
class ValidatedCall:
    """A call whose tool exists and whose arguments lie within their bounds. ``size``: of these, in bytes."""

    call: Call
    spec: ToolSpec
    request: ToolRequest
    size: int

    @classmethod
    def of(cls, call: Call) -> ValidatedCall:
        """Raises ``UnknownTool``, ``AudienceMissing``, ``InvalidArgument`` and its like."""
        spec = tool_spec(call.tool)
        if not isinstance(call.audience, AudienceToken):  # what that stands for, the authority says
            require_well_formed(call.audience)
        request = parse_arguments(call.tool, call.arguments, flush_id=call.flush_id)
        return cls(call, spec, request, len(orjson.dumps(call.arguments)))

    @property
    def writes(self) -> bool:
        return self.spec.action == "write"


class ToolCalls:
    """Runs valid calls. One for each runtime."""

    def __init__(self, gate: PermitGate, authority: ActorHandle, lanes: Lanes) -> None:
        self._gate = gate
        self._authority = authority
        self._lanes = lanes

    def start(self, pending: PendingCall, validated: ValidatedCall) -> None:
        """Begin; what is raised is the call's answer. The authority has a view by now."""
        call = validated.call
        audience = self._gate.audience_of(call.audience)
        permit = self._gate.resolve(audience, write=validated.writes)
        if isinstance(permit, Unbound):
            bound = self._authority.ask(BindAgent(permit.agent), deadline=call.deadline)
            bound.add_done_callback(
                lambda reply: guarded(pending, reply, lambda _: self._bound(validated, audience, pending))
            )
            return
        self._ask(validated, permit, pending)

    def _bound(self, validated: ValidatedCall, audience: Audience | None, pending: PendingCall) -> None:
        permit = self._gate.resolve(audience, write=validated.writes)
        if isinstance(permit, Unbound):
            # It was created, and a move took the agent elsewhere at once.
            raise StoreOpening("The agent's store changed while the call waited; the call did not run. Try again.")
        self._ask(validated, permit, pending)

    def _ask(self, validated: ValidatedCall, permit: Permit, pending: PendingCall) -> None:
        if validated.writes:
            require_may_save(permit)
        self._lanes.open(permit).add_done_callback(
            lambda reply: guarded(pending, reply, lambda handle: self._run(validated, permit, handle, pending))
        )

    def _run(self, validated: ValidatedCall, permit: Permit, handle: StoreHandle, pending: PendingCall) -> None:
        call = validated.call
        if not pending.claim():
            return
        errand = Errand(
            request=validated.request,
            permit=permit,
            deadline=call.deadline,
            writes=validated.writes,
            size=validated.size,
            cancellation=call.cancellation,
            correlation_id=call.correlation_id,
        )
        pending.take(permit, self._lanes.run(handle, errand))
