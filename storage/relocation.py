"""Moving a store's folder: by one rename where that works, otherwise as a verified copy.

Guarantees: at every moment the store lies complete at its old or at its new place, and a note in the state folder
tells which move is under way, so that :func:`recover` ends or undoes one that a crash cut short. A copy is compared
with its original by hash and is durable before the registry switches, and the original is removed only where it still
is exactly what was copied: what somebody changed meanwhile stays and is named.

The order of a move, with the registry's switch between the two calls (the registry belongs to another thread)::

    moved = move_folder(layout, move)          # note, rename or copy + verify
    registry.relocate(...)                     # one durable transaction
    finish(layout, move)                       # the original of a copy goes, then the note

Nobody has the store open; the caller holds the owner lock. Any one thread.

Source: decisions.md section 6 (Stores are moved only by ...), stores-and-access.md (Storage layout).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from messages.errors import DuplicateIdentity, InvalidArgument, StorageError, StoreUnavailable
from storage import files
from storage.faults import effect
from storage.files import CHUNK_BYTES, Stamp
from storage.layout import Layout, StoreLayout
from storage.manifest import claimed_vault_id
from storage.whole_files import put_whole

NOTE_NAME: Final = "relocation.json"
NOTE_MAX_BYTES: Final = 64 * 1024
_STAGED_NOTE: Final = ".relocation.json.new"

FAULT_POINTS: Final = (
    ("relocate.look", "looking at the two places of a move"),
    ("relocate.note.stage", "writing the note of a move beside its name"),
    ("relocate.note.sync", "making the note durable"),
    ("relocate.note.place", "giving the note its name"),
    ("relocate.note.read", "reading the note of a move"),
    ("relocate.note.remove", "removing the note of a finished move"),
    ("relocate.rename", "renaming the store's folder"),
    ("relocate.sync", "making the names of a move durable"),
    ("relocate.list", "listing what is copied"),
    ("relocate.copy", "copying one file, link or folder"),
    ("relocate.verify", "comparing the copy with its original"),
    ("relocate.place", "giving the verified copy its name"),
    ("relocate.remove", "removing the original, or a copy that was not finished"),
)


@dataclass(frozen=True, slots=True)
class Move:
    """One move of one store; both folders absolute. ``found``: it was moved by hand, only the registry is to follow."""

    vault_id: str
    source: Path
    target: Path
    found: bool = False

    @property
    def staged(self) -> Path:
        """Where a copy grows, beside its target."""
        return self.target.with_name(f".kr-relocating-{self.vault_id}")


@dataclass(frozen=True, slots=True)
class Moved:
    """How the folder came to its new place: ``found`` had been moved there by hand."""

    how: Literal["renamed", "copied", "found"]
    files: int = 0


def plan_move(vault_id: str, source: Path, target: Path, others: Callable[[Path], str | None]) -> Move:
    """Check a move before anything is stopped. ``others`` gives the store registered at or around a place.

    Raises ``InvalidArgument`` (``field`` ``path``), ``DuplicateIdentity`` (a copy of this store stands at the target
    beside its original, or another store is registered there), ``StoreUnavailable``.
    """
    if not target.is_absolute():
        raise _refused("The new place must be an absolute path.", "not_absolute")
    with effect("relocate.look"):
        parent = Path(os.path.realpath(target.parent))
        target = parent / target.name
        is_folder = os.path.isdir(parent)
        taken = os.path.lexists(target)
        here = os.path.isdir(source)
    if target == source:
        raise _refused("The store lies at that place already.", "same_place")
    if not is_folder:
        raise _refused("The folder that is to hold the store does not exist; make it first.", "no_parent")
    if target.is_relative_to(source) or source.is_relative_to(target):
        raise _refused("One of the two places lies inside the other.", "nested")
    other = others(target)
    if other is not None:
        raise DuplicateIdentity(f"The store {other} is registered at or around that place.", vaultId=other)
    if taken and claimed_vault_id(StoreLayout(target).vault, at="relocate.look") == vault_id:
        if here:
            raise DuplicateIdentity(
                "A copy of this store stands at the new place beside its original. Only one of them can be the store: "
                "remove the copy, or move it away.",
                vaultId=vault_id,
            )
    elif taken:
        raise _refused("Something stands at the new place; name a folder that does not exist yet.", "taken")
    elif not here:
        raise StoreUnavailable(
            "The store's folder is gone from its place. Move it to where it shall be, then name that place.",
            reason="missing",
        )
    return Move(vault_id, source, target, found=not here)


def move_folder(layout: Layout, move: Move) -> Moved:
    """Bring the folder to its new place; after an error the store is as it was. Long for a copy.

    Raises ``StorageError`` (``retry`` ``safe``): full, read-only, changed while it was copied, a device in it.
    """
    try:
        _write_note(layout, move)
        return _move(layout, move)
    except OSError as error:
        undo(layout, move)
        raise StorageError(
            f"The store could not be moved: {error.strerror or type(error).__name__}. It is where it was.",
            reason="file_system",
            errno=error.errno or 0,
        ) from error
    except StorageError:
        undo(layout, move)
        raise


def _move(layout: Layout, move: Move) -> Moved:
    if move.found:
        return Moved("found")
    try:
        _rename_folder(move.source, move.target, at_rename=True)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return Moved("copied", _copy(move))
    return Moved("renamed")


def _rename_folder(source: Path, target: Path, *, at_rename: bool) -> None:
    """Rename without replacing, durable when it returns; never across file systems."""
    source_fd = files.open_root(source.parent, at="relocate.look")
    try:
        target_fd = files.open_root(target.parent, at="relocate.look")
        try:
            try:
                if at_rename:
                    files.move(source_fd, source.name, target_fd, target.name, at="relocate.rename")
                else:
                    files.move(source_fd, source.name, target_fd, target.name, at="relocate.place")
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOSYS):
                    raise
                with effect("relocate.rename"):  # a folder is never renamed over one that holds something
                    os.rename(source, target)
            files.fsync(target_fd, at="relocate.sync")
            files.fsync(source_fd, at="relocate.sync")
        finally:
            files.close(target_fd)
    finally:
        files.close(source_fd)


def finish(layout: Layout, move: Move) -> tuple[str, ...]:
    """After the registry's switch: remove the original of a copy, then the note. What was left, relative to it.

    Paths are left where the original is no longer what was copied.
    """
    with effect("relocate.look"):
        original = move.source if os.path.isdir(move.source) else None
    left: tuple[str, ...] = ()
    if original is not None:
        left = _remove_copied(original, move.target)
    _remove_note(layout)
    return left


def undo(layout: Layout, move: Move) -> None:
    """Before the registry's switch: the store at its old place again, no copy left, then no note."""
    _remove_tree(move.staged)
    with effect("relocate.look"):
        here, there = os.path.isdir(move.source), os.path.isdir(move.target)
    if there and here:
        # A verified copy whose switch never came: the original is still the store.
        _remove_copied(move.target, move.source)
    elif there and not move.found:
        _rename_folder(move.target, move.source, at_rename=True)
    _remove_note(layout)


def recover(layout: Layout, registered: Callable[[str], StoreLayout | None]) -> Move | None:
    """End or undo a move that a crash cut short; a move that only lacks the registry's switch is given back.

    The caller then switches the registry and calls :func:`finish`.
    """
    move = _read_note(layout)
    if move is None:
        return None
    known = registered(move.vault_id)
    if known is not None and known.root == move.target:
        finish(layout, move)
        return None
    with effect("relocate.look"):
        here, there = os.path.isdir(move.source), os.path.isdir(move.target)
    if there and not here:
        return move
    undo(layout, move)
    return None


# --- copying -----------------------------------------------------------------------------------------------------


def _copy(move: Move) -> int:
    """Copy, make durable, verify by hash, place. The number of files."""
    _remove_tree(move.staged)
    stamps: dict[str, Stamp] = {}
    folders: list[str] = []
    with effect("relocate.copy"):
        os.mkdir(move.staged, 0o700)
    for path, status in _walk(move.source):
        _copy_one(move, path, status, folders, stamps)
    for folder in (*reversed(folders), ""):
        with effect("relocate.copy"):
            if folder:
                shutil.copystat(move.source / folder, move.staged / folder, follow_symlinks=False)
        _sync_folder(move.staged / folder)
    for path in stamps:
        if _hash_of(move.source / path) != _hash_of(move.staged / path):
            raise StorageError("The copy differs from its original; nothing was moved.", reason="copy_differs")
    now = {path: Stamp.of(status) for path, status in _walk(move.source) if stat.S_ISREG(status.st_mode)}
    if now != stamps:
        raise StorageError(
            "Files of the store changed while it was copied; close the editors on its vault and try again.",
            reason="changed",
        )
    _rename_folder(move.staged, move.target, at_rename=False)
    return len(stamps)


def _copy_one(move: Move, path: str, status: os.stat_result, folders: list[str], stamps: dict[str, Stamp]) -> None:
    source, copy = move.source / path, move.staged / path
    if stat.S_ISDIR(status.st_mode):
        folders.append(path)
        with effect("relocate.copy"):
            os.mkdir(copy, 0o700)
    elif stat.S_ISLNK(status.st_mode):
        with effect("relocate.copy"):
            os.symlink(os.readlink(source), copy)
    elif stat.S_ISREG(status.st_mode):
        with effect("relocate.copy"):
            shutil.copyfile(source, copy, follow_symlinks=False)
            shutil.copystat(source, copy, follow_symlinks=False)
        fd = _open(copy)
        try:
            files.fsync(fd, at="relocate.sync")
        finally:
            files.close(fd)
        stamps[path] = Stamp.of(status)
    else:
        raise StorageError("The store holds a device or a pipe, which is not copied; remove it.", reason="not_a_file")


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below ``root`` with its ``lstat``, parents first, by relative path."""
    todo = [""]
    while todo:
        folder = todo.pop()
        with effect("relocate.list"), os.scandir(root / folder) as names:
            found = [(f"{folder}/{e.name}" if folder else e.name, e.stat(follow_symlinks=False)) for e in names]
        for path, status in sorted(found, key=lambda one: one[0]):
            yield path, status
            if stat.S_ISDIR(status.st_mode):
                todo.append(path)


def _hash_of(path: Path) -> str:
    digest = hashlib.sha256()
    with effect("relocate.verify"), open(path, "rb") as file:
        while part := file.read(CHUNK_BYTES):
            digest.update(part)
    return digest.hexdigest()


def _remove_copied(original: Path, kept: Path) -> tuple[str, ...]:
    """Remove from ``original`` everything that ``kept`` holds alike; the paths that are not, which stay."""
    left: list[str] = []
    folders = [""]
    for path, status in _walk(original):
        if stat.S_ISDIR(status.st_mode):
            folders.append(path)
        elif _alike(original / path, status, kept / path):
            with effect("relocate.remove"), suppress(FileNotFoundError):
                os.unlink(original / path)
        else:
            left.append(path)
    for folder in sorted(folders, key=lambda one: -one.count("/") if one else 1):
        with effect("relocate.remove"), suppress(OSError):
            os.rmdir(original / folder)  # one that still holds something stays
    _sync_folder(original.parent)
    return tuple(left)


def _alike(path: Path, status: os.stat_result, kept: Path) -> bool:
    with effect("relocate.look"):
        try:
            other = os.lstat(kept)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if stat.S_ISLNK(status.st_mode):
            return stat.S_ISLNK(other.st_mode) and os.readlink(path) == os.readlink(kept)
    if not stat.S_ISREG(status.st_mode) or not stat.S_ISREG(other.st_mode) or status.st_size != other.st_size:
        return False
    return _hash_of(path) == _hash_of(kept)


def _remove_tree(path: Path) -> None:
    """Remove a copy of ours that nobody ever used."""
    with effect("relocate.remove"), suppress(FileNotFoundError):
        shutil.rmtree(path)


# --- the note ----------------------------------------------------------------------------------------------------


def _write_note(layout: Layout, move: Move) -> None:
    content = {"vaultId": move.vault_id, "source": os.fspath(move.source), "target": os.fspath(move.target)}
    found = {"found": True} if move.found else {}
    folder = files.open_root(layout.root, at="relocate.look")
    try:
        data = json.dumps({"format": 1, **content, **found}).encode() + b"\n"
        put_whole(folder, NOTE_NAME, data, staged=_STAGED_NOTE, at="relocate.note")
    finally:
        files.close(folder)


def _read_note(layout: Layout) -> Move | None:
    folder = files.open_root(layout.root, at="relocate.look")
    try:
        data, _ = files.read_file(folder, NOTE_NAME, limit=NOTE_MAX_BYTES, at="relocate.note.read")
        content = json.loads(data)
        return Move(str(content["vaultId"]), Path(content["source"]), Path(content["target"]), "found" in content)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, files.UnsafeFile) as error:
        raise StoreUnavailable(
            f"{NOTE_NAME} in the state folder cannot be read; it says where a store was being moved to. Mend or remove "
            "it once the store lies at one place.",
            reason="relocation_note",
        ) from error
    finally:
        files.close(folder)


def _remove_note(layout: Layout) -> None:
    folder = files.open_root(layout.root, at="relocate.look")
    try:
        files.unlink(folder, NOTE_NAME, at="relocate.note.remove")
        files.fsync(folder, at="relocate.note.sync")
    finally:
        files.close(folder)


def _sync_folder(path: Path) -> None:
    fd = files.open_root(path, at="relocate.sync")
    try:
        files.fsync(fd, at="relocate.sync")
    finally:
        files.close(fd)


def _open(path: Path) -> int:
    with effect("relocate.copy"):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)


def _refused(message: str, reason: str) -> InvalidArgument:
    return InvalidArgument(message, field="path", reason=reason)


__all__ = ["Move", "Moved", "finish", "move_folder", "plan_move", "recover", "undo"]
