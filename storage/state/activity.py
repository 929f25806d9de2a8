"""What happened in a partition, newest first: one row for each publication and each fold-in of outside edits.

Reads only, on the thread that owns the connection; no text of any record. Source: knowledge-more-facts.md section 8
(Activity & issues).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from messages.vocabulary import Partition
from storage.state.connection import Database, Row
from storage.state.journal import EntryState

RECORDS_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class Activity:
    """One entry of the journal. Times are nanoseconds since 1970, UTC; ``records`` are the first few of its records.

    ``changes`` counts the revisions that it made, removals included. ``waiting`` is the Git queue's error for it,
    ``""`` while it merely waits, ``None`` when it does not.
    """

    sequence: int
    request_id: str | None
    operation: str
    actor: str
    accepted_at: int
    settled_at: int | None
    state: EntryState
    commit: str | None
    waiting: str | None
    changes: int
    records: Sequence[str]


def activity(
    db: Database, partition: Partition, *, before: int | None, limit: int, conflicts: bool = False
) -> list[Activity]:
    """Up to ``limit`` entries, newest first, of those before a sequence of the partition; or its conflicts alone."""
    earlier = "" if before is None else "AND p.sequence < ?"
    only = "AND p.state = 'conflict'" if conflicts else ""
    rows = db.query(
        "SELECT p.id, p.sequence, p.request_id, p.operation, p.actor, p.accepted_at, p.settled_at, p.state, "
        "p.git_commit, q.publication, q.error FROM publication p JOIN partition r ON r.id = p.partition "
        f"LEFT JOIN git_queue q ON q.publication = p.id WHERE r.key = ? {earlier} {only} ORDER BY p.id DESC LIMIT ?",
        (partition.key, *(() if before is None else (before,)), limit),
    )
    return [_activity(db, row) for row in rows]


def _activity(db: Database, row: Row) -> Activity:
    entry, sequence, request_id, operation, actor, accepted, settled, state, commit, queued, error = row
    counted = db.query_one("SELECT count(*) FROM history WHERE publication = ?", (entry,))
    named = db.query(
        "SELECT record_id FROM history WHERE publication = ? AND record_id IS NOT NULL ORDER BY id LIMIT ?",
        (entry, RECORDS_NAMED),
    )
    return Activity(
        sequence, request_id, operation, actor, accepted, settled, state, commit,
        None if queued is None else error or "", 0 if counted is None else int(counted[0]),
        tuple(dict.fromkeys(str(record) for (record,) in named)),
    )  # fmt: skip
