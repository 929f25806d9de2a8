"""One holder at a time of a memory directory, whatever thread or process it is in."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
    return StoreUnavailable(f"The memory directory cannot be opened: {error.strerror}.")


class DirectoryLock:
    """The lock of a directory: an OS lock on the folder itself, re-entrant in one thread.

    The descriptor is opened anew by each holder: one that a fork inherited would be shared with the parent.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._threads = threading.RLock()
        self._depth = 0
        self._fd = -1

    @contextmanager
    def held(self, wait: float = WAIT_SECONDS) -> Iterator[int]:
        """The folder's descriptor while nobody else holds it.

        Raises ``Busy`` after ``wait`` seconds, ``StoreUnavailable`` where the folder is gone or cannot be locked.
        """
        if self._process != os.getpid():  # a fork: whoever held it lives on in the parent
            self._begin()
        until = time.monotonic() + wait
        if not self._threads.acquire(timeout=wait):
            raise Busy("Another thread has been at work on this memory for too long; try again.")
        try:
            if self._depth == 0:
                self._fd = self._take(until)
            self._depth += 1
            try:
                yield self._fd
            finally:
                self._depth -= 1
                if self._depth == 0:
                    files.close(self._fd)  # and with it the lock
        finally:
            self._threads.release()

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
