"""Putting a staged text at a name without ever destroying what stands there.

Guarantees: after each function every text that was at one of the two names is still at one of them (or, without
``RENAME_EXCHANGE``, at the third name ``<staged>.old``). What an exchange displaced is looked at under a read lease,
so that an editor that still has it open for writing is seen.

Errors: ``OSError`` as the system gave it. Any thread.

Source: WRITE-PATH.md section 1 (holes 1, 2, 31) and section 2 (where EXCHANGE or leases are missing).
"""

from __future__ import annotations

import errno
import os
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from storage import files
from storage.state.journal import digest

OLD_SUFFIX: Final = ".old"
_UNABLE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})

FAULT_POINTS: Final = (
    ("probe.file", "creating, renaming and removing the files that show what the file system can do"),
    ("place.file", "exchanging or moving a staged text to its name"),
    ("place.aside", "moving the text at a name aside, for a removal or where exchange is missing"),
    ("place.look", "opening and reading what was displaced, with a read lease"),
)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the vault's file system can do, found by trying it."""

    exchange: bool = True
    noreplace: bool = True
    leases: bool = True
    folds_case: bool = False


@dataclass(frozen=True, slots=True)
class Looked:
    """A displaced text. ``busy``: somebody has it open for writing; ``None`` where the system cannot tell."""

    data: bytes
    hash: str
    busy: bool | None


def probe(root_fd: int) -> Capabilities:
    """Try exchange, no-replace, leases and case folding with files of our own in the vault's root.

    Their names are always the same, so what an interrupted probe left is removed by the next one.
    """
    first, second, third = (f".kr-probe-{part}" for part in "abc")
    try:
        for name in (first, second, third):
            files.unlink(root_fd, name, at="probe.file")
        for name in (first, second):
            files.close(files.create_file(root_fd, name, name.encode(), at="probe.file"))
        exchange = _able(lambda: files.exchange(root_fd, first, root_fd, second, at="probe.file"))
        noreplace = _able(lambda: files.move(root_fd, second, root_fd, third, at="probe.file"))
        fd, _ = files.open_file(root_fd, first, at="probe.file")
        try:
            with files.read_lease(fd, at="probe.file") as held:
                leases = held is not None
        finally:
            files.close(fd)
        folds = files.stat_entry(root_fd, first.upper(), at="probe.file") is not None
    finally:
        for name in (first, second, third):
            with suppress(OSError):
                files.unlink(root_fd, name, at="probe.file")
    return Capabilities(exchange, noreplace, leases, folds)


def _able(attempt: Callable[[], None]) -> bool:
    try:
        attempt()
    except OSError as error:
        if error.errno in _UNABLE:
            return False
        raise
    return True


def move(can: Capabilities, folder_fd: int, source: str, other_fd: int, target: str, *, at: str) -> None:
    """Rename without replacing; where the system has no such rename, by a second name that is given up at once."""
    if can.noreplace:
        files.move(folder_fd, source, other_fd, target, at=at)
        return
    files.link(folder_fd, source, other_fd, target, at=at)
    files.unlink(folder_fd, source, at=f"{at}.unlink")


def look(folder_fd: int, name: str, *, limit: int, at: str = "place.look") -> Looked:
    """The text at a staged name and whether somebody can still write to it.

    The lease is held while it is read, so a text with ``busy=False`` is final unless its inode is opened again.
    """
    fd, status = files.open_file(folder_fd, name, at=at)
    try:
        with files.read_lease(fd, at=f"{at}.lease") as held:
            data = files.read_open(fd, name, status, limit=limit, at=f"{at}.read")
    finally:
        files.close(fd)
    return Looked(data, digest(data), None if held is None else not held)


def folded(can: Capabilities, path: str) -> str:
    """The path as the file system compares it."""
    if not can.folds_case:
        return path
    return unicodedata.normalize("NFC", path).casefold()


def is_staged(name: str) -> bool:
    """Whether a name in the vault is one of ours that no scan may see."""
    return os.path.basename(name).startswith(".kr-")
