"""Which folder each kernel watch stands for, kept true while folders come, go and move.

Source: ``inotify(7)``: a watch belongs to an inode and goes with it wherever it is renamed to.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.vault._inotify import Inotify


class WatchedFolders:
    """The watches of one tree by folder path, ``""`` being its root."""

    __slots__ = ("_folder_of", "_inside", "_kernel", "_watch_of")

    def __init__(self, kernel: Inotify) -> None:
        self._kernel = kernel
        self._folder_of: dict[int, str] = {}
        self._watch_of: dict[str, int] = {}
        # What lies below a folder is found without a look at all the others: each claim may bring a folder.
        self._inside: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._watch_of)

    def at(self, watch: int) -> str | None:
        """The folder that a watch stands for; ``None`` for one that was taken off, whose last events may still come."""
        return self._folder_of.get(watch)

    def add(self, folder: str, folder_fd: int) -> None:
        """Watch the open folder under its path; ``OSError`` when the kernel has no watch left."""
        watch = self._kernel.add(folder_fd)
        before = self._folder_of.get(watch)
        if before is not None and before != folder and self._watch_of.get(before) == watch:
            del self._watch_of[before]  # the same folder, met again under a new path
            self._unlink(before)
        replaced = self._watch_of.get(folder)
        if replaced is not None and replaced != watch:
            self._folder_of.pop(replaced, None)
            self._kernel.remove(replaced)
        self._folder_of[watch] = folder
        self._watch_of[folder] = watch
        self._link(folder)

    def dropped(self, watch: int) -> None:
        """The kernel took the watch off itself: its folder is no more."""
        folder = self._folder_of.pop(watch)
        if self._watch_of.get(folder) == watch:
            del self._watch_of[folder]
            self._unlink(folder)

    def forget_below(self, folder: str) -> None:
        """Take off the watches of a folder that left its place: they would report from wherever it is now."""
        found = [folder]
        for known in found:
            found += self._inside.get(known, ())
        for known in reversed(found):
            if known in self._watch_of:
                self._forget(known)

    def keep_only(self, folders: Set[str]) -> None:
        """Take off every watch of a folder that a complete scan did not meet."""
        for known in self._watch_of.keys() - folders:
            self._forget(known)

    def _forget(self, folder: str) -> None:
        watch = self._watch_of.pop(folder)
        self._unlink(folder)
        if self._folder_of.get(watch) == folder:
            del self._folder_of[watch]
            self._kernel.remove(watch)

    def _link(self, folder: str) -> None:
        """Note the folder in the one around it, and so on upwards."""
        while folder:
            around = folder.rpartition("/")[0]
            siblings = self._inside.setdefault(around, set())
            if folder in siblings:
                return
            siblings.add(folder)
            folder = around

    def _unlink(self, folder: str) -> None:
        """Take off the notes that lead to no watch any more."""
        while folder and folder not in self._watch_of and folder not in self._inside:
            around = folder.rpartition("/")[0]
            siblings = self._inside.get(around)
            if siblings is None:
                return
            siblings.discard(folder)
            if siblings:
                return
            del self._inside[around]
            folder = around
