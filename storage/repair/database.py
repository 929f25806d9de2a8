"""A new database for a store whose old one is lost or damaged, from its vault alone.

Guarantees: the old files are set aside, never removed; so is every staged name of ours in the vault, since only the old
database knew whose text it holds. The new database has the store's identity and a generation above every one that is
known, so that no fence, no lane and no half of before fits. Interrupted anywhere, it can be run again.

Nobody has the store open. Source: WRITE-PATH.md section 6, decisions.md section 2 (A file cannot vouch for itself).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import apsw

from messages.errors import KnowledgeError, StoreUnavailable
from messages.vocabulary import PRIVATE
from storage import files
from storage.backup.restoring import write_vault_manifest
from storage.faults import effect
from storage.layout import StoreLayout
from storage.manifest import Manifest, Pair
from storage.peeking import peek
from storage.publication.store import Folders
from storage.publication.sweep import staged_names
from storage.repair.examining import manifest_pair
from storage.state import journal, schema
from storage.state.catalogue import create_catalogue
from storage.state.connection import Database, StorageCorrupt

DATABASE_LOST: Final = (
    "history: earlier revisions, who made them, and the texts of records whose files are gone",
    "receipts and request ids: a request from before that is repeated counts as a new one",
    "approvals for automatic recall: they are ignored until knowledge_recall gives them again",
    "publications that were accepted and not in place yet, conflicts, and texts that were displaced",
    "unfinished uploads, and descriptors of originals that no record cites",
)
"""What a lost ``state.sqlite`` cannot bring back, for people."""
STAYS: Final = (
    "every record with its id, its revision number and its text, as it lies in the vault",
    "originals, conversations, the ontology, and citations of originals by path and hash",
    "Git history, with every text that was ever checkpointed",
    "whose store it is, and grants: they lie in the registry",
)
"""What it does not touch."""

_STAGED: Final = ".kr-repaired.sqlite"
_FILES: Final = ("", "-wal", "-shm")

FAULT_POINTS: Final = (
    ("repair.folder", "opening the folder of a store that is mended"),
    ("repair.aside", "setting a file of a store aside"),
    ("repair.stage", "removing a new database that a crash cut short"),
    ("repaired.open", "creating a store's new database beside the old one"),
    ("repaired.statement", "one statement on the new database"),
    ("repaired.rollback", "rolling it back"),
    ("repaired.checkpoint", "leaving its log"),
    ("repaired.close", "closing it"),
    ("repair.fill.begin", "beginning to make the new database's tables"),
    ("repair.fill.commit", "making them durable"),
    ("repair.place", "giving the new database its name"),
    ("repair.sync", "making the new database and the names beside it durable"),
)


def rebuild_database(
    store: StoreLayout,
    vault_id: str,
    *,
    new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> str:
    """Put a new, empty database in place; what was set aside ends with the text that is returned.

    The next scan takes every file of the vault over. Raises ``StoreUnavailable`` (no vault, another store's vault).
    """
    claimed, pair = manifest_pair(store)
    if claimed is not None and claimed != vault_id:
        raise StoreUnavailable(
            "The vault belongs to another store; put the right one back. Nothing was changed.", vaultId=claimed
        )
    highest = max(0 if pair is None else pair.generation, _last_generation(store))
    new = Pair(highest + 1, str(new_id()))
    mark = f"damaged-{now().strftime('%Y%m%dT%H%M%S.%fZ')}"
    try:
        root = files.open_root(store.vault, at="repair.folder")
    except OSError as error:
        raise StoreUnavailable(
            "The store's vault is gone; put it back, or mount its disk. Without it there is nothing to build from.",
            reason="no_vault",
        ) from error
    try:
        folder = files.open_root(store.root, at="repair.folder")
        try:
            _fill(store, folder, vault_id, new)
            _set_staged_aside(store, root, mark)
            for suffix in _FILES:
                name = f"{store.state_database.name}{suffix}"
                if files.stat_entry(folder, name, at="repair.folder") is not None:
                    files.rename_over(folder, name, f"{store.state_database.name}.{mark}{suffix}", at="repair.aside")
            # The manifest first: without a database the store is unavailable, and this can be run again.
            write_vault_manifest(root, Manifest(vault_id, new))
            files.rename_over(folder, _STAGED, store.state_database.name, at="repair.place")
            files.fsync(folder, at="repair.sync")
        finally:
            files.close(folder)
    finally:
        files.close(root)
    return mark


def _last_generation(store: StoreLayout) -> int:
    """What the damaged database still says."""
    with suppress(KnowledgeError, StorageCorrupt, OSError, apsw.Error), peek(store.state_database) as database:
        return journal.marks(database).current.generation
    return 0


def _fill(store: StoreLayout, folder: int, vault_id: str, pair: Pair) -> None:
    for suffix in _FILES:
        files.unlink(folder, f"{_STAGED}{suffix}", at="repair.stage")
    database = Database.open(store.root / _STAGED, point_prefix="repaired", create=True)
    try:
        with database.transaction(full=True, point="repair.fill"):
            schema.create_schema(database)
            create_catalogue(database)
            database.execute(
                "INSERT INTO meta (id, vault_id, made, generation, publication_id, floor_generation, "
                "floor_publication_id) VALUES (1, ?1, 1, ?2, ?3, ?2, ?3)",
                (vault_id, pair.generation, pair.publication_id),
            )
            journal.partition_row(database, PRIVATE)
        database.into_one_file()
    finally:
        database.close()
    staged, _ = files.open_file(folder, _STAGED, at="repair.folder")
    try:
        files.fsync(staged, at="repair.sync")
    finally:
        files.close(staged)


def _set_staged_aside(store: StoreLayout, root: int, mark: str) -> None:
    """A staged name may hold a person's text that was displaced: an opening that knows no entry would remove it."""
    with Folders(root) as folders:
        found = [name for name in staged_names(folders) if not name.name.startswith(".kr-probe")]
        if not found:
            return
        target = store.root / f"staged.{mark}"
        with effect("repair.aside"):
            os.makedirs(target, mode=0o700, exist_ok=True)
        aside = files.open_root(target, at="repair.folder")
        try:
            for number, name in enumerate(found):
                source = folders.find(name.folder)
                if source is not None:
                    files.move(source, name.name, aside, f"{number} {name.name.lstrip('.')}", at="repair.aside")
            files.fsync(aside, at="repair.sync")
        finally:
            files.close(aside)


__all__ = ["DATABASE_LOST", "STAYS", "rebuild_database"]
