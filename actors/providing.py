"""What a host asks of its memory provider, from the right to ask to the answer. Never blocks, never creates a store.

Every method resolves its audience as a tool call does; where the agent has no store yet, it answers what an empty one
would. Any thread; what goes on between two replies runs on whichever thread answers.

Source: memory-provider.md (Ownership and activation), decisions.md sections 5 (First use) and 7.
"""

from __future__ import annotations

from functools import partial
from typing import assert_never

from actors.authority import PermitGate, Unbound
from actors.calls import PendingCall, guarded
from actors.directory import StoreHandle
from actors.lanes import Errand, Lanes
from messages.provider import MemoryStatusRequest, ProviderCall
from messages.provider.reads import readiness


class Providing:
    """Begins the calls of one runtime's memory provider."""

    def __init__(self, gate: PermitGate, lanes: Lanes) -> None:
        self._gate = gate
        self._lanes = lanes

    def start(self, pending: PendingCall, call: ProviderCall) -> None:
        """Begin a call; refusals that are known at once are raised."""
        match call.request:
            case MemoryStatusRequest(purpose="status"):
                pending.answer(readiness(True), lambda: None)
            case MemoryStatusRequest():
                self._read(pending, call)
            case _:
                assert_never(call.request)

    def _read(self, pending: PendingCall, call: ProviderCall) -> None:
        audience = self._gate.audience_of(call.audience)
        permit = self._gate.resolve(audience, write=False)
        if isinstance(permit, Unbound):
            pending.answer(readiness(True), partial(self._gate.resolve, audience, write=False))
            return
        errand = Errand(
            request=call.request,
            permit=permit,
            deadline=call.deadline,
            cancellation=call.cancellation,
            correlation_id=call.correlation_id,
        )

        def run(handle: StoreHandle) -> None:
            if pending.claim():
                pending.take(permit, self._lanes.run(handle, errand))

        self._lanes.open(permit).add_done_callback(lambda reply: guarded(pending, reply, run))
