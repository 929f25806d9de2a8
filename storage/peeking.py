"""Reading a database that nobody has open, whatever state it is in, without changing one byte beside it.

A database at rest is opened as unchangeable, so that SQLite makes no log and no shared memory next to it. One whose log
holds commits, because its process died, is read from a copy in the temporary directory.

Source: stores-and-access.md (Stores: inspection never creates one), decisions.md section 5 (First use).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from messages.errors import KnowledgeError
from storage.faults import effect
from storage.state.connection import Database

FAULT_POINTS: Final = (
    ("peek.look", "looking at the log of a database that is only read"),
    ("peek.copy", "copying a database whose log holds commits, or removing that copy"),
    ("peek.open", "opening a database that is only read"),
    ("peek.statement", "reading it"),
    ("peek.close", "closing it"),
)


@contextmanager
def peek(path: Path) -> Iterator[Database]:
    """The database, for reading. Raises ``StoreUnavailable`` (missing, not accessible), :class:`StorageCorrupt`."""
    log = path.with_name(f"{path.name}-wal")
    with effect("peek.look"):
        try:
            pending = os.lstat(log).st_size > 0
        except OSError:
            pending = False
    if not pending:
        with _open(path, unchangeable=True) as database:
            yield database
        return
    with effect("peek.copy"):
        folder = Path(tempfile.mkdtemp(prefix="knowledge-peek-"))
    try:
        with effect("peek.copy"):
            shutil.copyfile(path, folder / path.name)
            shutil.copyfile(log, folder / log.name)
        with _open(folder / path.name, unchangeable=False) as database:
            yield database
    finally:
        with effect("peek.copy"):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _open(path: Path, *, unchangeable: bool) -> Iterator[Database]:
    database = Database.open(path, point_prefix="peek", read_only=True, unchangeable=unchangeable)
    try:
        yield database
    finally:
        with suppress(KnowledgeError):
            database.close()


__all__ = ["peek"]
