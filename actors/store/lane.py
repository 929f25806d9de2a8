"""The lane of one store: the only thread that commits, one request after another.

Owns the store's session (SQLite, vault, every commit). Slow, side-effect free work is asked of the helpers while the
request is parked; then the operation runs again from its beginning on a fresh snapshot.

Source: DESIGN.md (One request, The tree, rules 2-7), WRITE-PATH.md (Background step).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, Literal

from actors.store.checkpoints import Checkpoints
from actors.store.errands import Errands, kept_facts
from actors.store.messages import (
    Checkpointed,
    FilesChanged,
    FilesSynced,
    GivenUp,
    IndexChanged,
    IndexDamaged,
    IndexSynced,
    LookedAtFiles,
    OwnedDescriptor,
    Prepare,
    Prepared,
    RunAgain,
    RunTool,
    StandingDerived,
    StandingOverdue,
    SyncFiles,
    Tick,
    WatchDescriptor,
    WatchWanted,
)
from actors.store.needs import NeedEvidence, NeedIndex, NeedPassage, NeedSource, NeedStanding, NeedUpkeep
from actors.store.operations import table
from actors.store.operations.context import Blocked, OperationContext, refresh
from actors.store.operations.context import Prepared as PreparedFacts
from actors.store.read_indexes import ReadIndexes
from actors.store.settings import StoreSettings
from actors.store.slow_look import SlowLook, WatchTest
from actors.store.standing import StandingErrands
from actors.store.upkeep import UpkeepStep
from actors.supervision import PARKED, ActorContext, Corruption, Envelope, GuardedActor, TellHandle
from messages.envelope import Deadline
from messages.errors import (
    Cancelled,
    DeadlineExceeded,
    FailedClosed,
    IndexUnavailable,
    InternalError,
    KnowledgeError,
    Quarantined,
    ScanIncomplete,
    StaleFence,
    StoreUnavailable,
)
from messages.json_types import JsonObject
from messages.vocabulary import PRIVATE, Partition
from storage.session import PartitionSession, StoreSession
from storage.state.connection import StorageCorrupt
from storage.state.journal import unsettled

logger = logging.getLogger(__name__)

SYNC_SECONDS: Final = 60.0
CHECKPOINT_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 60.0
FENCE_ATTEMPTS: Final = 4
"""How often a publication is tried again when files change between validation and commit."""


@dataclass(frozen=True, slots=True)
class _LookAtNextSlice:
    """To the lane itself: continue the slow look."""


@dataclass(frozen=True, slots=True)
class _OpenNextSlice:
    """To the lane itself: continue opening."""


class Lane(GuardedActor):
    """One serialized lane. ``helpers/...`` are its siblings below the store's supervisor."""

    def __init__(self, context: ActorContext, settings: StoreSettings) -> None:
        super().__init__(context)
        self._settings = settings
        self._session: StoreSession | None = None
        self._opening: Iterator[tuple[int, int]] | None = None
        self._indexes = ReadIndexes(self._open)
        self._indexed: dict[Partition, int] = {}
        self._touched: dict[Partition, int] = {}
        self._announced: dict[Partition, int] = {}
        self._last_health: JsonObject = {}
        self._syncing = False
        self._sync_lost = False
        self._checkpoints = Checkpoints(enabled=settings.git)
        self._slow_look = SlowLook(settings.look_round)
        self._watch_test = WatchTest(settings.watch_test, context.clock.monotonic)
        self._errands = Errands(context)
        self._standing = StandingErrands(context)
        self._indexer = context.ask_handle("helpers/indexer")
        self._file_sync = context.ask_handle("helpers/file sync")
        self._git_queue = context.ask_handle("helpers/git queue")
        self._auditor = context.ask_handle("helpers/auditor")
        self._watcher: TellHandle = context.tell_handle("helpers/watcher")

    # --- life ------------------------------------------------------------------------------------------

    def on_ready(self) -> None:
        """Open the store. One that a person has to put right first is no defect that a restart could mend: the lane
        is up, and every request tries again and gets the refusal."""
        try:
            self._open_store()
        except (FailedClosed, ScanIncomplete, StoreUnavailable) as refusal:
            if isinstance(refusal, FailedClosed):
                # Nothing more is committed before a person has settled it; a revocation need not wait for that.
                self._settings.gate.recovered(self._settings.vault_id)
            logger.error("store cannot be opened", extra={"actor": self.context.name, "code": refusal.code})
            self.context.publish({"vaultId": self._settings.vault_id, "closed": refusal.code})
            self._settings.events.publish(self._settings.vault_id, PRIVATE, "status")
        self.context.start_timer(self._settings.tick, Tick())

    def _open_store(self) -> None:
        """Open database and vault and finish what a crash left; the scan follows in slices."""
        try:
            session = StoreSession.open(self._settings.layout, limits=self._settings.limits, git=self._settings.git)
            try:
                private = session.partition(PRIVATE)
            except BaseException:
                session.abandon()
                raise
        except StorageCorrupt as error:
            self._settings.gate.recovered(self._settings.vault_id)
            raise Corruption(_corrupt(self._settings.vault_id)) from error
        self._session = session
        self._settings.gate.recovered(self._settings.vault_id)
        self._opening = private.open_in_slices()
        self.context.hold({"stage": "scan"})
        self.context.tell_self(_OpenNextSlice())
        self._send_descriptor()

    def on_drained(self) -> None:
        """A clean stop: everything synced, marked clean."""
        if self._session is not None:
            session, self._session = self._session, None
            self._indexes.close()
            with _corruption(self._settings):
                if not session.close(clean=True):
                    self._settings.gate.left_unsettled(self._settings.vault_id)

    def on_ended(self) -> None:
        """After a crash: release descriptors, leave recovery to the next incarnation."""
        self._indexes.close()
        if self._session is not None:
            session, self._session = self._session, None
            self._settings.gate.left_unsettled(self._settings.vault_id)
            session.abandon()

    # --- messages --------------------------------------------------------------------------------------

    def on_ask(self, message: object, envelope: Envelope) -> object:
        match message:
            case RunTool():
                with _corruption(self._settings):
                    try:
                        outcome = self._run(Prepare(message, envelope))
                    except KnowledgeError as error:
                        self._answer_refusal(envelope, error)
                    else:
                        self._answer_outcome(envelope, outcome)
                    self._note_use(message)
                    # Only now: nothing that goes wrong in telling others may turn a committed write into a refusal.
                    self._announce()
                    return PARKED
            case _:
                raise InternalError(f"The lane takes no {type(message).__name__}.")

    def on_tell(self, message: object) -> None:
        with _corruption(self._settings):
            if self._session is None:
                self._while_closed(message)
                return
            match message:
                case Prepared():
                    self._resume(message)
                case FilesSynced():
                    self._files_synced(message)
                case Checkpointed():
                    self._checkpoints.finished(self._open(), message)
                case IndexSynced(state):
                    self._checkpoints.index_synced(state)
                case LookedAtFiles():
                    self._looked_at_files(message)
                case StandingDerived():
                    self._standing.derived(self._open(), message)
                case StandingOverdue():
                    self._standing.overdue(message)
                case _LookAtNextSlice():
                    self._look_at_next_slice()
                case FilesChanged():
                    self._open().partition(PRIVATE).refresh()
                case WatchWanted():
                    self._send_descriptor()
                case Tick():
                    self._tick()
                case RunAgain(parked):
                    self._run_and_answer(parked)
                case GivenUp(envelope):
                    # A parked request does not run, so that nothing of it can have been saved.
                    assert envelope.reply is not None
                    envelope.reply.fail(Cancelled("The caller cancelled the request."))
                case _OpenNextSlice():
                    self._open_next_slice()
                case _:
                    raise InternalError(f"The lane takes no {type(message).__name__}.")
            self._announce()

    def _announce(self) -> None:
        """Tell which partitions have changed since the last time, and a revocation that saves are in place."""
        session = self._session
        if session is None:
            return
        if session.publisher.pending() is None:
            self._settings.gate.finished(self._settings.vault_id)
        for partition in session.opened():
            key = partition.partition
            if self._touched.get(key) == partition.touched:
                continue
            self._touched[key] = partition.touched
            change = partition.catalogue.change
            if self._announced.get(key) != change:
                self._announced[key] = change
                self._settings.events.publish(self._settings.vault_id, key, "changed")

    def _while_closed(self, message: object) -> None:
        """Nothing runs in the background of a store that could not be opened, and nothing was begun that could end."""
        if isinstance(message, Tick):
            self.context.start_timer(self._settings.tick, message)

    # --- one request -----------------------------------------------------------------------------------

    def _run(self, parked: Prepare, facts: PreparedFacts | None = None) -> object:
        """The answer, or ``PARKED`` while a helper works."""
        message, envelope = parked.message, parked.envelope
        check = self._check_of(message, envelope)
        if self._session is None:
            check()
            self._open_store()
        for attempt in range(FENCE_ATTEMPTS):
            check()
            partition = self._open().partition(message.permit.partition)
            blocked = refresh(partition, message.request, check)
            context = self._operation_context(message, partition, check, facts or PreparedFacts(), blocked)
            try:
                outcome = table.run(context, message.request)
            except StaleFence as error:
                # A person saved one of the files meanwhile: fold that in and judge the request anew.
                if "path" not in error.fields:
                    raise
                if attempt == FENCE_ATTEMPTS - 1:
                    raise StaleFence("The file keeps changing outside; read the record again, try later.") from error
                if attempt:
                    # It was refreshed in between and knew nothing of this file's change: the watch may have gone deaf.
                    partition.test_watch()
                continue
            match outcome:
                case NeedIndex(change) if self._indexes.reached(message.permit.partition, change):
                    return self._run(parked, replace(kept_facts(parked), index_change=change))
                case NeedIndex() | NeedEvidence() | NeedUpkeep() | NeedSource() | NeedPassage():
                    self._errands.send(parked, outcome)
                    return PARKED
                case NeedStanding():
                    self._standing.send(parked, outcome, partition.ontology)
                    return PARKED
                case _:
                    if not message.writes:  # a save has checked this before it was accepted, and stands
                        partition.confirm()
                    return outcome
        raise InternalError("A publication was tried without an outcome.")

    def _resume(self, prepared: Prepared) -> None:
        """Run a parked operation again with what its helper found; answers its envelope."""
        parked = prepared.parked
        envelope = parked.envelope
        assert envelope.reply is not None
        if envelope.reply.done() or self._errands.asks_again_soon(prepared):
            return
        try:
            parked, facts = self._errands.facts_of(prepared)
        except KnowledgeError as error:
            envelope.reply.fail(error)
            return
        self._run_and_answer(parked, facts)

    def _run_and_answer(self, parked: Prepare, facts: PreparedFacts | None = None) -> None:
        envelope = parked.envelope
        assert envelope.reply is not None
        if envelope.reply.done():
            return
        try:
            outcome = self._run(parked, facts)
        except KnowledgeError as refusal:
            self._answer_refusal(envelope, refusal)
            return
        self._answer_outcome(envelope, outcome)

    def _answer_outcome(self, envelope: Envelope, outcome: object) -> None:
        assert envelope.reply is not None
        if outcome is not PARKED and not envelope.reply.succeed(outcome):
            self.context.slot.dead_letter(None, "late_answer", envelope.correlation_id)

    def _answer_refusal(self, envelope: Envelope, error: KnowledgeError) -> None:
        """Answer with a typed error. One that may have stored something ends this incarnation too.

        Only opening the store anew tells what its database holds (WRITE-PATH.md, hole 24); until then the commit
        fence stays taken.
        """
        if isinstance(error, InternalError):
            raise error
        assert envelope.reply is not None
        envelope.reply.fail(error)
        if error.retry == "unknown":
            raise InternalError("The store must be opened again before it can answer.")

    def _operation_context(
        self,
        message: RunTool,
        partition: PartitionSession,
        check: Callable[[], None],
        facts: PreparedFacts,
        blocked: Blocked | None,
    ) -> OperationContext:
        gate, permit = self._settings.gate, message.permit

        def fence() -> AbstractContextManager[object]:
            return gate.fence(permit, lambda: self._open().publisher.pending() is not None)

        return OperationContext(
            session=partition,
            agent=message.actor or permit.agent,
            now_ms=self._settings.now_ms(),
            fence=fence,
            check=check,
            open_index=lambda: self._indexes.open(permit.partition),
            index_state=lambda: self._indexes.state(partition),
            git_state=lambda: self._checkpoints.state(self._open(), permit.partition),
            unsettled=lambda: unsettled(self._open().publisher.db, permit.partition),
            writes_enabled=permit.may_write,
            scan_entries=self._settings.limits.entries,
            hub_percentile=self._settings.hub_percentile(),
            workspace=self._settings.workspace,
            prepared=facts,
            index_failed=lambda error: self._index_failed(permit.partition, error),
            blocked=blocked,
        )

    def _check_of(self, message: RunTool, envelope: Envelope) -> Callable[[], None]:
        """Raised between the steps of long work, before anything is accepted: cancelled, overdue or revoked."""
        gate, clock = self._settings.gate, self.context.clock

        def check() -> None:
            if envelope.cancellation.requested:
                raise Cancelled("The caller cancelled the request before it was accepted.")
            if envelope.deadline.passed(clock.monotonic):
                raise DeadlineExceeded("The deadline passed before anything was accepted.")
            gate.check(message.permit, write=message.writes)

        return check

    # --- opening ---------------------------------------------------------------------------------------

    def _open_next_slice(self) -> None:
        opening = self._opening
        if opening is None:
            return
        try:
            progress = next(opening, None)
        except KnowledgeError as refusal:
            if isinstance(refusal, InternalError):
                raise
            # Not a lane that opens for ever: each request meets what is in the way itself, or finds it gone.
            logger.warning("the first scan was refused", extra={"actor": self.context.name, "code": refusal.code})
            progress = None
        if progress is not None:
            done, total = progress
            self.context.hold({"stage": "scan", "done": done, "total": total})
            self.context.tell_self(_OpenNextSlice())
            return
        self._opening = None
        self.context.resume()
        self._publish_health()

    def _send_descriptor(self) -> None:
        descriptor = self._open().partition(PRIVATE).events()
        if descriptor is not None:
            # The helper polls a descriptor of its own: ours may be closed and its number given away.
            self._watcher.tell(WatchDescriptor(OwnedDescriptor(os.dup(descriptor))))

    # --- background ------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self.context.start_timer(self._settings.tick, Tick())
        session = self._open()
        if self._watch_test.due():
            private = session.partition(PRIVATE)
            if not private.test_watch():
                logger.warning("the watch went deaf; files are scanned", extra={"actor": self.context.name})
            if private.edits_waiting:
                # The test has read the events, so the watcher will not tell of them.
                self.context.tell_self(FilesChanged())
        if session.publisher.pending() is not None:
            session.publisher.finish_pending()
        if not self._syncing:
            cut = session.publisher.sync_cut()
            if cut is not None:
                self._syncing = True
                synced = self._file_sync.ask(SyncFiles(cut, self._sync_lost), deadline=self._within(SYNC_SECONDS))
                self.context.pipe(synced, FilesSynced)
        run = self._checkpoints.next(session)
        if run is not None:
            outcome = self._git_queue.ask(run, deadline=self._within(CHECKPOINT_SECONDS))
            self.context.pipe(outcome, Checkpointed)
        for partition in session.opened():
            change = partition.catalogue.change
            if self._indexed.get(partition.partition) != change:
                self._indexed[partition.partition] = change
                self._indexer.tell(IndexChanged(partition.partition), coalesce=partition.partition)
        self._publish_health()

    def _note_use(self, message: RunTool) -> None:
        """Begin what watches over the watch. Maintenance is no use: it looks at the files itself."""
        if self._session is None or isinstance(message.request, UpkeepStep):
            return
        self._watch_test.used()
        pause = self._slow_look.used(self._session)
        if pause is not None:
            self.context.start_timer(pause, _LookAtNextSlice())

    def _look_at_next_slice(self) -> None:
        try:
            work = self._slow_look.slice(self._open())
        except KnowledgeError:
            self._continue_looking()
            raise
        if work is None:
            self._continue_looking()
            return
        looked = self._auditor.ask(work, deadline=self._within(LOOK_SECONDS))
        self.context.pipe(looked, lambda reply: LookedAtFiles(work.partition, reply))

    def _looked_at_files(self, message: LookedAtFiles) -> None:
        """Take over what changed without an event. A slice that could not be looked at is left to the next round."""
        self._continue_looking()
        if message.reply.error() is not None:
            return
        found = message.reply.result(0)
        if found:
            partition = self._open().opened_partition(message.partition)
            if partition is None:  # a conversation that was closed meanwhile stays closed
                return
            partition.refresh()
            partition.read_again(found)

    def _continue_looking(self) -> None:
        pause = self._slow_look.pause(self._open())
        if pause is not None:
            self.context.start_timer(pause, _LookAtNextSlice())

    def _files_synced(self, message: FilesSynced) -> None:
        self._syncing = False
        self._sync_lost = message.reply.error() is not None
        if not self._sync_lost:
            self._open().publisher.prune(message.reply.result(0))

    def _within(self, seconds: float) -> Deadline:
        return Deadline.after(seconds, self.context.clock.monotonic)

    def _publish_health(self) -> None:
        session = self._open()
        private = session.partition(PRIVATE)
        git = self._checkpoints.state(session, PRIVATE)
        state: JsonObject = {
            "live": private.live.live,
            "pending": session.publisher.pending() is not None,
            "git": git.to_json(),
            "recovery": session.publisher.report.kind,
            "notices": list(session.publisher.notices),
        }
        if state != self._last_health:
            self._last_health = state
            self._settings.events.publish(session.vault_id, PRIVATE, "status")
        self.context.publish(
            {
                "vaultId": session.vault_id,
                "generation": session.publisher.pair.generation,
                "unpruned": session.publisher.unpruned,
                **state,
            }
        )

    def _index_failed(self, partition: Partition, error: IndexUnavailable) -> None:
        if error.fields.get("reason") == "corrupt":
            self._indexer.tell(IndexDamaged(partition), coalesce=IndexDamaged(partition))

    def _open(self) -> StoreSession:
        assert self._session is not None, "only what runs with the store open asks for its session"
        return self._session


def _corrupt(vault_id: str) -> Quarantined:
    return Quarantined(
        "The store's database is damaged and was taken out of service; see `knowledge status`.",
        vaultId=vault_id,
        reason="damaged",
        retry="never",
    )


class _corruption:  # noqa: N801 - reads as a statement
    """Turns damaged bytes into the quarantine of this store; other stores are not touched.

    A fence that the damage left taken is released: nothing more is committed by a store in quarantine.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> Literal[False]:
        if isinstance(error, StorageCorrupt):
            self._settings.gate.recovered(self._settings.vault_id)
            raise Corruption(_corrupt(self._settings.vault_id)) from error
        return False
