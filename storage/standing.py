"""Standing indexes that sessions were given, and the catalogue of an earlier moment, made from history alone.

A session's index stays byte-identical: its text is kept under the session's start, and once it is lost the same text
can be derived again, since history has every text with the time at which it came. Which entries a moment had is decided
by their times, what was current then by their order.

Source: decisions.md section 5 (Standing index), memory-provider.md (Knowledge index).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from messages.errors import StoreUnavailable
from messages.text import utf16_length
from messages.vocabulary import Partition
from storage import files
from storage.ontology import Ontology
from storage.publication import Publisher
from storage.publication.store import CLOCK_GRAIN_NS
from storage.records import ParsedRecord, Record, parse_record
from storage.state import history
from storage.state.catalogue import CatalogueWriter, create_catalogue
from storage.state.catalogue_reader import CatalogueReader, Entry
from storage.state.connection import Database

INDEX_UNITS: Final = 4_000
"""UTF-16 units that an index has at most."""
KEPT_MAX: Final = 32
"""Sessions of one partition whose indexes are kept."""

ROOM_BYTES: Final = 16 * 1024 * 1024
"""So much is left free on the disk for those who must write: a commit that fails half-way ends the store's lane."""

FAULT_POINTS: Final = (
    ("standing.room", "looking how much room the disk has left for a session's standing index"),
    ("standing.begin", "beginning to keep a session's standing index"),
    ("standing.commit", "the commit, without a sync, of a session's standing index"),
    ("standing.open", "opening the state database to look at an earlier moment"),
    ("standing.statement", "reading what was there at an earlier moment"),
    ("standing.rollback", "letting go of what was read"),
    ("standing.close", "closing that connection"),
)


@dataclass(frozen=True, slots=True)
class Kept:
    """What a session was given: ``body`` is ``None`` where there was nothing to list."""

    body: str | None


def kept(db: Database, partition: Partition, started_at_ms: int) -> Kept | None:
    """What the session that began then was given, ``None`` where that is not known or what is there is no such text."""
    found = db.query_one(
        "SELECT CAST(s.body AS BLOB) FROM standing_index s JOIN partition p ON p.id = s.partition "
        "WHERE p.key = ? AND s.started_at = ?",
        (partition.key, started_at_ms),
    )
    if found is None or found[0] is None:
        return None if found is None else Kept(None)
    try:
        body = bytes(found[0]).decode()
    except UnicodeDecodeError:
        return None
    return Kept(body) if utf16_length(body) <= INDEX_UNITS else None


def keep(publisher: Publisher, partition: Partition, started_at_ms: int, body: str | None) -> None:
    """Keep what a session is given; what :func:`kept` finds already stays. Of a partition's texts the oldest go.

    A partition without history keeps nothing: its index is empty, now and from history. Neither does a disk that is
    nearly full, or whose room is not known.
    """
    db = publisher.db
    found = db.query_one("SELECT id FROM partition WHERE key = ?", (partition.key,))
    if found is None or not _has_room(publisher.folder):
        return
    if kept(db, partition, started_at_ms) is not None:
        return
    with publisher.transaction(full=False, point="standing"):
        db.execute(
            "INSERT INTO standing_index (partition, started_at, body) VALUES (?, ?, ?) "
            "ON CONFLICT (partition, started_at) DO UPDATE SET body = excluded.body",
            (found[0], started_at_ms, body),
        )
        db.execute(
            "DELETE FROM standing_index WHERE partition = ?1 AND id <= (SELECT id FROM standing_index "
            "WHERE partition = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
            (found[0], KEPT_MAX),
        )


def later_changes(db: Database, partition: Partition, at_ms: int, most: int | None = None) -> int | None:
    """How many of the newest rows of history came after a time; ``None`` for more than ``most``.

    What was current at that time are the rows before them. A row counts at the millisecond in which its publication
    began, or in which we first looked at a file that somebody else had written. Rows that a clock set back has dated
    earlier than an older one do not hide that one.
    """
    counted = 0
    for (at,) in db.iterate(
        "SELECT h.at FROM history h JOIN partition p ON p.id = h.partition WHERE p.key = ? "
        "ORDER BY h.sequence DESC, h.id DESC",
        (partition.key,),
    ):
        if (at + CLOCK_GRAIN_NS) // 1_000_000 <= at_ms:
            return counted
        counted += 1
        if most is not None and counted > most:
            return None
    return counted


@contextmanager
def as_of(
    state_database: Path, partition: Partition, ontology: Ontology, at_ms: int, check: Callable[[], None]
) -> Iterator[tuple[CatalogueReader, Callable[[Entry], Record]]]:
    """A partition's catalogue as it was at a time, and how to read the text of its entries, on a connection of its own.

    Where nothing has changed since, it is the catalogue itself. Otherwise it is copied into memory, where what came
    later is taken back, or made there from the texts of that time, if most has changed since. Everything is judged by
    ``ontology``, since history has no earlier one. ``check`` is called meanwhile and may raise. Raises
    ``StoreUnavailable`` where history lacks a text, and what the database raises.
    """
    db = Database.open(Path(":memory:"), point_prefix="standing", create=True, beside=state_database)
    try:
        with db.snapshot():
            later = later_changes(db, partition, at_ms)
            if later:
                create_catalogue(db)
                _go_back(db, partition, ontology, later, check)
            yield CatalogueReader(db, partition), lambda entry: _record_of(db, entry)
    finally:
        db.close()


def _has_room(folder: Path) -> bool:
    try:
        return files.free_bytes(folder, at="standing.room") >= ROOM_BYTES
    except OSError:
        return False


# --- inside ----------------------------------------------------------------------------------------------------------

_ROWS_OF_A_MOVE: Final = 20
# In an order in which no row comes before one that it refers to. Tags, citations and files decide nothing here.
_COPIED: Final = ("record", "name", "reference", "page", "degree", "body_link", "tie", "neighbour")


def _go_back(db: Database, partition: Partition, ontology: Ontology, later: int, check: Callable[[], None]) -> None:
    """Make the catalogue in memory that of the time before the newest ``later`` rows of history."""
    counted = db.query_one(
        "SELECT count(*) FROM history h JOIN partition p ON p.id = h.partition WHERE p.key = ?", (partition.key,)
    )
    if counted is None or counted[0] <= later:
        return  # there was nothing yet
    held = _held_before(db, partition, later)
    files = {
        str(path): str(text_hash)
        for path, text_hash in db.query(
            "SELECT f.path, f.hash FROM disk.file f JOIN disk.catalogue_partition p ON p.id = f.partition "
            "WHERE p.key = ? AND f.hash <> ''",
            (partition.key,),
        )
    }
    if 2 * len(held) < len(files):
        _copy_catalogue(db, partition, check)
        changed = held
    else:
        changed = {**files, **held}
    writer = CatalogueWriter(lambda _: ontology)
    for path, text_hash in changed.items():
        check()
        if text_hash is None:
            writer.remove(db, partition, path)
            continue
        text = history.text(db, text_hash)
        if text is None:
            raise StoreUnavailable("History has lost a text of that time.", reason="text_lost")
        writer.put(db, partition, path, text, None)


def _copy_catalogue(db: Database, partition: Partition, check: Callable[[], None]) -> None:
    db.execute(
        "INSERT INTO main.catalogue_partition SELECT * FROM disk.catalogue_partition WHERE key = ?", (partition.key,)
    )
    for table in _COPIED:
        check()
        db.execute(
            f"INSERT INTO main.{table} SELECT * FROM disk.{table} "
            "WHERE partition = (SELECT id FROM main.catalogue_partition)"
        )


def _held_before(db: Database, partition: Partition, later: int) -> Mapping[str, str | None]:
    """Path -> the hash of what it held before the newest ``later`` rows of history, ``None`` for nothing."""
    rows = db.query(
        "SELECT h.sequence, h.id, h.path, h.hash, h.before, h.record_id, h.operation FROM history h "
        "JOIN partition p ON p.id = h.partition WHERE p.key = ? ORDER BY h.sequence DESC, h.id DESC LIMIT ?",
        (partition.key, later),
    )
    held: dict[str, str | None] = {}
    for _, of_one in groupby(rows, key=lambda row: row[0]):
        before: dict[str, str | None] = {}
        came: dict[str, str] = {}
        for _, row, path, after, earlier, record_id, operation in of_one:
            if operation == "kept":
                continue  # a text that was displaced never stood at its path in between
            left = None if after is None or earlier is None or record_id is None else _left(db, row, path, earlier)
            if left is not None:
                came[left] = earlier
            if left is None and earlier is not None:
                before[path] = earlier
            else:  # the path may have held another record before
                before.setdefault(path, None)
        held |= {**before, **came}
    return held


def _left(db: Database, row: int, path: str, earlier: str) -> str | None:
    """The path from which a record came with a row of history, ``None`` where it stayed.

    A record that was moved has one row, at its new path: its text before is that of the last row that had it. Several
    files may bear one id, each with rows of its own: one that stood here and has not left since has stayed.
    """
    rows = db.query(
        "SELECT h.path, h.hash, h.before FROM history moved JOIN history h ON h.partition = moved.partition "
        "AND h.record_id = moved.record_id WHERE moved.id = ?1 AND h.id < ?1 AND h.operation <> 'kept' "
        "AND (h.hash = ?2 OR h.before = ?2) ORDER BY h.id DESC LIMIT ?3",
        (row, earlier, _ROWS_OF_A_MOVE),
    )
    for at, after, before in rows:
        if at == path and after == earlier:
            return None
        if at != path and before == earlier:
            break  # it may have left this path for that one
    return next((str(at) for at, after, _ in rows if after == earlier and at != path), None)


def _record_of(db: Database, entry: Entry) -> Record:
    text = history.text(db, entry.hash)
    if text is None:
        raise StoreUnavailable("History has lost a text.", reason="text_lost")
    found = parse_record(text, entry.path)
    assert isinstance(found, ParsedRecord), "the catalogue holds only files that parse"
    return found.record
