"""The background step: settled entries become durable in the files, then the journal forgets what replay needed.

Three parts, so that no caller waits for a disk: :func:`cut` and :func:`prune` commit in the lane,
:func:`sync_files` runs in a helper thread and touches no database. Guarantees: an entry is pruned only after its
commit, its files and all their folders up to the vault's root are durable and each path still holds the very inode
that was synced; pruning goes oldest first. A staged name is removed only when its text is known, nobody has it open
for writing, and its entry is two seconds old.

Source: WRITE-PATH.md section 2 (background step), holes 3, 14, 25.
"""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from messages.errors import StorageError
from storage import files
from storage.manifest import MANIFEST_MAX_BYTES, MANIFEST_NAME, Pair
from storage.publication import entries
from storage.publication.placing import MANIFEST_ORDINAL
from storage.publication.slot import Slot, slots
from storage.publication.store import VAULT_NAME, Folders, StoreState, reported
from storage.state import journal
from storage.state.connection import StorageCorrupt
from storage.state.journal import JournalEntry, Step
from storage.vault import replace

STAGED_AGE_NS: Final = 2_000_000_000
STAGED_AGE_WITHOUT_LEASES_NS: Final = 60_000_000_000
_RESTATS: Final = 3

FAULT_POINTS = (
    ("sync.cut.begin", "beginning the transaction of a cut"),
    ("sync.cut.commit", "the durable commit that makes settle marks and fold-ins durable"),
    ("sync.open", "opening the vault or a folder for syncing"),
    ("sync.file", "opening and syncing one placed file"),
    ("sync.manifest", "syncing vault.json"),
    ("sync.folder", "syncing one folder"),
    ("sync.restat", "comparing a path with the inode that was synced"),
    ("sync.rewrite", "writing a text again whose file could not be synced"),
    ("prune.look", "the second look at a displaced text before its name is removed"),
    ("prune.begin", "beginning the transaction that prunes"),
    ("prune.commit", "the commit of a prune"),
    ("wal.begin", "beginning the small transaction that restarts the write-ahead log"),
    ("wal.commit", "its commit"),
)

Identity = tuple[int, int]  # (device, inode)


@dataclass(frozen=True, slots=True)
class Cut:
    """What one background step covers: settled entries, oldest first, and the pair at its end."""

    folder: Path
    root: Identity
    entries: tuple[JournalEntry, ...]
    floor: Pair | None

    @property
    def paths(self) -> list[str]:
        """The distinct paths, relative to the vault."""
        return list(dict.fromkeys(step.path for entry in self.entries for step in entry.steps))


@dataclass(frozen=True, slots=True)
class Synced:
    """What is durable now: for each path the inode that was synced (``None``: nothing stood there)."""

    cut: Cut
    inodes: Mapping[str, Identity | None]
    failed: Mapping[str, int] = field(default_factory=dict)  # path -> errno of the sync
    damaged: bool = False  # a folder could not be synced: a second sync would succeed falsely
    stopped: bool = False  # a later step failed: nothing is pruned, but what failed before it is not forgotten

    def after(self, lost: Synced) -> Synced:
        """This outcome with the failures of an earlier one whose answer never arrived: each is told only once."""
        return dataclasses.replace(
            self, failed={**lost.failed, **self.failed}, damaged=self.damaged or lost.damaged, stopped=self.stopped
        )


@dataclass(frozen=True, slots=True)
class Pruned:
    """``entries`` were pruned; ``again``: some had to stay, so that another step is due."""

    entries: int
    again: bool


def cut(state: StoreState) -> Cut | None:
    """In the lane: choose the settled entries before any pending one, and make their marks durable."""
    settled: list[JournalEntry] = []
    for entry in journal.unpruned(state.db):
        if entry.state in ("pending", "rolling_back"):
            break
        settled.append(entry)
    if not settled:
        return None
    with state.transaction(full=True, point="sync.cut"):
        state.db.execute("UPDATE meta SET cuts = cuts + 1")
    accepted = [entry for entry in settled if entry.generation is not None]
    floor = None
    if accepted:
        last = accepted[-1]
        assert last.generation is not None
        floor = Pair(last.generation, last.publication_id)
    status = files.stat_open(state.root_fd, at="sync.open")
    return Cut(state.folder / VAULT_NAME, (status.st_dev, status.st_ino), tuple(settled), floor)


def sync_files(cut: Cut) -> Synced:
    """In a helper thread: make every path of the cut, vault.json and all folders above them durable.

    A sync that failed is always told, whatever happens after it. Raises ``StorageError`` when nothing was tried that
    a second attempt could not try again.
    """
    found = _Outcome()
    try:
        with reported("make the vault durable"):
            _sync_files(cut, found)
    except StorageError:
        if not found.failed and not found.damaged:
            raise
        return Synced(cut, {}, found.failed, found.damaged, stopped=True)
    return Synced(cut, found.inodes, found.failed, found.damaged)


@dataclass(slots=True)
class _Outcome:
    inodes: dict[str, Identity | None] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    damaged: bool = False


def _sync_files(cut: Cut, found: _Outcome) -> None:
    root_fd = files.open_root(cut.folder, at="sync.open")
    try:
        status = files.stat_open(root_fd, at="sync.open")
        if (status.st_dev, status.st_ino) != cut.root:
            raise StorageError("the vault folder was replaced while it was being synced", reason="replaced")
        with Folders(root_fd) as folders:
            inodes, failed = found.inodes, found.failed
            due = cut.paths
            for _ in range(_RESTATS):
                for path in due:
                    try:
                        inodes[path] = _sync_file(folders, path)
                    except OSError as error:
                        if error.errno not in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
                            raise
                        failed[path] = error.errno
                try:
                    _sync_manifest(root_fd)
                except OSError as error:
                    if error.errno != errno.EIO:
                        raise
                    failed[MANIFEST_NAME] = error.errno
                for folder in _folders_above(cut.paths):
                    fd = folders.find(folder)
                    if fd is not None and not _folder_is_durable(fd):
                        found.damaged = True
                due = [p for p in cut.paths if p not in failed and _identity(folders, p) != inodes[p]]
                if not due:
                    break
    finally:
        files.close(root_fd)


def _folder_is_durable(fd: int) -> bool:
    """Sync a folder; ``False`` when it failed for good: a second sync would succeed falsely, and a folder cannot be
    written anew."""
    try:
        files.fsync(fd, at="sync.folder")
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return False
    return True


def _sync_file(folders: Folders, path: str) -> Identity | None:
    folder, name = files.split(path)
    parent = folders.find(folder)
    if parent is None:
        return None
    try:
        fd, status = files.open_file(parent, name, at="sync.file")
    except (FileNotFoundError, files.UnsafeFile):
        return None  # a person's removal or link: nothing of ours to make durable
    try:
        files.fsync(fd, at="sync.file")
    finally:
        files.close(fd)
    return status.st_dev, status.st_ino


def _sync_manifest(root_fd: int) -> None:
    try:
        fd, _ = files.open_file(root_fd, MANIFEST_NAME, at="sync.manifest")
    except (FileNotFoundError, files.UnsafeFile):
        return
    try:
        files.fsync(fd, at="sync.manifest")
    finally:
        files.close(fd)


def _folders_above(paths: list[str]) -> list[str]:
    """Every folder above the paths, deepest first, the vault's root last."""
    found = {""}
    for path in paths:
        folder, _ = files.split(path)
        while folder and folder not in found:
            found.add(folder)
            folder, _ = files.split(folder)
    return sorted(found, key=lambda folder: (-folder.count("/") if folder else 1, folder))


def _identity(folders: Folders, path: str) -> Identity | None:
    folder, name = files.split(path)
    parent = folders.find(folder)
    status = None if parent is None else files.stat_entry(parent, name, at="sync.restat")
    return None if status is None else (status.st_dev, status.st_ino)


def prune(state: StoreState, synced: Synced, *, minimum_age_ns: int | None = None) -> Pruned:
    """In the lane: prune what is durable and whose staged names could be removed, oldest first.

    A path that could not be synced is written again to a new inode first; :class:`StorageCorrupt` when that fails
    too, or for a folder that could not be synced. ``minimum_age_ns=0`` is for an orderly stop and for recovery.
    """
    if synced.damaged:
        raise StorageCorrupt("a folder of the vault could not be made durable")
    age = minimum_age_ns
    if age is None:
        age = STAGED_AGE_NS if state.can.leases else STAGED_AGE_WITHOUT_LEASES_NS
    ready: list[JournalEntry] = []
    with Folders(state.root_fd) as folders:
        for path in synced.failed:
            if path == MANIFEST_NAME:
                _rewrite_manifest(state)
            else:
                _rewrite(state, folders, synced.cut, path)
        if synced.stopped:
            return Pruned(0, again=True)
        stale = {
            path
            for path in synced.cut.paths
            if path in synced.failed or _identity(folders, path) != synced.inodes.get(path)
        }
        now = state.clock()
        for entry in synced.cut.entries:
            if MANIFEST_NAME in synced.failed:
                break
            if any(step.path in stale for step in entry.steps):
                break
            if entry.state != "folded" and not _clear_staged(state, folders, entry, now, age):
                break
            ready.append(entry)
    if ready:
        accepted = [Pair(e.generation, e.publication_id) for e in ready if e.generation is not None]
        with state.transaction(full=False, point="prune"):
            journal.prune(state.db, ready, accepted[-1] if accepted else None)
        state.unpruned -= len(ready)
    # Also when nothing could be pruned, so that the log never grows with what has to stay.
    _checkpoint(state)
    return Pruned(len(ready), len(ready) < len(synced.cut.entries))


def _checkpoint(state: StoreState) -> None:
    """Move the WAL into the database, then write once: the first write after a checkpoint syncs the log's new header,
    which must not happen in a caller's commit."""
    total, copied = state.db.checkpoint("PASSIVE")
    if total == copied:
        with state.transaction(full=False, point="wal"):
            state.db.execute("UPDATE meta SET cuts = cuts + 1")


def _clear_staged(state: StoreState, folders: Folders, entry: JournalEntry, now: int, age: int) -> bool:
    """Remove the staged names of a settled entry; ``False`` while one must stay."""
    present = [(slot, name) for slot in slots(state, folders, entry) for name in _present(slot, folders)]
    if not present:
        _clear_manifest(state, entry)
        return True
    settled_at = entry.settled_at or entry.accepted_at
    # A clock that was set back must not keep names for ever.
    if 0 <= now - settled_at < age:
        return False
    for slot, name in present:
        try:
            seen = replace.look(folders.open(slot.staging), name, limit=1 << 30, at="prune.look")
        except FileNotFoundError:
            continue
        except files.UnsafeFile:
            return False
        if seen.busy:
            return False
        if not journal.has_blob(state.db, seen.hash):
            entries.keep(state, [(entry, slot.step, seen.data)])
        slot.discard(name)
    _clear_manifest(state, entry)
    return True


def _present(slot: Slot, folders: Folders) -> list[str]:
    parent = folders.find(slot.staging)
    if parent is None:
        return []
    return [name for name in (slot.staged, slot.aside) if files.stat_entry(parent, name, at="prune.look") is not None]


def _clear_manifest(state: StoreState, entry: JournalEntry) -> None:
    name = state.staged_name(entry.publication_id, MANIFEST_ORDINAL)
    files.unlink(state.root_fd, name, at="manifest.unlink")


def _rewrite(state: StoreState, folders: Folders, cut: Cut, path: str) -> None:
    """After a failed sync: the same text again in a new inode, synced. A second sync of the old one would lie."""
    entry, step = last_step(cut.entries, path)
    final = step.before if entry.state == "conflict" else step.after
    slot = Slot(state, folders, entry.publication_id, step)
    target = slot.target()
    if final is None or target.hash != final:
        return  # what stands there is a person's, and no text of ours depends on it
    # A name of its own: the step's staged name may hold a displaced text.
    slot.staged = state.staged_name(entry.publication_id, f"{step.ordinal}-rewrite")
    try:
        slot.restage(final)
        parent = folders.open(slot.staging)
        fd, _ = files.open_file(parent, slot.staged, at="sync.rewrite")
        try:
            files.fsync(fd, at="sync.rewrite")
        finally:
            files.close(fd)
        displaced = slot.swap(slot.staged)
        seen, busy = slot.look(displaced)
        if seen.hash != final:
            slot.swap(displaced)  # saved by a person in this moment: theirs stays
        elif not busy:
            slot.discard(displaced)
        files.fsync(folders.open(slot.folder), at="sync.folder")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
        raise StorageCorrupt(f"a file of the vault could not be made durable twice (errno {error.errno})") from error


def _rewrite_manifest(state: StoreState) -> None:
    """The same for vault.json: its bytes again in a new inode, synced."""
    root, name = state.root_fd, state.staged_name(state.pair.publication_id, "manifest-rewrite")
    try:
        data, _ = files.read_file(root, MANIFEST_NAME, limit=MANIFEST_MAX_BYTES, at="sync.rewrite")
        files.unlink(root, name, at="manifest.unlink")
        fd = files.create_file(root, name, data, at="manifest.stage")
        try:
            files.fsync(fd, at="sync.rewrite")
        finally:
            files.close(fd)
        files.rename_over(root, name, MANIFEST_NAME, at="manifest.place")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
        raise StorageCorrupt(f"vault.json could not be made durable twice (errno {error.errno})") from error


def last_step(chain: tuple[JournalEntry, ...], path: str) -> tuple[JournalEntry, Step]:
    """The newest step of the entries for a path."""
    for entry in reversed(chain):
        for step in entry.steps:
            if step.path == path:
                return entry, step
    raise KeyError(path)


__all__ = ["Cut", "Pruned", "Synced", "cut", "prune", "sync_files"]
