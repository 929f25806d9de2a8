"""The registry: which stores exist, where they lie, and which store an agent or a name is bound to.

Guarantees: a store is entered before its folder is made, so that no folder is ever adopted by being there; a
binding, once made, never changes silently; a registry that is missing, emptied, damaged, foreign or of a newer format
is refused and never made anew over existing stores. A store that was once ``made`` is never created again.

Membership is the configuration's; identities, paths, bindings, the assignment journal (:mod:`storage.assignments`),
grants (:mod:`storage.grants`), tokens (:mod:`storage.audience_tokens`), keys of the HTTP door
(:mod:`storage.http_keys`) and the audit
(:mod:`storage.registry_audit`) are here; the tables of maintenance are :mod:`storage.maintenance_log`'s. ``FORMAT`` is
``PRAGMA user_version``; an older one is brought forward in one transaction, after a copy of the file was made. One
thread, that which opened it.

Source: stores-and-access.md (Stores, Storage layout); decisions.md sections 1 (formats) and 6 (nothing is adopted).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, assert_never

from messages.errors import DuplicateIdentity, NotFound, StorageError
from messages.json_types import JsonObject
from storage import assignments, files, known_conversations, registry_audit
from storage.assignments import Assignment
from storage.audience_tokens import AudienceTokens
from storage.faults import effect
from storage.grants import Access, all_grants, remove_grant, set_grant
from storage.http_keys import HttpKeys
from storage.layout import Layout, StoreLayout
from storage.registry_audit import Action, By
from storage.registry_schema import FIRST, FORMAT, FORWARD
from storage.registry_sentinel import read_sentinel, refused_registry, write_sentinel
from storage.state.connection import CommitUncertain, Database, StorageCorrupt

FAULT_POINTS: Final = (
    ("registry.folder", "making the state folder, or looking at it"),
    ("registry.open", "opening registry.sqlite"),
    ("registry.statement", "one statement on registry.sqlite"),
    ("registry.checkpoint", "copying the registry's WAL into its file"),
    ("registry.rollback", "rolling a failed registry transaction back"),
    ("registry.close", "closing registry.sqlite"),
    ("registry.create.begin", "beginning to create the registry's tables"),
    ("registry.create.commit", "making the registry's tables durable"),
    ("registry.change.begin", "beginning a change of the registry"),
    ("registry.change.commit", "making a change of the registry durable"),
    ("registry.assignment.begin.begin", "beginning to note a change of membership"),
    ("registry.assignment.begin.commit", "making that note durable"),
    ("registry.assignment.finish.begin", "beginning to bind what the configuration says by now"),
    ("registry.assignment.finish.commit", "making the bindings durable"),
    ("registry.assignment.drop.begin", "beginning to drop a change that did not come"),
    ("registry.assignment.drop.commit", "making that durable"),
    ("registry.grant.begin", "beginning to change a grant"),
    ("registry.grant.commit", "making a grant, or its end, durable"),
    ("registry.seen.begin", "beginning to note which conversations called"),
    ("registry.seen.commit", "committing that"),
    ("registry.copy.stage", "removing a copy of the registry that a crash cut short"),
    ("registry.copy.sync", "making the copy of an older registry durable"),
    ("registry.copy.place", "giving the copy of an older registry its name"),
    ("registry.forward.begin", "beginning to bring the registry's tables forward"),
    ("registry.forward.commit", "making the registry's newer tables durable"),
    ("registry.sync", "making the names in the state folder durable"),
    ("registry.stores", "listing the folders of stores"),
)

_STAGED_COPY: Final = ".registry.copy"


@dataclass(frozen=True, slots=True)
class Isolated:
    """An agent's own store."""

    agent: str


@dataclass(frozen=True, slots=True)
class Named:
    """A store that the configuration names."""

    name: str


Holder: TypeAlias = Isolated | Named


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """One registered store. While ``made`` is false its creation may be run again; afterwards never."""

    vault_id: str
    layout: StoreLayout
    made: bool
    created_at: int
    holder: Holder | None


class Registry:
    """The open registry of one state directory."""

    __slots__ = ("_database", "_file", "_layout", "changes", "http_keys", "registry_id", "tokens")

    def __init__(self, layout: Layout, database: Database, registry_id: str) -> None:
        self._layout = layout
        self._database = database
        self.registry_id = registry_id
        with effect("registry.folder"):
            status = os.stat(layout.registry)
        self._file = status.st_dev, status.st_ino
        self.changes = 0
        """Rises with each change, so that a reader knows when to read again."""
        self.tokens = AudienceTokens(layout, database, self._require_in_place, self._note_change)
        self.http_keys = HttpKeys(database, self._require_in_place, self._note_change)

    @classmethod
    def open(cls, layout: Layout, *, at: int, new_id: Callable[[], uuid.UUID] = uuid.uuid4) -> Registry:
        """Open the registry, or create it where neither it, nor its sentinel, nor a store exists.

        ``at`` is now in UTC milliseconds. The caller holds the owner lock.

        Raises:
            StoreUnavailable: with ``reason`` ``registry_missing``, ``registry_emptied``, ``registry_damaged``,
                ``registry_foreign`` or ``newer_format``. Nothing was changed.
        """
        with effect("registry.folder"):
            os.makedirs(layout.root, mode=0o700, exist_ok=True)
        folder = files.open_root(layout.root, at="registry.folder")
        try:
            return cls._open(layout, folder, at, new_id)
        finally:
            files.close(folder)

    @classmethod
    def _open(cls, layout: Layout, folder: int, at: int, new_id: Callable[[], uuid.UUID]) -> Registry:
        sentinel = read_sentinel(folder)
        found = files.stat_entry(folder, layout.registry.name, at="registry.folder")
        used = sentinel is not None or bool(store_folders(layout))
        if found is None and used:
            raise refused_registry("registry_missing", "registry.sqlite is missing, but stores exist")
        try:
            registry_id = None if found is None or not found.st_size else _identity_on_disk(layout.registry)
            if registry_id is None and used:
                raise refused_registry("registry_emptied", "registry.sqlite is empty, but stores exist")
            _require_same(sentinel, registry_id)
            database = Database.open(layout.registry, point_prefix="registry", create=True)
        except StorageCorrupt as error:
            raise refused_registry("registry_damaged", "registry.sqlite is damaged") from error
        try:
            if registry_id is None:
                registry_id = str(new_id())
                with database.transaction(full=True, point="registry.create"):
                    database.execute_script(FIRST)
                    for script in FORWARD.values():
                        database.execute_script(script)
                    database.execute("INSERT INTO meta VALUES (1, ?, ?)", (registry_id, at))
                files.fsync(folder, at="registry.sync")
            elif database.user_version() < FORMAT:
                _bring_forward(database, folder)
            registry = cls(layout, database, registry_id)
            if not registry.entries() and store_folders(layout):
                raise refused_registry("registry_emptied", "registry.sqlite lists no store, but stores exist")
            if sentinel is None:
                # Last: a sentinel promises that there is a registry to be missed.
                write_sentinel(folder, registry_id)
        except StorageCorrupt as error:
            database.close()
            raise refused_registry("registry_damaged", "registry.sqlite is damaged") from error
        except BaseException:
            database.close()
            raise
        return registry

    def find(self, holder: Holder) -> StoreEntry | None:
        """The store bound to ``holder``, or ``None``; never creates anything."""
        return next(iter(self._select("b.kind = ? AND b.holder = ?", *columns_of(holder))), None)

    def entry(self, vault_id: str) -> StoreEntry | None:
        """The registered store with that identity."""
        return next(iter(self._select("s.vault_id = ?", vault_id)), None)

    def entries(self) -> tuple[StoreEntry, ...]:
        """Every registered store, unassigned ones included, in the order of their creation."""
        return self._select("1")

    def bound(self) -> dict[Holder, StoreEntry]:
        """Every holder with its store."""
        return {entry.holder: entry for entry in self.entries() if entry.holder is not None}

    def ensure(
        self, holder: Holder, *, at: int, by: str = "", new_id: Callable[[], uuid.UUID] = uuid.uuid4
    ) -> StoreEntry:
        """The store bound to ``holder``; where there is none, a new one, durable before its folder exists.

        ``by`` is the agent whose use creates it, for the audit.

        The caller creates the store when ``made`` is false, then calls :meth:`mark_made`.
        """
        found = self.find(holder)
        if found is not None:
            return found
        self._require_in_place()
        vault_id = str(new_id())
        location = self._layout.new_store(vault_id).root.relative_to(self._layout.root).as_posix()
        with self._database.transaction(full=True, point="registry.change"):
            self._database.execute("INSERT INTO store VALUES (?, ?, 0, ?)", (vault_id, location, at))
            self._database.execute("INSERT INTO binding VALUES (?, ?, ?)", (*columns_of(holder), vault_id))
            kind, name = columns_of(holder)
            registry_audit.note(
                self._database, By(by, "tool", at), "store.create", {"vaultId": vault_id, "kind": kind, "holder": name}
            )
        self.changes += 1
        created = self.entry(vault_id)
        assert created is not None
        return created

    def mark_made(self, vault_id: str) -> None:
        """From here on a missing folder, manifest or database is a loss, never a reason to create."""
        with self._database.transaction(full=True, point="registry.change"):
            if not self._database.execute("UPDATE store SET made = 1 WHERE vault_id = ?", (vault_id,)):
                raise NotFound(f"No store {vault_id} is registered.", vaultId=vault_id)
        self.changes += 1

    def register(self, vault_id: str, root: Path, *, at: int, by: By | None = None) -> StoreEntry:
        """Enter an existing store at a place of its own, bound to nobody: only on a person's explicit order.

        Raises:
            DuplicateIdentity: a store of that identity, or at that place, is registered already.
        """
        location = location_of(self._layout, root)
        for entry in self.entries():
            if entry.vault_id == vault_id or location_of(self._layout, entry.layout.root) == location:
                raise DuplicateIdentity(
                    f"The store {entry.vault_id} is registered at {entry.layout.root}; a second copy of it, or another "
                    "store at that place, is not taken in.",
                    vaultId=entry.vault_id,
                )
        with self._database.transaction(full=True, point="registry.change"):
            self._database.execute("INSERT INTO store VALUES (?, ?, 1, ?)", (vault_id, location, at))
            registry_audit.note(self._database, by or By("", "", at), "store.register", {"vaultId": vault_id})
        self.changes += 1
        created = self.entry(vault_id)
        assert created is not None
        return created

    def relocate(self, vault_id: str, root: Path, *, by: By | None = None) -> StoreEntry:
        """The store lies at ``root`` from now on; one durable transaction. The folder is there already.

        Raises:
            NotFound: no store of that identity is registered.
            DuplicateIdentity: another store is registered at that place.
        """
        other = self.registered_around(vault_id, root)
        if other is not None:
            raise DuplicateIdentity(f"The store {other} is registered at or around that place.", vaultId=other)
        with self._database.transaction(full=True, point="registry.change"):
            if not self._database.execute(
                "UPDATE store SET location = ? WHERE vault_id = ?", (location_of(self._layout, root), vault_id)
            ):
                raise NotFound(f"No store {vault_id} is registered.", vaultId=vault_id)
            if by is not None:
                registry_audit.note(self._database, by, "store.relocate", {"vaultId": vault_id})
        self.changes += 1
        moved = self.entry(vault_id)
        assert moved is not None
        return moved

    def registered_around(self, vault_id: str, root: Path) -> str | None:
        """Another store than ``vault_id`` that is registered at ``root``, inside it or above it."""
        place = Path(os.path.realpath(root))
        for entry in self.entries():
            known = Path(os.path.realpath(entry.layout.root))
            if entry.vault_id != vault_id and (place.is_relative_to(known) or known.is_relative_to(place)):
                return entry.vault_id
        return None

    def strangers(self) -> tuple[Path, ...]:
        """Folders below ``stores/`` that no entry names: reported to a person, never opened."""
        known = {entry.layout.root for entry in self.entries()}
        return tuple(sorted(path for path in store_folders(self._layout) if path not in known))

    # --- who uses which store, and which conversation reads it ----------------------------------------

    def unfinished(self) -> Assignment | None:
        """The move that a crash left between the configuration and the bindings."""
        return assignments.pending(self._database)

    def begin(self, assignment: Assignment) -> None:
        """See :mod:`storage.assignments`."""
        self._require_in_place()
        assignments.begin(self._database, assignment)

    def finish(self, assignment: Assignment) -> None:
        """The configuration has it: bind."""
        assignments.finish(self._database, assignment)
        self.changes += 1

    def drop(self) -> None:
        """The configuration has it not."""
        assignments.drop(self._database)

    def grants(self) -> dict[str, Mapping[str, Access]]:
        """Agent -> session key -> access."""
        return all_grants(self._database)

    def grant(self, agent: str, session_key: str, access: Access | None, by: By) -> bool:
        """Give this access, or take it away (``None``); whether that changed anything. Raises ``LimitExceeded``."""
        self._require_in_place()
        if access is None:
            changed = remove_grant(self._database, agent, session_key, by)
        else:
            changed = set_grant(self._database, agent, session_key, access, by)
        self.changes += changed
        return changed

    def note_seen(self, seen: Mapping[tuple[str, str], int]) -> None:
        """Note when these conversations called; may be lost with the power. Old ones and too many go.

        Raises ``StorageError``, however the commit failed: nothing depends on it.
        """
        try:
            with self._database.transaction(full=False, point="registry.seen"):
                known_conversations.note(self._database, seen)
        except CommitUncertain as error:
            raise StorageError("Which conversations called could not be noted.", reason="io") from error

    def conversations(self, agent: str) -> dict[str, int]:
        """The agent's known conversations by session key, with when each called last; the newest first."""
        return known_conversations.of(self._database, agent)

    def note(self, action: Action, subject: JsonObject, by: By) -> None:
        """A row of the audit for what changes no row of the registry; durable when it returns."""
        self._require_in_place()
        with self._database.transaction(full=True, point="registry.change"):
            registry_audit.note(self._database, by, action, subject)

    def note_once(self, action: Action, subject: JsonObject, by: By) -> None:
        """The same, unless this very row is there already: whoever tells of it may not know that it did."""
        self._require_in_place()
        if registry_audit.has(self._database, by, action, subject):
            return
        with self._database.transaction(full=True, point="registry.change"):
            registry_audit.note(self._database, by, action, subject)

    def audit(self, *, limit: int) -> list[JsonObject]:
        """The newest rows of the audit first."""
        return registry_audit.rows(self._database, limit=limit)

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._database.close()

    def in_place(self) -> bool:
        """Whether ``registry.sqlite`` is still the file that is open: what is written into one that lost its name is
        lost with the process."""
        with effect("registry.folder"):
            try:
                found = os.stat(self._layout.registry)
            except FileNotFoundError:
                return False
        return (found.st_dev, found.st_ino) == self._file

    def _note_change(self) -> None:
        self.changes += 1

    def _require_in_place(self) -> None:
        """Raises ``StoreUnavailable`` (``reason`` ``registry_missing``)."""
        if not self.in_place():
            raise refused_registry("registry_missing", "registry.sqlite was removed or replaced while it was open")

    def _select(self, condition: str, *parameters: str) -> tuple[StoreEntry, ...]:
        rows = self._database.query(
            "SELECT s.vault_id, s.location, s.made, s.created_at, b.kind, b.holder FROM store s "
            f"LEFT JOIN binding b ON b.vault_id = s.vault_id WHERE {condition} ORDER BY s.created_at, s.vault_id",
            parameters,
        )
        return tuple(
            StoreEntry(
                vault_id, StoreLayout(self._layout.root / location), bool(made), created_at, _holder(kind, holder)
            )
            for vault_id, location, made, created_at, kind, holder in rows
        )


def location_of(layout: Layout, root: Path) -> str:
    """How a store's place is written: below ``knowledge/`` where it can be, so that the state directory may move."""
    absolute = Path(os.path.realpath(root))
    home = Path(os.path.realpath(layout.root))
    return absolute.relative_to(home).as_posix() if absolute.is_relative_to(home) else absolute.as_posix()


def columns_of(holder: Holder) -> tuple[Literal["isolated", "named"], str]:
    """The columns of a binding."""
    match holder:
        case Isolated(agent):
            return "isolated", agent
        case Named(name):
            return "named", name
        case _:
            assert_never(holder)


def _holder(kind: str | None, holder: str) -> Holder | None:
    return None if kind is None else Isolated(holder) if kind == "isolated" else Named(holder)


def _require_same(sentinel: str | None, registry_id: str | None) -> None:
    if sentinel is not None and sentinel != registry_id:
        what = "registry.sqlite and registry.id belong to different registries"
        raise refused_registry("registry_foreign", what)


def _identity_on_disk(path: Path) -> str | None:
    """The registry's id; ``None`` when the database holds nothing yet. Reads only: a foreign file stays as it is."""
    database = Database.open(path, point_prefix="registry", read_only=True)
    try:
        version = database.user_version()
        if version > FORMAT:
            what = f"registry.sqlite has format {version}, this program knows up to {FORMAT}"
            raise refused_registry("newer_format", what)
        if version == 0:
            if database.query("SELECT 1 FROM sqlite_schema LIMIT 1"):
                raise refused_registry("registry_foreign", "registry.sqlite is a database of another program")
            return None
        row = database.query_one("SELECT registry_id FROM meta")
        return None if row is None else str(row[0])
    finally:
        database.close()


def _bring_forward(database: Database, folder: int) -> None:
    """Bring an older registry to :data:`FORMAT`, a complete copy of it beside it first."""
    older = database.user_version()
    files.unlink(folder, _STAGED_COPY, at="registry.copy.stage")
    database.execute("VACUUM INTO ?", (str(database.path.with_name(_STAGED_COPY)),))
    staged, _ = files.open_file(folder, _STAGED_COPY, at="registry.copy.stage")
    try:
        files.fsync(staged, at="registry.copy.sync")
    finally:
        files.close(staged)
    # A crash before the commit leaves a copy of the same tables: the next attempt may replace it.
    files.rename_over(folder, _STAGED_COPY, f"{database.path.name}.format-{older}", at="registry.copy.place")
    files.fsync(folder, at="registry.sync")
    with database.transaction(full=True, point="registry.forward"):
        for script in (FORWARD[number] for number in range(older + 1, FORMAT + 1)):
            database.execute_script(script)


def store_folders(layout: Layout) -> list[Path]:
    """The folders below ``stores/``, whoever made them."""
    with effect("registry.stores"):
        try:
            with os.scandir(layout.stores) as entries:
                return [layout.stores / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []


__all__ = [
    "FORMAT",
    "Holder",
    "Isolated",
    "Named",
    "Registry",
    "StoreEntry",
    "columns_of",
    "location_of",
    "store_folders",
]
