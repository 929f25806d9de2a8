"""History: one row for each revision of each record, with the text it had.

Writes run inside the caller's transaction; reads are plain queries on the lane's connection.

Source: decisions.md sections 2 (an external edit gets an entry of its own) and 5 (history rows).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from messages.vocabulary import Lifecycle, Partition
from storage.state.connection import Database, Row
from storage.state.journal import EntryState, JournalEntry, by_request


@dataclass(frozen=True, slots=True)
class Revision:
    """One row of history. ``hash`` is ``None`` for a removal; ``at`` are nanoseconds since 1970, UTC."""

    sequence: int
    record_id: str | None
    revision: int | None
    hash: str | None
    before: str | None
    path: str
    operation: str
    actor: str
    at: int
    external: bool
    request_id: str | None
    lifecycle: Lifecycle | None
    state: EntryState = "published"
    """The state of the entry that made it: ``folded`` for an outside edit."""
    commit: str | None = None
    """The Git commit that holds it, once there is one."""


def insert(db: Database, partition_id: int, entry: int, *revisions: Revision) -> None:
    """Add rows to a partition's history, all of one entry."""
    db.execute_many(
        "INSERT INTO history (partition, sequence, publication, record_id, revision, hash, before, path, operation, "
        "actor, at, external, request_id, lifecycle) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                partition_id,
                revision.sequence,
                entry,
                revision.record_id,
                revision.revision,
                revision.hash,
                revision.before,
                revision.path,
                revision.operation,
                revision.actor,
                revision.at,
                int(revision.external),
                revision.request_id,
                revision.lifecycle,
            )
            for revision in revisions
        ],
    )


def forget_entry(db: Database, partition_id: int, entry: int, sequence: int) -> None:
    """Take back the rows of an entry that ended in a conflict: it never became anybody's revision."""
    db.execute(
        "DELETE FROM history WHERE partition = ? AND sequence = ? AND publication = ?", (partition_id, sequence, entry)
    )


_SELECT = (
    "SELECT h.sequence, h.record_id, h.revision, h.hash, h.before, h.path, h.operation, h.actor, h.at, h.external, "
    "h.request_id, h.lifecycle, p.state, p.git_commit FROM history h JOIN partition r ON r.id = h.partition "
    "JOIN publication p ON p.id = h.publication WHERE r.key = ?"
)


def rows(
    db: Database, partition: Partition, *, record_id: str | None = None, limit: int, offset: int = 0
) -> list[Revision]:
    """The newest revisions first, of one record or of the whole partition."""
    if record_id is None:
        found = db.query(
            f"{_SELECT} ORDER BY h.sequence DESC, h.id DESC LIMIT ? OFFSET ?", (partition.key, limit, offset)
        )
    else:
        found = db.query(
            f"{_SELECT} AND h.record_id = ? ORDER BY h.sequence DESC, h.id DESC LIMIT ? OFFSET ?",
            (partition.key, record_id, limit, offset),
        )
    return [_revision(row) for row in found]


class Extent(NamedTuple):
    """How many rows :func:`rows` has, and the newest sequence among them (0: none): together they name the list."""

    rows: int
    newest: int


def extent(db: Database, partition: Partition, *, record_id: str | None = None) -> Extent:
    """The extent of one record's history or of the whole partition's."""
    counted = "SELECT count(*), coalesce(max(h.sequence), 0) FROM history h JOIN partition r ON r.id = h.partition "
    if record_id is None:
        row = db.query_one(f"{counted} WHERE r.key = ?", (partition.key,))
    else:
        row = db.query_one(f"{counted} WHERE r.key = ? AND h.record_id = ?", (partition.key, record_id))
    assert row is not None
    return Extent(int(row[0]), int(row[1]))


def at_sequence(db: Database, partition: Partition, record_id: str, sequence: int) -> Revision | None:
    """The revision that a record had at a sequence of its partition: the last one at or before it."""
    row = db.query_one(
        f"{_SELECT} AND h.record_id = ? AND h.sequence <= ? ORDER BY h.sequence DESC, h.id DESC LIMIT 1",
        (partition.key, record_id, sequence),
    )
    return None if row is None else _revision(row)


def latest(db: Database, partition: Partition, record_id: str) -> Revision | None:
    """The newest row of a record that was its state, displaced texts left out."""
    row = db.query_one(
        f"{_SELECT} AND h.record_id = ? AND h.operation <> 'kept' ORDER BY h.sequence DESC, h.id DESC LIMIT 1",
        (partition.key, record_id),
    )
    return None if row is None else _revision(row)


def last_approval(db: Database, partition: Partition, record_id: str) -> Revision | None:
    """The newest revision that a finished publication of ``knowledge_recall`` gave a record; outside edits are none."""
    row = db.query_one(
        f"{_SELECT} AND h.record_id = ? AND h.operation = 'recall' AND h.external = 0 AND p.state = 'published' "
        "ORDER BY h.sequence DESC, h.id DESC LIMIT 1",
        (partition.key, record_id),
    )
    return None if row is None else _revision(row)


def ever_approved(db: Database, partition: Partition) -> list[str]:
    """The ids of the records for which ``knowledge_recall`` was ever published, in their order.

    Costs as much as there are such publications, whatever else history holds.
    """
    rows = db.query(
        "SELECT DISTINCT h.record_id FROM partition r JOIN history h ON h.partition = r.id "
        "WHERE r.key = ? AND h.operation = 'recall' AND h.record_id IS NOT NULL ORDER BY h.record_id",
        (partition.key,),
    )
    return [str(record_id) for (record_id,) in rows]


def texts_of_path(db: Database, partition: Partition, path: str, limit: int = 20) -> Iterator[bytes]:
    """The newest texts that a path had, newest first. Reads history without an index: for rare questions only."""
    rows = db.query(
        "SELECT h.hash FROM history h JOIN partition r ON r.id = h.partition WHERE r.key = ? AND h.path = ? "
        "AND h.hash IS NOT NULL ORDER BY h.sequence DESC, h.id DESC LIMIT ?",
        (partition.key, path, limit),
    )
    for (name,) in rows:
        found = text(db, name)
        if found is not None:
            yield found


def text(db: Database, name: str) -> bytes | None:
    """The bytes of a hash that history or the journal names, ``None`` when nothing does."""
    row = db.query_one("SELECT bytes FROM blob WHERE hash = ?", (name,))
    if row is None:
        return None
    data: bytes = row[0]
    return data


def texts(db: Database, names: Collection[str]) -> dict[str, bytes]:
    """The bytes of these hashes in one statement; what nothing names is left out."""
    if not names:
        return {}
    found = db.query(
        "SELECT b.hash, b.bytes FROM json_each(?) j CROSS JOIN blob b ON b.hash = j.value", (json.dumps([*names]),)
    )
    return {str(name): data for name, data in found}


def mutation(db: Database, partition: Partition, request_id: str) -> tuple[JournalEntry, list[Revision]] | None:
    """The entry of a request and its rows; a conflict has its steps (before, after, displaced) instead of rows."""
    entry = by_request(db, partition, request_id)
    if entry is None:
        return None
    found = db.query(f"{_SELECT} AND h.sequence = ? ORDER BY h.id", (partition.key, entry.sequence))
    return entry, [_revision(row) for row in found]


def _revision(row: Row) -> Revision:
    sequence, record_id, revision, name, before, path, operation, actor, at, external, *rest = row
    return Revision(sequence, record_id, revision, name, before, path, operation, actor, at, bool(external), *rest)
