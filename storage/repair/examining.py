"""What is wrong with a store, found by reading alone.

Guarantees: no byte of the store changes. Nobody has the store open. Source: decisions.md section 5 (Maintenance).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import apsw

from messages.errors import KnowledgeError, StoreUnavailable
from messages.json_types import JsonObject
from messages.vocabulary import RECORD_MAX_BYTES, Partition
from storage import files
from storage.faults import effect
from storage.files import UnsafeFile
from storage.layout import StoreLayout
from storage.manifest import Manifest, Pair, claimed_vault_id
from storage.peeking import peek
from storage.publication.store import read_manifest
from storage.state import journal
from storage.state.connection import Database, StorageCorrupt
from storage.state.schema import SCHEMA_VERSION

DatabaseState: TypeAlias = Literal["sound", "missing", "damaged", "newer_format", "unfinished", "foreign", "unreadable"]

FAULT_POINTS: Final = (
    ("examine.look", "looking whether a part of a store is there"),
    ("examine.folder", "opening a folder that is examined"),
    ("examine.read", "reading a file that is examined"),
)
_TABLES: Final = frozenset(("meta", "partition", "blob", "publication", "step", "history", "git_queue"))
_CATALOGUE: Final = frozenset(("catalogue_identity", "catalogue_partition", "file", "record", "name", "citation"))


def _no_check() -> None:
    pass


def database_state(store: StoreLayout, check: Callable[[], None] = _no_check) -> tuple[DatabaseState, str]:
    """How a store's database is, and what shows it. Reads all of it."""
    path = store.state_database
    with effect("examine.look"):
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return "missing", "state.sqlite is missing"
        except OSError as error:
            return "unreadable", f"state.sqlite cannot be reached: {error.strerror}"
    if not stat.S_ISREG(mode):
        return "unreadable", "state.sqlite is no plain file"
    try:
        with peek(path) as database:
            return _state(store, database, check)
    except StorageCorrupt as error:
        return "damaged", str(error)
    except apsw.Error as error:  # tables that are not ours, or lack a column
        return "damaged", f"state.sqlite does not have a store's tables ({type(error).__name__})"
    except (KnowledgeError, OSError) as error:
        return "unreadable", f"state.sqlite cannot be read: {getattr(error, 'message', error)}"


def _state(store: StoreLayout, database: Database, check: Callable[[], None]) -> tuple[DatabaseState, str]:
    version = database.user_version()
    if version > SCHEMA_VERSION:
        return "newer_format", f"state.sqlite has format {version}, this program reads up to {SCHEMA_VERSION}"
    tables = {str(name) for (name,) in database.query("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if version == 0 or not tables >= _TABLES:
        return "damaged", "state.sqlite is no store's database, or has lost its tables"
    if not tables >= _CATALOGUE:
        return "damaged", "state.sqlite has lost tables of its catalogue"
    if not database.is_sound(check):
        return "damaged", "SQLite finds state.sqlite damaged"
    marks = journal.marks(database)
    if not marks.made:
        return "unfinished", "the store was never completely created"
    claimed = claimed_vault_id(store.vault, at="examine.read")
    if claimed is not None and claimed != marks.vault_id:
        return "foreign", "state.sqlite and vault.json belong to different stores"
    return "sound", ""


def manifest_pair(store: StoreLayout) -> tuple[str | None, Pair | None]:
    """The identity and the pair that ``vault.json`` names, as far as it can be read."""
    try:
        root = files.open_root(store.vault, at="examine.folder")
    except OSError:
        return None, None
    try:
        found, _ = read_manifest(root)
    except OSError:
        return None, None
    finally:
        files.close(root)
    return (found.vault_id, found.pair) if isinstance(found, Manifest) else (None, None)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Where the files of one partition and the database differ; all empty when they agree. Paths are relative to it."""

    missing: tuple[str, ...]
    """The catalogue has them, the folder has not."""
    different: tuple[str, ...]
    """They hold other bytes than the catalogue says."""
    lost: tuple[str, ...]
    """History lacks the text that the catalogue names, or has another one under its hash."""

    @property
    def whole(self) -> bool:
        return not (self.missing or self.different or self.lost)

    def to_json(self) -> JsonObject:
        return {"missing": [*self.missing], "different": [*self.different], "lost": [*self.lost]}


def agreement(
    store: StoreLayout, database: Database, partition: Partition, check: Callable[[], None] = _no_check
) -> Agreement:
    """Compare every catalogued file with the disk and with history, byte by byte."""
    rows = database.query(
        "SELECT f.path, f.hash, b.bytes FROM file f JOIN catalogue_partition p ON p.id = f.partition "
        "LEFT JOIN blob b ON b.hash = f.hash WHERE p.key = ? AND f.hash <> '' ORDER BY f.path",
        (partition.key,),
    )
    missing, different, lost = [], [], []
    for path, digest, text in rows:
        check()
        data = read_text(store, partition, str(path))
        if data is None:
            missing.append(str(path))
        elif journal.digest(data) != digest:
            different.append(str(path))
        if text is None or journal.digest(text) != digest:
            lost.append(str(path))
    return Agreement(tuple(missing), tuple(different), tuple(lost))


def read_text(store: StoreLayout, partition: Partition, path: str) -> bytes | None:
    """The bytes of a file; ``None`` where no plain file stands. Raises ``StoreUnavailable`` where it cannot be read."""
    folder_path, name = files.split(f"{partition.key}/{path}")
    try:
        root = files.open_root(store.vault, at="examine.folder")
        try:
            folder = files.open_folder(root, folder_path, at="examine.folder")
        finally:
            files.close(root)
        try:
            return files.read_file(folder, name, limit=2 * RECORD_MAX_BYTES, at="examine.read")[0]
        finally:
            files.close(folder)
    except (FileNotFoundError, NotADirectoryError, UnsafeFile):
        return None
    except OSError as error:
        raise StoreUnavailable(f"A file of the vault cannot be read: {error.strerror}.", reason="unreadable") from error


__all__ = ["Agreement", "DatabaseState", "agreement", "database_state", "manifest_pair", "read_text"]
