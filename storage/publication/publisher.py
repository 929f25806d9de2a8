"""Publishing: the one way in which a text of ours gets into a vault.

Guarantees, for every answer: ``published`` and ``conflict`` are final and durable as WRITE-PATH.md section 4 says;
``pending`` is accepted and will be finished; a raised error stored nothing, unless its ``retry`` is ``unknown``. One
sync in the caller's path, for a batch too.

A publisher belongs to one thread, its lane. :func:`storage.publication.sync.sync_files` is the part of the
background step that runs elsewhere.

Source: WRITE-PATH.md sections 2 and 3d, decisions.md section 4.
"""

from __future__ import annotations

import logging
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from messages.errors import (
    KnowledgeError,
    NotFound,
    OpenElsewhere,
    PublicationPending,
    Restarting,
    StaleFence,
    StorageError,
)
from messages.vocabulary import Partition
from storage import files
from storage.manifest import Pair
from storage.publication import entries, placing, sync
from storage.publication.model import ExternalChange, Intent, Projection, Receipt
from storage.publication.opening import Machine, open_state, this_machine
from storage.publication.plan import Plan, plan
from storage.publication.report import RecoveryReport, earlier_messages
from storage.publication.slot import Slot
from storage.publication.store import CLOCK_GRAIN_NS, READ_LIMIT_BYTES, Folders, StoreState, reported
from storage.records import path_key
from storage.state import journal, notices
from storage.state.connection import CommitUncertain, Database
from storage.state.journal import JournalEntry, Step, digest
from storage.vault import replace

log = logging.getLogger(__name__)

FAULT_POINTS = (
    ("target.open", "opening a target before it is replaced"),
    ("target.read", "reading a target before it is replaced"),
    ("target.lease", "asking whether somebody has a target open for writing"),
    ("target.stat", "asking whether a name is taken"),
    ("target.list", "listing the names in a folder that gets a new file"),
)


def open_store(
    folder: Path,
    *,
    projection: Projection,
    clock: Callable[[], int] = time.time_ns,
    git: bool = True,
    vfs: str | None = None,
    this: Callable[[int], Machine] = this_machine,
    can: replace.Capabilities | None = None,
) -> Publisher:
    """Open and recover the store in ``folder``; see :func:`storage.publication.opening.open_state` for errors.

    Afterwards the caller scans, folds external edits in, and only then answers. ``clock`` gives nanoseconds since
    1970.
    """
    state, report = open_state(folder, projection=projection, clock=clock, git=git, vfs=vfs, this=this, can=can)
    return Publisher(state, report)


class Publisher:
    """The write path of one open store."""

    def __init__(self, state: StoreState, report: RecoveryReport) -> None:
        self._state = state
        self.report = report
        recoveries = notices.kept(state.db, state.clock())
        # The newest is this opening's own, if it had anything to tell.
        earlier = recoveries[1:] if report.notices else recoveries
        self.notices = (*report.messages, *(said for at, rows in earlier for said in earlier_messages(at, rows)))
        """What recovery has to tell a person: at this opening, then at those of the last 30 days."""
        self._unsettled = journal.unsettled_entry(state.db)

    @property
    def db(self) -> Database:
        """The store's connection, for reads and, inside :meth:`transaction`, for the catalogue's own rows."""
        return self._state.db

    @property
    def folder(self) -> Path:
        return self._state.folder

    @property
    def root_fd(self) -> int:
        """The descriptor of ``vault/``, open as long as the publisher."""
        return self._state.root_fd

    @property
    def vault_id(self) -> str:
        return self._state.vault_id

    @property
    def incarnation(self) -> int:
        return self._state.incarnation

    @property
    def pair(self) -> Pair:
        """Generation and publication id of the last accepted publication."""
        return self._state.pair

    @property
    def can(self) -> replace.Capabilities:
        """What the vault's file system is able to do."""
        return self._state.can

    @property
    def broken(self) -> bool:
        """Whether a commit failed in a way that only opening the store anew can clear; everything is refused then."""
        return self._state.broken is not None

    @property
    def unpruned(self) -> int:
        """How many entries wait for the background step."""
        return self._state.unpruned

    def pending(self) -> Partition | None:
        """The partition whose reads are blocked by an unfinished publication, if there is one."""
        return None if self._unsettled is None else self._unsettled.partition

    def verify(self) -> None:
        """The vault is the folder that was opened and vault.json carries the pair of the database, or a refusal."""
        with reported("check the vault"):
            self._state.verify()

    @contextmanager
    def transaction(self, *, full: bool, point: str) -> Iterator[None]:
        """A write transaction under this incarnation, for rows beside the journal."""
        try:
            with self._state.transaction(full=full, point=point):
                yield
        except CommitUncertain as error:
            raise StorageError("the database could not commit", reason="io", retry="unknown") from error

    def taken(self, partition: Partition, path: str) -> bool:
        """Whether something has that name on disk, or would have it on a system without case or with one Unicode
        form."""
        with reported("look at a name"), Folders(self._state.root_fd) as folders:
            folder, name = files.split(f"{partition.key}/{files.checked_relative(path)}")
            fd = folders.find(folder)
            if fd is None:
                return False
            # The system's own idea of one name may go beyond ours.
            if files.stat_entry(fd, name, at="target.stat") is not None:
                return True
            wanted = path_key(name)
            # An ASCII name is as long as its key: that spares most names of a full folder the comparison.
            return any(
                path_key(other) == wanted
                for other in files.names_in(fd, at="target.list")
                if len(other) == len(wanted) or not other.isascii()
            )

    def publish(self, intent: Intent, *, fence: AbstractContextManager[object], check: Callable[[], None]) -> Receipt:
        """Publish ``intent`` as a whole or not at all; the same request again gives the same receipt.

        ``fence`` is held from before the durable commit until the answer; ``check`` runs inside that commit and raises
        when the caller's right, deadline or interest has ended. Raises, with nothing stored: ``RequestIdReused``,
        ``PublicationPending`` (another one cannot be finished), ``StaleFence`` (``reason`` ``changed`` or ``taken``:
        fold in and validate again), ``OpenElsewhere``, ``StorageError``, ``FailedClosed``, and what ``check``,
        ``fence`` and the catalogue raise. ``StorageError`` with ``retry: unknown`` may have stored it.
        """
        state = self._state
        known = self.lookup(intent.partition, intent.request_id, intent.payload_hash, intent.operation)
        if known is not None:
            return known
        if not self.finish_pending():
            raise PublicationPending("an earlier change of this store is accepted but not in place yet")
        planned = plan(intent.partition, intent.changes, state.can)
        accepted_at = state.clock() - CLOCK_GRAIN_NS
        publication_id = str(uuid.uuid4())
        self.verify()
        with Folders(state.root_fd) as folders:
            entry: JournalEntry | None = None
            try:
                with reported("stage the change"):
                    before = self._stage(folders, publication_id, planned)
                with fence:
                    entry = self._accept(intent, planned, publication_id, accepted_at, before, check)
                    return self._complete(folders, entry)
            except BaseException as error:
                if entry is None and isinstance(error, Exception) and not self.broken:
                    placing.discard_staged(state, folders, publication_id, planned.steps)
                raise

    def _stage(self, folders: Folders, publication_id: str, planned: Plan) -> dict[str, bytes]:
        """Steps 2 and 3: look at every target, then write every new text beside it, and the next vault.json.

        The texts that will be displaced, by hash.
        """
        state = self._state
        before: dict[str, bytes] = {}
        for step in planned.steps:
            slot = Slot(state, folders, publication_id, step)
            data = None if step.after is None else planned.texts[step.after]
            if step.before is None:
                self._require_free(folders, slot)
                assert data is not None
                folders.make(slot.folder)
                fd = files.create_file(folders.make(slot.staging), slot.staged, data, at="stage.file")
                files.close(fd)
            else:
                before[step.before] = self._stage_over(folders, slot, data)
        pair = Pair(state.pair.generation + 1, publication_id)
        placing.stage_manifest(state, publication_id, pair)
        return before

    def _require_free(self, folders: Folders, slot: Slot) -> None:
        parent = folders.find(slot.folder)
        if parent is not None and files.stat_entry(parent, slot.name, at="target.stat") is not None:
            raise _stale(slot.step, "taken")

    def _stage_over(self, folders: Folders, slot: Slot, data: bytes | None) -> bytes:
        """Check the text that will be displaced and stage ``data`` with its attributes; the displaced bytes."""
        parent = folders.find(slot.folder)
        try:
            if parent is None:
                raise FileNotFoundError
            fd, status = files.open_file(parent, slot.name, at="target.open")
        except (FileNotFoundError, files.UnsafeFile):
            raise _stale(slot.step, "changed") from None
        try:
            old = files.read_open(fd, slot.name, status, limit=READ_LIMIT_BYTES, at="target.read")
            if digest(old) != slot.step.before:
                raise _stale(slot.step, "changed")
            with files.read_lease(fd, at="target.lease") as alone:
                if alone is False:
                    raise OpenElsewhere(
                        "another program has the file open for writing; save and close it there, then try again",
                        id=slot.step.record_id,
                    )
            if data is not None:
                staged = files.create_file(
                    folders.make(slot.staging), slot.staged, data, mode=stat.S_IMODE(status.st_mode), at="stage.file"
                )
                try:
                    files.copy_attributes(fd, status, staged, at="stage.attributes")
                finally:
                    files.close(staged)
        except files.UnsafeFile:
            raise _stale(slot.step, "changed") from None
        finally:
            files.close(fd)
        return old

    def _accept(
        self,
        intent: Intent,
        planned: Plan,
        publication_id: str,
        accepted_at: int,
        before: dict[str, bytes],
        check: Callable[[], None],
    ) -> JournalEntry:
        """Step 4. When COMMIT itself fails, what the reopened database says decides (hole 24)."""
        try:
            with reported("accept the change", uncertain=False):
                return entries.accept(
                    self._state,
                    intent,
                    planned,
                    publication_id=publication_id,
                    accepted_at=accepted_at,
                    before=before,
                    check=check,
                )
        except CommitUncertain as error:
            state = self._state
            if state.broken is not None:
                raise StorageError(
                    "the database failed in the middle of the commit: ask again with the same requestId to learn "
                    "whether it was stored",
                    reason="io",
                    retry="unknown",
                ) from error
            entry = journal.by_request(state.db, intent.partition, intent.request_id)
            if entry is None:
                raise StorageError("the database could not commit; nothing was stored", reason="io") from error
            state.previous = journal.pair_before(state.db, entry.generation or 0)
            state.unpruned += 1
            return entry

    def _complete(self, folders: Folders, entry: JournalEntry) -> Receipt:
        """Steps 5-7. After acceptance an error is no refusal: the entry stays pending and says so."""
        try:
            return placing.complete(self._state, folders, entry)
        except (OSError, KnowledgeError, CommitUncertain) as error:
            return self._left_pending(entry, error)

    def _left_pending(self, entry: JournalEntry, error: Exception) -> Receipt:
        if isinstance(error, Restarting):
            raise Restarting(
                "another lane has taken this store over and finishes the change; ask again with the same requestId",
                retry="unknown",
            ) from error
        log.warning("publication stays pending", extra={"entry": entry.id, "error": type(error).__name__})
        self._unsettled = entry
        try:
            self._state.check_usable()
            now = journal.by_id(self._state.db, entry.id)
        except KnowledgeError:
            return entries.pending_receipt(entry, error)
        final = entries.stored_receipt(now)
        if final is not None:
            self._unsettled = None  # only the answer of the last commit was lost
            return final
        self._unsettled = now
        return entries.pending_receipt(entry, error)

    def lookup(self, partition: Partition, request_id: str, payload_hash: str, operation: str) -> Receipt | None:
        """Table 3d: what this request got before, or ``None`` when it is not known. A pending one is finished now.

        Raises ``RequestIdReused`` when the id belongs to another request.
        """
        self._state.check_usable()
        entry = journal.by_request(self._state.db, partition, request_id)
        if entry is None:
            return None
        entries.require_same(entry, payload_hash, operation)
        return self._final(entry)

    def resume(self, partition: Partition, request_id: str) -> Receipt:
        """Finish a pending publication or its roll-back; the receipt of any other. Never overwrites a person's text.

        Raises ``NotFound`` when the partition has no such request.
        """
        self._state.check_usable()
        entry = journal.by_request(self._state.db, partition, request_id)
        if entry is None:
            raise NotFound("no publication of this partition has that requestId", requestId=request_id)
        return self._final(entry)

    def finish_pending(self) -> bool:
        """Finish the one unfinished publication, if there is one; ``False`` when it still cannot be."""
        return self._unsettled is None or self._final(self._unsettled).state != "pending"

    def _final(self, entry: JournalEntry) -> Receipt:
        final = entries.stored_receipt(entry)
        if final is not None:
            return final
        if entry.generation is not None:
            self._state.previous = journal.pair_before(self._state.db, entry.generation)
        try:
            self._state.check_usable()
            receipt = placing.finish(self._state, journal.by_id(self._state.db, entry.id))
        except (OSError, KnowledgeError, CommitUncertain) as error:
            return self._left_pending(entry, error)
        self._unsettled = None
        return receipt

    def fold_in(self, partition: Partition, changes: Sequence[ExternalChange], *, looked_at: int) -> int:
        """Take a person's edits over as an entry of their own; its sequence.

        ``looked_at`` is the clock (ns since 1970) from before the first of these files was looked at. The edits become
        durable with the next durable commit, and their files with the background step. Raises ``PublicationPending``
        while an earlier publication cannot be finished.
        """
        if not self.finish_pending():
            raise PublicationPending("an earlier change of this store is accepted but not in place yet")
        planned = plan(partition, changes, self._state.can, external=True)
        with reported("take an outside edit over"):
            return entries.fold_in(self._state, partition, changes, planned, looked_at=looked_at - CLOCK_GRAIN_NS)

    def sync_cut(self) -> sync.Cut | None:
        """First part of the background step, in the lane: what :func:`sync_files` is to make durable."""
        if self._state.unpruned == 0:
            return None
        with reported("cut the journal"):
            return sync.cut(self._state)

    def prune(self, synced: sync.Synced, *, minimum_age_ns: int | None = None) -> sync.Pruned:
        """Last part of the background step, in the lane: forget what is durable now."""
        with reported("prune the journal"):
            return sync.prune(self._state, synced, minimum_age_ns=minimum_age_ns)

    def close(self, clean: bool = True) -> bool:
        """Close the store; ``True`` when it is marked clean, so that the next opening has nothing to recover.

        With ``clean`` the whole background step runs first, here. Never raises for a step that cannot be finished.
        """
        try:
            return clean and self._stop_clean()
        finally:
            self._state.close()

    def _stop_clean(self) -> bool:
        try:
            if not self.finish_pending():
                return False
            covered = self.sync_cut()
            if covered is not None:
                self.prune(sync.sync_files(covered), minimum_age_ns=0)
            if self._state.unpruned:
                return False
            with self._state.transaction(full=True, point="clean"):
                self._state.db.execute("UPDATE meta SET clean = 1")
            self._state.db.keep_log(False)
        except (OSError, KnowledgeError, CommitUncertain) as error:
            log.warning("store could not be closed cleanly", extra={"error": type(error).__name__})
            return False
        return True


def _stale(step: Step, reason: str) -> StaleFence:
    words = {
        "changed": "the file was changed outside meanwhile; read the record again",
        "taken": "another file has that name",
    }
    return StaleFence(words[reason], reason=reason, path=step.path, id=step.record_id)


__all__ = ["Publisher", "open_store"]
