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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from actors.authority.gate import PermitGate
from actors.events import EventSink, Silence
from actors.store.checkpoints import Checkpoints
from actors.store.messages import (
    CatchUp,
    Checkpointed,
    FilesChanged,
    FilesSynced,
    IndexChanged,
    IndexDamaged,
    LookedAtFiles,
    OwnedDescriptor,
    Prepare,
    Prepared,
    RunTool,
    SyncFiles,
    Tick,
    VerifyEvidence,
    WatchDescriptor,
    WatchWanted,
)
from actors.store.needs import Need, NeedEvidence, NeedIndex, NeedPassage, NeedSource, NeedUpkeep
from actors.store.operations import table
from actors.store.operations.context import Blocked, OperationContext, refresh
from actors.store.operations.context import Prepared as PreparedFacts
from actors.store.slow_look import SlowLook, WatchTest
from actors.store.sources import Complete, Passage
from actors.store.upkeep import Found, LookThroughRepository, MergeSegments, UpkeepStep, UpkeepWork
from actors.supervision import PARKED, ActorContext, ActorHandle, Corruption, Envelope, GuardedActor, TellHandle
from messages.envelope import Deadline
from messages.errors import (
    Cancelled,
    DeadlineExceeded,
    FailedClosed,
    IndexUnavailable,
    InternalError,
    KnowledgeError,
    NotFound,
    Quarantined,
    Restarting,
    StaleFence,
    StoreUnavailable,
)
from messages.json_types import JsonObject
from messages.vocabulary import HUB_PERCENTILE_DEFAULT, PRIVATE, Partition
from storage.layout import StoreLayout
from storage.recently_used import OPEN_PARTITIONS_MAX, RecentlyUsed
from storage.search import SearchIndex
from storage.session import PartitionSession, StoreSession
from storage.state.catalogue import catalogue_identity
from storage.state.connection import StorageCorrupt
from storage.state.journal import unsettled
from storage.vault import ScanLimits

logger = logging.getLogger(__name__)

HELPER_MARGIN_SECONDS: Final = 0.15
"""A helper's answer must leave time for the operation that waits for it."""
HELPER_RETRY_SECONDS: Final = 0.05
SYNC_SECONDS: Final = 60.0
CHECKPOINT_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 60.0
LOOK_ROUND_SECONDS: Final = 600.0
WATCH_TEST_SECONDS: Final = 10.0
FENCE_ATTEMPTS: Final = 4
"""How often a publication is tried again when files change between validation and commit."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What a store needs to run; the same for every incarnation of its lane. Times in seconds."""

    vault_id: str
    layout: StoreLayout
    gate: PermitGate
    now_ms: Callable[[], int]
    limits: ScanLimits = field(default_factory=ScanLimits)
    git: bool = True
    hub_percentile: Callable[[], float] = lambda: HUB_PERCENTILE_DEFAULT
    """As the configuration says now; asked on the lane's thread."""
    workspace: Callable[[], Path | None] = lambda: None
    """The root of what ``knowledge_attach_file`` may retain, as the configuration says now."""
    tick: float = 2.0
    sync_at_entries: int = 256
    look_round: float = LOOK_ROUND_SECONDS
    """A slow look at the bytes of every file takes so long; 0: none. Ten minutes: a store lives so long after its last
    use, and 100,000 files are then a slice of 64 every 0.4 s, about 1 % of one core."""
    watch_test: float = WATCH_TEST_SECONDS
    """A watch that answers for requests is tested no more often than this: two folder entries made and removed."""
    events: EventSink = field(default_factory=Silence)


@dataclass(frozen=True, slots=True)
class _RunAgain:
    """To the lane itself: run a parked operation from its beginning, since its helper was not there yet."""

    parked: Prepare


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
        self._indexes: RecentlyUsed[Partition, SearchIndex] = RecentlyUsed(
            OPEN_PARTITIONS_MAX, lambda index: index.close()
        )
        self._indexed: dict[Partition, int] = {}
        self._touched: dict[Partition, int] = {}
        self._announced: dict[Partition, int] = {}
        self._last_health: JsonObject = {}
        self._syncing = False
        self._sync_lost = False
        self._checkpoints = Checkpoints(enabled=settings.git)
        self._slow_look = SlowLook(settings.look_round)
        self._watch_test = WatchTest(settings.watch_test, context.clock.monotonic)
        self._indexer = context.ask_handle("helpers/indexer")
        self._verifier = context.ask_handle("helpers/evidence verifier")
        self._source_keeper = context.ask_handle("helpers/source keeper")
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
        except (FailedClosed, StoreUnavailable) as refusal:
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
            self._close_indexes()
            with _corruption(self._settings):
                session.close(clean=True)

    def on_ended(self) -> None:
        """After a crash: release descriptors, leave recovery to the next incarnation."""
        self._close_indexes()
        if self._session is not None:
            session, self._session = self._session, None
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
                case LookedAtFiles():
                    self._looked_at_files(message)
                case _LookAtNextSlice():
                    self._look_at_next_slice()
                case FilesChanged():
                    self._open().partition(PRIVATE).refresh()
                case WatchWanted():
                    self._send_descriptor()
                case Tick():
                    self._tick()
                case _RunAgain(parked):
                    self._run_and_answer(parked)
                case _OpenNextSlice():
                    self._open_next_slice()
                case _:
                    raise InternalError(f"The lane takes no {type(message).__name__}.")
            self._announce()

    def _announce(self) -> None:
        """Tell who listens which partitions have changed since the last time."""
        session = self._session
        if session is None:
            return
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
                continue
            if isinstance(outcome, NeedIndex | NeedEvidence | NeedUpkeep | NeedSource | NeedPassage):
                return self._prepare(parked, outcome, check)
            return outcome
        raise InternalError("A publication was tried without an outcome.")

    def _prepare(self, parked: Prepare, need: Need, check: Callable[[], None]) -> object:
        """Ask a helper; its answer comes back as :class:`Prepared`."""
        envelope = parked.envelope
        permit = parked.message.permit
        deadline = Deadline(envelope.deadline.at - HELPER_MARGIN_SECONDS)
        correlation_id, fairness_key = envelope.correlation_id, envelope.fairness_key
        match need:
            case NeedIndex(change):
                if self._index_reached(permit.partition, change):
                    return self._run(parked, PreparedFacts(index_change=change, verdicts=parked.verdicts))
                waiting = replace(parked, since_change=change)
                index_reply = self._indexer.ask(
                    CatchUp(permit.partition, change),
                    deadline=deadline,
                    correlation_id=correlation_id,
                    fairness_key=fairness_key,
                )
                self.context.pipe(index_reply, lambda done: Prepared(waiting, done), envelope)
            case NeedEvidence(citations, fresh, excerpts):
                evidence_reply = self._verifier.ask(
                    VerifyEvidence(permit.partition, citations, fresh, excerpts),
                    deadline=deadline,
                    correlation_id=correlation_id,
                    fairness_key=fairness_key,
                )
                self.context.pipe(evidence_reply, lambda done: Prepared(parked, done), envelope)
            case NeedUpkeep(work):
                upkeep_reply = self._helper_of(work).ask(
                    work,
                    deadline=deadline,
                    correlation_id=correlation_id,
                    fairness_key=fairness_key,
                    cancellation=envelope.cancellation,
                )
                self.context.pipe(upkeep_reply, lambda done: Prepared(parked, done), envelope)
            case NeedSource(source_work):
                source_reply = self._source_keeper.ask(
                    source_work,
                    deadline=deadline,
                    correlation_id=correlation_id,
                    fairness_key=fairness_key,
                    cancellation=envelope.cancellation,
                )
                self.context.pipe(source_reply, lambda done: Prepared(parked, done), envelope)
            case NeedPassage(passage_work):
                passage_reply = self._verifier.ask(
                    passage_work,
                    deadline=deadline,
                    correlation_id=correlation_id,
                    fairness_key=fairness_key,
                    cancellation=envelope.cancellation,
                )
                self.context.pipe(passage_reply, lambda done: Prepared(parked, done), envelope)
        return PARKED

    def _helper_of(self, work: UpkeepWork) -> ActorHandle:
        match work:
            case LookThroughRepository():
                return self._git_queue
            case MergeSegments():
                return self._indexer
            case _:
                return self._auditor

    def _resume(self, prepared: Prepared) -> None:
        """Run a parked operation again with what its helper found; answers its envelope."""
        parked = prepared.parked
        envelope = parked.envelope
        assert envelope.reply is not None
        if envelope.reply.done():
            return
        facts = PreparedFacts(verdicts=parked.verdicts, complete=parked.complete)
        error = prepared.reply.error()
        if isinstance(error, NotFound | Restarting) and self._may_wait(envelope):
            # A helper that is only being started: after a lane it comes up a moment later.
            self.context.start_timer(HELPER_RETRY_SECONDS, _RunAgain(parked), envelope)
            return
        if parked.since_change is not None:
            problem = None if error is None else f"the keyword index is not ready: {error.code}"
            facts = replace(facts, index_change=parked.since_change, index_problem=problem)
        elif error is not None:
            envelope.reply.fail(error)
            return
        else:
            answer = prepared.reply.result(0)
            assert not isinstance(answer, int)
            if isinstance(answer, Found):
                facts = replace(facts, found=answer)
            elif isinstance(answer, Complete):
                parked = replace(parked, complete=answer)
                facts = replace(facts, complete=answer)
            elif isinstance(answer, Passage):
                facts = replace(facts, passage=answer)
            else:
                parked = replace(parked, verdicts={**parked.verdicts, **answer})
                facts = replace(facts, verdicts=parked.verdicts)
        self._run_and_answer(parked, facts)

    def _may_wait(self, envelope: Envelope) -> bool:
        left = envelope.deadline.at - HELPER_MARGIN_SECONDS - self.context.clock.monotonic()
        return left > HELPER_RETRY_SECONDS

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
            return gate.fence(permit)

        return OperationContext(
            session=partition,
            agent=message.actor or permit.agent,
            now_ms=self._settings.now_ms(),
            fence=fence,
            check=check,
            open_index=lambda: self._index(permit.partition),
            index_state=lambda: self._index_state(partition),
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
        if self._watch_test.due() and not session.partition(PRIVATE).test_watch():
            logger.warning("the watch went deaf; files are scanned", extra={"actor": self.context.name})
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
            partition = self._open().partition(message.partition)
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
            "notices": list(session.publisher.report.messages),
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

    # --- the index ---------------------------------------------------------------------------------------

    def _index(self, partition: Partition) -> SearchIndex:
        """A reading connection beside the indexer's. Raises ``IndexUnavailable``."""
        opened = self._indexes.get(partition)
        if opened is None:
            session = self._open()
            opened = SearchIndex.open(
                session.layout.search_index(partition),
                vault_id=session.vault_id,
                partition=partition.key,
                catalogue=catalogue_identity(session.publisher.db),
                read_only=True,
            )
            self._indexes.put(partition, opened)
        return opened

    def _index_failed(self, partition: Partition, error: IndexUnavailable) -> None:
        if error.fields.get("reason") == "corrupt":
            self._indexer.tell(IndexDamaged(partition), coalesce=IndexDamaged(partition))

    def _index_reached(self, partition: Partition, change: int) -> bool:
        try:
            return self._index(partition).position() >= change
        except IndexUnavailable:
            return False

    def _index_state(self, partition: PartitionSession) -> str:
        try:
            position = self._index(partition.partition).position()
        except IndexUnavailable:
            return "rebuilding" if partition.catalogue.change else "current"
        return "current" if position >= partition.catalogue.change else "behind"

    def _close_indexes(self) -> None:
        self._indexes.close()

    def _open(self) -> StoreSession:
        assert self._session is not None, "the lane's session is open from on_ready to its end"
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
