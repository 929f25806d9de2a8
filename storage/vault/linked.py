"""Whether the file that a link names lies in the partition. Nothing is opened but its folder; no link is followed.

Source: MARKDOWN.md, stores-and-access.md (Limits).
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from messages.errors import StorageError
from storage import files

FAULT_POINTS: Final = (
    ("linked.folder", "opening the folder of a file that a link names"),
    ("linked.stat", "looking whether a file that a link names is there"),
)
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


def lies_there(root_fd: int, path: str) -> bool:
    """Whether a regular file or a folder has exactly this path below ``root_fd``; any text may be asked for.

    Raises ``StorageError`` when the disk failed.
    """
    folder_path, name = files.split(path)
    if "\0" in path or not name:
        return False
    try:
        folder = files.open_folder(root_fd, folder_path, at="linked.folder")
        try:
            found = files.stat_entry(folder, name, at="linked.stat")
        finally:
            files.close(folder)
    except OSError as error:
        if error.errno in _ABSENT:
            return False
        reason = os.strerror(error.errno or errno.EIO)
        raise StorageError(f"a file that a link names cannot be looked at: {reason}", reason="io") from error
    return found is not None and (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode))
