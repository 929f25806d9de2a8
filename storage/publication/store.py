"""One open store: its database, its vault folder, and the incarnation that fences both.

Guarantees: no transaction commits under an incarnation that another opening has superseded. Everything here runs on
the thread that opened the store.

Source: DESIGN.md rule 7, WRITE-PATH.md hole 18 and section 2.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from messages.errors import FailedClosed, Restarting, StorageError, StoreUnavailable
from messages.vocabulary import PUBLICATION_MAX_BYTES
from storage import files
from storage.manifest import (
    MANIFEST_MAX_BYTES,
    MANIFEST_NAME,
    MISSING,
    UNREADABLE,
    Binding,
    Found,
    Pair,
    judge,
    parse_manifest,
)
from storage.publication.model import Projection
from storage.state import journal
from storage.state.connection import CommitUncertain, Database
from storage.state.journal import pair_before
from storage.vault import replace

DATABASE_NAME: Final = "state.sqlite"
VAULT_NAME: Final = "vault"
STAGED_PREFIX: Final = ".kr-"
READ_LIMIT_BYTES: Final = 2 * PUBLICATION_MAX_BYTES
NO_FOLDER: Final = (errno.ENOTDIR, errno.ELOOP)  # something else stands where a folder should
CLOCK_GRAIN_NS: Final = 20_000_000  # a file's times come from a clock that lags by a kernel tick or two

FAULT_POINTS: Final = (
    ("open.folder", "opening a folder of the vault"),
    ("open.database", "comparing state.sqlite with the file that was opened"),
    ("open.manifest", "reading vault.json"),
    ("open.vault", "opening or comparing the vault folder"),
)


@dataclass(slots=True)
class StoreState:
    """What every part of the write path needs; owned by one thread."""

    folder: Path
    db: Database
    root_fd: int
    vault_id: str
    incarnation: int
    can: replace.Capabilities
    projection: Projection
    clock: Callable[[], int]
    git: bool
    vfs: str | None
    pair: Pair
    previous: Pair | None = None  # what vault.json carries while the last accepted entry is being placed
    manifest_stamp: files.Stamp | None = None
    unpruned: int = 0
    broken: Exception | None = None
    database_file: tuple[int, int] | None = None  # device and inode of state.sqlite as it was opened
    _vault_folder: tuple[int, int] | None = None  # device and inode of the folder behind root_fd
    _closed: bool = field(default=False)

    @contextmanager
    def transaction(self, *, full: bool, point: str) -> Iterator[None]:
        """A write transaction of this incarnation. ``Restarting`` when another opening has taken the store over.

        After a failed COMMIT the connection is opened anew and :class:`CommitUncertain` is raised.
        """
        self.check_usable()
        try:
            with self.db.transaction(full=full, point=point):
                self.require_current()
                yield
        except CommitUncertain:
            self._reopen_database()
            raise

    def require_current(self) -> None:
        """Raise ``Restarting`` when another opening has taken the store over: before anything is staged again."""
        self.check_usable()
        row = self.db.query_one("SELECT incarnation FROM meta")
        if row is None or row[0] != self.incarnation:
            raise Restarting("another lane has taken this store over", retry="unknown")

    def check_usable(self) -> None:
        """Raise when a failed commit left the store in a state that only opening it anew can clear."""
        if self.broken is not None:
            raise StoreUnavailable(
                "the database failed in the middle of a commit; the store has to be opened again", retry="unknown"
            ) from self.broken

    def _reopen_database(self) -> None:
        """After a failed COMMIT: make what the file says now the truth, by a durable commit on top of it.

        Frames of the failed commit may lie in the WAL. A durable commit overwrites them, so that a later crash cannot
        bring them back; until one succeeds the store is not usable.
        """
        try:
            with suppress(Exception):
                self.db.close()
            self.db = Database.open(self.folder / DATABASE_NAME, point_prefix="state", vfs=self.vfs)
            self.db.keep_log(True)
            with self.db.transaction(full=True, point="reopen"):
                self.require_current()
                self.db.execute("UPDATE meta SET cuts = cuts + 1")
            self.pair = journal.marks(self.db).current
        except Exception as error:  # noqa: BLE001 - whatever it was, the store is not usable before it is opened anew
            self.broken = error

    def verify(self) -> None:
        """Vault folder and state.sqlite are those that were opened and vault.json carries the expected pair, or a
        typed refusal.

        Costs three ``stat`` calls while vault.json is unchanged.
        """
        self.check_usable()
        self._check_same_folder()
        self._check_same_database()
        status = files.stat_entry(self.root_fd, MANIFEST_NAME, at="open.manifest")
        if status is not None and files.Stamp.of(status) == self.manifest_stamp:
            return
        found, stamp = read_manifest(self.root_fd)
        self.require(found)
        self.manifest_stamp = stamp

    def _check_same_folder(self) -> None:
        """Raise ``StoreUnavailable`` when the vault's path is not the folder that ``root_fd`` has open."""
        if self._vault_folder is None:
            opened = files.stat_open(self.root_fd, at="open.vault")
            self._vault_folder = opened.st_dev, opened.st_ino
        status = files.stat_entry(self.root_fd, f"{self.folder}/{VAULT_NAME}", at="open.vault")
        if status is None:
            raise StoreUnavailable("the vault folder is gone; put it back, or mount its disk again")
        if (status.st_dev, status.st_ino) != self._vault_folder:
            raise StoreUnavailable("the vault folder was replaced by another one while it was open")

    def _check_same_database(self) -> None:
        """An unlinked database still takes commits, and loses them all: what was saved into it would be gone."""
        status = files.stat_entry(self.root_fd, f"{self.folder}/{DATABASE_NAME}", at="open.database")
        found = None if status is None else (status.st_dev, status.st_ino)
        if found is None:
            raise StoreUnavailable(
                "the store's database is gone; put it back from a backup, nothing is saved until then",
                reason="database_lost",
            )
        if self.database_file is not None and found != self.database_file:
            # Whoever put it there wants it to be used: only opening it tells whether it belongs to this vault.
            raise StoreUnavailable(
                "the store's database was replaced and has to be opened again", reason="database_lost", retry="unknown"
            )
        self.database_file = found

    def require(self, found: Found) -> None:
        """Raise the refusal of table 3c unless ``found`` is what the database expects of a running store."""
        verdict = judge(found, self.binding(machine_stop=False))
        if isinstance(verdict, FailedClosed):
            raise verdict

    def binding(self, *, machine_stop: bool, same_folder: bool = False) -> Binding:
        """What the database knows about vault.json now."""
        return binding_of(self.db, machine_stop=machine_stop, same_folder=same_folder)

    def staged_name(self, publication_id: str, ordinal: int | str) -> str:
        """The name under which a text waits beside its target, and what it displaced after that."""
        return f"{STAGED_PREFIX}{publication_id}.{ordinal}.{self.incarnation}"

    def close(self) -> None:
        """Release the descriptors; idempotent."""
        if not self._closed:
            self._closed = True
            try:
                self.db.close()
            finally:
                files.close(self.root_fd)


def binding_of(db: Database, *, machine_stop: bool, same_folder: bool = False) -> Binding:
    """What a store's database knows about vault.json; one statement more than its unpruned entries."""
    marks = journal.marks(db)
    entries = journal.unpruned(db)
    pending = next((entry for entry in entries if entry.state in ("pending", "rolling_back")), None)
    before = None if pending is None or pending.generation is None else pair_before(db, pending.generation)
    accepted = {Pair(e.generation, e.publication_id) for e in entries if e.generation is not None}
    adopting = pending is not None and pending.operation == journal.ADOPT_STORE
    return Binding(marks.vault_id, marks.current, marks.floor, accepted, before, machine_stop, same_folder, adopting)


class Folders:
    """Descriptors of the vault's folders during one operation, opened once each; closed together."""

    __slots__ = ("_fds", "_root_fd", "made")

    def __init__(self, root_fd: int) -> None:
        self._root_fd = root_fd
        self._fds: dict[str, int] = {}
        self.made: list[str] = []

    def __enter__(self) -> Folders:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._fds.values():
            files.close(fd)
        self._fds.clear()

    def open(self, path: str) -> int:
        """The descriptor of a folder; ``FileNotFoundError`` when it is missing."""
        fd = self._fds.get(path)
        if fd is None:
            fd = self._fds[path] = files.open_folder(self._root_fd, path, at="open.folder")
        return fd

    def find(self, path: str) -> int | None:
        """The descriptor of a folder, ``None`` when it or a parent is missing, or is a link or a file."""
        try:
            return self.open(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, *NO_FOLDER):
                return None
            raise

    def make(self, path: str) -> int:
        """The descriptor of a folder, made with its parents when missing; ``made`` remembers which."""
        try:
            return self.open(path)
        except FileNotFoundError:
            parent, name = files.split(path)
            if files.make_folder(self.make(parent), name, at="stage.mkdir"):
                self.made.append(path)
            return self.open(path)

    def discard_made(self) -> None:
        """Remove the folders that this operation made, as far as they are still empty. Never raises ``OSError``."""
        for path in reversed(self.made):
            parent, name = files.split(path)
            with suppress(OSError):
                fd = self._fds.pop(path, None)
                if fd is not None:
                    files.close(fd)
                files.remove_folder(self.open(parent), name, at="unlink.folder")
        self.made.clear()


def staging_folder(path: str) -> str:
    """Where the text for a vault path is staged: its own folder, so that no rename crosses a file system.

    Evidence is staged one level up, in ``artifacts/`` itself: its folders are many and are never walked.
    """
    folder, _ = files.split(path)
    parts = folder.split("/")
    depth = 1 if parts[0] == "private" else 2
    if len(parts) > depth and parts[depth] == "artifacts":
        return "/".join(parts[: depth + 1])
    return folder


def read_manifest(root_fd: int) -> tuple[Found, files.Stamp | None]:
    """The manifest and its stamp. A symbolic link, a folder or an oversized file in its place is unreadable."""
    try:
        data, stamp = files.read_file(root_fd, MANIFEST_NAME, limit=MANIFEST_MAX_BYTES, at="open.manifest")
    except FileNotFoundError:
        return MISSING, None
    except files.UnsafeFile:
        return UNREADABLE, None
    return parse_manifest(data), stamp


class reported:  # noqa: N801 - reads as a statement; a class, since every query passes it
    """Turn what the system said into ``StorageError``, in one place; never with a path of the vault in it.

    ``uncertain=False`` lets a failed COMMIT through as it is, for a caller that looks what became of it.
    """

    __slots__ = ("_uncertain", "_what")

    def __init__(self, what: str, *, uncertain: bool = True) -> None:
        self._what = what
        self._uncertain = uncertain

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        match error:
            case CommitUncertain() if self._uncertain:
                raise StorageError(
                    f"could not {self._what}: the commit failed", reason="io", retry="unknown"
                ) from error
            case OSError():
                raise StorageError(
                    f"could not {self._what}: {error.strerror or type(error).__name__}",
                    reason="file_system",
                    errno=error.errno or 0,
                ) from error


__all__ = [
    "DATABASE_NAME",
    "STAGED_PREFIX",
    "VAULT_NAME",
    "Folders",
    "StoreState",
    "binding_of",
    "read_manifest",
    "reported",
    "staging_folder",
]
