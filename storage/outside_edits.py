"""What people did to the files: read, guarded against a vanished folder, and taken over into history and catalogue.

Each edit becomes an entry of its own with the bytes before and after (decisions.md section 2). One pass over the paths
that a watch or a scan named; runs on the store's thread.

Source: stores-and-access.md (Runtime, Limits), decisions.md sections 2 and 4, WRITE-PATH.md hole 13.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from messages.errors import DeletionsRefused, ScanIncomplete
from messages.vocabulary import RECORD_MAX_BYTES
from storage import files
from storage.files import Stamp, UnsafeFile
from storage.publication import ExternalChange, Publisher
from storage.records import Finding, ParsedRecord, Record, content_hash, parse_record
from storage.state.catalogue import CatalogueWriter, in_scope, known_revision
from storage.state.catalogue_reader import CatalogueReader, KnownFile
from storage.vault import may_hide_a_change

FOLD_IN_FILES: Final = 500
FOLD_IN_BYTES: Final = 16 * 1024 * 1024
DELETION_GUARD_RECORDS: Final = 20
LOSSES_COUNT_TOGETHER_SECONDS: Final = 60.0

FAULT_POINTS: Final = (
    ("edits.folder", "opening the folder of a file that changed"),
    ("edits.read", "reading a file that changed"),
    ("edits.lease", "asking whether a program is in the middle of writing a file"),
    ("edits.stamps", "noting what was read and found unchanged, or may not be read"),
)

_NO_FOLDER: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_REFUSED: Final = {
    "too_large": f"The file has more than {RECORD_MAX_BYTES} bytes and is not read; shorten it.",
    "symlink": "The file is a symbolic link and is not followed.",
    "hardlink": "The file has a second name (a hard link) and is not read; make it a copy.",
    "not_regular": "This is no regular file.",
    "unreadable": "The file may not be read by this program; give it the right to.",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """Files that may hold something else than the catalogue says: the stamp of each (``None``: gone), and what the
    catalogue says of those that it knows."""

    stamps: Mapping[str, Stamp | None]
    known: Mapping[str, KnownFile]


class RecentLosses:
    """How many records of a partition were lost within the last minute, and how many there were before."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._since = 0.0
        self._known = 0
        self.lost = 0

    def known_before(self, count: Callable[[], int]) -> int:
        """The number of records when the minute began; it begins with the first loss after a minute without."""
        now = self._monotonic()
        if not self._known or now - self._since > LOSSES_COUNT_TOGETHER_SECONDS:
            self.forget()
            self._known = count()
        self._since = now
        return self._known

    def add(self, lost: int) -> None:
        self.lost = max(0, self.lost + lost)

    def forget(self) -> None:
        """Begin anew: a person has accepted what was lost."""
        self._known = self.lost = 0


class OutsideEdits:
    """One pass over what was seen of one partition. ``watching``: events tell of every change, so an unchanged stamp
    proves its file."""

    def __init__(
        self,
        publisher: Publisher,
        projection: CatalogueWriter,
        catalogue: CatalogueReader,
        seen: Seen,
        *,
        watching: bool,
    ) -> None:
        self._seen = seen
        self._overtaken = False
        self._publisher = publisher
        self._projection = projection
        self._catalogue = catalogue
        self._partition = catalogue.partition
        self._watching = watching
        self._unchanged: list[tuple[str, Stamp]] = []
        self._refused: list[tuple[str, Stamp | None, Finding]] = []
        self.unfinished: set[str] = set()
        """Records that a program is in the middle of saving in place: to be looked at again with the next query."""
        self.vanished: dict[str, Stamp | None] = {}
        """Files that were gone when they came to be read."""

    def guard_deletions(self, losses: RecentLosses, *, vanished: bool = False) -> None:
        """Refuse to record the loss of more than 20 records and more than half of the partition's.

        Files that are no records count neither among what is lost nor among what there was. Losses of the last minute
        count together, since a folder that is emptied is seen in many small steps. A record whose file was renamed or
        moved is not lost. ``vanished``: of the files that were gone when they came to be read. Raises
        ``DeletionsRefused``.
        """
        seen = self.vanished if vanished else self._seen.stamps
        gone = [path for path, stamp in seen.items() if stamp is None and self._is_record(path)]
        if losses.lost:
            # What is put back is not lost any more.
            new = (path for path, stamp in seen.items() if stamp is not None and self._known(path) is None)
            losses.add(-len(self._ids_of(new)))
        if not gone:
            return
        known = losses.known_before(self._catalogue.record_count)
        earlier = losses.lost
        if earlier + len(gone) > DELETION_GUARD_RECORDS and (earlier + len(gone)) * 2 > known:
            moved = self._ids_of(path for path, stamp in seen.items() if stamp is not None)
            gone = [path for path in gone if self._is_lost(path, moved)]
            # What came since the minute began counts among what there was.
            known = max(known, earlier + self._catalogue.record_count())
        total = earlier + len(gone)
        if total > DELETION_GUARD_RECORDS and total * 2 > known:
            raise DeletionsRefused(
                f"{total} of {known} records of this partition have vanished at once, as when a folder is unmounted. "
                "Put them back, or run `knowledge store accept-deletions` if they are meant to be gone.",
                missing=total,
                known=known,
            )
        losses.add(len(gone))

    def _is_record(self, path: str) -> bool:
        known = self._known(path)
        return known is not None and known.state != "broken"

    def _is_lost(self, path: str, moved: set[str]) -> bool:
        entry = self._catalogue.by_path(path)
        return entry is None or entry.id not in moved

    def record(self, *, looked_at: int, check: Callable[[], None], vanished: bool = False) -> Iterator[tuple[int, int]]:
        """Take the edits over in batches; yields ``(paths done, paths in all)`` after each. ``vanished``: those files
        that were gone when they came to be read.

        ``looked_at`` is the clock (ns since 1970) from before the first of these files was looked at; ``check`` is
        called between files and may raise.
        """
        seen = dict(self.vanished) if vanished else self._seen.stamps
        batch: list[ExternalChange] = []
        size = 0
        standing: set[str] = set()
        self._projection.forget_read()
        # What left its path comes first: where a move is taken over in two batches, the record ends where it stands.
        for done, path in enumerate(sorted(seen, key=lambda path: (seen[path] is not None, path))):
            check()
            for change in self._changes(path, seen[path]):
                if change.after is not None and change.record_id is not None:
                    if change.record_id in standing:
                        # Two files with one id: a revision is asked for by id and sequence, so each has its own.
                        self._publisher.fold_in(self._partition, batch, looked_at=looked_at)
                        batch, size = [], 0
                        standing.clear()
                    standing.add(change.record_id)
                batch.append(change)
                size += 0 if change.after is None else len(change.after)
            if len(batch) >= FOLD_IN_FILES or size >= FOLD_IN_BYTES:
                self._publisher.fold_in(self._partition, batch, looked_at=looked_at)
                batch, size = [], 0
                standing.clear()
                yield from self._pause(done, len(seen))
            elif done % FOLD_IN_FILES == FOLD_IN_FILES - 1:
                yield from self._pause(done, len(seen))
        if batch:
            self._publisher.fold_in(self._partition, batch, looked_at=looked_at)
        self._note()

    # --- inside ----------------------------------------------------------------------------------------

    def _pause(self, done: int, total: int) -> Iterator[tuple[int, int]]:
        """Let others have their turn, and notice when they took edits over themselves."""
        change = self._catalogue.change
        yield done, total
        self._overtaken = self._overtaken or self._catalogue.change != change

    def _known(self, path: str) -> KnownFile | None:
        return self._catalogue.file(path) if self._overtaken else self._seen.known.get(path)

    def _changes(self, path: str, stamp: Stamp | None) -> Sequence[ExternalChange]:
        """What became of one path, in order; empty when it holds what the catalogue says."""
        known = self._known(path)
        if stamp is None:
            return () if known is None else self._removal(path, known)
        before_reading = time.time_ns()
        try:
            data, read_stamp = self._read(path)
        except FileNotFoundError:
            # Gone since it was looked at: it has to pass the guard like every other loss.
            if known is not None:
                self.vanished[path] = None
            return ()
        except PermissionError:
            # Without a stamp: a right can be given in ways that leave no trace in the file's own times.
            return self._refusal(path, known, None, "unreadable")
        except UnsafeFile as error:
            return self._refusal(path, known, stamp, error.reason)
        vouched = read_stamp if self._vouches(read_stamp, before_reading) else None
        if known is not None and known.hash == content_hash(data):
            if vouched is not None:
                self._unchanged.append((path, vouched))
            return ()
        before = None if known is None or not known.hash else known.hash
        parsed = self._projection.read(data, path)
        if not isinstance(parsed, ParsedRecord):
            if known is not None and known.state == "record" and self._is_being_written(path):
                # Half of a save in place: what a person means is there when their program closes the file.
                self.unfinished.add(path)
                return ()
            return (ExternalChange(path, before, data, vouched),)
        standing = None if before is None else self._catalogue.by_path(path)
        if in_scope(parsed, self._partition):
            record = parsed.record
            now = ExternalChange(path, before, data, vouched, record.id, self._revision_of(record), record.lifecycle)
        else:
            # Its text is kept under no id of this partition, whose readers would find it by that.
            now = ExternalChange(path, before, data, vouched)
        if standing is None or standing.id == now.record_id or known is None:
            return (now,)
        # The file became another record: the one that it was has left it, which its own history must say.
        return (*self._removal(path, known), replace(now, before=None))

    def _refusal(
        self, path: str, known: KnownFile | None, stamp: Stamp | None, reason: str
    ) -> Sequence[ExternalChange]:
        """The file is there and must not, or cannot, be read: named, and what was known of it is no answer any more."""
        self._refused.append((path, stamp, Finding(reason, "", _REFUSED[reason])))
        return () if known is None or not known.hash else self._removal(path, known)

    def _is_being_written(self, path: str) -> bool:
        """Whether some program has the file open for writing; ``False`` where the system cannot tell."""
        try:
            with self._folder(path) as (folder, name):
                fd, _ = files.open_file(folder, name, at="edits.read")
                try:
                    with files.read_lease(fd, at="edits.lease") as alone:
                        return alone is False
                finally:
                    files.close(fd)
        except (FileNotFoundError, PermissionError, UnsafeFile):
            return False  # it is another file by now, or one whose next look will say what is wrong with it
        except OSError as error:
            raise unreadable(path, error) from error

    def _removal(self, path: str, known: KnownFile) -> Sequence[ExternalChange]:
        if not known.hash:  # it was never read, so there is nothing to keep
            self._projection_remove(path)
            return ()
        entry = self._catalogue.by_path(path)
        if entry is None:
            return (ExternalChange(path, known.hash, None),)
        return (ExternalChange(path, known.hash, None, None, entry.id, entry.revision, entry.lifecycle),)

    def _projection_remove(self, path: str) -> None:
        with self._publisher.transaction(full=False, point="edits.stamps"):
            self._projection.remove(self._publisher.db, self._partition, path)

    def _note(self) -> None:
        """Note the stamps of files found unchanged, and the findings on files that may not be read."""
        self._projection.forget_read()
        if not self._unchanged and not self._refused:
            return
        db = self._publisher.db
        with self._publisher.transaction(full=False, point="edits.stamps"):
            self._projection.stamp(db, self._partition, self._unchanged)
            for path, stamp, finding in self._refused:
                self._projection.refuse(db, self._partition, path, stamp, finding)

    def _ids_of(self, paths: Iterable[str]) -> set[str]:
        """The record ids that these files carry now."""
        found = set()
        for path in paths:
            try:
                parsed = parse_record(self._read(path)[0], path)
            except (FileNotFoundError, PermissionError, UnsafeFile):
                continue
            if isinstance(parsed, ParsedRecord):
                found.add(parsed.record.id)
        return found

    def _vouches(self, stamp: Stamp, read_at_ns: int) -> bool:
        """Whether an unchanged stamp will prove an unchanged file.

        Without events a stamp younger than the file system's clock tick may hide a further change. With events such a
        change is named, and whoever hears of it looks at the file's age himself.
        """
        return self._watching or not may_hide_a_change(stamp, read_at_ns)

    def _revision_of(self, record: Record) -> int:
        """The file's, or the last one known, be it of a record that was broken or away meanwhile."""
        return known_revision(record.revision, self._catalogue.last_revision(record.id) or 1)

    def _read(self, path: str) -> tuple[bytes, Stamp]:
        """The file's bytes and stamp. Raises ``FileNotFoundError``, ``PermissionError``, ``UnsafeFile``, and
        ``ScanIncomplete`` when they cannot be had for a reason that is not the file's own."""
        with self._folder(path) as (folder, name):
            try:
                return files.read_file(folder, name, limit=RECORD_MAX_BYTES, at="edits.read")
            except (FileNotFoundError, PermissionError):
                raise
            except BlockingIOError as error:
                raise ScanIncomplete("A file keeps changing while it is read; try again.", path=path) from error
            except OSError as error:
                raise unreadable(path, error) from error

    @contextmanager
    def _folder(self, path: str) -> Iterator[tuple[int, str]]:
        """The open folder of a path, and the name in it. ``FileNotFoundError`` when there is no such folder."""
        folder_path, name = files.split(path)
        whole = f"{self._partition.key}/{folder_path}" if folder_path else self._partition.key
        try:
            folder = files.open_folder(self._publisher.root_fd, whole, at="edits.folder")
        except OSError as error:
            if error.errno in _NO_FOLDER:
                raise FileNotFoundError(path) from error
            raise unreadable(path, error) from error
        try:
            yield folder, name
        finally:
            files.close(folder)


def unreadable(path: str, error: OSError) -> ScanIncomplete:
    """The refusal where a file of a partition cannot be read for a reason that is not the file's own."""
    return ScanIncomplete(
        f"A file of this partition cannot be read ({os.strerror(error.errno or errno.EIO)}), so nothing is answered "
        "from the others alone; try again, and check the disk if it goes on.",
        path=path,
        reason=errno.errorcode.get(error.errno or 0, "EIO"),
    )
