"""Restoring a backup into an empty state directory: verified byte by byte, opened once, then put in place in one step.

Guarantees: nothing is in place before every part was read, hashed and found to be exactly what was written, and each
store was opened and left clean. The new ``knowledge`` folder takes the empty one's name by one exchange: a crash at any
moment leaves the directory empty or whole. Each store begins a new generation under the same identity: a database or a
``vault.json`` of before does not fit it, and no lane of before can commit into it. Records, receipts and history are
those of the backup.

The caller holds the owner lock. Source: decisions.md section 4 (Manifest), section 6 (a copy beside its original).
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from messages.errors import DuplicateIdentity, InvalidArgument, StorageError
from messages.json_types import JsonObject
from storage import files, registry_audit
from storage.audience_tokens import forget_tokens
from storage.backup import _copying as copying
from storage.backup._copying import Growing
from storage.backup.manifest import BACKUP_NAME, BackupManifest, Part, Progress, StoreMark, damaged, read_manifest
from storage.faults import effect
from storage.files import UnsafeFile
from storage.http_keys import forget_http_keys
from storage.layout import Layout, StoreLayout
from storage.manifest import MANIFEST_NAME, Manifest, Pair
from storage.registry_audit import By
from storage.registry_sentinel import write_sentinel
from storage.session import StoreSession
from storage.state import journal
from storage.state.connection import Database, StorageCorrupt
from storage.vault import ScanLimits

STAGED_NAME: Final = ".kr-restoring"
_OWN: Final = frozenset(("owner.lock", "owner.log"))
"""What a state directory without any knowledge may hold."""
_STAGED_MANIFEST: Final = ".kr-restored.json"

FAULT_POINTS: Final = (
    ("restore.look", "looking whether the state directory is empty"),
    ("restore.stage", "removing what an earlier restoring left, or preparing a new one"),
    ("restore.generation.begin", "beginning to give a restored store its new generation"),
    ("restore.generation.commit", "making the new generation durable"),
    ("restore.registry.begin", "beginning to write where the restored stores lie"),
    ("restore.registry.commit", "making that durable"),
    ("restore.manifest", "writing vault.json with the new generation"),
    ("restore.place", "putting what was restored in its place"),
    ("restored.open", "opening a database that was restored"),
    ("restored.statement", "one statement on a database that was restored"),
    ("restored.rollback", "rolling a change of it back"),
    ("restored.checkpoint", "leaving its log"),
    ("restored.close", "closing it"),
)


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put in place, or would be."""

    manifest: BackupManifest
    configuration: str
    """``restored``, ``kept`` (there was another one, which stays) or ``none``."""

    def to_json(self) -> JsonObject:
        return {
            "backupId": self.manifest.backup_id,
            "takenAt": self.manifest.taken_at,
            "whole": self.manifest.whole,
            "vaultIds": [store.vault_id for store in self.manifest.stores],
            "stores": len(self.manifest.stores),
            "files": len(self.manifest.parts),
            "bytes": self.manifest.size,
            "configuration": self.configuration,
        }


def check_place(layout: Layout, manifest: BackupManifest) -> None:
    """Refuse a state directory that holds knowledge: ``DuplicateIdentity`` where it is that of this very backup, else
    ``InvalidArgument``. Changes nothing."""
    with effect("restore.look"):
        try:
            names = sorted(set(os.listdir(layout.root)) - _OWN)
        except FileNotFoundError:
            return
        stores = sorted(os.listdir(layout.stores)) if os.path.isdir(layout.stores) else []
    if not names:
        return
    for store in manifest.stores:
        if store.vault_id in stores:
            raise DuplicateIdentity(
                f"The store {store.vault_id} of this backup lies in the state directory already. Name an empty one "
                "with --state-dir, or move this one's `knowledge` folder away first; nothing is overwritten.",
                vaultId=store.vault_id,
            )
    raise InvalidArgument(
        f"The state directory is not empty (it holds {names[0]}). Name an empty one with --state-dir, or move its "
        "`knowledge` folder away first; nothing is overwritten.",
        field="stateDir",
        reason="not_empty",
    )


def restore(
    source: Path,
    layout: Layout,
    by: By,
    *,
    report: Callable[[Progress], None] = lambda progress: None,
    dry_run: bool = False,
    new_id: Callable[[], uuid.UUID] = uuid.uuid4,
) -> Restored:
    """Put the backup in ``source`` in the place of an empty ``layout.root``; ``dry_run`` verifies everything, writes
    nothing, and needs no lock.

    Raises ``InvalidArgument`` (no backup, a newer format, a place that is not empty), ``DuplicateIdentity``,
    ``StorageError`` (``reason`` ``damaged`` with the ``path`` of the part; full, read-only). Nothing was restored then.
    """
    try:
        manifest = read_manifest(source)
        _require_consistent(manifest)
        _require_complete(source, manifest)
        check_place(layout, manifest)
        if dry_run:
            _verify(source, manifest, report)
            return Restored(manifest, _configuration(layout, manifest, source))
        return _restore(source, layout, manifest, by, report, new_id)
    except OSError as error:
        raise StorageError(
            f"The backup could not be restored: {error.strerror or type(error).__name__}. Nothing was put in place.",
            reason="file_system",
            errno=error.errno or 0,
        ) from error
    except StorageCorrupt as error:
        raise damaged("a database", f"cannot be used ({error})") from error


def _require_consistent(manifest: BackupManifest) -> None:
    seen: set[str] = set()
    paths = {part.path for part in manifest.parts}
    for store in manifest.stores:
        if store.vault_id in seen:
            raise DuplicateIdentity(f"The backup holds the store {store.vault_id} twice.", vaultId=store.vault_id)
        seen.add(store.vault_id)
        for name in ("state.sqlite", "vault/vault.json"):
            if f"stores/{store.vault_id}/{name}" not in paths:
                raise damaged(BACKUP_NAME, f"lists no {name} of the store {store.vault_id}")
    if "registry.sqlite" not in paths:
        raise damaged(BACKUP_NAME, "lists no registry.sqlite")


def _require_complete(source: Path, manifest: BackupManifest) -> None:
    """Exactly the listed files are there, with their sizes."""
    wanted = {part.path: part for part in manifest.parts}
    found: set[str] = set()
    for walked in copying.walk(source):
        if walked.path == BACKUP_NAME:
            continue
        part = wanted.get(walked.path)
        if part is None:
            raise damaged(walked.path.encode("utf-8", "replace").decode(), "does not belong to it")
        if walked.reason is not None:
            raise damaged(walked.path, walked.reason)
        if walked.size != part.size:
            raise damaged(walked.path, f"has {walked.size} bytes instead of {part.size}")
        found.add(walked.path)
    for path in wanted:
        if path not in found:
            raise damaged(path, "is missing")


def _verify(source: Path, manifest: BackupManifest, report: Callable[[Progress], None]) -> None:
    done = 0
    for part in manifest.parts:
        report(Progress("verifying", 0, len(manifest.stores), done, manifest.size))
        size, digest = copying.hash_file(source / part.path)
        _require_same(part, size, digest)
        done += size


def _require_same(part: Part, size: int, digest: str) -> None:
    if (size, digest) != (part.size, part.sha256):
        raise damaged(part.path, "differs from what was written")


def _restore(
    source: Path,
    layout: Layout,
    manifest: BackupManifest,
    by: By,
    report: Callable[[Progress], None],
    new_id: Callable[[], uuid.UUID],
) -> Restored:
    staged = layout.state_dir / STAGED_NAME
    copying.remove_tree(staged)
    needed, free = manifest.size, copying.free_bytes(layout.state_dir)
    if needed > free:
        raise StorageError(
            f"The restored stores need {needed} bytes and the disk has {free} free.",
            reason="full",
            needed=needed,
            free=free,
        )
    try:
        growing = Growing(staged)
        _copy_parts(source, growing, manifest, report)
        configuration = _configuration(layout, manifest, source)
        for number, store in enumerate(manifest.stores):
            report(Progress("opening", number, len(manifest.stores), 0, 1))
            _make_ready(StoreLayout(staged / "stores" / store.vault_id), store, str(new_id()))
        _registry(staged / layout.registry.name, manifest, by)
        root = files.open_root(staged, at="backup.folder")
        try:
            write_sentinel(root, manifest.registry_id)
        finally:
            files.close(root)
        growing.finish()
        report(Progress("placing", len(manifest.stores), len(manifest.stores), 1, 1))
        _place(layout, staged, configuration)
    except BaseException:
        with suppress(OSError):
            copying.remove_tree(staged)
        raise
    with suppress(OSError):  # what is there now is the empty folder of before
        copying.remove_tree(staged)
    return Restored(manifest, configuration)


def _copy_parts(source: Path, growing: Growing, manifest: BackupManifest, report: Callable[[Progress], None]) -> None:
    root = files.open_root(source, at="backup.folder")
    done = 0
    try:
        for part in manifest.parts:
            report(Progress("copying", 0, len(manifest.stores), done, manifest.size))
            try:
                copied = growing.copy(part.path, root, part.path)
            except (FileNotFoundError, UnsafeFile) as error:
                raise damaged(part.path, "is missing or no plain file") from error
            _require_same(part, copied.size, copied.sha256)
            done += part.size
    finally:
        files.close(root)
    for store in manifest.stores:
        growing.folder(f"stores/{store.vault_id}/vault/private")
    growing.folder("stores")


def _configuration(layout: Layout, manifest: BackupManifest, source: Path) -> str:
    """What becomes of knowledge.yaml: one that is there is a person's and stays."""
    name = layout.configuration.name
    if name not in {part.path for part in manifest.parts}:
        return "none"
    with effect("restore.look"):
        if not os.path.lexists(layout.configuration):
            return "restored"
        same = layout.configuration.is_file() and layout.configuration.read_bytes() == (source / name).read_bytes()
    return "restored" if same else "kept"


def _make_ready(store: StoreLayout, mark: StoreMark, publication_id: str) -> None:
    """Finish what was under way in the database when it was copied, then begin a new generation."""
    database = Database.open(store.state_database, point_prefix="restored")
    try:
        found = journal.marks(database)
        if (found.vault_id, found.current) != (mark.vault_id, Pair(mark.generation, mark.publication_id)):
            raise damaged(f"stores/{mark.vault_id}/state.sqlite", "is not at the publication that backup.json names")
        with database.transaction(full=True, point="restore.generation"):
            # Of another machine: whatever was accepted is compared with the files and finished.
            database.execute("UPDATE meta SET clean = 0, boot_id = 'restored', mount_id = 'restored'")
    finally:
        database.close()
    session = StoreSession.open(store, limits=ScanLimits())
    if not session.close():
        raise StorageError("A restored store could not be brought to rest.", reason="io")
    database = Database.open(store.state_database, point_prefix="restored")
    try:
        pair = begin_generation(database, publication_id)
        database.into_one_file()
    finally:
        database.close()
    root = files.open_root(store.vault, at="backup.folder")
    try:
        write_vault_manifest(root, Manifest(mark.vault_id, pair))
    finally:
        files.close(root)


def begin_generation(database: Database, publication_id: str) -> Pair:
    """Durably, of a store that is at rest: the next generation, which no file and no lane of before fits."""
    pair = Pair(journal.marks(database).current.generation + 1, publication_id)
    with database.transaction(full=True, point="restore.generation"):
        database.execute(
            "UPDATE meta SET incarnation = incarnation + 1, generation = ?1, publication_id = ?2, "
            "floor_generation = ?1, floor_publication_id = ?2, vault_device = 0, vault_inode = 0",
            (pair.generation, pair.publication_id),
        )
        # An index of before counts the changes of another catalogue.
        database.execute("UPDATE catalogue_identity SET id = ?", (str(uuid.uuid4()),))
    return pair


def write_vault_manifest(root: int, manifest: Manifest) -> None:
    """Replace ``vault.json``, durably."""
    files.unlink(root, _STAGED_MANIFEST, at="restore.manifest")
    fd = files.create_file(root, _STAGED_MANIFEST, manifest.encode(), mode=0o600, at="restore.manifest")
    try:
        files.fsync(fd, at="restore.manifest")
    finally:
        files.close(fd)
    files.rename_over(root, _STAGED_MANIFEST, MANIFEST_NAME, at="restore.manifest")
    files.fsync(root, at="restore.manifest")


def _registry(path: Path, manifest: BackupManifest, by: By) -> None:
    """Every store lies below ``stores/`` from now on, wherever it lay before."""
    database = Database.open(path, point_prefix="restored")
    try:
        known = {str(row[0]) for row in database.query("SELECT vault_id FROM store")}
        row = database.query_one("SELECT registry_id FROM meta")
        # One that could not be copied stays registered: its agent must not get a new, empty store instead.
        if not known >= {store.vault_id for store in manifest.stores} or row != (manifest.registry_id,):
            raise damaged("registry.sqlite", "does not list the stores that backup.json names")
        with database.transaction(full=True, point="restore.registry"):
            database.execute("UPDATE store SET location = 'moving/' || vault_id")
            database.execute("UPDATE store SET location = 'stores/' || vault_id")
            forget_http_keys(database)
            forget_tokens(database)  # of a backup of any version: what was revoked since must not stand again
            stores: JsonObject = {"stores": [store.vault_id for store in manifest.stores]}
            registry_audit.note(database, by, "registry.restore", {"backupId": manifest.backup_id, **stores})
        database.into_one_file()
    finally:
        database.close()


def _place(layout: Layout, staged: Path, configuration: str) -> None:
    """The configuration first: with it alone nothing is served; without it agents would get stores of their own."""
    state = files.open_root(layout.state_dir, at="backup.folder")
    folder = files.open_root(staged, at="backup.folder")
    try:
        name = layout.configuration.name
        if configuration == "restored":
            try:
                files.link(folder, name, state, name, at="restore.place")
            except FileExistsError:
                pass  # the same bytes
        if configuration != "none":
            files.unlink(folder, name, at="restore.stage")
        files.fsync(state, at="backup.sync")
        try:
            files.exchange(state, staged.name, state, layout.root.name, at="restore.place")
        except FileNotFoundError:
            files.move(state, staged.name, state, layout.root.name, at="restore.place")
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS):
                raise
            # Without exchange the name is free for a moment; what stood there was empty.
            with effect("restore.place"):
                os.rename(layout.root, layout.state_dir / f"{STAGED_NAME}.empty")
                os.rename(staged, layout.root)
        files.fsync(state, at="backup.sync")
    finally:
        files.close(folder)
        files.close(state)


__all__ = ["STAGED_NAME", "Restored", "begin_generation", "check_place", "restore", "write_vault_manifest"]
