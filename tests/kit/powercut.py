"""A simulated power cut: what a disk may hold when the power goes, built from what was and was not synced.

A :class:`Disk` watches one folder. It is told of every fault point, and looks at the folder there, so it knows each
version that each name and each file had; it is told of every ``fsync`` of the file layer, which makes the versions
up to now durable; and it sees each write and sync of SQLite through a VFS of its own. :meth:`Disk.image` then builds
a folder in which everything unsynced may be missing, old, new, cut at a block, or zeros, each name and each file on
its own. No real sync happens, so a run costs no disk.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import apsw
import pytest

from storage import faults, files

Mode = Literal["nothing lost", "all lost", "data lost", "names lost", "random"]
MODES: tuple[Mode, ...] = ("nothing lost", "all lost", "data lost", "names lost", "random")
BLOCK = 4096
SECTOR = 512
_READ_ONLY = ("statement", "read", "lease", "release", "stat", "look", "restat", "list")
_numbers = itertools.count(1)


@dataclass(slots=True)
class _Inode:
    """One file or folder. ``versions``: the durable content (``None``: never synced), then each later one."""

    folder: bool
    versions: list[bytes | None] = field(default_factory=list)
    names: dict[str, list[str | None]] = field(default_factory=dict)


@dataclass(slots=True)
class _DatabaseFile:
    """A file of SQLite: what is durable (``None``: not even its name), and each write since."""

    durable: bytes | None
    unsynced: list[tuple[int, bytes] | int] = field(default_factory=list)  # (offset, data), or a size to cut to


class Disk:
    """What a power cut may leave of ``root``. ``skipped`` names fault points whose syncs do not count."""

    def __init__(self, root: Path, *, skipped: frozenset[str] = frozenset()) -> None:
        self.root = root
        self.skipped = skipped
        self.point = ""
        self.ticks = 1_900_000_000_000_000_000
        self.seen: dict[str, int] = {}  # hash of a text -> clock at which it was first written
        self._inodes: dict[str, _Inode] = {}
        self._live: dict[int, str] = {}  # inode number -> key, as of the last look
        self._databases: dict[str, _DatabaseFile] = {}
        self._generation = itertools.count()
        self.vfs = f"powercut{next(_numbers)}"
        self._vfs = _Vfs(self)
        self._top = self._look_at(root)
        self._settle_all()

    def clock(self) -> int:
        """Nanoseconds since 1970 that move on by a second at each look."""
        self.ticks += 1_000_000_000
        return self.ticks

    # --- what happens ----------------------------------------------------------------------------------

    def passed(self, point: str) -> None:
        """A fault point was passed: look what changed."""
        self.point = point.removesuffix(".after")
        if not self.point.endswith(_READ_ONLY):
            self.look()

    def look(self) -> None:
        """Take note of every name and text of the folder as they are now."""
        self.ticks += 1
        previous, self._live = self._live, {}
        self._look_at(self.root, previous)

    def fsync(self, fd: int) -> None:
        """The file layer synced a descriptor."""
        if self.point in self.skipped:
            return
        self.look()
        key = self._live.get(os.fstat(fd).st_ino)
        if key is not None:
            self._settle(self._inodes[key])

    def _settle(self, inode: _Inode) -> None:
        del inode.versions[:-1]
        for versions in inode.names.values():
            del versions[:-1]

    def _settle_all(self) -> None:
        for inode in self._inodes.values():
            self._settle(inode)

    def _look_at(self, path: Path, previous: dict[int, str] | None = None) -> str:
        status = path.lstat()
        key = (previous or {}).get(status.st_ino)
        if key is None or self._inodes[key].folder != stat.S_ISDIR(status.st_mode):
            key = self._live.get(status.st_ino) or f"{status.st_ino}:{next(self._generation)}"
        self._live[status.st_ino] = key
        inode = self._inodes.get(key)
        if inode is None:
            inode = self._inodes[key] = _Inode(stat.S_ISDIR(status.st_mode), [None])
        if inode.folder:
            here = {name: self._look_at(path / name, previous) for name in os.listdir(path) if not _is_database(name)}
            for name in here.keys() | inode.names.keys():
                versions = inode.names.setdefault(name, [None])
                if versions[-1] != here.get(name):
                    versions.append(here.get(name))
        else:
            data = path.read_bytes()
            self.seen.setdefault(hashlib.sha256(data).hexdigest(), self.ticks)
            if inode.versions[-1] != data:
                inode.versions.append(data)
        return key

    # --- SQLite ----------------------------------------------------------------------------------------

    def database(self, name: str) -> _DatabaseFile:
        found = self._databases.get(name)
        if found is None:
            found = self._databases[name] = _DatabaseFile(None)
        return found

    def adopt_databases(self) -> None:
        """Take the database files that lie below the root for durable."""
        for path in self.root.rglob("*.sqlite*"):
            if not path.name.endswith("-shm"):
                self._databases[str(path)] = _DatabaseFile(path.read_bytes())

    def database_synced(self, name: str) -> None:
        if self.point not in self.skipped:
            found = self.database(name)
            found.durable, found.unsynced = _applied(found.durable or b"", found.unsynced), []

    def database_deleted(self, name: str) -> None:
        # The name may come back with the power; SQLite copes with an old log whose frames are all checkpointed.
        self._databases.pop(name, None)

    # --- images ----------------------------------------------------------------------------------------

    def image(self, target: Path, mode: Mode, rng: random.Random) -> None:
        """Build what a power cut now may leave, at ``target``."""
        self.look()
        self._build(self._top, target, mode, rng)
        for name, file in self._databases.items():
            path = target / Path(name).relative_to(self.root)
            content = _database_image(file, mode, rng)
            if content is not None and path.parent.is_dir():
                path.write_bytes(content)

    def _build(self, key: str, target: Path, mode: Mode, rng: random.Random) -> None:
        inode = self._inodes[key]
        if not inode.folder:
            target.write_bytes(_content(inode, mode, rng))
            return
        target.mkdir()
        for name, versions in sorted(inode.names.items()):
            match mode:
                case "all lost" | "names lost":
                    child = versions[0]
                case "random":
                    child = rng.choice(versions)
                case _:
                    child = versions[-1]
            if child is not None:
                self._build(child, target / name, mode, rng)


def _is_database(name: str) -> bool:
    return ".sqlite" in name


def _content(inode: _Inode, mode: Mode, rng: random.Random) -> bytes:
    durable, last = inode.versions[0], inode.versions[-1] or b""
    if len(inode.versions) == 1:
        return last
    match mode:
        case "nothing lost" | "names lost":
            return last
        case "all lost":
            return durable or b""
        case "data lost":
            return _torn(durable, last, rng)
        case "random":
            chosen = rng.choice(inode.versions)
            return _torn(durable, last, rng) if chosen is None or rng.random() < 0.3 else chosen
    raise AssertionError(mode)


def _torn(durable: bytes | None, text: bytes, rng: random.Random) -> bytes:
    """A text of which only some blocks reached the disk."""
    if durable is not None:
        return durable
    blocks = len(text) // BLOCK
    cut = text[: BLOCK * rng.randint(0, blocks)]
    match rng.randrange(4):
        case 0:
            return b""
        case 1:
            return bytes(len(text))
        case 2:
            return cut
        case _:
            return cut + bytes(len(text) - len(cut))


def _applied(content: bytes, operations: list[tuple[int, bytes] | int]) -> bytes:
    result = bytearray(content)
    for operation in operations:
        if isinstance(operation, int):
            del result[operation:]
            continue
        offset, data = operation
        if len(result) < offset:
            result.extend(bytes(offset - len(result)))
        result[offset : offset + len(data)] = data
    return bytes(result)


def _database_image(file: _DatabaseFile, mode: Mode, rng: random.Random) -> bytes | None:
    chosen: list[tuple[int, bytes] | int] = []
    if mode in ("nothing lost", "names lost"):
        chosen = list(file.unsynced)
    elif mode == "random":
        for operation in file.unsynced:
            if isinstance(operation, int) or rng.random() < 0.6:
                chosen.append(operation)
            elif rng.random() < 0.5:
                offset, data = operation
                pieces = [(offset + at, data[at : at + SECTOR]) for at in range(0, len(data), SECTOR)]
                chosen.extend(piece for piece in pieces if rng.random() < 0.5)
    if file.durable is None and not chosen:
        return None
    return _applied(file.durable or b"", chosen)


class _Vfs(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        super().__init__(disk.vfs, "")
        self._disk = disk

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - its name
        return _File(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - its name
        super().xDelete(filename, syncdir)
        self._disk.database_deleted(filename)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else name

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - its name
        super().xWrite(data, offset)
        if self._name is not None:
            self._disk.database(self._name).unsynced.append((offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - its name
        super().xTruncate(newsize)
        if self._name is not None:
            self._disk.database(self._name).unsynced.append(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 - its name
        if self._name is not None:
            self._disk.database_synced(self._name)


class _WatchedOs:
    """The module ``os`` as the file layer sees it, with ``fsync`` handed to the disk."""

    def __init__(self, fsync: Callable[[int], None]) -> None:
        self.fsync = fsync

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)


@contextmanager
def watched(disk: Disk, handler: faults.Handler) -> Iterator[None]:
    """Run the block with ``disk`` watching; ``handler`` is called at each fault point after the disk has looked."""

    def both(name: str) -> None:
        handler(name)
        disk.passed(name)

    with pytest.MonkeyPatch.context() as patch, faults.installed(both):
        patch.setattr(files, "os", _WatchedOs(disk.fsync))
        yield


@contextmanager
def times_of(disk: Disk) -> Iterator[None]:
    """Give the files of an image the times that their texts had on the disk: a copy has none of its own."""
    read_file = files.read_file

    def timed(folder_fd: int, name: str, *, limit: int, at: str) -> tuple[bytes, files.Stamp]:
        data, stamp = read_file(folder_fd, name, limit=limit, at=at)
        return data, stamp._replace(ctime_ns=disk.seen.get(hashlib.sha256(data).hexdigest(), stamp.ctime_ns))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "read_file", timed)
        yield
