"""Git jobs from history: every settled publication again, for a repository that has to be built anew.

The queue holds only what waits; the steps of what was committed are gone. History has each revision's path and text.
Source: decisions.md section 4 (Git: rebuilt from history).
"""

from __future__ import annotations

from storage.state import journal
from storage.state.connection import Database
from storage.state.git_queue import GitChange, GitJob, git_job


def first_publication(db: Database) -> int | None:
    """The number of the store's first settled entry that makes a commit: the first of :func:`jobs_from_history`."""
    row = db.query_one(
        "SELECT min(publication) FROM history WHERE operation NOT IN ('kept', ?)", (journal.ADOPT_STORE,)
    )
    return None if row is None or row[0] is None else int(row[0])


def jobs_from_history(db: Database, after: int, limit: int) -> list[GitJob]:
    """The settled entries after ``after``, oldest first; entries without a record in them make no commit."""
    numbers = db.query(
        "SELECT DISTINCT publication FROM history WHERE publication > ? AND operation NOT IN ('kept', ?) "
        "ORDER BY publication LIMIT ?",
        (after, journal.ADOPT_STORE, limit),
    )
    return [_job(db, int(number)) for (number,) in numbers]


def _job(db: Database, number: int) -> GitJob:
    entry = journal.by_id(db, number)
    rows = db.query(
        "SELECT h.id, h.path, h.hash, h.before, h.record_id FROM history h WHERE h.publication = ? "
        "AND h.operation <> 'kept' ORDER BY h.id",
        (number,),
    )
    changed = {path for _, path, _, _, _ in rows}
    stand = [(row, path, before, record) for row, path, digest, before, record in rows if digest and before and record]
    left = {_left(db, *one) for one in stand} - changed - {""}
    gone = (GitChange(f"{entry.partition.key}/{path}", None) for path in sorted(left))
    changes = (GitChange(f"{entry.partition.key}/{path}", digest) for _, path, digest, _, _ in rows)
    return git_job(entry, (record for _, _, _, _, record in rows), (*gone, *changes))


def _left(db: Database, row: int, path: str, before: str, record_id: str) -> str:
    """The path that a record came from with this row; empty when it stayed.

    A record that was moved has one row, at its new path: its text before is the last row's that had it.
    """
    found = db.query_one(
        "SELECT h.path FROM history h JOIN history moved ON moved.id = ? WHERE h.partition = moved.partition "
        "AND h.record_id = ? AND h.id < moved.id AND h.hash = ? AND h.operation <> 'kept' ORDER BY h.id DESC LIMIT 1",
        (row, record_id, before),
    )
    return "" if found is None or found[0] == path else str(found[0])
