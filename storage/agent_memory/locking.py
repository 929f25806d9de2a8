"""One holder at a time of a memory directory, whatever thread or process it is in."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from messages.errors import Busy, StorageError, StoreUnavailable
from storage import files
from storage.faults import effect

WAIT_SECONDS: Final = 20.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.02

FAULT_POINTS: Final = (
    ("agent_memory.directory", "making the directory of an agent memory, or telling it from another"),
    ("agent_memory.directory.sync", "making the name of a new directory durable"),
    ("agent_memory.folder", "opening the directory of an agent memory"),
    ("agent_memory.lock", "taking the lock of an agent memory's directory"),
)


def make_directory(path: Path) -> None:
    """Make the directory, and those above it, where there is none; durable. Raises ``StoreUnavailable``."""
    try:
        with effect("agent_memory.directory"):
            whole = Path(os.path.abspath(path))
            missing = [one for one in (whole, *whole.parents) if not os.path.lexists(one)]
            os.makedirs(path, exist_ok=True)
        for one in missing:
            above = files.open_root(os.path.realpath(one.parent), at="agent_memory.directory.open")
            try:
                files.fsync(above, at="agent_memory.directory.sync")
            finally:
                files.close(above)
    except OSError as error:
        raise _unavailable(error) from error


def is_same_directory(path: Path, other: Path) -> bool:
    """Whether two paths lead to one directory. Raises ``StoreUnavailable``."""
    try:
        with effect("agent_memory.directory"):
            return os.path.samefile(path, other)
    except OSError as error:
        raise _unavailable(error) from error


def _unavailable(error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"The memory directory cannot be opened: {error.strerror}. Name a directory that can be read and written."
    )


class DirectoryLock:
    """The lock of a directory: an OS lock on the folder itself, re-entrant in one thread.

    The descriptor is opened anew by each holder. A fork has a copy of it, and with it a share of the lock: the child
    gives up its copies at once, and who lets go unlocks, so that neither keeps the lock for the other.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begin()
        _LOCKS.add(self)

    def _begin(self) -> None:
        self._threads = threading.RLock()
        self._depth = 0
        self._fd = -1

    def give_up(self) -> None:
        """For the child of a fork: whoever held it lives on in the parent."""
        fd = self._fd
        self._begin()
        if fd >= 0:
            files.close(fd)

    @contextmanager
    def held(self, wait: float = WAIT_SECONDS) -> Iterator[int]:
        """The folder's descriptor while nobody else holds it.

        Raises ``Busy`` after ``wait`` seconds, ``StoreUnavailable`` where the folder is gone or cannot be locked.
        """
        until = time.monotonic() + wait
        threads = self._threads
        if not threads.acquire(timeout=wait):
            raise Busy("Another thread has been at work on this memory for too long; try again.")
        try:
            if self._depth == 0:
                self._fd = self._take(until)
            self._depth += 1
            try:
                yield self._fd
            finally:
                if threads is self._threads:  # else the block forked, and this is the child
                    self._depth -= 1
                    if self._depth == 0:
                        fd, self._fd = self._fd, -1
                        self._let_go(fd)
        finally:
            threads.release()

    @contextmanager
    def reporting(self, wait: float = WAIT_SECONDS) -> Iterator[int]:
        """As :meth:`held`; what the file system refuses inside is a ``StorageError``."""
        with self.held(wait) as folder:
            try:
                yield folder
            except (OSError, files.UnsafeFile) as error:
                cause = error.strerror if isinstance(error, OSError) else error.reason
                raise StorageError(f"A file of this memory could not be read or written: {cause}.") from error

    def _take(self, until: float) -> int:
        try:
            with effect("agent_memory.folder"):
                fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise _unavailable(error) from error
        try:
            self._wait(fd, until)
        except BaseException:
            files.close(fd)
            raise
        return fd

    def _let_go(self, fd: int) -> None:
        try:
            with suppress(OSError), effect("agent_memory.lock.release"):  # closing it lets go too, if nobody forked
                fcntl.flock(fd, fcntl.LOCK_UN)
        finally:
            files.close(fd)

    def _wait(self, fd: int, until: float) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                with effect("agent_memory.lock"):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                    raise StoreUnavailable(
                        f"This file system cannot lock a memory directory ({error.strerror}); use a local one.",
                        reason="unlockable",
                    ) from error
            else:
                return
            left = until - time.monotonic()
            if left <= 0:
                raise Busy("Another process has been at work on this memory for too long; try again.")
            time.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST_PAUSE)


_LOCKS: Final[weakref.WeakSet[DirectoryLock]] = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_LOCKS):
        lock.give_up()


os.register_at_fork(after_in_child=_after_fork)
