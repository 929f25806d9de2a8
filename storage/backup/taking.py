"""Taking a backup while agents write: each store at one generation, whole or not at all.

Guarantees: the folder appears by one rename, when every byte in it is durable, or not at all. A store's database is one
snapshot; its Markdown files are the texts of that snapshot from history, whatever lies in the vault meanwhile;
originals are compared with the hash by which records cite them. Nothing of the source is changed.

Any one thread; it holds no lane. Source: decisions.md section 4, WRITE-PATH.md section 6.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from messages.errors import InvalidArgument, NotFound, Quarantined, StorageError, StoreUnavailable
from messages.json_types import JsonObject
from storage import files
from storage.audience_tokens import forget_tokens
from storage.backup import _copying as copying
from storage.backup._copying import Growing
from storage.backup._vault_files import Run, VaultFiles, skipped
from storage.backup.manifest import BACKUP_NAME, BackupManifest, Finding, Progress, StoreMark
from storage.erasure import NOTE_NAME
from storage.faults import effect
from storage.files import UnsafeFile
from storage.http_keys import forget_http_keys
from storage.layout import Layout, StoreLayout
from storage.manifest import Manifest
from storage.state import journal, schema
from storage.state.connection import Database, StorageCorrupt

PENDING_ATTEMPTS: Final = 40
PENDING_PAUSE_SECONDS: Final = 0.05
_COPY: Final = "state.sqlite"

FAULT_POINTS: Final = (
    ("backup.look", "looking at the place of a backup"),
    ("backup.source.open", "opening a database that is backed up"),
    ("backup.source.statement", "reading a database that is backed up"),
    ("backup.source.copy", "copying a database that is backed up"),
    ("backup.source.close", "closing a database that is backed up"),
    ("backup.copied.open", "opening the copy of a database"),
    ("backup.copied.statement", "one statement on the copy of a database"),
    ("backup.copied.rollback", "rolling back a change of the copy"),
    ("backup.copied.checkpoint", "leaving the log of the copy"),
    ("backup.copied.close", "closing the copy of a database"),
    ("backup.trim.begin", "beginning to take out of the copy what does not belong to the backup"),
    ("backup.trim.commit", "committing that"),
)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a backup holds, or would hold."""

    path: Path
    manifest: BackupManifest | None
    stores: int
    files: int
    size: int
    findings: tuple[Finding, ...] = ()
    more_findings: int = 0

    def to_json(self) -> JsonObject:
        shown: JsonObject = {
            "path": str(self.path),
            "stores": self.stores,
            "files": self.files,
            "bytes": self.size,
            "findings": [finding.to_json() for finding in self.findings],
        }
        if self.more_findings:
            shown["moreFindings"] = self.more_findings
        if self.manifest is not None:
            shown |= {
                "backupId": self.manifest.backup_id,
                "takenAt": self.manifest.taken_at,
                "whole": self.manifest.whole,
                "vaultIds": [store.vault_id for store in self.manifest.stores],
            }
        return shown


def take(
    layout: Layout,
    target: Path,
    *,
    only: str | None = None,
    grants_of: Mapping[str, Collection[str]] | None = None,
    fresh: Collection[str] | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    pause: Callable[[float], None] = time.sleep,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    new_id: Callable[[], uuid.UUID] = uuid.uuid4,
) -> Taken:
    """Back up every store of the registry, or ``only`` one, as the new folder ``target``.

    ``grants_of`` gives the agents that use a store: with ``only`` these agents' conversation grants come along.
    Of a store that is not ``fresh`` (``None``: all are) edits may not have been taken over; files that hold another
    text than the copy are named then. ``report`` hears how far it is and may raise to end it. ``pause`` waits for a
    publication that is being placed.

    Raises ``InvalidArgument`` (``field`` ``path``), ``NotFound``, ``StoreUnavailable``, ``Quarantined`` (a damaged
    database: no backup is made of it), ``StorageError`` (full, read-only). Nothing is left at ``target`` then.
    """
    target = checked_target(layout, target)
    backup_id = str(new_id())
    staged = target.with_name(f".kr-backup-{backup_id}")
    try:
        growing = Growing(staged)
        try:
            run = Run(layout, growing, report, pause, fresh)
            manifest = _fill(run, backup_id, now(), only, grants_of or {})
            copying.sync_folder(target.parent)
            _place(staged, target)
        except BaseException:
            copying.remove_tree(staged)
            raise
    except OSError as error:
        raise StorageError(
            f"The backup could not be written: {error.strerror or type(error).__name__}. Nothing was left of it.",
            reason="file_system",
            errno=error.errno or 0,
        ) from error
    except StorageCorrupt as error:
        raise Quarantined(
            "A database is damaged, and no backup is made of a damaged one: see `knowledge doctor`.",
            reason="damaged",
        ) from error
    size = manifest.size
    return Taken(target, manifest, len(manifest.stores), len(manifest.parts), size, tuple(run.findings), run.more)


def estimate(layout: Layout, target: Path, *, only: str | None = None) -> Taken:
    """What :func:`take` would write, about; nothing is written. Raises as it does, also where there is no room."""
    target = checked_target(layout, target)
    try:
        roots = _registered(layout, only)
        number, size = 0, 0
        for root in roots.values():
            store = StoreLayout(root)
            for walked in copying.walk(root, skip=lambda path: skipped(path.removeprefix("vault/"))):
                if walked.path.startswith("vault/") or walked.path == store.state_database.name:
                    number, size = number + 1, size + walked.size
        free = copying.free_bytes(target.parent)
    except OSError as error:
        raise StorageError(f"The stores cannot be looked at: {error.strerror}.", reason="file_system") from error
    except StorageCorrupt as error:
        raise Quarantined("The registry is damaged; see `knowledge doctor`.", reason="damaged") from error
    if size > free:
        raise StorageError(
            f"The backup needs about {size} bytes and its disk has {free} free.", reason="full", needed=size, free=free
        )
    return Taken(target, None, len(roots), number, size)


def checked_target(layout: Layout, target: Path) -> Path:
    """The new folder's path. Raises ``InvalidArgument`` where it is taken, or lies in the state directory."""
    if not target.is_absolute():
        raise _refused("The place of a backup must be an absolute path.", "not_absolute")
    with effect("backup.look"):
        target = Path(os.path.realpath(target.parent)) / target.name
        parent = os.path.isdir(target.parent)
        taken = os.path.lexists(target)
        home = Path(os.path.realpath(layout.root))
    if not parent:
        raise _refused("The folder that is to hold the backup does not exist; make it first.", "no_parent")
    if taken:
        raise _refused("Something stands at that place; name a folder that does not exist yet.", "taken")
    if target.is_relative_to(home):
        raise _refused("A backup inside the state directory would be lost with it; name another place.", "nested")
    return target


def _refused(message: str, reason: str) -> InvalidArgument:
    return InvalidArgument(message, field="path", reason=reason)


def _place(staged: Path, target: Path) -> None:
    parent = files.open_root(target.parent, at="backup.folder")
    try:
        try:
            files.move(parent, staged.name, parent, target.name, at="backup.place")
        except OSError as error:
            if isinstance(error, FileExistsError):
                raise _refused("Something came to stand at that place; name another one.", "taken") from error
            with effect("backup.place"):  # a folder is never renamed over one that holds something
                os.rename(staged, target)
        with suppress(OSError):  # the backup is whole and has its name
            files.fsync(parent, at="backup.sync")
    finally:
        files.close(parent)


# --- what is taken -----------------------------------------------------------------------------------------------


def _fill(
    run: Run, backup_id: str, taken_at: datetime, only: str | None, grants_of: Mapping[str, Collection[str]]
) -> BackupManifest:
    run.tell("registry")
    registry_id, roots = _registry(run, only, grants_of)
    _beside(run, run.layout.state_dir, run.layout.configuration.name)
    whole = only is not None or _take_system_memory(run)  # what every account said is no part of one store
    run.stores = len(roots)
    marks = []
    for number, (vault_id, root) in enumerate(roots.items()):
        run.store = number
        before = len(run.parts)
        try:
            marks.append(_store(run, vault_id, StoreLayout(root)))
        except (StorageCorrupt, StoreUnavailable) as error:
            if only is not None:
                raise
            # One broken store must not keep every other one from being backed up.
            del run.parts[before:]
            run.growing.drop(f"stores/{vault_id}")
            why = error.message if isinstance(error, StoreUnavailable) else "its database is damaged"
            run.find("store_left_out", vault_id, f"The store {vault_id} is not in the backup: {why}")
    stamp = taken_at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    parts = tuple(sorted(run.parts, key=lambda part: part.path))
    manifest = BackupManifest(
        backup_id, stamp, registry_id, len(marks) == run.stores and only is None and whole, tuple(marks), parts
    )
    run.growing.write(BACKUP_NAME, manifest.encode())
    run.growing.finish()
    run.tell("done", 1, 1)
    return manifest


def _take_system_memory(run: Run) -> bool:
    """Whether the backup has it, where there is one; a damaged one keeps nothing else from being backed up."""
    path = run.layout.system_memory
    if not _is_there(path):
        return True
    before = len(run.parts)
    try:
        _copy_database(run, path, path.name)
    except (StorageCorrupt, StoreUnavailable) as error:
        del run.parts[before:]
        run.growing.drop(path.name)
        why = error.message if isinstance(error, StoreUnavailable) else "it is damaged"
        run.find("system_memory_left_out", path.name, f"{path.name} is not in the backup: {why}")
        return False
    return True


def _registered(layout: Layout, only: str | None) -> dict[str, Path]:
    database = Database.open(layout.registry, point_prefix="backup.source", read_only=True)
    try:
        return _roots(database, layout, only)
    finally:
        database.close()


def _roots(database: Database, layout: Layout, only: str | None) -> dict[str, Path]:
    rows = database.query("SELECT vault_id, location FROM store WHERE made = 1 ORDER BY created_at, vault_id")
    roots = {str(vault_id): layout.root / str(location) for vault_id, location in rows}
    if only is None:
        return roots
    if only not in roots:
        raise NotFound("No store of that identity is registered here.", vaultId=only)
    return {only: roots[only]}


def _registry(run: Run, only: str | None, grants_of: Mapping[str, Collection[str]]) -> tuple[str, dict[str, Path]]:
    """The registry's copy, without what belongs to stores that are not taken."""
    name = run.layout.registry.name

    def trim(copy: Database) -> None:
        copy.execute("DELETE FROM binding WHERE vault_id IN (SELECT vault_id FROM store WHERE made = 0)")
        copy.execute("DELETE FROM store WHERE made = 0")
        forget_tokens(copy)
        forget_http_keys(copy)
        if only is None:
            return
        for table in ("binding", "maintenance_store", "store"):
            copy.execute(f"DELETE FROM {table} WHERE vault_id <> ?", (only,))
        copy.execute("DELETE FROM audit WHERE instr(subject, ?) = 0", (only,))
        copy.execute("DELETE FROM maintenance_run")
        copy.execute("DELETE FROM assignment")
        agents = list(grants_of.get(only, ()))
        agents += [str(row[0]) for row in copy.query("SELECT holder FROM binding WHERE kind = 'isolated'")]
        for table in ("conversation_grant", "conversation"):
            kept = ", ".join("?" for _ in agents)
            copy.execute(f"DELETE FROM {table} WHERE agent NOT IN ({kept})", agents)

    roots: dict[str, Path] = {}
    registry_id = ""

    def read(copy: Database) -> None:
        nonlocal roots, registry_id
        roots = _roots(copy, run.layout, only)
        row = copy.query_one("SELECT registry_id FROM meta")
        registry_id = "" if row is None else str(row[0])

    _copy_database(run, run.layout.registry, name, read, trim)
    return registry_id, roots


def _copy_database(
    run: Run,
    source: Path,
    name: str,
    read: Callable[[Database], None] = lambda copy: None,
    trim: Callable[[Database], None] | None = None,
) -> None:
    """One consistent copy in one file, checked by SQLite, hashed and durable."""
    folder, _ = files.split(name)
    target = run.growing.folder(folder) / files.split(name)[1]
    database = Database.open(source, point_prefix="backup.source", read_only=True)
    try:
        with database.snapshot():
            database.copy_to(target, lambda done, of: run.tell("database", done, of))
    finally:
        database.close()
    _finish_copy(run, target, name, read, trim)


def _finish_copy(
    run: Run,
    target: Path,
    name: str,
    read: Callable[[Database], None],
    trim: Callable[[Database], None] | None = None,
) -> None:
    copy = Database.open(target, point_prefix="backup.copied")
    try:
        if not copy.is_sound(lambda: run.tell("checking")):
            raise StorageCorrupt(f"{name} is damaged")
        read(copy)
        if trim is not None:
            with copy.transaction(full=False, point="backup.trim"):
                trim(copy)
        copy.into_one_file()
    finally:
        copy.close()
    run.growing.sync_file(name)
    run.parts.append(run.growing.part(name))


def _beside(run: Run, folder: Path, name: str) -> None:
    """A file that may be missing."""
    root = files.open_root(folder, at="backup.folder")
    try:
        run.parts.append(run.growing.copy(name, root, name))
    except FileNotFoundError:
        pass
    except UnsafeFile as error:
        run.find("left_out", name, f"{name} is not a plain file ({error.reason}) and is not in the backup.")
    finally:
        files.close(root)


def _is_there(path: Path) -> bool:
    with effect("backup.look"):
        return os.path.isfile(path)


# --- one store ---------------------------------------------------------------------------------------------------


def _store(run: Run, vault_id: str, store: StoreLayout) -> StoreMark:
    prefix = f"stores/{vault_id}"
    target = run.growing.folder(prefix) / _COPY
    _snapshot(run, store, target)
    _take_erasure(run, store, prefix, vault_id)
    name = f"{prefix}/{_COPY}"
    marks: journal.Marks | None = None

    def read(copy: Database) -> None:
        nonlocal marks
        marks = journal.marks(copy)
        if marks.vault_id != vault_id:
            raise StoreUnavailable(
                "The database at a store's place belongs to another store; see `knowledge doctor`.", vaultId=vault_id
            )
        run.growing.folder(f"{prefix}/vault/private")
        VaultFiles(run, store, prefix, copy).take()

    _finish_copy(run, target, name, read)
    assert marks is not None
    manifest = Manifest(vault_id, marks.current)
    run.parts.append(run.growing.write(f"{prefix}/vault/vault.json", manifest.encode()))
    return StoreMark(vault_id, marks.current.generation, marks.current.publication_id)


def _take_erasure(run: Run, store: StoreLayout, prefix: str, vault_id: str) -> None:
    """Take ``erasing.json`` along: a conversation whose erasure is decided must not come back whole, and the restored
    store finishes it when it is opened."""
    folder = files.open_root(store.root, at="backup.folder")
    try:
        run.parts.append(run.growing.copy(f"{prefix}/{NOTE_NAME}", folder, NOTE_NAME))
    except FileNotFoundError:
        pass
    except UnsafeFile as error:
        raise StoreUnavailable(
            f"{NOTE_NAME} in the store's folder is not a plain file ({error.reason}); see `knowledge doctor`.",
            vaultId=vault_id,
        ) from error
    finally:
        files.close(folder)


def _snapshot(run: Run, store: StoreLayout, target: Path) -> None:
    """The database at one generation, if it may be at one where nothing is being placed."""
    for attempt in range(PENDING_ATTEMPTS):
        source = Database.open(store.state_database, point_prefix="backup.source", read_only=True)
        try:
            if not schema.check_version(source) or source.user_version() != schema.SCHEMA_VERSION:
                raise StoreUnavailable(
                    "A store's database has another format; open the store once with this program, then back it up."
                )
            with source.snapshot():
                busy = journal.unsettled_entry(source) is not None
                if not busy or attempt == PENDING_ATTEMPTS - 1:
                    # One that stays pending comes along, and is finished when the restored store is opened.
                    source.copy_to(target, lambda done, of: run.tell("database", done, of))
                    return
        finally:
            source.close()
        run.tell("waiting")
        run.pause(PENDING_PAUSE_SECONDS)


__all__ = ["Taken", "checked_target", "estimate", "take"]
