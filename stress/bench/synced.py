"""The naive build that ours is compared with: the same steps, but every file, folder and commit is synced.

Installed for a block and switched on and off in it, so that both builds take turns on one store.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Concatenate, Final, ParamSpec

from storage import files
from storage.state.connection import Database
from stress.bench.replacing import replaced

P = ParamSpec("P")

_COMMITS: Final = ("accept", "settle")
"""The commits of a publication; what helpers commit meanwhile is theirs."""
_PLACING: Final = ("exchange", "move", "rename_over", "link")


class EverythingSynced:
    """``on``: whether what runs now syncs everything. ``syncs`` counts what that adds and what there was before."""

    def __init__(self) -> None:
        self.on = False
        self.syncs = 0
        self._touched = threading.local()

    @property
    def _folders(self) -> dict[tuple[int, int], int]:
        """The folders that this thread touched, open."""
        found: dict[tuple[int, int], int] = self._touched.__dict__.setdefault("folders", {})
        return found

    def touch(self, folder_fd: int) -> None:
        """A name in this folder changed: it is synced once before the next commit."""
        status = os.fstat(folder_fd)
        identity = (status.st_dev, status.st_ino)
        if identity not in self._folders:
            self._folders[identity] = os.dup(folder_fd)

    def sync_folders(self) -> None:
        folders = self._folders
        while folders:
            _, fd = folders.popitem()
            self.sync(fd)
            os.close(fd)

    def sync(self, fd: int) -> None:
        os.fsync(fd)
        self.syncs += 1


@contextmanager
def everything_synced() -> Iterator[EverythingSynced]:
    """The switch. While it is off, nothing is different but for the looks at it."""
    switch = EverythingSynced()
    transaction = Database.transaction

    @contextmanager
    def durable(self: Database, *, full: bool, point: str) -> Iterator[None]:
        if point not in _COMMITS:
            with transaction(self, full=full, point=point):
                yield
            return
        if switch.on:
            switch.sync_folders()
        with transaction(self, full=full or switch.on, point=point):
            yield
        switch.syncs += full or switch.on

    effects: dict[str, object] = {
        "create_file": _creating(switch, files.create_file),
        "make_folder": _making(switch, files.make_folder),
        **{name: _placing(switch, getattr(files, name)) for name in _PLACING},
    }
    with replaced(files, effects), replaced(Database, {"transaction": durable}):
        yield switch


def _creating(
    switch: EverythingSynced, create: Callable[Concatenate[int, P], int]
) -> Callable[Concatenate[int, P], int]:
    def wrapped(folder_fd: int, /, *arguments: P.args, **options: P.kwargs) -> int:
        fd = create(folder_fd, *arguments, **options)
        if switch.on:
            switch.sync(fd)
            switch.touch(folder_fd)
        return fd

    return wrapped


def _making(switch: EverythingSynced, make: Callable[Concatenate[int, P], bool]) -> Callable[Concatenate[int, P], bool]:
    def wrapped(folder_fd: int, /, *arguments: P.args, **options: P.kwargs) -> bool:
        made = make(folder_fd, *arguments, **options)
        if switch.on and made:
            switch.touch(folder_fd)
        return made

    return wrapped


def _placing(
    switch: EverythingSynced, place: Callable[Concatenate[int, P], None]
) -> Callable[Concatenate[int, P], None]:
    def wrapped(folder_fd: int, /, *arguments: P.args, **options: P.kwargs) -> None:
        place(folder_fd, *arguments, **options)
        if switch.on:
            for fd in (folder_fd, *arguments):
                if isinstance(fd, int):  # the other folder, where there are two
                    switch.touch(fd)

    return wrapped
