"""What people did to the files: read, guarded against a vanished folder, and taken over into history and catalogue.

Each edit becomes an entry of its own with the bytes before and after (decisions.md section 2). One pass over the paths
that a watch or a scan named; runs on the store's thread.

Source: stores-and-access.md (Runtime, Limits), decisions.md sections 2 and 4, WRITE-PATH.md hole 13.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from messages.errors import DeletionsRefused, ScanIncomplete
from messages.vocabulary import RECORD_MAX_BYTES
from storage import files
from storage.files import Stamp, UnsafeFile
from storage.publication import ExternalChange, Publisher
from storage.records import Finding, ParsedRecord, Record, content_hash, parse_record
from storage.state.catalogue import CatalogueWriter, known_revision
from storage.state.catalogue_reader import CatalogueReader, KnownFile
from storage.vault import may_hide_a_change

FOLD_IN_FILES: Final = 500
FOLD_IN_BYTES: Final = 16 * 1024 * 1024
DELETION_GUARD_RECORDS: Final = 20

FAULT_POINTS: Final = (
    ("edits.folder", "opening the folder of a file that changed"),
    ("edits.read", "reading a file that changed"),
    ("edits.stamps", "noting what was read and found unchanged, or may not be read"),
)

_REFUSED: Final = {
    "too_large": f"The file has more than {RECORD_MAX_BYTES} bytes and is not read; shorten it.",
    "symlink": "The file is a symbolic link and is not followed.",
    "hardlink": "The file has a second name (a hard link) and is not read; make it a copy.",
    "not_regular": "This is no regular file.",
}


class OutsideEdits:
    """One pass over one partition. ``watching``: events tell of every change, so an unchanged stamp proves its file."""

    def __init__(
        self, publisher: Publisher, projection: CatalogueWriter, catalogue: CatalogueReader, *, watching: bool
    ) -> None:
        self._publisher = publisher
        self._projection = projection
        self._catalogue = catalogue
        self._partition = catalogue.partition
        self._watching = watching
        self._unchanged: list[tuple[str, Stamp]] = []
        self._refused: list[tuple[str, Stamp, Finding]] = []

    def guard_deletions(self, seen: Mapping[str, Stamp | None]) -> None:
        """Refuse to record the loss of more than 20 records and more than half of the partition.

        A record whose file was renamed or moved is not lost. Raises ``DeletionsRefused``.
        """
        gone = [path for path, stamp in seen.items() if stamp is None and self._catalogue.file(path) is not None]
        known = self._catalogue.file_count() if len(gone) > DELETION_GUARD_RECORDS else 0
        if len(gone) <= DELETION_GUARD_RECORDS or len(gone) * 2 <= known:
            return
        moved = self._ids_of(path for path, stamp in seen.items() if stamp is not None)
        lost = sum(entry is None or entry.id not in moved for entry in map(self._catalogue.by_path, gone))
        if lost > DELETION_GUARD_RECORDS and lost * 2 > known:
            raise DeletionsRefused(
                f"{lost} of {known} records of this partition have vanished at once, as when a folder is unmounted. "
                "Put them back, or run `knowledge store accept-deletions` if they are meant to be gone.",
                missing=lost,
                known=known,
            )

    def record(
        self, seen: Mapping[str, Stamp | None], *, looked_at: int, check: Callable[[], None]
    ) -> Iterator[tuple[int, int]]:
        """Take the edits over in batches; yields ``(paths done, paths in all)`` after each.

        ``looked_at`` is the clock (ns since 1970) from before the first of these files was looked at; ``check`` is
        called between files and may raise.
        """
        batch: list[ExternalChange] = []
        size = 0
        for done, path in enumerate(sorted(seen)):
            check()
            change = self._change(path, seen[path])
            if change is not None:
                batch.append(change)
                size += 0 if change.after is None else len(change.after)
            if len(batch) >= FOLD_IN_FILES or size >= FOLD_IN_BYTES:
                self._publisher.fold_in(self._partition, batch, looked_at=looked_at)
                batch, size = [], 0
                yield done, len(seen)
            elif done % FOLD_IN_FILES == FOLD_IN_FILES - 1:
                yield done, len(seen)
        if batch:
            self._publisher.fold_in(self._partition, batch, looked_at=looked_at)
        self._note()

    # --- inside ----------------------------------------------------------------------------------------

    def _change(self, path: str, stamp: Stamp | None) -> ExternalChange | None:
        """What became of one path; ``None`` when it holds what the catalogue says."""
        known = self._catalogue.file(path)
        if stamp is None:
            return None if known is None else self._removal(path, known)
        try:
            data, read_stamp = self._read(path)
        except FileNotFoundError:
            return None if known is None else self._removal(path, known)
        except UnsafeFile as error:
            finding = Finding(error.reason, "", _REFUSED[error.reason])
            self._refused.append((path, stamp, finding))
            return None if known is None or not known.hash else self._removal(path, known)
        vouched = read_stamp if self._vouches(read_stamp) else None
        if known is not None and known.hash == content_hash(data):
            if vouched is not None:
                self._unchanged.append((path, vouched))
            return None
        before = None if known is None or not known.hash else known.hash
        parsed = parse_record(data, path)
        if not isinstance(parsed, ParsedRecord):
            return ExternalChange(path, before, data, vouched)
        record = parsed.record
        return ExternalChange(path, before, data, vouched, record.id, self._revision_of(record), record.lifecycle)

    def _removal(self, path: str, known: KnownFile) -> ExternalChange | None:
        if not known.hash:  # it was never read, so there is nothing to keep
            self._projection_remove(path)
            return None
        entry = self._catalogue.by_path(path)
        if entry is None:
            return ExternalChange(path, known.hash, None)
        return ExternalChange(path, known.hash, None, None, entry.id, entry.revision, entry.lifecycle)

    def _projection_remove(self, path: str) -> None:
        with self._publisher.transaction(full=False, point="edits.stamps"):
            self._projection.remove(self._publisher.db, self._partition, path)

    def _note(self) -> None:
        """Note the stamps of files found unchanged, and the findings on files that may not be read."""
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
            except (FileNotFoundError, UnsafeFile):
                continue
            if isinstance(parsed, ParsedRecord):
                found.add(parsed.record.id)
        return found

    def _vouches(self, stamp: Stamp) -> bool:
        """Whether an unchanged stamp will prove an unchanged file.

        Without events a stamp younger than the file system's clock tick may hide a further change.
        """
        return self._watching or not may_hide_a_change(stamp, time.time_ns())

    def _revision_of(self, record: Record) -> int:
        known = max((entry.revision for entry in self._catalogue.by_id(record.id)), default=1)
        return known_revision(record.revision, known)

    def _read(self, path: str) -> tuple[bytes, Stamp]:
        folder_path, name = files.split(path)
        whole = f"{self._partition.key}/{folder_path}" if folder_path else self._partition.key
        try:
            folder = files.open_folder(self._publisher.root_fd, whole, at="edits.folder")
        except NotADirectoryError as error:
            raise FileNotFoundError(path) from error
        try:
            return files.read_file(folder, name, limit=RECORD_MAX_BYTES, at="edits.read")
        except BlockingIOError as error:
            raise ScanIncomplete("A file keeps changing while it is read; try again.", path=path) from error
        finally:
            files.close(folder)
