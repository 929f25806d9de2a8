"""One open store and its partitions: the catalogue kept equal to the files, and the way to publish.

A :class:`PartitionSession` answers from the catalogue only after :meth:`PartitionSession.refresh` has drained the
watch and recorded what people changed, so that a query sees every edit made before it began. Everything runs on the
thread that opened the store (the lane).

Source: stores-and-access.md (Runtime, Limits), DESIGN.md (The tree), decisions.md sections 2 and 4.
"""

from __future__ import annotations

import errno
import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from messages.errors import PublicationPending, StorageError, StoreUnavailable
from messages.vocabulary import ONTOLOGY_MAX_BYTES, PRIVATE, Partition
from storage import files
from storage.evidence import sweep_copies
from storage.files import Stamp, UnsafeFile
from storage.layout import ONTOLOGY_NAME, StoreLayout
from storage.ontology import Activation, Ontology, activate, core_activation, not_activated
from storage.outside_edits import OutsideEdits, RecentLosses, Seen, unreadable
from storage.parsed_records import ParsedRecords
from storage.publication import Adoption, Intent, Publisher, Receipt, adopt_store, create_store, open_store
from storage.recently_used import OPEN_PARTITIONS_MAX, RecentlyUsed
from storage.records import Finding, ParsedRecord, Record, body_of, parse_record
from storage.state import history
from storage.state.catalogue import CatalogueWriter, create_catalogue, partition_row, replace_catalogue
from storage.state.catalogue_reader import CatalogueReader, Entry, KnownFile
from storage.state.connection import Database
from storage.state.diagnostics import FileFinding, file_findings
from storage.vault import Changes, ScanFinding, ScanLimits, Watch, may_hide_a_change, open_watch, twins

FULL_WARNING_PERCENT: Final = 80
TOGETHER_MAX_CHARS: Final = 16 * 1024
"""Bodies of more UTF-16 units are read one at a time: a list is many records, and each may have megabytes."""

FAULT_POINTS: Final = (
    ("session.folder", "opening a folder whose file is read"),
    ("session.read", "reading a file that changed"),
    ("session.judge", "judging rows again by another ontology"),
)


_NOTHING: Final = Seen({}, {})
_UNCOVERED: Final = {
    "broken": "files cannot be read as records and stay as they are; `knowledge status` names them",
    "withheld": "files are withheld because their scope is missing or not this partition's",
    "refused": "files or folders are not looked into (links, devices, odd names); `knowledge status` names them",
}


class StoreProjection(CatalogueWriter):
    """The catalogue of a new or open store: creates its tables, then follows the files."""

    def create(self, db: Database) -> None:
        create_catalogue(db)

    def upgrade(self, db: Database) -> None:
        replace_catalogue(db)


@dataclass(frozen=True, slots=True)
class Freshness:
    """How a partition learns of edits: ``watching`` by events, ``unavailable`` by scanning on every query."""

    live: str
    reason: str


class StoreSession:
    """One open store. Created and used on one thread."""

    def __init__(self, layout: StoreLayout, limits: ScanLimits, *, git: bool) -> None:
        """Open the store; see :meth:`open`."""
        self.layout = layout
        self._limits = limits
        self.next_touch: Callable[[], int] = itertools.count(1).__next__
        self._partitions: RecentlyUsed[Partition, PartitionSession] = RecentlyUsed(
            OPEN_PARTITIONS_MAX, lambda opened: opened.close(), stays=lambda partition: partition == PRIVATE
        )
        self.projection = StoreProjection(self.ontology_of)
        self.publisher: Publisher = open_store(layout.root, projection=self.projection, git=git)
        # Only the private partition retains files of a workspace.
        sweep_copies(self.publisher.root_fd, PRIVATE)

    @classmethod
    def create(cls, layout: StoreLayout, vault_id: str) -> None:
        """Create the store's folder, database and manifest; continues a creation that a crash cut short."""
        create_store(layout.root, vault_id=vault_id, projection=StoreProjection(lambda _: core_activation().ontology))

    @classmethod
    def adopt(cls, layout: StoreLayout, *, actor: str, git: bool = True) -> Adoption:
        """Take the vault of a store that fails closed as it is; see :func:`storage.publication.adopt_store`."""
        projection = StoreProjection(lambda partition: _ontology_on_disk(layout, partition))
        return adopt_store(layout.root, projection=projection, actor=actor, git=git)

    @classmethod
    def open(cls, layout: StoreLayout, *, limits: ScanLimits, git: bool = True) -> StoreSession:
        """Open the store and finish what a crash left (WRITE-PATH.md, Opening). Raises what ``open_store`` raises."""
        return cls(layout, limits, git=git)

    @property
    def vault_id(self) -> str:
        return self.publisher.vault_id

    def ontology_of(self, partition: Partition) -> Ontology:
        """The vocabulary of a partition, for the projection: recovery may ask before the partition is open."""
        opened = self._partitions.get(partition)
        if opened is not None:
            return opened.ontology
        return _ontology_on_disk(self.layout, partition)

    def partition(self, partition: Partition) -> PartitionSession:
        """The session of a partition; its folder is made on first use. ``ValueError`` for one with a key that is none:
        a session id is a folder's name, and nothing else may become one."""
        opened = self._partitions.get(partition)
        if opened is None:
            Partition.parse(partition.key)
            opened = self._partitions.put(partition, PartitionSession(self, partition, self._limits))
        return opened

    def opened_partition(self, partition: Partition) -> PartitionSession | None:
        """The session of a partition if it is in use; does not open it, nor count as a use."""
        return next((opened for opened in self._partitions if opened.partition == partition), None)

    def opened(self) -> Iterable[PartitionSession]:
        """The partitions in use."""
        return tuple(self._partitions)

    def abandon(self) -> None:
        """Release every descriptor without finishing anything: the next opening recovers."""
        self.close(clean=False)

    def close(self, *, clean: bool = True) -> bool:
        """Close the watches and the database; whether the store was left clean."""
        self._partitions.close()
        return self.publisher.close(clean)


def _ontology_on_disk(layout: StoreLayout, partition: Partition) -> Ontology:
    vault = files.open_root(layout.vault, at="session.folder")
    try:
        return read_ontology(vault, partition).ontology
    finally:
        files.close(vault)


def read_ontology(root_fd: int, partition: Partition) -> Activation:
    """What is in force in a partition. Conversations have ``core`` only; an unreadable extension is not activated."""
    if partition != PRIVATE:
        return core_activation()
    try:
        folder = files.open_folder(root_fd, partition.key, at="session.folder")
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return core_activation()
        # Out of descriptors, or a failing disk: another vocabulary must not be taken for the right one.
        raise StorageError(f"the partition's folder cannot be opened: {error.strerror}", reason="io") from error
    try:
        data, _ = files.read_file(folder, ONTOLOGY_NAME, limit=ONTOLOGY_MAX_BYTES + 1, at="session.read")
    except FileNotFoundError:
        return core_activation()
    except PermissionError:
        return not_activated("unreadable", "The file may not be read by this program; give it the right to.")
    except OSError as error:
        # A failing disk, or a file that is being saved: by another vocabulary the records would be judged wrongly.
        raise unreadable(ONTOLOGY_NAME, error) from error
    except UnsafeFile as error:
        if error.reason != "too_large":
            return not_activated(error.reason, "The file is a link, or no regular file, and is not read.")
        # One byte over the limit: the activation itself reports what is wrong with the file.
        data = b" " * (ONTOLOGY_MAX_BYTES + 1)
    finally:
        files.close(folder)
    return activate(data)


class PartitionSession:
    """One partition of an open store."""

    def __init__(self, store: StoreSession, partition: Partition, limits: ScanLimits) -> None:
        self.store = store
        self.partition = partition
        self._limits = limits
        self._publisher = store.publisher
        self._activation = read_ontology(self._publisher.root_fd, partition)
        self._watch = self._open_watch()
        self._scanned = False
        self._entries = 0
        self._accept_deletions = False
        self._losses = RecentLosses()
        self._unfinished: frozenset[str] = frozenset()
        self.touched = store.next_touch()
        """Rises whenever rows may have changed: with each publication and each edit that was taken over, another
        ontology included. Never a number that an earlier session of this partition had."""
        self._catalogue = CatalogueReader(self._publisher.db, partition)
        self._parsed = ParsedRecords()
        self._compared: tuple[tuple[Database, int], Sequence[ScanFinding]] | None = None

    @property
    def catalogue(self) -> CatalogueReader:
        """The partition's rows, on the connection that is open now: a failed commit opens it anew."""
        if self._catalogue.database is not self._publisher.db:
            self._catalogue = CatalogueReader(self._publisher.db, self.partition)
        return self._catalogue

    # --- freshness -------------------------------------------------------------------------------------

    def refresh(self, check: Callable[[], None] = lambda: None) -> None:
        """Record every edit made before this call, so that the catalogue is the files.

        ``check`` is called between files and may raise (deadline, revocation). Raises ``PublicationPending``,
        ``DeletionsRefused``, ``ScanIncomplete``, ``StoreUnavailable`` and the fail-closed errors.
        """
        self._publisher.verify()
        if self._publisher.pending() == self.partition and not self._publisher.finish_pending():
            raise PublicationPending(
                "An accepted publication of this partition is not finished yet; try again, or call knowledge_resume "
                "with its request id."
            )
        looked_at = time.time_ns()
        try:
            seen, ontology_touched = self._observe(check)
            if ontology_touched or not self._scanned:
                self.reload_ontology()
            for _ in self._record(seen, looked_at, check, accepted=self._accept_deletions):
                pass
        except BaseException:
            # What was drained is not applied: nothing may be answered before a complete scan.
            self._watch.invalidate()
            raise
        self._scanned = True
        self._accept_deletions = False

    def confirm(self) -> None:
        """After a query: the vault, the partition's folder, the database and ``vault.json`` are still those that it
        was answered from. Raises ``StoreUnavailable`` and the fail-closed errors.
        """
        self._publisher.verify()
        self._watch.require_same()

    def read_again(self, paths: Collection[str], check: Callable[[], None] = lambda: None) -> None:
        """Take over what these files hold, whatever their stamps say: a write through a mapping may leave no trace.

        A second name that one of them got elsewhere is found too. Raises as :meth:`refresh` does.
        """
        looked_at = time.time_ns()
        try:
            wanted = frozenset(paths)
            # A second name makes the watch scan everything, and what it had heard of the ontology's file is gone then.
            observed = self._watch.observe(Changes(wanted), self.catalogue.paths_below)
            observed.pop(ONTOLOGY_NAME, None)
            self.reload_ontology()
            left = self._unfinished.difference(observed)
            for _ in self._record(self._differing(observed, wanted), looked_at, check, accepted=False):
                pass
            self._unfinished |= left
        except BaseException:
            self._watch.invalidate()
            raise

    def test_watch(self) -> bool:
        """Whether the watch hears of a file of ours. A deaf one is given up for scans, as :attr:`live` says.

        ``True`` where there is no watch that could be deaf.
        """
        return self._watch.state != "watching" or self._watch.self_test()

    @property
    def edits_waiting(self) -> bool:
        """Whether edits were heard of that no :meth:`refresh` has recorded: nothing tells of them a second time."""
        return self._watch.waiting

    def open_in_slices(self) -> Iterator[tuple[int, int]]:
        """The first refresh in slices, for a lane that has to answer others in between: ``(done, in all)``.

        The ontology is read before the first file is judged by it. Raises as :meth:`refresh` does.
        """
        self._publisher.verify()
        looked_at = time.time_ns()
        try:
            seen, _ = self._observe(lambda: None)
            self.reload_ontology()
            yield 0, len(seen.stamps)
            yield from self._record(seen, looked_at, lambda: None, accepted=self._accept_deletions)
        except BaseException:
            self._watch.invalidate()
            raise
        self._scanned = True
        self._accept_deletions = False

    @property
    def live(self) -> Freshness:
        """How this partition learns of edits."""
        return Freshness(self._watch.state, self._watch.reason or "")

    @property
    def root_fd(self) -> int | None:
        """The partition's open folder; ``None`` while a conversation has none yet."""
        return self._watch.root_fd

    @property
    def entries(self) -> int:
        """Files and folders of the partition, as of the last scan, the saves and the edits since: what the scan limit
        counts."""
        return self._entries

    def events(self) -> int | None:
        """The descriptor that becomes readable when a file changed, or ``None``."""
        return self._watch.fileno()

    def warnings(self, scan_entries: int) -> Sequence[str]:
        """What a person should know before it becomes a refusal."""
        found = []
        if self._entries * 100 >= scan_entries * FULL_WARNING_PERCENT:
            found.append(
                f"{self._entries} of at most {scan_entries} files and folders: raise limits.scanEntries before saves "
                "are refused"
            )
        for what, number in self.uncovered().items():
            found.append(f"{number} {_UNCOVERED[what]}")
        return found

    def uncovered(self) -> Mapping[str, int]:
        """How many files are no records for their readers: ``broken``, ``withheld`` for their scope, or ``refused``.

        Withheld files are reported by this count only.
        """
        counted = {**self.catalogue.file_states(), "refused": len(self._watch.findings)}
        return {what: number for what in _UNCOVERED if (number := counted.get(what, 0))}

    def accept_deletions(self, accepted: bool = True) -> None:
        """Let the next refresh record even the loss of most of the partition: a person said so. ``False``: no more."""
        self._accept_deletions = accepted

    def diagnostics(self, limit: int) -> tuple[Sequence[FileFinding], int]:
        """Up to ``limit`` findings by path, and how many there are: of records, refused names, and the ontology."""
        rows, counted = file_findings(self._publisher.db, self.partition, limit)
        known = {(row.path, row.code) for row in rows}
        refused = (*self._watch.findings, *self._twins())
        others = [FileFinding(found.path, found.code, f"This {found.message}.") for found in refused]
        issues = self._activation.issues
        others += [
            FileFinding(
                path, "duplicate_id", "Another file has the same id, so that nothing is found by it; give one a new id."
            )
            for path in self.catalogue.paths_of_repeated_ids()
        ]
        others += [FileFinding(issue.source, issue.code, issue.message, issue.path) for issue in issues]
        more = [found for found in others if (found.path, found.code) not in known]
        return sorted((*rows, *more), key=lambda found: found.path)[:limit], counted + len(more)

    def _twins(self) -> Sequence[ScanFinding]:
        """Names that some systems take for one another; all names are compared again once a row was written."""
        db = self._publisher.db
        written = (db, db.rows_written)
        if self._compared is None or self._compared[0] != written:
            self._compared = (written, twins(self.catalogue.paths_below("")))
        return self._compared[1]

    # --- reading ---------------------------------------------------------------------------------------

    @property
    def ontology(self) -> Ontology:
        """The effective ontology."""
        return self._activation.ontology

    @property
    def activation(self) -> Activation:
        """The effective ontology with its files and what is wrong with them."""
        return self._activation

    def load(self, entry: Entry) -> Record:
        """The record of a catalogue entry, from the text whose hash the entry has."""
        parsed = self.parsed(entry)
        return parsed.record

    def load_all(self, entries: Collection[Entry]) -> Mapping[int, Record]:
        """The records of these entries by row, in one statement; long ones are left out, for :meth:`load` to read."""
        found: dict[int, Record] = {}
        missing: list[Entry] = []
        for entry in entries:
            known = self._parsed.get(entry.hash, entry.path)
            if known is not None:
                found[entry.row] = known.record
            elif entry.body_size <= TOGETHER_MAX_CHARS:
                missing.append(entry)
        texts = history.texts(self._publisher.db, {entry.hash for entry in missing})
        for entry in missing:
            found[entry.row] = self._parse(entry, texts[entry.hash]).record
        return found

    def bodies(self, entries: Collection[Entry]) -> Mapping[int, str]:
        """The bodies of these entries by row, in one statement, without reading what else their files say. Long ones
        are left out, for :meth:`load` to read."""
        found: dict[int, str] = {}
        missing: list[Entry] = []
        for entry in entries:
            known = self._parsed.get(entry.hash, entry.path)
            if known is not None:
                found[entry.row] = known.record.body
            elif entry.body_size <= TOGETHER_MAX_CHARS:
                missing.append(entry)
        texts = history.texts(self._publisher.db, {entry.hash for entry in missing})
        return found | {entry.row: body_of(texts[entry.hash]) for entry in missing}

    def parsed(self, entry: Entry) -> ParsedRecord:
        """The same with its findings."""
        known = self._parsed.get(entry.hash, entry.path)
        if known is not None:
            return known
        return self._parse(entry, self.source(entry))

    def _parse(self, entry: Entry, text: bytes) -> ParsedRecord:
        found = parse_record(text, entry.path)
        assert isinstance(found, ParsedRecord), "the catalogue holds only files that parse"
        self._parsed.put(found, len(text))
        return found

    def source(self, entry: Entry) -> bytes:
        """The exact bytes of a catalogue entry's file."""
        text = history.text(self._publisher.db, entry.hash)
        assert text is not None, "every text of the catalogue is in history"
        return text

    def broken_files(self, limit: int) -> Sequence[str]:
        """Files of the partition that cannot be read as records just now, at most ``limit``."""
        return self.catalogue.broken_paths(limit)

    def last_readable(self, path: str) -> Record | None:
        """The record that a file held before it could not be read any more, from history."""
        for text in history.texts_of_path(self._publisher.db, self.partition, path):
            parsed = parse_record(text, path)
            if isinstance(parsed, ParsedRecord):
                return parsed.record
        return None

    def taken(self, path: str) -> bool:
        """Whether something has that name here, or would have it on a system without case or with one Unicode form."""
        return self._publisher.taken(self.partition, path)

    # --- writing ---------------------------------------------------------------------------------------

    def publish(self, intent: Intent, *, fence: AbstractContextManager[object], check: Callable[[], None]) -> Receipt:
        """Publish; see :meth:`storage.publication.Publisher.publish`."""
        receipt = self._publisher.publish(intent, fence=fence, check=check)
        self._entries += sum(change.before is None for change in intent.changes)
        self.touched = self.store.next_touch()
        return receipt

    def published(self, request_id: str, payload_hash: str, operation: str) -> Receipt | None:
        """The receipt of a request that was accepted earlier. Raises ``RequestIdReused``."""
        return self._publisher.lookup(self.partition, request_id, payload_hash, operation)

    def close(self) -> None:
        self._watch.close()

    # --- inside ----------------------------------------------------------------------------------------

    def _open_watch(self) -> Watch:
        private = self.store.opened_partition(PRIVATE)
        return open_watch(
            self.store.layout.vault,
            self.partition,
            limits=self._limits,
            host=None if private is None else private._watch,
        )

    def _observe(self, check: Callable[[], None]) -> tuple[Seen, bool]:
        """What may have changed, and whether the ontology's file may have."""
        changes = self._watch.drain()
        if changes.replaced:
            raise StoreUnavailable(
                "Another folder stands where this partition's folder was; put the right one back. Nothing was read "
                "from it.",
                reason="folder_replaced",
            )
        if changes.rescan or not self._scanned:
            scanned = self._watch.scan(check)
            self._entries = scanned.entries
            found = {path: stamp for path, stamp in scanned.files.items() if path != ONTOLOGY_NAME}
            return self._compare(found), self.partition == PRIVATE
        if not (changes or self._unfinished):
            return _NOTHING, False
        if self._unfinished:
            changes = replace(changes, paths=changes.paths | self._unfinished)
        seen = dict(self._watch.observe(changes, self.catalogue.paths_below))
        touched = ONTOLOGY_NAME in seen
        seen.pop(ONTOLOGY_NAME, None)
        return self._differing(seen), touched

    def _record(
        self, seen: Seen, looked_at: int, check: Callable[[], None], *, accepted: bool
    ) -> Iterator[tuple[int, int]]:
        """Take over what was seen; what is being written of it is left to the next look, as ``_unfinished``."""
        if not seen.stamps:
            self._unfinished = frozenset()
            return
        edits = OutsideEdits(
            self._publisher, self.store.projection, self.catalogue, seen, watching=self._watch.state == "watching"
        )
        if accepted:
            self._losses.forget()
        else:
            edits.guard_deletions(self._losses)
        self.touched = self.store.next_touch()
        yield from edits.record(looked_at=looked_at, check=check)
        if edits.vanished:
            if not accepted:
                edits.guard_deletions(self._losses, vanished=True)
            yield from edits.record(looked_at=looked_at, check=check, vanished=True)
        self._unfinished = frozenset(edits.unfinished)

    def _compare(self, found: Mapping[str, Stamp]) -> Seen:
        known, now = self.catalogue.files(), time.time_ns()
        seen: dict[str, Stamp | None] = {path: None for path in known if path not in found}
        seen |= {path: stamp for path, stamp in found.items() if path not in known or _differs(known[path], stamp, now)}
        return Seen(seen, {path: known[path] for path in seen if path in known})

    def _differing(self, stamps: Mapping[str, Stamp | None], wanted: Collection[str] = ()) -> Seen:
        """What the catalogue does not say of these files, and those of them that are wanted whatever it says."""
        found: dict[str, Stamp | None] = {}
        known_files: dict[str, KnownFile] = {}
        now = time.time_ns()
        for path, stamp in stamps.items():
            known = self.catalogue.file(path)
            self._entries += (known is None) - (stamp is None)
            if known is not None:
                known_files[path] = known
            differs = stamp is not None if known is None else _differs(known, stamp, now)
            if differs or path in wanted:
                found[path] = stamp
        return Seen(found, known_files)

    def reload_ontology(self) -> None:
        """Read the ontology's file again; where it says something else now, judge the rows by that."""
        self._activation = read_ontology(self._publisher.root_fd, self.partition)
        db = self._publisher.db
        found = db.query_one("SELECT ontology FROM catalogue_partition WHERE key = ?", (self.partition.key,))
        if found is not None and found[0] == self._activation.ontology.fingerprint:
            return
        self.touched = self.store.next_touch()
        with self._publisher.transaction(full=False, point="session.judge"):
            number = partition_row(db, self.partition)
            if found is not None and found[0]:
                self._judge_again(number)
            db.execute(
                "UPDATE catalogue_partition SET ontology = ? WHERE id = ?",
                (self._activation.ontology.fingerprint, number),
            )

    def _judge_again(self, number: int) -> None:
        db = self._publisher.db
        rows = db.query("SELECT path, hash FROM file WHERE partition = ? AND state = 'record'", (number,))
        for path, digest in rows:
            known = self.catalogue.file(path)
            text = history.text(db, digest)
            if known is not None and text is not None:
                self.store.projection.put(db, self.partition, path, text, known.stamp)


def _differs(known: KnownFile, stamp: Stamp | None, now_ns: int) -> bool:
    """Whether a file has to be read: the same stamp proves nothing of one that was changed a moment ago, since a change
    within the same tick of the file system's clock gets the same times."""
    return known.stamp is None or known.stamp != stamp or may_hide_a_change(known.stamp, now_ns)


@contextmanager
def no_fence() -> Iterator[None]:
    """A fence that always stands: for tests and for the runtime's own publications."""
    yield


__all__ = ["Finding", "Freshness", "PartitionSession", "StoreProjection", "StoreSession", "no_fence", "read_ontology"]
