"""What maintenance reads of the catalogue on the lane: bounded windows over rows, each with the place to go on at.

A window looks at no more than :data:`WINDOW_ROWS` rows, so that none of them holds the lane up, however few it finds.

Source: decisions.md section 5 (Maintenance).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from messages.vocabulary import Partition
from storage.state.catalogue_reader import CatalogueReader, Entry
from storage.state.connection import Database

WINDOW_ROWS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Window:
    """The records that were asked for; ``next`` is the row to go on after, ``None`` behind the last."""

    entries: tuple[Entry, ...]
    next: int | None


@dataclass(frozen=True, slots=True)
class CataloguedFile:
    """A Markdown file whose text is known; ``size`` is in bytes, 0 where it has to be read again anyway."""

    path: str
    hash: str
    size: int


def partitions(db: Database) -> list[Partition]:
    """The partitions of the store that have ever held a file, the private one first."""
    keys = db.query("SELECT key FROM catalogue_partition ORDER BY key <> 'private', key")
    return [Partition.parse(str(key)) for (key,) in keys]


def unlinked_claims(reader: CatalogueReader, after: int, limit: int) -> Window:
    """Active, valid claims that name no subject."""
    return _window(
        reader,
        "r.kind = 'claim' AND r.lifecycle = 'active' AND r.valid = 1 AND r.fixture = 0 "
        "AND NOT EXISTS (SELECT 1 FROM reference f WHERE f.row = r.row AND f.role = 'entity')",
        after,
        limit,
    )


def citing_records(reader: CatalogueReader, after: int, limit: int) -> Window:
    """Records that cite retained sources, whatever their lifecycle."""
    return _window(reader, "EXISTS (SELECT 1 FROM citation c WHERE c.row = r.row)", after, limit)


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Some files in the order of their paths; ``next`` is the path to go on after, ``None`` behind the last."""

    files: tuple[CataloguedFile, ...]
    next: str | None


def files_after(reader: CatalogueReader, after: str, *, limit: int, most_bytes: int) -> FileSlice:
    """The next files, at least one if there is one, by number and size at most ``limit`` and ``most_bytes``.

    Those that may not be read have no hash and are left out.
    """
    rows = reader.database.query(
        "SELECT path, hash, size FROM file WHERE partition = ? AND path > ? AND hash <> '' ORDER BY path LIMIT ?",
        (reader.number, after, limit),
    )
    taken: list[CataloguedFile] = []
    total = 0
    for path, digest, size in rows:
        total += size or 0
        if taken and total > most_bytes:
            return FileSlice(tuple(taken), taken[-1].path)
        taken.append(CataloguedFile(path, digest, size or 0))
    return FileSlice(tuple(taken), taken[-1].path if len(taken) == limit else None)


def _window(reader: CatalogueReader, condition: str, after: int, limit: int) -> Window:
    last = reader.database.query_one("SELECT max(row) FROM record")
    end = after + WINDOW_ROWS
    entries, total = reader.select(
        f"r.partition = ? AND r.row > ? AND r.row <= ? AND {condition}",
        (reader.number, after, end),
        order="r.row",
        limit=limit,
        offset=0,
    )
    if total > len(entries):
        return Window(tuple(entries), entries[-1].row)
    return Window(tuple(entries), end if last is not None and last[0] is not None and last[0] > end else None)
