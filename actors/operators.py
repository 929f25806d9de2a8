"""What operators ask, from the check of their scope to the answer: in the lane, or in a caretaker while no lane runs.

Starting a request never blocks; every request gets one typed answer, handed over only while its operator may still have
it. Any thread; what goes on between two replies runs on whichever thread answers.

Source: stores-and-access.md (Caller authority), decisions.md sections 4, 6 and 7.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from actors.authority import Permit, PermitGate, PlanMove, SwitchStore, Unbound
from actors.backups import Backups
from actors.conversations import Conversations
from actors.directory import StoreDirectory, StoreHandle
from actors.maintenance import MaintenanceReport, RunMaintenance
from actors.replies import then
from actors.resting import RestingStores, cancelled
from actors.store.caretaker import AdoptVault, FinishMove, MoveFolder, UndoMove
from actors.store.messages import RunTool
from actors.store.operations.looking_after import refusal
from actors.store.settings import StoreSettings
from actors.supervision import ActorHandle, Reply, Tree
from messages.access import DoctorRequest, RebuildRegistryRequest
from messages.errors import DeadlineExceeded, Denied, FailedClosed, InternalError, KnowledgeError, NotFound
from messages.json_types import JsonObject
from messages.operator import (
    AcceptDeletionsRequest,
    AdoptNotesRequest,
    AdoptStoreRequest,
    BackupRequest,
    BackupStatusRequest,
    EraseConversationRequest,
    ExportConversationRequest,
    HealthRequest,
    MaintenanceStatusRequest,
    OperatorCall,
    OperatorDiagnosticsRequest,
    OperatorStatusRequest,
    ReleaseStoreRequest,
    RelocateStoreRequest,
    RunMaintenanceRequest,
)
from messages.tools.operator_reads import OperatorRead
from storage.layout import Layout, StoreLayout
from storage.publication import Adoption
from storage.registry_audit import By
from storage.relocation import Move, Moved

MOVE_SECONDS: Final = 3_600.0
"""A copy of a large store takes as long as it takes; the caller's own deadline ends its waiting, not the move."""
ADOPT_SECONDS: Final = 300.0
SWITCH_SECONDS: Final = 30.0

logger = logging.getLogger(__name__)


class PendingOperation:
    """One operator's request on its way; a pending answer like a tool call's. Any thread."""

    __slots__ = ("_gate", "_reply", "_started", "call", "permit")

    def __init__(self, gate: PermitGate, call: OperatorCall) -> None:
        self.call = call
        self.permit: Permit | None = None
        """The right under which a store is asked, once it is."""
        self._gate = gate
        self._reply: Reply[JsonObject] = Reply()
        self._started = time.monotonic()

    def add_done_callback(self, callback: Callable[[PendingOperation], None], /) -> None:
        """Run ``callback(self)`` once the answer is there: at once if it is, else on the answering thread."""
        self._reply.add_done_callback(lambda _: callback(self))

    def deliver(self, hand_over: Callable[[JsonObject], None]) -> None:
        """Hand the answer over if the operator may still do what was asked; else raise the typed refusal.

        What comes from a store leaves under a read lease: switching off operators' reading waits for it.
        """
        result = self._reply.result()
        if self.permit is None:
            if not isinstance(self.call.request, DoctorRequest | RebuildRegistryRequest):  # these need no view
                self._gate.require_scope(self.call.operator, self.call.scope)
            hand_over(result)
            return
        with self._gate.lease(self.permit):
            hand_over(result)

    def cancel(self) -> None:
        """Ask for the request to end before it is accepted."""
        self.call.cancellation.cancel()

    def wait(self) -> None:
        """Block until the answer is there. Not from an actor's thread."""
        done: Reply[bool] = Reply()
        self._reply.add_done_callback(lambda _: done.succeed(True))
        done.result()

    def begin(self) -> bool:
        """Whether the request may have its effect now: once, and not after its deadline was answered."""
        return self._reply.begin(0)

    def expire(self) -> None:
        """The deadline has come."""
        if self.begin():
            self.fail(DeadlineExceeded("The deadline passed before the request began; it did not run. Send it again."))
        else:
            self.fail(DeadlineExceeded("There was no answer by the deadline; what was begun goes on.", retry="unknown"))

    def succeed(self, result: JsonObject) -> None:
        if self._reply.succeed(result):
            self._log(logging.INFO, "ok")

    def fail(self, error: KnowledgeError) -> None:
        if self._reply.fail(error):
            self._log(logging.ERROR if isinstance(error, InternalError) else logging.INFO, error.code)

    def done(self) -> bool:
        return self._reply.done()

    @property
    def correlation_id(self) -> str:
        return self.call.correlation_id

    def _log(self, level: int, outcome: str) -> None:
        logger.log(
            level,
            "operator answered",
            extra={
                "correlation_id": self.call.correlation_id,
                "operator": self.call.operator.id,
                "method": self.call.tool,
                "outcome": outcome,
                "ms": round((time.monotonic() - self._started) * 1000, 2),
            },
        )


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What operators' requests need of the runtime."""

    layout: Layout
    gate: PermitGate
    tree: Tree
    authority: ActorHandle
    stores: StoreDirectory
    maintenance: Reply[ActorHandle]
    """Once the root has started it: it takes its children one after another."""
    backups: Backups
    settings_of: Callable[[str, StoreLayout], StoreSettings]
    health: Callable[[], JsonObject]
    git: bool
    now_ms: Callable[[], int]


class Operators:
    """Runs operators' requests. One for each runtime."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._gate = around.gate
        self._resting = RestingStores(around.tree, around.stores)
        self._conversations = Conversations(
            around.layout, self._resting, around.authority, self._settings_of, around.now_ms
        )

    def start(self, pending: PendingOperation) -> None:
        """Begin; what is raised is the request's answer. The authority has a view by now."""
        call = pending.call
        if call.cancellation.requested:
            raise cancelled()
        if isinstance(call.request, OperatorRead):
            self._in_lane(pending, self._permit(call), pending.succeed, pending.fail)
            return
        match call.request:
            case OperatorStatusRequest():
                self._status(pending)
            case OperatorDiagnosticsRequest() | AcceptDeletionsRequest() | AdoptNotesRequest():
                self._in_lane(pending, self._permit(call), pending.succeed, pending.fail)
            case AdoptStoreRequest():
                self._adopt_store(pending, self._permit(call))
            case RelocateStoreRequest():
                self._relocate(pending, call.request)
            case ExportConversationRequest():
                self._conversations.export(pending, call.request, self._permit(call))
            case EraseConversationRequest():
                self._conversations.erase(pending, call.request, self._permit(call), self._by(call))
            case ReleaseStoreRequest(store=store):
                self._release_store(pending, store)
            case BackupRequest():
                self._gate.require_scope(call.operator, call.scope, vault_id=call.request.store)
                if call.operator.agents is not None and call.request.store is None:
                    raise Denied("Only an operator for every agent may back every store up; name one of yours.")
                if pending.begin():
                    pending.succeed(self._around.backups.begin(call.request))
            case BackupStatusRequest():
                last = self._around.backups.store()
                self._gate.require_scope(call.operator, call.scope, vault_id=last)
                if call.operator.agents is not None and last is None:
                    raise Denied("The last backup was not one of a store of yours.")
                pending.succeed(self._around.backups.report())
            case HealthRequest():
                self._gate.require_scope(call.operator, call.scope)
                if call.operator.agents is not None:
                    raise Denied("Only an operator for every agent sees how the whole runtime is.")
                pending.succeed(self._around.health())
            case RunMaintenanceRequest():
                chosen = self._chosen(call)
                if not pending.begin():
                    return
                self._ask_maintenance(pending, RunMaintenance(chosen))
            case MaintenanceStatusRequest():
                self._gate.require_scope(call.operator, call.scope)
                self._ask_maintenance(pending, MaintenanceReport())
            case _:
                raise InternalError("Requests about access go to the authority.")

    # --- maintenance -----------------------------------------------------------------------------------

    def _ask_maintenance(self, pending: PendingOperation, message: RunMaintenance | MaintenanceReport) -> None:
        call = pending.call

        def ask(maintenance: ActorHandle) -> None:
            answer = maintenance.ask(message, deadline=call.deadline, cancellation=call.cancellation)
            then(answer, lambda shown: pending.succeed(self._visible(call, shown)), pending.fail)

        then(self._around.maintenance, ask, pending.fail)

    def _chosen(self, call: OperatorCall) -> tuple[str, ...] | None:
        """The stores that a run is to look after; ``None`` for all."""
        self._gate.require_scope(call.operator, call.scope)
        if call.agent is not None:
            return (self._permit(call).vault_id,)
        return None if call.operator.agents is None else self._its_stores(call, self._gate.stores())

    def _visible(self, call: OperatorCall, shown: JsonObject) -> JsonObject:
        """The report without the stores of others."""
        stores = shown.get("stores")
        rows = [row for row in stores if isinstance(row, dict)] if isinstance(stores, list) else []
        seen = self._its_stores(call, tuple(str(row["vaultId"]) for row in rows))
        return {**shown, "stores": [row for row in rows if row["vaultId"] in seen]}

    def _its_stores(self, call: OperatorCall, vault_ids: tuple[str, ...]) -> tuple[str, ...]:
        def sees(vault_id: str) -> bool:
            try:
                self._gate.require_scope(call.operator, call.scope, vault_id=vault_id)
            except Denied:
                return False
            return True

        return tuple(vault_id for vault_id in vault_ids if sees(vault_id))

    # --- in the lane -----------------------------------------------------------------------------------

    def _status(self, pending: PendingOperation) -> None:
        call = pending.call
        found = self._gate.resolve_operator(call.operator, call.agent, scope=call.scope)
        if isinstance(found, Unbound):
            pending.succeed({"agent": found.agent, "state": "none"})
            return
        named: JsonObject = {"agent": found.agent, "vaultId": found.vault_id}
        if call.operator.may("operator.admin"):
            layout = self._gate.layout_of(found.vault_id)
            named["path"] = "" if layout is None else str(layout.root)

        def closed(error: KnowledgeError) -> None:
            """A store that cannot answer is exactly what status is for."""
            if isinstance(error, InternalError | Denied):
                pending.fail(error)
                return
            state = "failed_closed" if isinstance(error, FailedClosed) else "unavailable"
            pending.succeed({**named, "state": state, "refusal": refusal(error.code, error.message, {**error.fields})})

        self._in_lane(pending, found, lambda shown: pending.succeed({**named, **shown}), closed)

    def _permit(self, call: OperatorCall) -> Permit:
        writes = isinstance(call.request, AdoptNotesRequest)
        found = self._gate.resolve_operator(call.operator, call.agent, scope=call.scope, write=writes)
        if isinstance(found, Unbound):
            raise NotFound("This agent has no store yet; it is created when the agent first uses it.", field="agent")
        return found

    def _in_lane(
        self,
        pending: PendingOperation,
        permit: Permit,
        succeed: Callable[[JsonObject], None],
        fail: Callable[[KnowledgeError], None],
    ) -> None:
        call = pending.call
        layout = self._gate.place_of(permit)
        pending.permit = permit
        request = call.request
        assert isinstance(
            request,
            OperatorStatusRequest
            | OperatorDiagnosticsRequest
            | AdoptNotesRequest
            | AcceptDeletionsRequest
            | OperatorRead,
        )
        message = RunTool(request, permit, isinstance(request, AdoptNotesRequest), actor=f"operator:{call.operator.id}")

        def ask(handle: StoreHandle) -> None:
            if not pending.begin():
                return
            reply = handle.ask(
                message,
                deadline=call.deadline,
                fairness_key=f"operator:{call.operator.id}",
                cancellation=call.cancellation,
                correlation_id=call.correlation_id,
            )
            then(reply, succeed, fail)

        opened = self._around.stores.open(permit.vault_id, self._around.settings_of(permit.vault_id, layout))
        then(opened, ask, fail)

    def _settings_of(self, permit: Permit) -> StoreSettings:
        return self._around.settings_of(permit.vault_id, self._gate.place_of(permit))

    def _by(self, call: OperatorCall) -> By:
        return operator_by(call, self._around.now_ms())

    # --- while no lane runs ----------------------------------------------------------------------------

    def _adopt_store(self, pending: PendingOperation, permit: Permit) -> None:
        vault_id, call = permit.vault_id, pending.call
        layout = self._gate.place_of(permit)
        message = AdoptVault(layout, f"operator:{call.operator.id}", self._around.git)
        settings = self._around.settings_of(vault_id, layout)

        def adopted(adoption: Adoption) -> None:
            shown: JsonObject = {"agent": permit.agent, "vaultId": vault_id, "adopted": adoption.to_json()}
            self._resting.release(vault_id, settings, lambda: self._take_over(pending, permit, shown))

        def failed(error: KnowledgeError) -> None:
            self._resting.release(vault_id, None, lambda: pending.fail(error))

        self._resting.held(
            vault_id, pending, lambda: self._resting.cared_for(vault_id, message, ADOPT_SECONDS, adopted, failed)
        )

    def _take_over(self, pending: PendingOperation, permit: Permit, shown: JsonObject) -> None:
        """The vault stands as it is, so also what is missing in it: no guard asks again."""
        call = pending.call
        layout = self._gate.layout_of(permit.vault_id)
        if layout is None:  # no agent uses it any more; the adoption stands
            pending.succeed(shown)
            return
        message = RunTool(AcceptDeletionsRequest(), permit, False, actor=f"operator:{call.operator.id}")

        def ask(handle: StoreHandle) -> None:
            reply = handle.ask(message, deadline=call.deadline, correlation_id=call.correlation_id)
            then(reply, lambda found: pending.succeed({**shown, "files": found["files"]}), partly)

        def partly(error: KnowledgeError) -> None:
            # The adoption stands; that its first scan is still under way is no failure of it.
            pending.succeed({**shown, "opening": refusal(error.code, error.message, {})})

        opened = self._around.stores.open(permit.vault_id, self._around.settings_of(permit.vault_id, layout))
        then(opened, ask, partly)

    def _relocate(self, pending: PendingOperation, request: RelocateStoreRequest) -> None:
        call, vault_id = pending.call, request.store
        self._gate.require_scope(call.operator, call.scope, vault_id=vault_id)

        def planned(move: Move) -> None:
            self._resting.held(vault_id, pending, lambda: self._move(pending, move))

        plan = self._around.authority.ask(PlanMove(vault_id, request.path), deadline=call.deadline)
        then(plan, planned, pending.fail)

    def _move(self, pending: PendingOperation, move: Move) -> None:
        layout, vault_id = self._around.layout, move.vault_id
        by = operator_by(pending.call, self._around.now_ms())

        def failed(error: KnowledgeError) -> None:
            self._resting.release(vault_id, None, lambda: pending.fail(error))

        def moved(how: Moved) -> None:
            switch = self._around.authority.ask(SwitchStore(move, by), deadline=self._resting.within(SWITCH_SECONDS))
            then(switch, lambda at: switched(how, at), undone)

        def undone(error: KnowledgeError) -> None:
            # An answer that got lost may hide a switch that was made: the next start looks, and we touch nothing.
            if error.retry == "unknown":
                failed(error)
                return
            undo = UndoMove(layout, move)
            self._resting.cared_for(vault_id, undo, MOVE_SECONDS, lambda _: failed(error), lambda _: failed(error))

        def switched(how: Moved, at: StoreLayout) -> None:
            def finished(left: tuple[str, ...]) -> None:
                shown: JsonObject = {"vaultId": vault_id, "path": str(at.root), "how": how.how}
                if left:
                    shown["left"] = {"path": str(move.source), "files": list(left)}
                self._resting.release(vault_id, self._around.settings_of(vault_id, at), lambda: pending.succeed(shown))

            self._resting.cared_for(vault_id, FinishMove(layout, move), MOVE_SECONDS, finished, lambda _: finished(()))

        self._resting.cared_for(vault_id, MoveFolder(layout, move), MOVE_SECONDS, moved, failed)

    def _release_store(self, pending: PendingOperation, vault_id: str) -> None:
        """Out of quarantine: stopped first, so that a hold by somebody else is not ended."""
        call = pending.call
        self._gate.require_scope(call.operator, call.scope, vault_id=vault_id)
        layout = self._gate.layout_of(vault_id)
        if layout is None:
            raise NotFound("No store of that identity is used by an agent here.", vaultId=vault_id)
        quarantined = self._around.stores.quarantined(vault_id)
        shown: JsonObject = {"vaultId": vault_id, "released": quarantined}
        if not quarantined:
            if pending.begin():
                pending.succeed(shown)
            return
        settings = self._around.settings_of(vault_id, layout)

        def down() -> None:
            self._resting.release(vault_id, settings, lambda: pending.succeed(shown))

        self._resting.held(vault_id, pending, down)


def operator_by(call: OperatorCall, at: int) -> By:
    """What the audit says of an operator's request."""
    return By(f"operator:{call.operator.id}", call.door, at)
