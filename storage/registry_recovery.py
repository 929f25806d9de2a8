"""When the registry is lost: what is found of the stores on disk, and making a new registry because a person says so.

Guarantees: looking changes nothing. A rebuild enters exactly the stores that it was given, sets the old files aside
under another name and never removes them, and is complete and durable before the one rename that puts it in place: a
crash on the way leaves a registry that is still refused, and the rebuild can be run again.

Who used which store is not written in any store; the writers that its history names are a hint for a person.

Source: stores-and-access.md (Storage layout: a missing or emptied registry needs recovery), decisions.md section 6
(nothing is adopted at start; a copy beside its original is refused). One thread, under the owner lock.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from messages.errors import DuplicateIdentity, KnowledgeError, StoreUnavailable
from messages.json_types import JsonObject
from storage import files, registry_audit
from storage.layout import Layout, StoreLayout
from storage.manifest import claimed_vault_id
from storage.peeking import peek
from storage.registry import Holder, columns_of, location_of, store_folders
from storage.registry_audit import By
from storage.registry_schema import FIRST, FORWARD
from storage.registry_sentinel import read_sentinel, write_sentinel
from storage.state.connection import Database, StorageCorrupt

WRITERS_SHOWN: Final = 20
_STAGED: Final = ".registry.rebuilt"
_FILES: Final = ("", "-wal", "-shm")  # the database first: without it nothing takes the others for its own

FAULT_POINTS: Final = (
    ("rebuild.look", "opening a folder that may be a store's, and its manifest"),
    ("rebuild.look.read", "reading that manifest"),
    ("rebuild.look.stat", "checking that it held still"),
    ("found.open", "opening the database of a store that no registry names"),
    ("found.statement", "reading in it who wrote"),
    ("found.close", "closing it"),
    ("rebuild.folder", "opening the state folder, or looking at a file in it"),
    ("rebuild.stage", "removing a new registry that a crash cut short"),
    ("rebuilt.open", "creating the new registry beside the old one"),
    ("rebuilt.statement", "one statement on the new registry"),
    ("rebuilt.rollback", "rolling it back"),
    ("rebuilt.checkpoint", "copying its WAL into its file"),
    ("rebuilt.close", "closing it"),
    ("rebuild.fill.begin", "beginning to fill the new registry"),
    ("rebuild.fill.commit", "making its rows durable"),
    ("rebuild.sync", "making the new registry, or the names in the state folder, durable"),
    ("rebuild.aside", "setting a file of the old registry aside"),
    ("rebuild.place", "giving the new registry its name"),
)


@dataclass(frozen=True, slots=True)
class FoundStore:
    """A folder that looks like a store. ``vault_id`` is ``None`` when neither of its halves says one.

    ``problem``: what keeps it from being used as it stands, in words.
    """

    root: Path
    vault_id: str | None
    revisions: int = 0
    writers: tuple[str, ...] = ()
    problem: str | None = None

    def to_json(self) -> JsonObject:
        shown: JsonObject = {"path": str(self.root), "vaultId": self.vault_id, "revisions": self.revisions}
        shown["writers"] = list(self.writers)
        if self.problem is not None:
            shown["problem"] = self.problem
        return shown


def find_stores(layout: Layout, places: Sequence[Path] = (), *, at_rest: bool = False) -> tuple[FoundStore, ...]:
    """Every folder below ``stores/``, and those at ``places``, by path. Reads only.

    ``at_rest``: nobody has any of them open, and no file is made beside their databases.
    """
    roots = dict.fromkeys((*sorted(store_folders(layout)), *places))
    return tuple(look_at(root, at_rest=at_rest) for root in roots)


def look_at(root: Path, *, at_rest: bool = False) -> FoundStore:
    """What a folder says of itself."""
    store = StoreLayout(root)
    manifest = claimed_vault_id(store.vault, at="rebuild.look")
    try:
        if at_rest:
            with peek(store.state_database) as database:
                identity, revisions, writers = _read(database)
        else:
            identity, revisions, writers = _database(store)
    except (KnowledgeError, StorageCorrupt, OSError, apsw.Error):  # the last: tables of another program
        return FoundStore(root, manifest, problem="its database is missing or damaged")
    if manifest is None:
        return FoundStore(root, identity, revisions, writers, "vault.json is missing or not readable")
    if identity != manifest:
        return FoundStore(root, None, revisions, writers, "vault.json and the database belong to different stores")
    return FoundStore(root, identity, revisions, writers)


def rebuild(
    layout: Layout,
    stores: Sequence[tuple[str, Path, Holder | None]],
    by: By,
    *,
    new_id: Callable[[], uuid.UUID] = uuid.uuid4,
) -> str:
    """Make a new registry of these stores in the place of the lost one; the name that the old file has from now on
    begins with what is returned.

    Raises ``DuplicateIdentity`` (two folders of one store), ``StorageError``.
    """
    seen: dict[str, Path] = {}
    for vault_id, root, _ in stores:
        if vault_id in seen:
            raise DuplicateIdentity(
                f"The store {vault_id} lies at {seen[vault_id]} and at {root}. Only one of them can be the store: move "
                "the other one away.",
                vaultId=vault_id,
            )
        seen[vault_id] = root
    folder = files.open_root(layout.root, at="rebuild.folder")
    try:
        try:
            sentinel = read_sentinel(folder)
        except StoreUnavailable:
            sentinel = None
        registry_id = sentinel or str(new_id())
        _fill(layout, folder, registry_id, stores, by)
        aside = f"{layout.registry.name}.lost-{by.at}"
        for suffix in _FILES:
            name = f"{layout.registry.name}{suffix}"
            if files.stat_entry(folder, name, at="rebuild.folder") is not None:
                files.rename_over(folder, name, f"{aside}{suffix}", at="rebuild.aside")
        if sentinel is None:
            files.unlink(folder, layout.registry_sentinel.name, at="rebuild.aside")
            write_sentinel(folder, registry_id)
        files.rename_over(folder, _STAGED, layout.registry.name, at="rebuild.place")
        files.fsync(folder, at="rebuild.sync")
    finally:
        files.close(folder)
    return aside


def _fill(
    layout: Layout, folder: int, registry_id: str, stores: Sequence[tuple[str, Path, Holder | None]], by: By
) -> None:
    for suffix in _FILES:
        files.unlink(folder, f"{_STAGED}{suffix}", at="rebuild.stage")
    database = Database.open(layout.root / _STAGED, point_prefix="rebuilt", create=True)
    try:
        with database.transaction(full=True, point="rebuild.fill"):
            for script in (FIRST, *FORWARD.values()):
                database.execute_script(script)
            database.execute("INSERT INTO meta VALUES (1, ?, ?)", (registry_id, by.at))
            for vault_id, root, holder in stores:
                location = location_of(layout, root)
                database.execute("INSERT INTO store VALUES (?, ?, 1, ?)", (vault_id, location, by.at))
                if holder is not None:
                    database.execute("INSERT INTO binding VALUES (?, ?, ?)", (*columns_of(holder), vault_id))
            subject: JsonObject = {"stores": [vault_id for vault_id, _, _ in stores]}
            registry_audit.note(database, by, "registry.rebuild", subject)
        database.checkpoint("TRUNCATE")
    finally:
        database.close()
    staged, _ = files.open_file(folder, _STAGED, at="rebuild.folder")
    try:
        files.fsync(staged, at="rebuild.sync")
    finally:
        files.close(staged)


def _database(store: StoreLayout) -> tuple[str | None, int, tuple[str, ...]]:
    database = Database.open(store.state_database, point_prefix="found", read_only=True)
    try:
        return _read(database)
    finally:
        with suppress(KnowledgeError):
            database.close()


def _read(database: Database) -> tuple[str | None, int, tuple[str, ...]]:
    tables = database.query("SELECT name FROM sqlite_schema WHERE type = 'table'")
    if not {("meta",), ("publication",), ("history",)} <= set(tables):
        raise StorageCorrupt("no store's database")
    row = database.query_one("SELECT vault_id FROM meta")
    count = database.query_one("SELECT count(*) FROM history")
    # The newest writers say most about whose store it is.
    writers = database.query("SELECT actor FROM history GROUP BY actor ORDER BY max(id) DESC LIMIT ?", (WRITERS_SHOWN,))
    return (
        None if row is None else str(row[0]),
        0 if count is None else int(count[0]),
        tuple(str(actor) for (actor,) in writers),
    )


__all__ = ["FoundStore", "find_stores", "look_at", "rebuild"]
