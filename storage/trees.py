"""Removing a folder with everything in it, name by name, never through a link. Any thread."""

from __future__ import annotations

import os
import stat
import uuid
from typing import Final

from messages.errors import StorageError
from storage import files
from storage.faults import effect

_DEPTH: Final = 32
"""Folders that are open at once. What lies deeper is moved up first: anybody can nest folders without end."""


def remove_tree(folder_fd: int, name: str, *, at: str) -> bool:
    """Remove ``name`` and, where it is a folder, all below it, however deep; ``False`` when nothing has that name. No
    sync.

    ``at`` is passed for every name. Interrupted anywhere, doing it again finishes it. Raises ``StorageError`` when
    somebody puts new names there meanwhile.
    """
    status = files.stat_entry(folder_fd, name, at=at)
    if status is None:
        return False
    if not stat.S_ISDIR(status.st_mode):
        return files.unlink(folder_fd, name, at=at)
    top = files.open_folder(folder_fd, name, at=at)
    try:
        while _empty(top, top, 1, at):
            pass
    finally:
        files.close(top)
    _remove(folder_fd, name, at)
    return True


def _empty(top: int, folder: int, depth: int, at: str) -> bool:
    """Remove what is in a folder; whether something of it was moved up to ``top`` instead."""
    moved = False
    for entry in files.list_folder(folder, at=at):
        status = files.stat_entry(folder, entry.name, at=at)
        if status is None:
            continue
        if not stat.S_ISDIR(status.st_mode):
            files.unlink(folder, entry.name, at=at)
        elif depth >= _DEPTH:
            with effect(at):
                os.rename(entry.name, f".kr-removed-{uuid.uuid4()}", src_dir_fd=folder, dst_dir_fd=top)
            moved = True
        else:
            below = files.open_folder(folder, entry.name, at=at)
            try:
                moved |= _empty(top, below, depth + 1, at)
            finally:
                files.close(below)
            _remove(folder, entry.name, at)
    return moved


def _remove(folder: int, name: str, at: str) -> None:
    if not files.remove_folder(folder, name, at=at):
        raise StorageError("Somebody works in a folder that is being removed; try again.", reason="changed")


__all__ = ["remove_tree"]
