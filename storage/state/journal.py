"""The rows of the journal: entries, their steps, the texts they name, and the marks of the store.

Plain functions over the store's connection; they decide nothing. Writes run inside the caller's transaction, on the
thread that owns the connection.

Source: WRITE-PATH.md sections 2 and 3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import orjson

from messages.json_types import JsonObject
from messages.vocabulary import Partition
from storage.manifest import Pair
from storage.state.connection import Database, Row, StorageCorrupt

EntryState: TypeAlias = Literal["pending", "rolling_back", "published", "conflict", "folded"]
StepKind: TypeAlias = Literal["create", "replace", "remove"]

ADOPT_STORE: Final = "adopt_store"
"""The operation of the entry that takes a vault as it is: it touches no file but vault.json."""

_ENTRY_COLUMNS = (
    "p.id, p.publication_id, r.key, p.sequence, p.generation, p.request_id, p.payload_hash, p.operation, p.actor, "
    "p.accepted_at, p.settled_at, p.state, p.fixed, p.receipt, p.git_commit"
)
_ENTRIES = f"SELECT {_ENTRY_COLUMNS} FROM publication p JOIN partition r ON r.id = p.partition"


def digest(data: bytes) -> str:
    """SHA-256 of a text, the name under which the journal keeps it."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class Step:
    """One path of one journal entry; ``path`` is relative to the vault, ``before`` and ``after`` are hashes."""

    ordinal: int
    path: str
    key: str
    before: str | None
    after: str | None
    record_id: str | None
    displaced: str | None = None

    @property
    def kind(self) -> StepKind:
        if self.before is None:
            return "create"
        return "remove" if self.after is None else "replace"


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One row of the journal with its steps."""

    id: int
    publication_id: str
    partition: Partition
    sequence: int
    generation: int | None
    request_id: str | None
    payload_hash: str | None
    operation: str
    actor: str
    accepted_at: int
    settled_at: int | None
    state: EntryState
    fixed: str | None
    receipt: str | None
    git_commit: str | None
    steps: tuple[Step, ...]

    @property
    def receipt_body(self) -> JsonObject | None:
        """The stored receipt as JSON, ``None`` while the entry is not settled and for a fold-in."""
        if self.receipt is None:
            return None
        body: JsonObject = orjson.loads(self.receipt)
        return body


@dataclass(frozen=True, slots=True)
class Marks:
    """The row ``meta``: what ties the database to its vault, its machine and its owner."""

    vault_id: str
    made: bool
    clean: bool
    incarnation: int
    boot_id: str
    mount_id: str
    vault_device: int
    vault_inode: int
    current: Pair
    floor: Pair


def marks(db: Database) -> Marks:
    """The store's marks; :class:`StorageCorrupt` when the row is gone."""
    row = db.query_one(
        "SELECT vault_id, made, clean, incarnation, boot_id, mount_id, vault_device, vault_inode, generation, "
        "publication_id, floor_generation, floor_publication_id FROM meta"
    )
    if row is None:
        raise StorageCorrupt(f"{db.path.name} has lost its marks")
    vault_id, made, clean, incarnation, boot_id, mount_id, device, inode, generation, current, floor, floor_id = row
    return Marks(
        vault_id,
        bool(made),
        bool(clean),
        incarnation,
        boot_id,
        mount_id,
        device,
        inode,
        Pair(generation, current),
        Pair(floor, floor_id),
    )


def unsettled_entry(db: Database) -> JournalEntry | None:
    """The one entry that is pending or rolling back, if there is one."""
    # The plus keeps SQLite from walking the whole table in order instead of using the partial index.
    rows = db.query(f"{_ENTRIES} WHERE p.state IN ('pending', 'rolling_back') ORDER BY +p.id")
    if len(rows) > 1:
        raise StorageCorrupt(f"{db.path.name} has more than one unsettled publication")
    return _entries(db, rows)[0] if rows else None


def unsettled(db: Database, partition: Partition) -> tuple[int, int]:
    """How many publications of a partition are pending or rolling back, and how many ended in a conflict."""
    row = db.query_one(
        "SELECT (SELECT count(*) FROM publication WHERE partition = r.id AND state IN ('pending', 'rolling_back')), "
        "(SELECT count(*) FROM publication WHERE partition = r.id AND state = 'conflict') FROM partition r "
        "WHERE r.key = ?",
        (partition.key,),
    )
    return (0, 0) if row is None else (row[0], row[1])


def unpruned(db: Database) -> list[JournalEntry]:
    """Every entry whose files may not be durable yet, oldest first."""
    return _entries(db, db.query(f"{_ENTRIES} WHERE p.pruned = 0 ORDER BY p.id"))


def by_request(db: Database, partition: Partition, request_id: str) -> JournalEntry | None:
    """The entry of a request id in one partition."""
    rows = db.query(f"{_ENTRIES} WHERE r.key = ? AND p.request_id = ?", (partition.key, request_id))
    return _entries(db, rows)[0] if rows else None


def by_id(db: Database, entry: int) -> JournalEntry:
    """The entry of that row."""
    return _entries(db, db.query(f"{_ENTRIES} WHERE p.id = ?", (entry,)))[0]


def _entries(db: Database, rows: Iterable[Row]) -> list[JournalEntry]:
    entries = []
    for row in rows:
        steps = tuple(
            Step(*step)
            for step in db.query(
                "SELECT ordinal, path, key, before, after, record_id, displaced FROM step WHERE publication = ? "
                "ORDER BY ordinal",
                (row[0],),
            )
        )
        (identity, publication_id, key, sequence, generation, request_id, payload_hash, operation, actor) = row[:9]
        accepted_at, settled_at, state, fixed, receipt, git_commit = row[9:]
        entries.append(
            JournalEntry(
                identity,
                publication_id,
                Partition.parse(key),
                sequence,
                generation,
                request_id,
                payload_hash,
                operation,
                actor,
                accepted_at,
                settled_at,
                state,
                fixed,
                receipt,
                git_commit,
                steps,
            )
        )
    return entries


def partition_row(db: Database, partition: Partition) -> tuple[int, int]:
    """The partition's row id and its last sequence; the row is made when it is new."""
    row = db.query_one("SELECT id, sequence FROM partition WHERE key = ?", (partition.key,))
    if row is None:
        db.execute("INSERT INTO partition (key) VALUES (?)", (partition.key,))
        return db.last_insert_rowid, 0
    return row[0], row[1]


def put_blob(db: Database, name: str, data: bytes, *, kept: bool) -> None:
    """Keep a text under its hash; once history refers to it, pruning never drops it."""
    put_blobs(db, [(name, data, kept)])


def put_blobs(db: Database, texts: Iterable[tuple[str, bytes, bool]]) -> None:
    """:func:`put_blob` for several texts: ``(name, data, kept)``."""
    db.execute_many(
        "INSERT INTO blob (hash, kept, bytes) VALUES (?, ?, ?) ON CONFLICT (hash) DO UPDATE SET kept = 1 "
        "WHERE excluded.kept = 1 AND kept = 0",
        [(name, int(kept), data) for name, data, kept in texts],
    )


def blob(db: Database, name: str) -> bytes:
    """The text of a hash that the journal names; :class:`StorageCorrupt` when it is gone."""
    row = db.query_one("SELECT bytes FROM blob WHERE hash = ?", (name,))
    if row is None:
        raise StorageCorrupt(f"{db.path.name} has lost the text {name[:16]}")
    data: bytes = row[0]
    return data


def has_blob(db: Database, name: str) -> bool:
    """Whether a text is known, in history or in the journal."""
    return db.query_one("SELECT 1 FROM blob WHERE hash = ?", (name,)) is not None


def insert_entry(
    db: Database,
    *,
    publication_id: str,
    partition_id: int,
    sequence: int,
    generation: int | None,
    request_id: str | None,
    payload_hash: str | None,
    operation: str,
    actor: str,
    accepted_at: int,
    state: EntryState,
    fixed: str | None = None,
) -> int:
    """Add an entry, advance the partition's sequence, and return the entry's row id."""
    db.execute(
        "INSERT INTO publication (publication_id, partition, sequence, generation, request_id, payload_hash, "
        "operation, actor, accepted_at, settled_at, state, fixed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            publication_id,
            partition_id,
            sequence,
            generation,
            request_id,
            payload_hash,
            operation,
            actor,
            accepted_at,
            accepted_at if state == "folded" else None,
            state,
            fixed,
        ),
    )
    identity = db.last_insert_rowid
    db.execute("UPDATE partition SET sequence = ? WHERE id = ?", (sequence, partition_id))
    return identity


def insert_steps(db: Database, entry: int, steps: Iterable[Step]) -> None:
    """Add the steps of an entry."""
    db.execute_many(
        "INSERT INTO step (publication, ordinal, path, key, before, after, record_id) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(entry, s.ordinal, s.path, s.key, s.before, s.after, s.record_id) for s in steps],
    )


def settle(db: Database, entry: int, state: EntryState, receipt: str, at: int) -> None:
    """Store the final state and receipt of an entry."""
    db.execute(
        "UPDATE publication SET state = ?, receipt = ?, settled_at = ?, fixed = NULL WHERE id = ?",
        (state, receipt, at, entry),
    )


def mark_rolling_back(db: Database, entry: int) -> None:
    db.execute("UPDATE publication SET state = 'rolling_back' WHERE id = ?", (entry,))


def mark_displaced(db: Database, entry: int, ordinal: int, text: str) -> None:
    """Remember which unknown text stood where ours should go, for the mutation's view."""
    db.execute("UPDATE step SET displaced = ? WHERE publication = ? AND ordinal = ?", (text, entry, ordinal))


def advance(db: Database, pair: Pair) -> None:
    """The pair that vault.json must carry from now on."""
    db.execute("UPDATE meta SET generation = ?, publication_id = ?", (pair.generation, pair.publication_id))


def pair_before(db: Database, generation: int) -> Pair:
    """The pair that the vault carried before the publication with this generation."""
    row = db.query_one(
        "SELECT generation, publication_id FROM publication WHERE generation = ? ORDER BY id DESC LIMIT 1",
        (generation - 1,),
    )
    if row is None:
        return marks(db).floor
    return Pair(row[0], row[1])


def keep_texts(db: Database, entries: Sequence[int]) -> None:
    """Keep every text that the steps of these entries name, whatever is pruned."""
    db.execute_many(
        "UPDATE blob SET kept = 1 WHERE kept = 0 AND hash IN (SELECT before FROM step WHERE publication = ?1 "
        "UNION SELECT after FROM step WHERE publication = ?1)",
        [(entry,) for entry in entries],
    )


def last_adoption(db: Database) -> tuple[int, str, JsonObject] | None:
    """``(at in ns, actor, what was adopted)`` of the newest adoption of the vault as it was, ``None`` without one."""
    row = db.query_one(
        f"SELECT accepted_at, actor, coalesce(receipt, fixed) FROM publication WHERE operation = '{ADOPT_STORE}' "
        "ORDER BY id DESC LIMIT 1"
    )
    return None if row is None else (int(row[0]), str(row[1]), orjson.loads(row[2] or "{}"))


def prune(db: Database, entries: Sequence[JournalEntry], floor: Pair | None) -> None:
    """Forget what replay needed of these entries; requests, receipts and history stay.

    Steps stay where something still reads them: a conflict's for its mutation view, and those that wait for Git.
    """
    ids = [(entry.id,) for entry in entries]
    db.execute_many("UPDATE publication SET pruned = 1 WHERE id = ?", ids)
    passing = {
        text
        for entry in entries
        if entry.state != "conflict"
        for step in entry.steps
        if step.record_id is None
        for text in (step.before, step.after)
        if text
    }
    drop_steps(db, [entry.id for entry in entries])
    for text in passing:
        # From the few entries to their steps: a first checkpoint of a whole vault leaves a step a file behind.
        db.execute(
            "DELETE FROM blob WHERE hash = ?1 AND kept = 0 AND NOT EXISTS (SELECT 1 FROM publication "
            "CROSS JOIN step ON step.publication = publication.id WHERE publication.pruned = 0 "
            "AND (step.before = ?1 OR step.after = ?1)) AND NOT EXISTS (SELECT 1 FROM publication "
            "CROSS JOIN step ON step.publication = publication.id WHERE publication.state = 'conflict' "
            "AND (step.before = ?1 OR step.after = ?1))",
            (text,),
        )
    if floor is not None:
        db.execute(
            "UPDATE meta SET floor_generation = ?, floor_publication_id = ?", (floor.generation, floor.publication_id)
        )


def drop_steps(db: Database, entries: Sequence[int]) -> None:
    """Drop the steps of those entries that are pruned, no conflict, and not waiting for Git."""
    db.execute_many(
        "DELETE FROM step WHERE publication = ?1 AND NOT EXISTS (SELECT 1 FROM git_queue WHERE publication = ?1) "
        "AND EXISTS (SELECT 1 FROM publication WHERE id = ?1 AND pruned = 1 AND state <> 'conflict')",
        [(entry,) for entry in entries],
    )
