"""Removing a folder with everything in it, name by name, never through a link. Any thread."""

from __future__ import annotations

import stat

from messages.errors import StorageError
from storage import files


def remove_tree(folder_fd: int, name: str, *, at: str) -> bool:
    """Remove ``name`` and, where it is a folder, all below it; ``False`` when nothing has that name. No sync.

    ``at`` is passed for every name. Interrupted anywhere, doing it again finishes it. Raises ``StorageError`` when
    somebody puts new names there meanwhile.
    """
    status = files.stat_entry(folder_fd, name, at=at)
    if status is None:
        return False
    if not stat.S_ISDIR(status.st_mode):
        return files.unlink(folder_fd, name, at=at)
    below = files.open_folder(folder_fd, name, at=at)
    try:
        for entry in files.list_folder(below, at=at):
            remove_tree(below, entry.name, at=at)
    finally:
        files.close(below)
    if not files.remove_folder(folder_fd, name, at=at):
        raise StorageError("Somebody works in a folder that is being removed; try again.", reason="changed")
    return True


__all__ = ["remove_tree"]
