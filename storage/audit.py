"""The slow looks of maintenance, through a reading connection of its own: nothing here changes a store.

Guarantees: the database check can be ended at any moment; a file is compared by its bytes, never by its stamp; reports
are bounded and name records and requests by their ids, never a text or a file's name. One thread, that which opened it.

Source: decisions.md section 5 (Maintenance).
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from messages.errors import StoreUnavailable
from messages.vocabulary import RECORD_MAX_BYTES, Partition
from storage import files
from storage.evidence import PARTIAL_NAME
from storage.files import UnsafeFile
from storage.layout import ARTIFACTS_NAME, StoreLayout, artifact_folder
from storage.records import content_hash
from storage.state.catalogue_reader import CatalogueReader
from storage.state.connection import Database, StorageCorrupt
from storage.state.upkeep import CataloguedFile
from storage.vault.scan import is_passed_over

GROUPS_MAX: Final = 50
GROUP_IDS_MAX: Final = 10
UNCITED_MAX: Final = 50
UNCITED_AFTER_MS: Final = 24 * 3_600_000
"""A source that was retained a moment ago may be cited by the next call."""

FAULT_POINTS: Final = (
    ("audit.open", "opening a database to look through it"),
    ("audit.statement", "one reading statement of maintenance"),
    ("audit.close", "closing a database after a look"),
    ("audit.folder", "opening a folder to compare what lies in it"),
    ("audit.read", "reading a file whose bytes are compared"),
    ("audit.list", "listing retained sources"),
    ("audit.stat", "looking at the age of a retained source"),
    ("audit.sizes", "measuring a database and its log"),
)

Check: TypeAlias = Callable[[], None]

_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


@dataclass(frozen=True, slots=True)
class Compared:
    """``changed``: files that hold something else than the catalogue says. ``lost``: texts that history should have."""

    changed: tuple[str, ...]
    lost: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Active pages of one type that share a title or alias: ids by group, and how many groups there are."""

    groups: tuple[tuple[str, ...], ...]
    total: int


@dataclass(frozen=True, slots=True)
class Uncited:
    """Retained sources that no record cites, by the request that retained them, and how many there are."""

    requests: tuple[str, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Uploads that nobody went on with: their requests, how many there are, and the bytes they have received."""

    requests: tuple[str, ...]
    total: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a store takes on disk, in bytes; ``texts`` counts those that history and journal hold."""

    texts: int
    text_bytes: int
    database_bytes: int
    wal_bytes: int


class StoreAudit:
    """One open look at a store."""

    def __init__(self, layout: StoreLayout) -> None:
        """Raises ``StoreUnavailable`` for a database that is gone, ``StorageCorrupt`` for one that is none."""
        self._layout = layout
        self._db = Database.open(layout.state_database, point_prefix="audit", read_only=True)

    def database_is_sound(self, check: Check) -> bool:
        """Whether SQLite finds the store's database whole. Reads all of it; ``check`` may raise to end it."""
        return _is_sound(self._db, check)

    def index_is_sound(self, partition: Partition, check: Check) -> bool | None:
        """The same for a partition's keyword index; ``None`` where there is none."""
        try:
            index = Database.open(self._layout.search_index(partition), point_prefix="audit", read_only=True)
        except StoreUnavailable:
            return None
        except StorageCorrupt:
            return False
        try:
            return _is_sound(index, check)
        finally:
            index.close()

    def compare(self, partition: Partition, expected: Sequence[CataloguedFile], check: Check) -> Compared:
        """Read every file and its text in history. A file that is gone or may not be read is left to the next scan."""
        changed, lost = [], []
        root = _folder(self._layout, partition.key)
        if root is None:
            return Compared((), ())
        try:
            for file in expected:
                check()
                digest = _digest(root, file.path)
                if digest is not None and digest != file.hash:
                    changed.append(file.path)
                text = self._db.query_one("SELECT bytes FROM blob WHERE hash = ?", (file.hash,))
                if text is None or hashlib.sha256(text[0]).hexdigest() != file.hash:
                    lost.append(file.path)
        finally:
            files.close(root)
        return Compared(tuple(changed), tuple(lost))

    def duplicates(self, partition: Partition, check: Check) -> Duplicates:
        """Likely duplicates: active pages of one type with a title or alias in common."""
        number = CatalogueReader(self._db, partition).number
        found: dict[tuple[str, ...], None] = {}
        rows = self._db.iterate(
            "SELECT group_concat(DISTINCT r.id) FROM name n JOIN record r ON r.row = n.row WHERE n.partition = ? "
            "AND r.kind = 'page' AND r.lifecycle = 'active' AND r.valid = 1 AND r.fixture = 0 "
            "GROUP BY n.normalised, r.type HAVING count(DISTINCT r.id) > 1",
            (number,),
        )
        for (ids,) in rows:
            check()
            found[tuple(sorted(str(ids).split(",")))] = None
        groups = sorted(found)
        return Duplicates(tuple(group[:GROUP_IDS_MAX] for group in groups[:GROUPS_MAX]), len(groups))

    def uncited(self, partition: Partition, now_ms: int, check: Check) -> Uncited:
        """Sources retained for more than a day that no record of the partition cites."""
        artifacts = _folder(self._layout, f"{partition.key}/{ARTIFACTS_NAME}")
        if artifacts is None:
            return Uncited((), 0)
        number = CatalogueReader(self._db, partition).number
        requests: list[str] = []
        total = 0
        try:
            for entry in files.list_folder(artifacts, at="audit.list"):
                check()
                if is_passed_over(entry.name) or not _is_request(entry.name):
                    continue
                left = self._uncited_files(artifacts, entry.name, partition.key, number, now_ms)
                total += left
                if left and len(requests) < UNCITED_MAX:
                    requests.append(entry.name)
        finally:
            files.close(artifacts)
        return Uncited(tuple(sorted(requests)), total)

    def sizes(self) -> Sizes:
        """What the store takes on disk."""
        row = self._db.query_one("SELECT count(*), coalesce(sum(length(bytes)), 0) FROM blob")
        assert row is not None
        name = self._layout.state_database.name
        root = files.open_root(self._layout.root, at="audit.folder")
        try:
            found = [files.stat_entry(root, each, at="audit.sizes") for each in (name, f"{name}-wal")]
        finally:
            files.close(root)
        database, wal = (0 if status is None else status.st_size for status in found)
        return Sizes(int(row[0]), int(row[1]), database, wal)

    def unfinished(self, partition: Partition, now_ms: int) -> Unfinished:
        """Uploads that received nothing for more than a day and are not complete. They may go on at any time."""
        rows = self._db.query(
            "SELECT u.request_id, u.received FROM upload u JOIN partition p ON p.id = u.partition "
            "WHERE p.key = ? AND u.path IS NULL AND u.at <= ? ORDER BY u.request_id",
            (partition.key, (now_ms - UNCITED_AFTER_MS) * 1_000_000),
        )
        requests = tuple(str(request_id) for request_id, _ in rows[:UNCITED_MAX])
        return Unfinished(requests, len(rows), sum(received for _, received in rows))

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._db.close()

    def _left_behind(self, name: str, request_id: str, key: str) -> bool:
        """Whether a crash left it: of an upload whose row is not there. Others are unfinished."""
        if name != PARTIAL_NAME:
            return False
        begun = self._db.query_one(
            "SELECT 1 FROM upload u JOIN partition p ON p.id = u.partition "
            "WHERE p.key = ? AND u.request_id = ? AND u.path IS NULL",
            (key, request_id),
        )
        return begun is None

    def _uncited_files(self, artifacts: int, request_id: str, key: str, number: int, now_ms: int) -> int:
        try:
            folder = files.open_folder(artifacts, request_id, at="audit.folder")
        except (FileNotFoundError, NotADirectoryError):
            return 0
        try:
            count = 0
            for entry in files.list_folder(folder, at="audit.list"):
                passed = is_passed_over(entry.name) and not self._left_behind(entry.name, request_id, key)
                status = None if passed else files.stat_entry(folder, entry.name, at="audit.stat")
                if status is None or status.st_mtime_ns // 1_000_000 > now_ms - UNCITED_AFTER_MS:
                    continue
                path = f"{artifact_folder(request_id)}/{entry.name}"
                cited = self._db.query_one(
                    "SELECT 1 FROM citation WHERE partition = ? AND path = ? LIMIT 1", (number, path)
                )
                count += cited is None
            return count
        finally:
            files.close(folder)


def differing(
    layout: StoreLayout, partition: Partition, expected: Sequence[CataloguedFile], check: Check
) -> tuple[str, ...]:
    """The paths whose files hold other bytes than expected, or are gone, or may not be read. Opens no database."""
    root = _folder(layout, partition.key)
    if root is None:
        return ()
    found = []
    try:
        for file in expected:
            check()
            if _digest(root, file.path) != file.hash:
                found.append(file.path)
    finally:
        files.close(root)
    return tuple(found)


def _folder(layout: StoreLayout, path: str) -> int | None:
    """A folder of the vault, or ``None`` where there is none."""
    try:
        vault = files.open_root(layout.vault, at="audit.folder")
        try:
            return files.open_folder(vault, path, at="audit.folder")
        finally:
            files.close(vault)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise StoreUnavailable("A folder of the vault cannot be opened.", reason="unreadable") from error


def _is_sound(database: Database, check: Check) -> bool:
    try:
        return database.is_sound(check)
    except StorageCorrupt:
        return False


def _is_request(name: str) -> bool:
    try:
        artifact_folder(name)
    except ValueError:
        return False
    return True


def _digest(root: int, path: str) -> str | None:
    """The hash of a file's bytes now; ``None`` where a scan has to judge it."""
    folder_path, name = files.split(path)
    try:
        folder = files.open_folder(root, folder_path, at="audit.folder")
    except OSError:
        return None
    try:
        return content_hash(files.read_file(folder, name, limit=RECORD_MAX_BYTES, at="audit.read")[0])
    except (OSError, UnsafeFile):
        return None
    finally:
        files.close(folder)
