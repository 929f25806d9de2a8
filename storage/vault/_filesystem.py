"""Whether a folder's file system tells of every change, or only of those made on this machine.

Source: DESIGN.md (The tree: where there are no exact events), ``statfs(2)`` for the magic numbers.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

from storage.faults import effect

_REMOTE: Final = {
    0x6969: "nfs",
    0x517B: "smb",
    0xFF534D42: "cifs",
    0xFE534D42: "smb2",
    0x01021997: "9p",
    0x65735546: "fuse",
    0x00C36400: "ceph",
    0x5346414F: "afs",
    0x73757245: "coda",
    0x786F4256: "vboxsf",
    0x01161970: "gfs2",
    0x7461636F: "ocfs2",
    0x0BD00BD0: "lustre",
}
_libc = ctypes.CDLL(None, use_errno=True)


def remote_kind(folder_fd: int) -> str | None:
    """The name of a file system that another machine or process may change unseen; ``None`` for a local one."""
    if sys.platform != "linux":
        return None
    buffer = ctypes.create_string_buffer(512)
    with effect("watch.statfs"):
        if _libc.fstatfs(folder_fd, buffer):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    # f_type is the first field, a signed word; the magic numbers are 32 bits.
    magic = ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF
    return _REMOTE.get(magic)
