"""Files written into a folder that is growing, each hashed on its way; what is walked, and what is left out.

Every path is relative to an open root, and no link is followed below it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from storage import files
from storage.backup.manifest import Part
from storage.faults import effect

FAULT_POINTS: Final = (
    ("backup.folder", "opening or making a folder of a backup or of what is restored"),
    ("backup.walk", "listing a folder that is backed up or restored"),
    ("backup.read", "opening or reading a file that is backed up or restored"),
    ("backup.write", "writing a file of a backup, or one that is restored"),
    ("backup.sync", "making a file or the names in a folder durable"),
    ("backup.remove", "removing a copy that was not finished"),
    ("backup.place", "giving a finished copy its name"),
)


@dataclass(frozen=True, slots=True)
class Walked:
    """One name below a root: a plain file with its size, or something that is not copied."""

    path: str
    size: int
    reason: str | None = None


def walk(root: Path, skip: Callable[[str], bool] = lambda path: False) -> Iterator[Walked]:
    """Everything below ``root`` but folders, in order. ``skip`` passes a path and what is below it over."""
    todo = [""]
    while todo:
        folder = todo.pop()
        try:
            with effect("backup.walk"), os.scandir(root / folder) as names:
                found = sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in names)
        except FileNotFoundError:
            continue  # it went while we walked
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            yield Walked(folder, 0, "lies too deep")
            continue
        for name, status in found:
            path = f"{folder}/{name}" if folder else name
            if skip(path):
                continue
            if stat.S_ISDIR(status.st_mode):
                todo.append(path)
                continue
            yield Walked(path, status.st_size, _refusal(name, status))


def _refusal(name: str, status: os.stat_result) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "is no plain file (a link, a pipe or a device)"
    if status.st_nlink > 1:
        return "has a second name (a hard link)"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    return None


class Growing:
    """A folder that is being filled: nothing in it counts before :meth:`finish`."""

    def __init__(self, root: Path) -> None:
        """``root`` does not exist yet."""
        self.root = root
        self._folders: set[str] = set()
        with effect("backup.folder"):
            os.mkdir(root, 0o700)

    def folder(self, path: str) -> Path:
        """The folder, made with its parents."""
        if path and path not in self._folders:
            self.folder(files.split(path)[0])
            with effect("backup.folder"), suppress(FileExistsError):
                os.mkdir(self.root / path, 0o700)
            self._folders.add(path)
        return self.root / path if path else self.root

    def write(self, path: str, data: bytes) -> Part:
        """A new file with these bytes, durable when the copy is finished."""
        digest = hashlib.sha256(data).hexdigest()
        self._fill(path, iter((data,)))
        return Part(path, len(data), digest)

    def copy(self, path: str, root_fd: int, source: str, limit: int | None = None) -> Part:
        """A new file with the bytes of ``source`` below ``root_fd``, or the first ``limit`` of them.

        Raises ``OSError`` and ``UnsafeFile`` for the source, with nothing left at ``path``.
        """
        digest = hashlib.sha256()
        size = 0
        folder_path, name = files.split(source)
        folder = files.open_folder(root_fd, folder_path, at="backup.folder")
        try:
            fd, _ = files.open_file(folder, name, at="backup.read")
        finally:
            files.close(folder)

        def chunks() -> Iterator[bytes]:
            nonlocal size
            while limit is None or size < limit:
                wanted = files.CHUNK_BYTES if limit is None else min(files.CHUNK_BYTES, limit - size)
                data = files.read_at(fd, wanted, size, at="backup.read")
                if not data:
                    return
                digest.update(data)
                size += len(data)
                yield data

        try:
            self._fill(path, chunks())
        finally:
            files.close(fd)
        return Part(path, size, digest.hexdigest())

    def _fill(self, path: str, chunks: Iterator[bytes]) -> None:
        folder_path, name = files.split(path)
        target = self.folder(folder_path) / name
        with effect("backup.write"):
            fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            for data in chunks:
                with effect("backup.write"):
                    view = memoryview(data)
                    while view:
                        view = view[os.write(fd, view) :]
            files.fsync(fd, at="backup.sync")
        except BaseException:
            with effect("backup.remove"), suppress(OSError):
                os.unlink(target)
            raise
        finally:
            files.close(fd)

    def sync_file(self, path: str) -> None:
        """Make a file that somebody else wrote here durable."""
        with effect("backup.read"):
            fd = os.open(self.root / path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            files.fsync(fd, at="backup.sync")
        finally:
            files.close(fd)

    def part(self, path: str) -> Part:
        """A file that somebody else wrote here, hashed."""
        size, digest = hash_file(self.root / path)
        return Part(path, size, digest)

    def drop(self, path: str) -> None:
        """Remove a folder that is not to be part of the whole."""
        remove_tree(self.root / path)
        self._folders = {folder for folder in self._folders if folder != path and not folder.startswith(f"{path}/")}

    def finish(self) -> None:
        """Every name in every folder is durable."""
        for path in sorted(self._folders, reverse=True):
            with suppress(FileNotFoundError):  # opening a restored store finishes an erasure, which takes folders away
                sync_folder(self.root / path)
        sync_folder(self.root)


def hash_file(path: Path) -> tuple[int, str]:
    """``(size, SHA-256)`` of a file; no link is followed in its last component."""
    digest = hashlib.sha256()
    size = 0
    with effect("backup.read"):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        while data := files.read_at(fd, files.CHUNK_BYTES, size, at="backup.read"):
            digest.update(data)
            size += len(data)
    finally:
        files.close(fd)
    return size, digest.hexdigest()


def sync_folder(path: Path) -> None:
    """The names in a folder are durable when this returns."""
    fd = files.open_root(path, at="backup.sync")
    try:
        files.fsync(fd, at="backup.sync")
    finally:
        files.close(fd)


def remove_tree(path: Path) -> None:
    """Remove a copy of ours that was never finished. What cannot be removed stays and is no backup."""
    with effect("backup.remove"), suppress(FileNotFoundError):
        shutil.rmtree(path)


def free_bytes(path: Path) -> int:
    """Room for an ordinary user on the file system that holds ``path``."""
    return files.free_bytes(path, at="backup.folder")
