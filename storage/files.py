"""Every effect on a file or folder, each inside a named fault point and relative to an open folder.

Guarantees: no symbolic link is followed, at any component below the root; a file is read only when it is regular
and has exactly one name; nothing at a name is ever overwritten (a create is exclusive, a rename either exchanges
two names or refuses a taken one), except by :func:`rename_over`, which says so. ``at`` is the fault point of the
effect (:mod:`storage.faults`); a compound effect derives the points of its parts from it (``<at>.open``,
``<at>.write``).

Errors: ``OSError`` as the system gave it, and :class:`UnsafeFile`. Any thread; no state of its own.

Source: stores-and-access.md (Limits: symlinks and hard links are rejected), WRITE-PATH.md section 2.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from storage.faults import effect

CHUNK_BYTES: Final = 1 << 20
FOLLOW_LINKS: Final = False
"""Whether what a symbolic link leads to is looked at in its place."""
NAMES_MAX: Final = 1
"""How many names a file may have: one with a second name belongs to somebody else too."""
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
# O_NONBLOCK: opening a FIFO that somebody named like a record must not wait for its writer.
_READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_WRITE_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_OPENAT2_SYSCALL: Final = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_NOREPLACE_LINUX, _EXCHANGE_LINUX = 1, 2
_EXCL_DARWIN, _SWAP_DARWIN = 4, 2
_SETLEASE: Final = getattr(fcntl, "F_SETLEASE", None)
_SETSIG: Final = getattr(fcntl, "F_SETSIG", 10)
_F_RDLCK, _F_UNLCK = 0, 2
_READ_ATTEMPTS: Final = 3

UnsafeReason = Literal["symlink", "hardlink", "not_regular", "too_large"]


class UnsafeFile(Exception):
    """A file that must not be used; ``reason`` says why. Its content was not read."""

    def __init__(self, name: str, reason: UnsafeReason) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason: UnsafeReason = reason


class Stamp(NamedTuple):
    """What changes when a file changes. Sizes in bytes, times in nanoseconds of the file system's clock.

    ``ctime_ns`` is part of it because a rewrite of equal size with a restored mtime shows nowhere else. A named
    tuple, since a scan makes one for each file.
    """

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder, without following it."""

    name: str
    kind: Literal["file", "folder", "other"]


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


_libc = ctypes.CDLL(None, use_errno=True)


def split(path: str) -> tuple[str, str]:
    """``(folder, name)`` of a relative path with ``/``; the root's folder is ``""``."""
    folder, _, name = path.rpartition("/")
    return folder, name


def checked_relative(path: str) -> str:
    """``path`` itself when it is a plain relative path; ``ValueError`` for empty, ``.``, ``..`` or NUL components."""
    if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"not a plain relative path: {path!r}")
    return path


def open_root(path: str | os.PathLike[str], *, at: str) -> int:
    """A descriptor of the folder ``path``, whose last component is no symbolic link."""
    with effect(at):
        return os.open(path, _FOLDER_FLAGS)


def open_folder(root_fd: int, path: str, *, at: str) -> int:
    """A descriptor of the folder ``path`` below ``root_fd``; ``""`` is the root itself.

    Raises ``OSError`` (``ELOOP`` or ``ENOTDIR``) when a component is a symbolic link.
    """
    with effect(at):
        if not path:
            return os.dup(root_fd)
        if sys.platform == "linux":
            how = _OpenHow(_FOLDER_FLAGS, 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)
            fd: int = _libc.syscall(_OPENAT2_SYSCALL, root_fd, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
            if fd >= 0:
                return fd
            code = ctypes.get_errno()
            if code not in (errno.ENOSYS, errno.EPERM, errno.EAGAIN):
                raise OSError(code, os.strerror(code), path)
        return _walk(root_fd, path)


def _walk(root_fd: int, path: str) -> int:
    """The same by one ``open`` a component, where ``openat2`` is missing."""
    if ".." in path.split("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    fd = os.dup(root_fd)
    for part in path.split("/"):
        parent = fd
        try:
            fd = os.open(part, _FOLDER_FLAGS, dir_fd=parent)
        finally:
            os.close(parent)
    return fd


def close(fd: int) -> None:
    """Close a descriptor. Not a fault point: nothing durable depends on it."""
    os.close(fd)


def open_file(folder_fd: int, name: str, *, at: str) -> tuple[int, os.stat_result]:
    """Open ``name`` for reading: regular, one link, no symbolic link. The caller closes the descriptor."""
    return _open_plain(folder_fd, name, _READ_FLAGS, at)


def read_open(fd: int, name: str, status: os.stat_result, *, limit: int, at: str) -> bytes:
    """All bytes of an open file from its start; :class:`UnsafeFile` when they are more than ``limit``."""
    with effect(at):
        if status.st_size > limit:
            raise UnsafeFile(name, "too_large")
        os.lseek(fd, 0, os.SEEK_SET)
        data = os.read(fd, status.st_size + 1)
        if len(data) == status.st_size:
            return data
        parts = [data]
        total = len(data)
        while part := os.read(fd, CHUNK_BYTES):
            parts.append(part)
            total += len(part)
            if total > limit:
                raise UnsafeFile(name, "too_large")
        return b"".join(parts)


def read_file(folder_fd: int, name: str, *, limit: int, at: str) -> tuple[bytes, Stamp]:
    """The bytes of ``name`` and the stamp they belong to, both from before any change that is still going on.

    Raises ``FileNotFoundError``, :class:`UnsafeFile`, or ``OSError(EAGAIN)`` when the file keeps changing.
    """
    for _ in range(_READ_ATTEMPTS):
        fd, status = open_file(folder_fd, name, at=at)
        try:
            data = read_open(fd, name, status, limit=limit, at=f"{at}.read")
            with effect(f"{at}.stat"):
                after = Stamp.of(os.fstat(fd))
        finally:
            os.close(fd)
        if after == Stamp.of(status) and len(data) == after.size:
            return data, after
    raise OSError(errno.EAGAIN, "the file keeps changing while it is read", name)


def stat_entry(folder_fd: int, name: str, *, at: str) -> os.stat_result | None:
    """``lstat`` of ``name``, or ``None`` when nothing has that name."""
    with effect(at):
        try:
            return os.stat(name, dir_fd=folder_fd, follow_symlinks=FOLLOW_LINKS)
        except (FileNotFoundError, NotADirectoryError):
            return None


def stat_open(fd: int, *, at: str) -> os.stat_result:
    """``fstat`` of an open descriptor."""
    with effect(at):
        return os.fstat(fd)


def list_folder(folder_fd: int, *, at: str) -> list[Entry]:
    """The names in a folder, unordered; symbolic links and devices are ``other``."""
    with effect(at), os.scandir(folder_fd) as names:
        return [
            Entry(
                entry.name,
                "file"
                if entry.is_file(follow_symlinks=False)
                else "folder"
                if entry.is_dir(follow_symlinks=False)
                else "other",
            )
            for entry in names
        ]


def names_in(folder_fd: int, *, at: str) -> list[str]:
    """The names in a folder, unordered, whatever they stand for."""
    with effect(at):
        return os.listdir(folder_fd)


def create_file(folder_fd: int, name: str, data: bytes, *, mode: int = 0o666, at: str) -> int:
    """Create ``name`` with ``data`` and return its open descriptor; never replaces (``FileExistsError``). No sync.

    Points: ``<at>.open``, ``<at>.write``. On an error after the creation the caller removes the name.
    """
    with effect(f"{at}.open"):
        fd = os.open(name, _CREATE_FLAGS, mode, dir_fd=folder_fd)
    try:
        with effect(f"{at}.write"):
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_to_write(folder_fd: int, name: str, *, at: str) -> tuple[int, os.stat_result]:
    """Open ``name`` for reading and writing in place: regular, one link, no symbolic link. Never creates.

    Only for a file of ours that nothing refers to yet. The caller closes the descriptor.
    """
    return _open_plain(folder_fd, name, _WRITE_FLAGS, at)


def _open_plain(folder_fd: int, name: str, flags: int, at: str) -> tuple[int, os.stat_result]:
    """A regular file of one name, opened by that name and no other; looked at after it is open, so nothing comes
    between."""
    with effect(at):
        try:
            fd = os.open(name, flags, dir_fd=folder_fd)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UnsafeFile(name, "symlink") from None
            if error.errno in (errno.ENXIO, errno.EISDIR):
                raise UnsafeFile(name, "not_regular") from None
            raise
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise UnsafeFile(name, "not_regular")
            if status.st_nlink > NAMES_MAX:
                raise UnsafeFile(name, "hardlink")
        except BaseException:
            os.close(fd)
            raise
        return fd, status


def write_at(fd: int, data: bytes, offset: int, *, at: str) -> None:
    """All of ``data`` at this offset of an open file. No sync."""
    with effect(at):
        view = memoryview(data)
        while view:
            written = os.pwrite(fd, view, offset)
            view, offset = view[written:], offset + written


def truncate(fd: int, size: int, *, at: str) -> None:
    """Cut an open file to ``size`` bytes."""
    with effect(at):
        os.ftruncate(fd, size)


def read_at(fd: int, size: int, offset: int, *, at: str) -> bytes:
    """Up to ``size`` bytes of an open file from this offset; fewer only at its end."""
    with effect(at):
        data = os.pread(fd, size, offset)
        while 0 < len(data) < size and (more := os.pread(fd, size - len(data), offset + len(data))):
            data += more
        return data


def copy_attributes(source_fd: int, source: os.stat_result, target_fd: int, *, at: str) -> None:
    """Give a new file the mode of the one it will replace, and its owner and extended attributes where allowed."""
    with effect(at):
        os.fchmod(target_fd, stat.S_IMODE(source.st_mode))
        target = os.fstat(target_fd)
        if (target.st_uid, target.st_gid) != (source.st_uid, source.st_gid):
            with suppress(PermissionError):
                os.fchown(target_fd, source.st_uid, source.st_gid)
                os.fchmod(target_fd, stat.S_IMODE(source.st_mode))
        if sys.platform == "linux":
            with suppress(OSError):  # no extended attributes here, or one that only a privileged process may set
                for attribute in os.listxattr(source_fd):
                    os.setxattr(target_fd, attribute, os.getxattr(source_fd, attribute))


def fsync(fd: int, *, at: str) -> None:
    """Everything written to the file, or every name in the folder, is durable when this returns."""
    with effect(at):
        os.fsync(fd)


def make_folder(folder_fd: int, name: str, *, mode: int = 0o777, at: str) -> bool:
    """Create the folder ``name``; ``False`` when something has that name already."""
    with effect(at):
        try:
            os.mkdir(name, mode, dir_fd=folder_fd)
        except FileExistsError:
            return False
        return True


def unlink(folder_fd: int, name: str, *, at: str) -> bool:
    """Remove the name of a file; ``False`` when there was none."""
    with effect(at):
        try:
            os.unlink(name, dir_fd=folder_fd)
        except FileNotFoundError:
            return False
        return True


def remove_folder(folder_fd: int, name: str, *, at: str) -> bool:
    """Remove the folder ``name`` if it is empty; ``False`` otherwise."""
    with effect(at):
        try:
            os.rmdir(name, dir_fd=folder_fd)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                return False
            raise
        return True


def exchange(folder_fd: int, first: str, other_fd: int, second: str, *, at: str) -> None:
    """Swap what two names stand for, in one step. ``ENOENT`` when one is missing, ``EINVAL``/``ENOSYS`` if unable."""
    with effect(at):
        _rename(folder_fd, first, other_fd, second, _EXCHANGE_LINUX, _SWAP_DARWIN)


def move(folder_fd: int, source: str, other_fd: int, target: str, *, at: str) -> None:
    """Rename without replacing: ``FileExistsError`` when ``target`` is taken, ``EINVAL``/``ENOSYS`` if unable."""
    with effect(at):
        _rename(folder_fd, source, other_fd, target, _NOREPLACE_LINUX, _EXCL_DARWIN)


def rename_over(folder_fd: int, source: str, target: str, *, at: str) -> None:
    """Rename, replacing ``target`` in one step: only for a file of which the same bytes are elsewhere."""
    with effect(at):
        os.rename(source, target, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)


def link(folder_fd: int, source: str, other_fd: int, target: str, *, at: str) -> None:
    """A second name for a file; ``FileExistsError`` when ``target`` is taken. Only for systems without :func:`move`."""
    with effect(at):
        os.link(source, target, src_dir_fd=folder_fd, dst_dir_fd=other_fd, follow_symlinks=False)


def _rename(folder_fd: int, source: str, other_fd: int, target: str, linux: int, darwin: int) -> None:
    names = (folder_fd, os.fsencode(source), other_fd, os.fsencode(target))
    if sys.platform == "linux":
        result = _libc.renameat2(*names, ctypes.c_uint(linux))
    elif sys.platform == "darwin":
        result = _libc.renameatx_np(*names, ctypes.c_uint(darwin))
    else:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if result:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), source, None, target)


@contextmanager
def read_lease(fd: int, *, at: str) -> Iterator[bool | None]:
    """Whether nobody has the file open for writing: ``True`` (and so it stays inside the block, since an opening
    waits for us), ``False`` somebody has, shared mappings included, ``None`` this system cannot tell.

    ``fd`` is open for reading only. Hold it for microseconds: an editor's ``open`` waits meanwhile.
    """
    held: bool | None = None
    with effect(at):
        if _SETLEASE is not None:
            try:
                # The default signal of a broken lease, SIGIO, ends the process; SIGURG is ignored by default.
                fcntl.fcntl(fd, _SETSIG, signal.SIGURG)
                fcntl.fcntl(fd, _SETLEASE, _F_RDLCK)
                held = True
            except OSError as error:
                held = False if error.errno == errno.EAGAIN else None
    try:
        yield held
    finally:
        if held and _SETLEASE is not None:
            with effect(f"{at}.release"):
                fcntl.fcntl(fd, _SETLEASE, _F_UNLCK)


def block_size(fd: int, *, at: str) -> int:
    """The size in bytes of the blocks in which the file system loses or keeps data."""
    with effect(at):
        status = os.fstatvfs(fd)
    return status.f_frsize or status.f_bsize or 4096


def free_bytes(path: str | os.PathLike[str], *, at: str) -> int:
    """Room for an ordinary user on the file system that holds ``path``."""
    with effect(at):
        status = os.statvfs(path)
    return status.f_bavail * status.f_frsize
