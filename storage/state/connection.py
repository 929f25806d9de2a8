"""One SQLite connection with the settings, transactions and errors that every database of ours shares.

Guarantees: a transaction is either wholly committed or rolled back, or :class:`CommitUncertain` says that only
reopening can tell; ``full=True`` returns after the commit is durable, ``full=False`` may lose it with the power but
never tear it; no automatic checkpoint runs in a commit; deleted text is overwritten. Each connection belongs to the
thread that opened it.

Errors: :class:`StorageCorrupt` (quarantine), ``Busy``, ``StorageError`` (full, read-only, failing),
``StoreUnavailable`` (gone). Defects in our SQL stay ``apsw`` errors.

Source: WRITE-PATH.md holes 6, 21, 24; decisions.md section 4 (erasure shapes storage).
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

import apsw

from messages.errors import Busy, StorageError, StoreUnavailable
from storage.faults import effect

SqlValue: TypeAlias = "str | int | float | bytes | None"
# Columns are typed by the STRICT tables they come from; each reader unpacks a row it selected by name.
Row: TypeAlias = tuple[Any, ...]

BUSY_TIMEOUT_MS: Final = 2_000
WAL_SIZE_LIMIT_BYTES: Final = 64 * 1024 * 1024
CACHE_KIB: Final = 16 * 1024
STATEMENTS_KEPT: Final = 512
"""A planned statement is kept until so many have run since its last run, the same one again or not. apsw takes no
larger number, and planning one anew costs several runs."""
CHECK_EVERY_STEPS: Final = 1_000
COPY_PAGES: Final = 1_024


class StorageCorrupt(Exception):
    """The bytes on disk are not what we wrote; the store must be taken out of service, not retried."""


class CommitUncertain(Exception):
    """COMMIT failed: the transaction may or may not be there after a crash. Reopen and look."""


class Database:
    """One open connection. Everything runs on the thread that opened it; ``interrupt`` is for any thread."""

    __slots__ = ("_connection", "_full", "_inside", "_prefix", "_statement", "_thread", "_typed", "path")

    def __init__(self, path: Path, connection: apsw.Connection, prefix: str) -> None:
        self.path = path
        self._connection = connection
        self._prefix = prefix
        self._statement = effect(f"{prefix}.statement")
        self._typed = _typed(path)
        self._thread = threading.get_ident()
        self._full = False
        self._inside = False

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        point_prefix: str,
        create: bool = False,
        read_only: bool = False,
        unchangeable: bool = False,
        beside: Path | None = None,
        vfs: str | None = None,
    ) -> Database:
        """Open ``path`` in WAL mode; with ``create`` it is made when missing, with ``read_only`` never written.

        ``beside`` is another database whose tables can be read as ``disk.<name>``, and by their name alone where
        ``path`` has none of that name; it is never written.

        ``unchangeable`` promises that nobody writes it and that its log is empty: no file beside it is made or read.

        Fault points: ``<prefix>.open``, ``<prefix>.statement``, ``<prefix>.checkpoint``, ``<prefix>.close``.
        """
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
        if create:
            flags |= apsw.SQLITE_OPEN_CREATE
        with _typed(path), effect(f"{point_prefix}.open"):
            name = str(path)
            if unchangeable:
                name, flags = f"file:{quote(os.path.abspath(name))}?immutable=1", flags | apsw.SQLITE_OPEN_URI
            if beside is not None:
                flags |= apsw.SQLITE_OPEN_URI
            connection = apsw.Connection(name, flags=flags, vfs=vfs, statementcachesize=STATEMENTS_KEPT)
            try:
                database = cls(path, connection, point_prefix)
                connection.set_busy_timeout(BUSY_TIMEOUT_MS)
                # Without it a statement whose parameter was compared with a partial index's condition is parsed and
                # planned again at each run, which costs six times the run.
                connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
                connection.wal_autocheckpoint(0)  # a checkpoint in the caller's commit costs five times the commit
                for pragma in _PRAGMAS_READ if read_only else _PRAGMAS_WRITE:
                    connection.execute(pragma)
                # Also the first read of the file: a foreign or torn header shows here, not in a request.
                connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
                if beside is not None:
                    connection.execute("ATTACH ? AS disk", (f"file:{quote(os.path.abspath(beside))}?mode=ro",))
            except BaseException:
                connection.close(True)
                raise
        return database

    def query(self, sql: str, parameters: Sequence[SqlValue] = ()) -> list[Row]:
        """All rows of one statement."""
        self._check_usable()
        with self._typed, self._statement:
            return self._connection.execute(sql, parameters).fetchall()

    def query_one(self, sql: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        """The first row, or ``None``."""
        self._check_usable()
        with self._typed, self._statement:
            return next(self._connection.execute(sql, parameters), None)

    def iterate(self, sql: str, parameters: Sequence[SqlValue] = ()) -> Iterator[Row]:
        """Rows as they are stepped, for results too large to hold. Errors are typed while iterating too."""
        self._check_usable()
        with self._typed:
            with self._statement:
                cursor = self._connection.execute(sql, parameters)
            yield from cursor

    def execute(self, sql: str, parameters: Sequence[SqlValue] = ()) -> int:
        """Run one statement for its effect; the number of rows it changed. Writes belong inside :meth:`transaction`."""
        self._check_usable()
        with self._typed, self._statement:
            self._connection.execute(sql, parameters)
            return self._connection.changes()

    def execute_many(self, sql: str, rows: Sequence[Sequence[SqlValue]]) -> None:
        """Run one statement once for each row of parameters."""
        self._check_usable()
        if not rows:
            return
        with self._typed, self._statement:
            self._connection.executemany(sql, rows)

    def execute_script(self, sql: str) -> None:
        """Run several statements without parameters, as a schema file holds them."""
        self.execute(sql)

    @property
    def rows_written(self) -> int:
        """How many rows this connection has written since it was opened: what is unchanged while this is."""
        return self._connection.total_changes()

    @property
    def last_insert_rowid(self) -> int:
        return self._connection.last_insert_rowid()

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    @contextmanager
    def transaction(self, *, full: bool, point: str) -> Iterator[None]:
        """A write transaction: committed when the block ends, rolled back when it raises.

        ``full=True`` makes it, and every earlier commit, durable with one sync. Points: ``<point>.begin``,
        ``<point>.commit``. Raises :class:`CommitUncertain` when COMMIT itself failed.
        """
        self._check_usable()
        connection = self._connection
        if self._inside:
            raise RuntimeError("a transaction inside a transaction")
        attempted = False
        self._inside = True
        try:
            with effect(f"{point}.begin"):
                if full != self._full:  # cannot be changed inside a transaction
                    connection.execute("PRAGMA synchronous=FULL" if full else "PRAGMA synchronous=NORMAL")
                    self._full = full
                connection.execute("BEGIN IMMEDIATE")
            yield
            with effect(f"{point}.commit"):
                attempted = True
                connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                # SQLite may have rolled back on its own, and an injected fault may lie between the two.
                with _quiet(), effect(f"{self._prefix}.rollback"):
                    connection.execute("ROLLBACK")
            if attempted and isinstance(error, Exception):
                raise CommitUncertain(f"the commit to {self.path.name} failed: {type(error).__name__}") from error
            if isinstance(error, (apsw.Error, OSError)):
                raise _translated(error, self.path) from error
            raise
        finally:
            self._inside = False

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """One unchanging view for several reads; it ends with the block."""
        self._check_usable()
        if self._inside:
            raise RuntimeError("a snapshot inside a transaction")
        self._inside = True
        try:
            with self._typed, self._statement:
                self._connection.execute("BEGIN")
            try:
                yield
            finally:
                with self._typed, self._statement:
                    self._connection.execute("ROLLBACK")
        finally:
            self._inside = False

    def is_sound(self, check: Callable[[], None]) -> bool:
        """Whether SQLite finds the whole file in order. Reads all of it; ``check`` is called meanwhile and may raise.

        Raises :class:`StorageCorrupt` for damage that even the look cannot pass.
        """
        self._check_usable()

        def go_on() -> bool:
            check()
            return False

        self._connection.set_progress_handler(go_on, CHECK_EVERY_STEPS)
        try:
            return self.query("PRAGMA quick_check(1)") == [("ok",)]
        finally:
            self._connection.set_progress_handler(None)

    def add_fts5_function(self, name: str, function: Callable[..., SqlValue]) -> None:
        """Let full-text queries of this connection call ``function`` with the row that they are at."""
        self._check_usable()
        with self._typed:
            self._connection.register_fts5_function(name, function)

    def checkpoint(self, mode: Literal["PASSIVE", "TRUNCATE"] = "PASSIVE") -> tuple[int, int]:
        """Copy committed pages from the WAL into the database; ``(frames in the WAL, frames copied)``."""
        self._check_usable()
        with self._typed, effect(f"{self._prefix}.checkpoint"):
            flag = apsw.SQLITE_CHECKPOINT_PASSIVE if mode == "PASSIVE" else apsw.SQLITE_CHECKPOINT_TRUNCATE
            return self._connection.wal_checkpoint(mode=flag)

    def copy_to(self, path: Path, check: Callable[[int, int], None] = lambda done, pages: None) -> None:
        """Make the file ``path`` a complete copy of what this connection sees; others may write meanwhile.

        Inside :meth:`snapshot` it is a copy of exactly that. ``check`` gets the pages done and in all, and may raise.
        The copy is not durable yet. Fault point: ``<prefix>.copy``.
        """
        if threading.get_ident() != self._thread:
            raise RuntimeError(f"{self.path.name} is used by a thread that does not own it")
        with _typed(path), effect(f"{self._prefix}.copy"):
            target = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
            try:
                target.execute("PRAGMA synchronous=OFF")
                with target.backup("main", self._connection, "main") as copying:
                    while not copying.done:
                        copying.step(COPY_PAGES)
                        check(copying.page_count - copying.remaining, copying.page_count)
            finally:
                target.close(True)

    def into_one_file(self) -> None:
        """Leave the log: all of the database lies in its one file when this connection is closed."""
        self.checkpoint("TRUNCATE")
        self.query("PRAGMA journal_mode=DELETE")

    def user_version(self) -> int:
        """The schema version that the file carries; 0 for a new file."""
        row = self.query_one("PRAGMA user_version")
        return int(row[0]) if row else 0

    def keep_log(self, keep: bool) -> None:
        """Whether the write-ahead log, emptied, stays beside the database when its last connection is closed.

        By itself SQLite removes it then, as after a clean stop.
        """
        self._check_usable()
        wanted = ctypes.c_int(keep)
        with self._typed:
            self._connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, ctypes.addressof(wanted))

    def interrupt(self) -> None:
        """Make the running statement fail. Any thread."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection; idempotent. A rolled-back transaction is the only thing it can lose."""
        with effect(f"{self._prefix}.close"):
            self._connection.close(True)

    def _check_usable(self) -> None:
        if threading.get_ident() != self._thread:
            raise RuntimeError(f"{self.path.name} is used by a thread that does not own it")
        if not self._inside and self._connection.in_transaction:
            # The roll-back of the last transaction failed: nothing may see what it wrote.
            with self._typed, effect(f"{self._prefix}.rollback"):
                self._connection.execute("ROLLBACK")


_PRAGMAS_READ: Final = ("PRAGMA query_only=ON", "PRAGMA trusted_schema=OFF", "PRAGMA temp_store=MEMORY")
_PRAGMAS_WRITE: Final = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=NORMAL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA secure_delete=ON",  # an erased text must not survive in a free page
    "PRAGMA trusted_schema=OFF",
    "PRAGMA cell_size_check=ON",
    "PRAGMA temp_store=MEMORY",
    f"PRAGMA journal_size_limit={WAL_SIZE_LIMIT_BYTES}",
    f"PRAGMA cache_size=-{CACHE_KIB}",
)


class _typed:  # noqa: N801 - reads as a statement; a class, since every statement of ours passes it
    """Turn an SQLite or system error that leaves the block into its typed form."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (apsw.Error, OSError)):
            translated = _translated(error, self._path)
            if translated is not error:
                raise translated from error


@contextmanager
def _quiet() -> Iterator[None]:
    try:
        yield
    except (apsw.Error, OSError):
        pass


def _translated(error: apsw.Error | OSError, path: Path) -> Exception:
    """The typed form of an SQLite error; errors that only a defect of ours can cause are returned unchanged."""
    name = path.name
    match error:
        case apsw.CorruptError() | apsw.NotADBError() | apsw.FormatError():
            foreign = isinstance(error, apsw.NotADBError)
            what = "its beginning is not that of a database" if foreign else "SQLite finds it malformed"
            return StorageCorrupt(f"{name} is damaged: {what}")
        case apsw.BusyError() | apsw.LockedError() | apsw.ProtocolError():
            return Busy("The database is locked by another process; try again.")
        case apsw.FullError():
            return StorageError(f"{name} cannot grow: the disk is full", reason="full")
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.AuthError():
            return StorageError(f"{name} cannot be written: it is read-only", reason="read_only")
        case apsw.IOError() | apsw.NoMemError() | apsw.InterruptError():
            return StorageError(f"{name} failed: {type(error).__name__}", reason="io")
        case apsw.CantOpenError():
            return StoreUnavailable(f"{name} cannot be opened: it is missing or not accessible")
        case OSError():
            return StorageError(f"{name} failed: {error.strerror}", reason="io", errno=error.errno or 0)
        case _:
            return error


__all__ = ["CommitUncertain", "Database", "Row", "SqlValue", "StorageCorrupt"]
