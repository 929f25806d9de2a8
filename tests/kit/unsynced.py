"""Running storage without real syncs: what a killed process leaves does not depend on them, and they cost a disk.

Not for counting syncs, and not for the power cut, which has a disk of its own (:mod:`tests.kit.powercut`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import apsw
import pytest

from storage import files

UNSYNCED = "unsynced"


class _Vfs(apsw.VFS):
    def __init__(self) -> None:
        super().__init__(UNSYNCED, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - its name
        return _File("", name, flags)


class _File(apsw.VFSFile):
    def xSync(self, flags: int) -> None:  # noqa: N802 - its name
        """Nothing: the page cache is enough."""


class _Os:
    """The module ``os`` as the file layer sees it, without ``fsync``."""

    def fsync(self, fd: int) -> None:
        os.fstat(fd)

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)


_vfs = _Vfs()


@contextmanager
def without_syncs() -> Iterator[str]:
    """The file layer does not sync inside the block; the name of a VFS that does not either."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "os", _Os())
        yield UNSYNCED
