"""What a host asks of its memory provider, from the right to ask to the answer. Never blocks, never creates a store.

Every method resolves its audience as a tool call does; where the agent has no store yet, it answers what an empty one
would. Any thread; what goes on between two replies runs on whichever thread answers.

Source: memory-provider.md (Ownership and activation), decisions.md sections 5 (First use) and 7.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias, assert_never

from actors.authority import Permit, PermitGate, Unbound
from actors.calls import PendingCall, guarded
from actors.directory import StoreDirectory, StoreHandle
from actors.lanes import Errand, Lanes
from actors.prompting import Prompting
from actors.recall_gate import RecallDesk
from messages.audience import Audience, AudienceToken, Caller, is_sandboxed, require_well_formed
from messages.errors import KnowledgeError, ReadOnlyGrant, StoreAmbiguous, WritesDisabled
from messages.json_types import JsonObject
from messages.provider import (
    FlushPlanRequest,
    MemoryCandidatesRequest,
    MemoryReadRequest,
    MemorySearchRequest,
    MemoryStatusRequest,
    PromptBuildRequest,
    ProviderCall,
    RecallGateRequest,
)
from messages.provider.cursors import foreign_cursor, read_cursor
from messages.provider.flush import flush_response
from messages.provider.reads import candidates_response, readiness, search_response
from messages.provider.references import foreign_reference
from storage.store_parts import missing_parts

StoreRead: TypeAlias = MemoryStatusRequest | MemorySearchRequest | MemoryReadRequest | MemoryCandidatesRequest
"""What a store's lane answers."""


class Providing:
    """Begins the calls of one runtime's memory provider. ``flush_prompt`` is what a flush is told."""

    def __init__(
        self,
        gate: PermitGate,
        lanes: Lanes,
        stores: StoreDirectory,
        flush_prompt: Callable[[], str],
        prompting: Prompting,
        recall: RecallDesk,
    ) -> None:
        self._gate = gate
        self._lanes = lanes
        self._stores = stores
        self._flush_prompt = flush_prompt
        self._prompting = prompting
        self._recall = recall

    def start(self, pending: PendingCall, call: ProviderCall) -> None:
        """Begin a call; refusals that are known at once are raised."""
        match call.request:
            case MemoryStatusRequest() | MemorySearchRequest() | MemoryReadRequest() | MemoryCandidatesRequest():
                self._read(pending, call, call.request)
            case FlushPlanRequest():
                self._plan_flush(pending, call, call.request)
            case PromptBuildRequest():
                self._prompting.start(pending, call, call.request)
            case RecallGateRequest():
                self._recall.start(pending, call, call.request)
            case _:
                assert_never(call.request)

    def answers_at_once(self, pending: PendingCall, call: ProviderCall, *, stopping: bool) -> bool:
        """Answer a call that waits for nothing, neither for a view of the authority nor for a store, and is refused to
        nobody; ``False`` for any other."""
        match call.request:
            case MemoryStatusRequest(purpose="status"):
                pending.answer(readiness(not stopping and self.ready(call.audience)), lambda: None)
            case PromptBuildRequest() if not stopping and _without_memory(call.audience):
                self._prompting.without_memory(pending, call.request)
            case _:
                return False
        return True

    def ready(self, caller: Caller | None) -> bool:
        """Whether a call would be served now: access can be decided, and the store is in service.

        A caller that is refused learns that much of the runtime and nothing of any store. Opens and creates nothing.
        """
        try:
            if caller is not None and not isinstance(caller, AudienceToken):
                require_well_formed(caller)
            permit = self._gate.resolve(self._gate.audience_of(caller), write=False)
            return isinstance(permit, Unbound) or self._in_service(permit)
        except StoreAmbiguous:
            return False
        except KnowledgeError:  # also that no authority vouches for a view
            return self._gate.open()

    def _in_service(self, permit: Permit) -> bool:
        lane = self._stores.lane(permit.vault_id).health()
        # "starting" is no sign: the parent may not have noted yet that a lane which answers is up.
        out_of_service = lane.state in ("opening", "restarting", "stuck") or "closed" in lane.detail
        if out_of_service or self._stores.quarantined(permit.vault_id):
            return False
        layout = self._gate.layout_of(permit.vault_id)
        return layout is not None and not missing_parts(layout)

    def _read(self, pending: PendingCall, call: ProviderCall, request: StoreRead) -> None:
        audience = self._gate.audience_of(call.audience)
        permit = self._gate.resolve(audience, write=False)
        if isinstance(permit, Unbound):
            pending.answer(_of_an_empty_store(request), partial(self._still_there, audience))
            return
        errand = Errand(
            request=request,
            permit=permit,
            deadline=call.deadline,
            cancellation=call.cancellation,
            correlation_id=call.correlation_id,
        )

        def run(handle: StoreHandle) -> None:
            if pending.claim():
                pending.take(permit, self._lanes.run(handle, errand))

        self._lanes.open(permit).add_done_callback(lambda reply: guarded(pending, reply, run))

    def _plan_flush(self, pending: PendingCall, call: ProviderCall, request: FlushPlanRequest) -> None:
        """There is a flush only where its saves would be accepted; none is promised to whom they would be refused."""
        audience = self._gate.audience_of(call.audience)
        saves = self._may_save(audience) and not request.never_runs
        pending.answer(flush_response(self._flush_prompt() if saves else None), partial(self._still_there, audience))

    def _may_save(self, audience: Audience | None) -> bool:
        try:
            permit = self._gate.resolve(audience, write=True)
        except (WritesDisabled, ReadOnlyGrant):
            return False
        return isinstance(permit, Unbound) or permit.may_write

    def _still_there(self, audience: Audience | None) -> None:
        self._gate.resolve(audience, write=False)


def _without_memory(caller: Caller | None) -> bool:
    """Whether nobody need decide that a caller has no memory authority: it says so itself."""
    if caller is None or isinstance(caller, AudienceToken):
        return caller is None
    require_well_formed(caller)
    return is_sandboxed(caller)


def _of_an_empty_store(request: StoreRead) -> JsonObject:
    """What a store without a record would answer; a reference or a cursor leads to another one then."""
    match request:
        case MemoryStatusRequest():
            return readiness(True)
        case MemorySearchRequest():
            if request.cursor is not None:
                read_cursor(request.cursor)
                raise foreign_cursor()
            return search_response((), None)
        case MemoryReadRequest():
            raise foreign_reference("ref.store")
        case MemoryCandidatesRequest():
            return candidates_response(())
        case _:
            assert_never(request)
