"""Opening, making and deleting an index file.

Source: decisions.md section 8 (search files), DESIGN.md (the indexer's own files).
"""

from __future__ import annotations

import fcntl
import os
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from messages.errors import IndexUnavailable
from storage import files
from storage.faults import effect
from storage.search._candidates import PLACES, PRESENT, places, present
from storage.search._fold import FOLD_VERSION
from storage.state.connection import CACHE_KIB, Database, StorageCorrupt

FORMAT: Final = 2
"""2: current pages are in a second index, by which candidates are found."""
APPLICATION_ID: Final = 0x4B724978  # "KrIx"
FAULT_POINTS: Final = (
    ("search.open", "open an index file"),
    ("search.statement", "run one statement on an index"),
    ("search.checkpoint", "write an index's log back into the file"),
    ("search.rollback", "undo what was begun on an index"),
    ("search.close", "close an index file"),
    ("search.create.begin", "begin making an index's tables"),
    ("search.create.commit", "commit an index's tables"),
    ("search.apply.begin", "begin applying a slice of changes"),
    ("search.apply.commit", "commit a slice with its position"),
    ("search.merge.begin", "begin one step of merging or checking"),
    ("search.merge.commit", "commit one step of merging or checking"),
    ("search.folder", "open the folder of the index files"),
    ("search.folder.make", "make the folder of the index files"),
    ("search.lock", "keep other writers from opening meanwhile"),
    ("search.stat", "see which file has an index's name"),
    ("search.delete", "remove an index file or its log"),
)

Rebuilt: TypeAlias = Literal["missing", "corrupt", "foreign", "older", "reset"]

# ``ascii`` splits at ASCII punctuation alone. What is a token among all other characters was decided by the fold, so
# the Unicode tables of an SQLite version have no say in it.
_SCHEMA: Final = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE document (
    row            INTEGER PRIMARY KEY,            -- the catalogue's
    slot           INTEGER NOT NULL,               -- the text's rowid is (slot << 40) + row
    symbols        INTEGER NOT NULL,               -- whether the table symbol has a row for it
    type           TEXT NOT NULL,
    lifecycle      TEXT NOT NULL,
    recorded_at    INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    occurred_from  INTEGER, occurred_until INTEGER,
    due_from       INTEGER, due_until INTEGER,
    expires_at     INTEGER
) STRICT;
CREATE INDEX document_by_expiry ON document(expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE tag (row INTEGER NOT NULL, tag TEXT NOT NULL, PRIMARY KEY (row, tag)) STRICT, WITHOUT ROWID;
CREATE VIRTUAL TABLE text USING fts5(title, aliases, body, content='', contentless_delete=1, tokenize='ascii');
CREATE VIRTUAL TABLE symbol USING fts5(words, tokenize='ascii', columnsize=0);
CREATE VIRTUAL TABLE stem USING fts5(names, body, content='', contentless_delete=1, tokenize='porter ascii');
INSERT INTO stem(stem, rank) VALUES ('automerge', 0);
INSERT INTO text(text, rank) VALUES ('automerge', 0);
INSERT INTO symbol(symbol, rank) VALUES ('automerge', 0);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
"""


@dataclass(frozen=True, slots=True)
class Identity:
    """What an index file belongs to: the store, the partition, and the database whose changes it counts."""

    vault_id: str
    partition: str
    catalogue: str

    def rows(self) -> dict[str, str]:
        return {"vault": self.vault_id, "partition": self.partition, "catalogue": self.catalogue}


def fold_name() -> str:
    """The fold that an index was written with: another one, or other Unicode tables, give other tokens."""
    return f"{FOLD_VERSION}/{unicodedata.unidata_version}"


def inode(path: Path) -> tuple[int, int] | None:
    """Which file has the name now."""
    with effect("search.stat"):
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino


def log_bytes(path: Path) -> int:
    """The size of the file's write-ahead log."""
    with effect("search.stat"):
        try:
            return os.stat(f"{path}-wal").st_size
        except FileNotFoundError:
            return 0


def open_reader(path: Path, identity: Identity) -> Database:
    """A connection that cannot write. ``IndexUnavailable`` when the file is not this index, whole and current."""
    database = _with_functions(Database.open(path, point_prefix="search", read_only=True))
    try:
        database.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        fault = _fault(database, identity)
        if fault is not None:
            raise IndexUnavailable(f"The keyword index must be rebuilt: its file is {fault}.", reason=fault)
    except BaseException:
        database.close()
        raise
    return database


def open_writer(path: Path, identity: Identity) -> tuple[Database, Rebuilt | None]:
    """The writer's connection, and why the file had to be made anew. Call it with the folder locked."""
    reason: Rebuilt | None = None
    if inode(path) is None:
        reason = "missing"
        delete(path)  # a log without its database must not be replayed into the next one
    else:
        try:
            database = _with_functions(Database.open(path, point_prefix="search"))
            try:
                reason = _fault(database, identity)
                if reason is None:
                    return database, None
            except BaseException:
                database.close()
                raise
            database.close()
        except StorageCorrupt:
            reason = "corrupt"
        delete(path)
    database = _with_functions(Database.open(path, point_prefix="search", create=True))
    try:
        with database.transaction(full=False, point="search.create"):
            database.execute_script(_SCHEMA)
            rows = {**identity.rows(), "fold": fold_name(), "position": "0"}
            database.execute_many("INSERT INTO meta(key, value) VALUES (?, ?)", list(rows.items()))
    except BaseException:
        database.close()
        raise
    return database, reason


def delete(path: Path) -> None:
    """Remove the file with its log. Its readers keep what they have open."""
    folder_fd = files.open_root(path.parent, at="search.folder")
    try:
        for suffix in ("-wal", "-shm", "-journal", ""):
            files.unlink(folder_fd, path.name + suffix, at="search.delete")
    finally:
        files.close(folder_fd)


@contextmanager
def folder_locked(folder: Path) -> Iterator[None]:
    """The folder exists, and no other writer opens or deletes an index in it meanwhile."""
    with effect("search.folder.make"):
        os.makedirs(folder, mode=0o700, exist_ok=True)
    folder_fd = files.open_root(folder, at="search.folder")
    try:
        with effect("search.lock"):
            fcntl.flock(folder_fd, fcntl.LOCK_EX)
        yield
    finally:
        files.close(folder_fd)


def _with_functions(database: Database) -> Database:
    """What queries for candidates read of a row; the file itself needs none of it."""
    database.add_fts5_function(PLACES, places)
    database.add_fts5_function(PRESENT, present)
    return database


def _fault(database: Database, identity: Identity) -> Rebuilt | None:
    if database.user_version() != FORMAT:
        return "older"
    if database.query("PRAGMA application_id") != [(APPLICATION_ID,)]:
        return "foreign"
    found: dict[str, str] = dict(database.query("SELECT key, value FROM meta"))
    if any(found.get(key) != value for key, value in identity.rows().items()):
        return "foreign"
    return None if found.get("fold") == fold_name() and "position" in found else "older"
