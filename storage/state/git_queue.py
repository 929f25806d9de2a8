"""The durable queue between settled entries and the Git checkpoint.

A row appears in the transaction that settles its entry and disappears when the objects and the reference are known
to be durable. Reads and writes run on the lane's connection, writes inside its transaction.

Source: WRITE-PATH.md hole 26, decisions.md section 4 (Git).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from messages.vocabulary import Partition
from storage.state import journal
from storage.state.connection import Database


@dataclass(frozen=True, slots=True)
class GitChange:
    """One path relative to the vault; ``hash`` names the new text, ``None`` removes the path. Never an artifact."""

    path: str
    hash: str | None


@dataclass(frozen=True, slots=True)
class GitJob:
    """One entry to be committed. ``at_ns`` are nanoseconds since 1970, UTC; ``commit_id`` is set once a commit was
    made whose durability is not confirmed yet."""

    publication: int
    publication_id: str
    partition: Partition
    sequence: int
    request_id: str | None
    operation: str
    actor: str
    at_ns: int
    record_ids: tuple[str, ...]
    changes: tuple[GitChange, ...]
    commit_id: str | None


def enqueue(db: Database, entry: int) -> None:
    """Add a settled entry; adding it twice is harmless."""
    db.execute("INSERT INTO git_queue (publication) VALUES (?) ON CONFLICT DO NOTHING", (entry,))


def jobs(db: Database, limit: int) -> list[GitJob]:
    """The oldest waiting entries."""
    found = db.query("SELECT publication, commit_id FROM git_queue ORDER BY publication LIMIT ?", (limit,))
    return [_job(journal.by_id(db, publication), commit_id) for publication, commit_id in found]


def _job(entry: journal.JournalEntry, commit_id: str | None) -> GitJob:
    artifacts = f"{entry.partition.key}/artifacts/"
    changes = (GitChange(step.path, step.after) for step in entry.steps if not step.path.startswith(artifacts))
    return git_job(entry, (step.record_id for step in entry.steps), changes, commit_id)


def git_job(
    entry: journal.JournalEntry,
    record_ids: Iterable[str | None],
    changes: Iterable[GitChange],
    commit_id: str | None = None,
) -> GitJob:
    """The job of an entry; each record is named once, in the order given."""
    return GitJob(
        entry.id,
        entry.publication_id,
        entry.partition,
        entry.sequence,
        entry.request_id,
        entry.operation,
        entry.actor,
        entry.accepted_at,
        tuple(dict.fromkeys(record for record in record_ids if record)),
        tuple(changes),
        commit_id,
    )


def committed(db: Database, publications: Sequence[int], commit_id: str) -> None:
    """A commit holds these entries, but its objects may not be durable yet."""
    db.execute_many(
        "UPDATE git_queue SET commit_id = ?, error = NULL WHERE publication = ?",
        [(commit_id, publication) for publication in publications],
    )


def failed(db: Database, publications: Sequence[int], error: str) -> None:
    """An attempt failed; the rows stay, and ``error`` says why."""
    db.execute_many(
        "UPDATE git_queue SET attempts = attempts + 1, error = ?, commit_id = NULL WHERE publication = ?",
        [(error, publication) for publication in publications],
    )


def done(db: Database, commits: Mapping[int, str]) -> None:
    """These entries are durable in Git: note their commits, drop the rows and the steps that only waited for them."""
    db.execute_many(
        "UPDATE publication SET git_commit = ? WHERE id = ?", [(commit, entry) for entry, commit in commits.items()]
    )
    db.execute_many("DELETE FROM git_queue WHERE publication = ?", [(entry,) for entry in commits])
    journal.drop_steps(db, tuple(commits))


_WAITING = "FROM git_queue q JOIN publication p ON p.id = q.publication JOIN partition r ON r.id = p.partition"


def count(db: Database, partition: Partition) -> int:
    """How many entries of a partition have no durable checkpoint."""
    row = db.query_one(f"SELECT count(*) {_WAITING} WHERE r.key = ?", (partition.key,))
    return int(row[0]) if row else 0


def oldest(db: Database, partition: Partition) -> tuple[int, int, str | None] | None:
    """``(accepted at in ns, attempts, last error)`` of a partition's oldest waiting entry."""
    row = db.query_one(
        f"SELECT p.accepted_at, q.attempts, q.error {_WAITING} WHERE r.key = ? ORDER BY q.publication LIMIT 1",
        (partition.key,),
    )
    return None if row is None else (row[0], row[1], row[2])
