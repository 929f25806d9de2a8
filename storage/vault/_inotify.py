"""The kernel's inotify, as little of it as is needed: watch an open folder, read what is queued, never block.

The system calls and flag values come from watchdog's low-level wrapper; its observer is not used, because it holds
events back for half a second after a move out of the tree, and an event is queued inside the writer's own system call:
reading until the queue is empty is a fence.

Errors: ``OSError`` (``EMFILE``: no instance left, ``ENOSPC``: no watch left). One thread.

Source: PERFORMANCE.md (Freshness), DESIGN.md (The tree).
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import os
import struct
import termios
from dataclasses import dataclass
from typing import Final

from watchdog.observers.inotify_c import (
    InotifyConstants,
    WatchDescriptor,
    inotify_add_watch,
    inotify_init,
    inotify_rm_watch,
)

from storage.faults import effect

MODIFY: Final = int(InotifyConstants.IN_MODIFY)
ATTRIB: Final = int(InotifyConstants.IN_ATTRIB)
CLOSE_WRITE: Final = int(InotifyConstants.IN_CLOSE_WRITE)
MOVED_FROM: Final = int(InotifyConstants.IN_MOVED_FROM)
MOVED_TO: Final = int(InotifyConstants.IN_MOVED_TO)
CREATE: Final = int(InotifyConstants.IN_CREATE)
DELETE: Final = int(InotifyConstants.IN_DELETE)
DELETE_SELF: Final = int(InotifyConstants.IN_DELETE_SELF)
MOVE_SELF: Final = int(InotifyConstants.IN_MOVE_SELF)
UNMOUNT: Final = int(InotifyConstants.IN_UNMOUNT)
OVERFLOW: Final = int(InotifyConstants.IN_Q_OVERFLOW)
IGNORED: Final = int(InotifyConstants.IN_IGNORED)
IS_FOLDER: Final = int(InotifyConstants.IN_ISDIR)

# CLOSE_WRITE as well as MODIFY: a write through a mapping shows only when the file is closed.
_MASK: Final = (
    MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF
    | int(InotifyConstants.IN_ONLYDIR)
)  # fmt: skip
_HEADER: Final = struct.Struct("iIII")
_BUFFER_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Event:
    """One event: the watch it belongs to (-1 for an overflow), its flags, and the name inside the folder."""

    watch: int
    mask: int
    name: bytes


class Inotify:
    """One inotify instance."""

    __slots__ = ("fd",)

    def __init__(self) -> None:
        with effect("watch.open"):
            fd = inotify_init()
            if fd < 0:
                _raise()
            os.set_inheritable(fd, False)
            os.set_blocking(fd, False)
        self.fd = fd

    def add(self, folder_fd: int) -> int:
        """Watch the folder that the descriptor stands for, whatever its path is by now; the watch's number.

        A folder that is watched already gives the same number again.
        """
        with effect("watch.add"):
            # Through the descriptor, not the path: what is watched is exactly what is listed next.
            watch = inotify_add_watch(self.fd, b"/proc/self/fd/%d" % folder_fd, _MASK)
            if watch < 0:
                _raise()
        return watch

    def remove(self, watch: int) -> None:
        """Stop watching; a watch that the kernel dropped already is no error."""
        with effect("watch.remove"):
            inotify_rm_watch(self.fd, WatchDescriptor(watch))

    def queued(self) -> int:
        """Bytes of events that wait to be read."""
        size = array.array("i", [0])
        with effect("watch.queued"):
            fcntl.ioctl(self.fd, termios.FIONREAD, size)
        return size[0]

    def read(self) -> tuple[list[Event], int]:
        """Some queued events and their size in bytes; ``([], 0)`` when nothing is queued."""
        with effect("watch.read"):
            try:
                data = os.read(self.fd, _BUFFER_BYTES)
            except BlockingIOError:
                return [], 0
        events = []
        at = 0
        while at < len(data):
            watch, mask, _, length = _HEADER.unpack_from(data, at)
            at += _HEADER.size
            events.append(Event(watch, mask, data[at : at + length].rstrip(b"\0")))
            at += length
        return events, len(data)

    def close(self) -> None:
        with effect("watch.close"):
            os.close(self.fd)


def _raise() -> None:
    code = ctypes.get_errno() or errno.EIO
    raise OSError(code, os.strerror(code))
