"""The files that the knowledge base is made of, and the one that it is written to.

No symbolic link below a folder is followed, nothing but regular files is read, and a file that is written is there as
a whole or as it was. Errors are typed and name the file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final

from messages.errors import LimitExceeded, NotFound, StorageError
from messages.text import is_one_line, one_line
from storage import files
from storage.faults import effect
from storage.knowledge_base.problems import Problem

FAULT_POINTS: Final = (
    ("kb.folder", "open or list a folder of documents"),
    ("kb.read", "read one file of the knowledge base"),
    ("kb.write", "put a compiled knowledge base in place"),
)

# O_NONBLOCK: opening a FIFO must not wait for its writer.
_READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


class Folder:
    """An open folder of documents; a context manager. Raises ``NotFound`` and ``StorageError``."""

    def __init__(self, path: str) -> None:
        self._path = path
        with _told(path):
            self._fd = files.open_root(path, at="kb.folder")

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        files.close(self._fd)

    def files(self, suffix: str) -> tuple[list[str], tuple[str, ...]]:
        """The paths below the folder that end so, in any case, sorted; and those that are links or no files, sorted.

        Names that begin with a dot are left out, with all that is below them.
        """
        found: list[str] = []
        skipped: list[str] = []
        todo = [""]
        while todo:
            parent = todo.pop()
            with _told(f"{self._path}/{parent}"):
                fd = files.open_folder(self._fd, parent, at="kb.folder")
                try:
                    entries = files.list_folder(fd, at="kb.folder.read")
                finally:
                    files.close(fd)
            for entry in entries:
                path = f"{parent}/{entry.name}" if parent else entry.name
                if entry.name.startswith("."):
                    continue
                if entry.kind == "folder":
                    todo.append(path)
                elif entry.kind == "other":
                    skipped.append(path)
                elif entry.name.lower().endswith(suffix):
                    found.append(path)
        return sorted(found), tuple(sorted(skipped))

    def read(self, path: str, limit: int) -> bytes | Problem:
        """The bytes of a file, or why there are none."""
        try:
            path.encode()
        except UnicodeEncodeError:
            return Problem(os.fsencode(path).decode("utf-8", "replace"), None, "its name is not UTF-8; rename it")
        if not is_one_line(path):
            return Problem(one_line(path), None, "its name holds a line break or a control character; rename it")
        parent, name = files.split(path)
        try:
            folder = files.open_folder(self._fd, parent, at="kb.folder")
            try:
                return _read(name, limit, folder)
            finally:
                files.close(folder)
        except files.UnsafeFile as error:
            return Problem(path, None, _UNSAFE.format(limit=limit) if error.reason == "too_large" else "it is no file")
        except OSError as error:
            return Problem(path, None, f"it cannot be read: {error.strerror}")


_UNSAFE: Final = "it is larger than {limit} bytes"


def read_file(path: str, limit: int) -> bytes:
    """The bytes of a file that a person named. Raises ``NotFound``, ``LimitExceeded`` or ``StorageError``."""
    with _told(path):
        try:
            return _read(path, limit, None)
        except files.UnsafeFile as error:
            if error.reason == "too_large":
                raise LimitExceeded(f"{path} is larger than {limit} bytes; split it", file=path, limit=limit) from None
            raise NotFound(f"{path} is no file; name one", file=path) from None


def write_file(path: str, data: bytes) -> None:
    """Let the file hold ``data``: whatever happens, all of it is there or what was. Durable when it returns.

    Raises ``NotFound`` (no such folder) or ``StorageError``.
    """
    parent, name = os.path.split(os.path.abspath(path))
    staged = f".{name}.{os.getpid()}.new"
    with _told(path):
        folder = files.open_root(parent, at="kb.write")
        try:
            files.unlink(folder, staged, at="kb.write.remove")
            try:
                fd = files.create_file(folder, staged, data, at="kb.write.stage")
                try:
                    files.fsync(fd, at="kb.write.sync")
                finally:
                    files.close(fd)
                files.rename_over(folder, staged, name, at="kb.write.place")
            except OSError:
                with suppress(OSError):
                    files.unlink(folder, staged, at="kb.write.remove")
                raise
            files.fsync(folder, at="kb.write.sync")
        finally:
            files.close(folder)


def _read(name: str, limit: int, folder_fd: int | None) -> bytes:
    """A regular file's bytes; below a folder no link is followed, a path that a person named may be one."""
    flags = _READ_FLAGS if folder_fd is None else _READ_FLAGS | os.O_NOFOLLOW
    with effect("kb.read"):
        fd = os.open(name, flags, dir_fd=folder_fd)
    try:
        status = files.stat_open(fd, at="kb.read.stat")
        if not stat.S_ISREG(status.st_mode):
            raise files.UnsafeFile(name, "not_regular")
        return files.read_open(fd, name, status, limit=limit, at="kb.read.read")
    finally:
        files.close(fd)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """What the system refuses, as an error of ours that names the file."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR):
            raise NotFound(f"{path} cannot be used: {error.strerror}", file=path) from None
        raise StorageError(f"{path}: {error.strerror}", file=path) from None
