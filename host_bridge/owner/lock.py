"""The lock that makes one process the owner of a state directory.

An OS lock (``flock``) on the ``knowledge`` directory itself and on ``owner.lock`` in it: the kernel drops both however
their holder dies, so a lock file that was left behind never blocks anybody. The directory's lock decides, because a
file can be removed or replaced under its holder, who then puts it back (:meth:`OwnerLock.keep`). The file holds one
JSON object that says who holds it and where the socket is; it is information and decides nothing. Network file
systems are refused by name, because their locks lie.

Source: decisions.md section 8.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import host_bridge
from host_bridge.owner import address, client
from messages.errors import OpenElsewhere, StorageError, StoreUnavailable

NETWORK_FILE_SYSTEMS = frozenset(
    "9p acfs afpfs afs beegfs ceph cifs coda davfs fuse.ceph fuse.curlftpfs fuse.davfs fuse.gcsfuse fuse.glusterfs "
    "fuse.rclone fuse.s3fs fuse.sshfs fuse.webdavfs glusterfs gpfs lustre ncpfs nfs nfs3 nfs4 nfsd ocfs2 orangefs "
    "pvfs2 smb2 smb3 smbfs webdav".split()
)
_RETRY_SECONDS = 0.02
_IN_PROCESS_ADVICE = (
    "KnowledgeBridge opens the state directory itself, in your process, and cannot while another client is connected: "
    "close those clients, use `knowledge serve --stdio`, or choose another state directory."
)
_NAME_SECONDS = 0.2  # a lock that is only being looked at, or an entry that is just being written, settles by then
_KEEP_ATTEMPTS = 25
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE))


class OwnerLock:
    """Held from construction to :meth:`release`; releasing twice is harmless. Any thread, one at a time."""

    def __init__(self, directory: str, folder: int, descriptor: int, socket: str | None) -> None:
        """``folder`` and ``descriptor`` are locked: the directory and the ``owner.lock`` that was found in it."""
        self.directory = directory
        self.socket = socket
        self._folder: int | None = folder
        self._descriptor = descriptor

    @property
    def held(self) -> bool:
        return self._folder is not None

    def keep(self) -> bool:
        """Whether the directory is still ours: not once it was removed or replaced.

        A removed or replaced ``owner.lock`` is put back, so that others find the holder again; meanwhile the
        directory's lock keeps them out. False as well when somebody else holds, or blocks, the file's place.
        """
        if self._folder is None or not _is_at(self._folder, self.directory):
            return False
        path = address.lock_path(self.directory)
        if _is_at(self._descriptor, path):
            return True
        try:
            fresh = _announced(path, self.socket)
        except OSError as error:
            return error.errno in _FULL  # nobody else can take a place either; the next look tries again
        if fresh is None:
            return False
        os.close(self._descriptor)
        self._descriptor = fresh
        return True

    def release(self) -> None:
        """Empty the file, then drop the locks: nobody reads a holder that is no longer one."""
        folder, self._folder = self._folder, None
        if folder is None:
            return
        try:
            os.ftruncate(self._descriptor, 0)
        except OSError:
            pass  # a full or read-only disk: the lock still goes, and a stale entry is harmless
        finally:
            os.close(self._descriptor)
            os.close(folder)


def take_owner_lock(
    knowledge_dir: Path | str,
    *,
    socket: str | None = None,
    hand_over: bool = True,
    wait: float = 10.0,
    file_system: Callable[[str], str] | None = None,
) -> OwnerLock:
    """The lock, or :class:`OpenElsewhere` that names its holder (``pid``, ``version``, ``socket``).

    ``hand_over`` asks an idle detached owner to end first. A holder that answers nobody any more (it is shutting
    down) is waited for, at most ``wait`` seconds in all. ``socket`` is where this owner will listen, None for a
    program that runs the bridge in its own process. Raises :class:`StoreUnavailable` on a network file system and
    :class:`StorageError` for a directory that cannot be used.
    """
    directory = os.path.realpath(os.fspath(knowledge_dir))
    try:
        return _take(directory, socket, hand_over, wait, file_system or file_system_of)
    except OpenElsewhere as error:
        if socket is None and error.fields.get("socket") is not None:
            raise OpenElsewhere(f"{error.message} {_IN_PROCESS_ADVICE}", retry=error.retry, **error.fields) from None
        raise
    except OSError as error:
        raise StorageError(
            f"Cannot use {directory}: {error.strerror}. Choose another state directory with --state-dir.",
            retry="never",
        ) from error


def _take(
    directory: str, socket: str | None, hand_over: bool, wait: float, file_system: Callable[[str], str]
) -> OwnerLock:
    address.make_private(directory)
    kind = file_system(directory)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreUnavailable(
            f"{directory} lies on a network file system ({kind}), whose locks cannot be trusted. "
            "Choose a state directory on a local disk with --state-dir.",
            fileSystem=kind,
        )
    until = time.monotonic() + wait
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(folder, directory, hand_over=hand_over, until=until)
        while (descriptor := _announced(address.lock_path(directory), socket)) is None:
            # Somebody locked the file alone: not one of us, but perhaps an owner that knows nothing of the directory.
            _lock_is_held(directory, hand_over=hand_over, until=until)
    except BaseException:
        os.close(folder)
        raise
    return OwnerLock(directory, folder, descriptor, socket)


def _lock(folder: int, directory: str, *, hand_over: bool, until: float) -> None:
    named = min(time.monotonic() + _NAME_SECONDS, until)
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        _lock_is_held(directory, hand_over=hand_over, until=until, in_process_until=named)


def _lock_is_held(directory: str, *, hand_over: bool, until: float, in_process_until: float = 0.0) -> None:
    """Return for another attempt after a short rest; raise :class:`OpenElsewhere` when there is no point in one."""
    holder = client.read_holder(directory) if client.is_held(address.lock_path(directory)) else None
    if holder is not None:  # and not what was left behind, or put there: a holder holds the file as well
        if holder.socket is None and time.monotonic() >= in_process_until:
            raise _held(
                holder,
                "a program that opened it with KnowledgeBridge in its own process and serves no other client; "
                "close it there, or choose another state directory",
            )
        answer = client.ask_to_end(holder) if hand_over else client.probe(holder)
        if answer is not None and not answer.ending:
            raise _held(holder, answer.description)
    if time.monotonic() >= until:
        raise _held(holder, "it does not answer")
    time.sleep(_RETRY_SECONDS)


def _held(holder: client.Holder | None, how: str) -> OpenElsewhere:
    if holder is None:
        return OpenElsewhere("Another process holds this state directory and does not say who it is; try again.")
    return OpenElsewhere(
        f"This state directory is held by process {holder.pid} (version {holder.version}): {how}.",
        pid=holder.pid,
        version=holder.version,
        socket=holder.socket,
    )


def _announced(path: str, socket: str | None) -> int | None:
    """The locked file at ``path`` with our line in it; None when another process holds its lock. ``OSError`` else.

    A reader that comes in between sees no holder yet, never a mixture of two.
    """
    entry = {"pid": os.getpid(), "version": host_bridge.__version__, "socket": socket}
    line = json.dumps(entry).encode() + b"\n"
    for _ in range(_KEEP_ATTEMPTS):
        descriptor = os.open(path, _OPEN, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, line, 0)
                return descriptor
        except BlockingIOError:
            time.sleep(_RETRY_SECONDS)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    return None


def _is_at(descriptor: int, path: str) -> bool:
    """Whether the open file or folder is the one that others find at ``path``."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False


def file_system_of(path: str) -> str:
    """The name of the file system that holds ``path``, as the kernel writes it; empty where it does not say."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
            return _from_mountinfo(table.read(), os.stat(path).st_dev, path)
    except FileNotFoundError:
        return _from_mount_command(path)


def _from_mountinfo(table: str, device: int, path: str) -> str:
    """The longest mount point above ``path`` wins, the last mounted among equals; a matching device number first."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    best: tuple[bool, int] = (False, -1)
    found = ""
    for row in table.splitlines():
        fields = row.split(" ")
        mount = fields[4].encode("ascii", "surrogateescape").decode("unicode_escape", "surrogateescape")
        if path == mount or path.startswith(mount.rstrip("/") + "/"):
            rank = (fields[2] == wanted, len(mount))
            if rank >= best:
                best, found = rank, fields[fields.index("-", 6) + 1]
    return found


def _from_mount_command(path: str) -> str:
    """macOS has no mountinfo: read ``/sbin/mount``, whose rows are ``<what> on <where> (<kind>, ...)``."""
    import subprocess

    try:
        rows = subprocess.run(["/sbin/mount"], capture_output=True, text=True, timeout=5, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    best = -1
    found = ""
    for row in rows.splitlines():
        head, _, options = row.rpartition(" (")
        mount = head.partition(" on ")[2]
        if (path == mount or path.startswith(mount.rstrip("/") + "/")) and len(mount) >= best:
            best, found = len(mount), options.split(",")[0].rstrip(")")
    return found
