"""The commits of the journal: accept, settle, conflict, fold in, keep. Each is one transaction, and says whether it
must be durable when it returns.

Runs on the lane's thread. Errors: what the transaction raises (:mod:`storage.state.connection`), ``Restarting``.

Source: WRITE-PATH.md section 2 (steps 4 and 7, Conflict), holes 12 and 13.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import orjson

from messages.errors import RequestIdReused
from messages.json_types import JsonObject
from messages.vocabulary import Partition
from storage.manifest import Pair
from storage.publication.model import ExternalChange, Intent, Receipt
from storage.publication.plan import Plan
from storage.publication.store import StoreState
from storage.state import git_queue, history, journal
from storage.state.history import Revision
from storage.state.journal import JournalEntry, Step

FAULT_POINTS = (
    ("accept.begin", "beginning the transaction that accepts a publication"),
    ("accept.commit", "the one durable commit of a publication"),
    ("settle.begin", "beginning the transaction that settles a publication"),
    ("settle.commit", "the commit, without a sync, of state and receipt"),
    ("conflict.begin", "beginning the transaction that ends a roll-back"),
    ("conflict.commit", "the durable commit of a conflict"),
    ("undo.begin", "beginning the transaction that turns a pending entry into one that rolls back"),
    ("undo.commit", "the commit of that mark"),
    ("fold.begin", "beginning the transaction that folds external edits in"),
    ("fold.commit", "the commit of a fold-in"),
    ("keep.begin", "beginning the transaction that keeps displaced texts in history"),
    ("keep.commit", "the durable commit of those texts, before they are removed from the disk"),
)


@dataclass(frozen=True, slots=True)
class Displaced:
    """What a conflict found at one step: the unknown text at the path, or behind our staged name. ``data`` is
    ``None`` where nothing, or no plain file, stands."""

    step: Step
    data: bytes | None
    at_path: bool


def accept(
    state: StoreState,
    intent: Intent,
    plan: Plan,
    *,
    publication_id: str,
    accepted_at: int,
    before: Mapping[str, bytes],
    check: Callable[[], None],
) -> JournalEntry:
    """Commit the publication with everything that replay needs, durably; from here nothing stops it.

    ``before`` holds the texts that will be displaced, by hash. ``check`` raises when the caller's right has ended.
    """
    db = state.db
    with state.transaction(full=True, point="accept"):
        check()
        partition_id, last = journal.partition_row(db, intent.partition)
        sequence = last + 1
        pair = Pair(state.pair.generation + 1, publication_id)
        fixed = intent.receipt if isinstance(intent.receipt, dict) else intent.receipt(sequence)
        entry = JournalEntry(
            journal.insert_entry(
                db,
                publication_id=publication_id,
                partition_id=partition_id,
                sequence=sequence,
                generation=pair.generation,
                request_id=intent.request_id,
                payload_hash=intent.payload_hash,
                operation=intent.operation,
                actor=intent.actor,
                accepted_at=accepted_at,
                state="pending",
                fixed=_encoded(fixed),
            ),
            publication_id,
            intent.partition,
            sequence,
            pair.generation,
            intent.request_id,
            intent.payload_hash,
            intent.operation,
            intent.actor,
            accepted_at,
            None,
            "pending",
            _encoded(fixed),
            None,
            None,
            plan.steps,
        )
        _store_texts(state, plan, before)
        journal.insert_steps(db, entry.id, plan.steps)
        _store_history(state, partition_id, entry, plan, external=False)
        for change in intent.changes:
            if change.after is None:
                state.projection.remove(db, intent.partition, change.path)
        for change in intent.changes:
            if change.after is not None:
                state.projection.put(db, intent.partition, change.path, change.after, None, revision=change.revision)
        journal.advance(db, pair)
    state.previous, state.pair = state.pair, pair
    state.unpruned += 1
    return entry


def _store_texts(state: StoreState, plan: Plan, before: Mapping[str, bytes]) -> None:
    recorded = {record.hash for record in plan.records if record.record_id is not None}
    # A text that stood in the vault is somebody's until history has it, so it is never dropped.
    stood = [(name, data, True) for name, data in before.items()]
    journal.put_blobs(state.db, [*((name, data, name in recorded) for name, data in plan.texts.items()), *stood])


def _store_history(state: StoreState, partition_id: int, entry: JournalEntry, plan: Plan, *, external: bool) -> None:
    revisions = [
        Revision(
            entry.sequence,
            record.record_id,
            record.revision,
            record.hash,
            record.before,
            record.path,
            entry.operation,
            entry.actor,
            entry.accepted_at,
            external,
            entry.request_id,
            record.lifecycle,
        )
        for record in plan.records
        if record.record_id is not None or external
    ]
    history.insert(state.db, partition_id, entry.id, *revisions)


def settle(state: StoreState, entry: JournalEntry, *, full: bool = False) -> Receipt:
    """The files are in place: store ``published`` and the receipt. Not durable by itself, which recovery allows for."""
    fixed: JsonObject = orjson.loads(entry.fixed or "{}")
    body: JsonObject = {"state": "published", "requestId": entry.request_id, **fixed}
    encoded = _encoded(body)
    with state.transaction(full=full, point="settle"):
        journal.settle(state.db, entry.id, "published", encoded, state.clock())
        if state.git and entry.steps:
            git_queue.enqueue(state.db, entry.id)
    return Receipt("published", entry.request_id or "", entry.sequence, encoded)


def mark_rolling_back(state: StoreState, entry: JournalEntry) -> None:
    """From here the entry can only be undone."""
    with state.transaction(full=False, point="undo"):
        journal.mark_rolling_back(state.db, entry.id)


def settle_conflict(
    state: StoreState, entry: JournalEntry, displaced: Sequence[Displaced], reason: str | None
) -> Receipt:
    """The files are as they were: store ``conflict`` durably, the catalogue as before, the person's texts kept.

    ``displaced`` are the unknown texts behind staged names, which go to history, and the steps whose path holds
    something else than before, which the next fold-in takes over.
    """
    body = _conflict_body(entry, displaced, reason)
    encoded = _encoded(body)
    db = state.db
    with state.transaction(full=True, point="conflict"):
        partition_id, _ = journal.partition_row(db, entry.partition)
        history.forget_entry(db, partition_id, entry.id, entry.sequence)
        restore_projection(state, entry)
        keep_rows(state, entry, [(d.step, d.data) for d in displaced if d.data is not None and not d.at_path])
        for found in displaced:
            if found.data is not None and found.at_path:
                name = journal.digest(found.data)
                journal.put_blob(db, name, found.data, kept=True)
                journal.mark_displaced(db, entry.id, found.step.ordinal, name)
        journal.settle(db, entry.id, "conflict", encoded, state.clock())
    return Receipt("conflict", entry.request_id or "", entry.sequence, encoded)


def restore_projection(state: StoreState, entry: JournalEntry) -> None:
    """Give the catalogue the texts from before the entry again."""
    prefix = len(entry.partition.key) + 1
    for step in entry.steps:
        if step.before is None:
            state.projection.remove(state.db, entry.partition, step.path[prefix:])
    for step in entry.steps:
        if step.before is not None:
            data = journal.blob(state.db, step.before)
            state.projection.put(state.db, entry.partition, step.path[prefix:], data, None)


def _conflict_body(entry: JournalEntry, displaced: Sequence[Displaced], reason: str | None) -> JsonObject:
    body: JsonObject = {"state": "conflict", "requestId": entry.request_id}
    if reason == "open_elsewhere":
        what = "a file of this change is open for writing in another program"
    else:
        what = "a file of this change was saved by someone else at the same moment"
    now = ""
    if displaced:
        step, data = displaced[0].step, displaced[0].data
        body["path"] = step.path[len(entry.partition.key) + 1 :]
        if step.record_id is not None:
            body["id"] = step.record_id
        if data is not None:
            body["hash"] = journal.digest(data)
            now = f" (hash {body['hash']})"
    body["reason"] = reason or "changed"
    body["message"] = (
        f"Nothing of this change was applied: {what}. Read it again{now} and send a new request; the proposed text "
        f"is kept under request {entry.request_id}."
    )
    return body


def keep_rows(state: StoreState, entry: JournalEntry, texts: Iterable[tuple[Step, bytes]]) -> list[int | None]:
    """Inside the caller's transaction: unknown texts that stood in the way of an entry become history rows.

    The sequence of each, ``None`` where history had the text already.
    """
    sequences: list[int | None] = []
    db = state.db
    partition_id, sequence = journal.partition_row(db, entry.partition)
    for step, data in texts:
        name = journal.digest(data)
        if not journal.has_blob(db, name):
            sequence += 1
            journal.put_blob(db, name, data, kept=True)
            last = history.latest(db, entry.partition, step.record_id) if step.record_id else None
            history.insert(
                db,
                partition_id,
                entry.id,
                Revision(
                    sequence,
                    step.record_id,
                    last.revision if last else None,
                    name,
                    step.before,
                    step.path[len(entry.partition.key) + 1 :],
                    "kept",
                    "external",
                    state.clock(),
                    True,
                    None,
                    last.lifecycle if last else None,
                ),
            )
            db.execute("UPDATE partition SET sequence = ? WHERE id = ?", (sequence, partition_id))
            sequences.append(sequence)
        else:
            db.execute("UPDATE blob SET kept = 1 WHERE hash = ?", (name,))
            sequences.append(None)
        journal.mark_displaced(db, entry.id, step.ordinal, name)
    return sequences


def keep(state: StoreState, texts: Sequence[tuple[JournalEntry, Step, bytes]]) -> list[int | None]:
    """Unknown texts are in history, durably, before anything removes them from the disk; see :func:`keep_rows`."""
    if not texts:
        return []
    sequences: list[int | None] = []
    with state.transaction(full=True, point="keep"):
        for entry, step, data in texts:
            sequences += keep_rows(state, entry, [(step, data)])
    return sequences


def fold_in(
    state: StoreState, partition: Partition, changes: Sequence[ExternalChange], plan: Plan, *, looked_at: int
) -> int:
    """External edits become a chain entry of their own, settled at birth; its sequence."""
    db = state.db
    with state.transaction(full=False, point="fold"):
        partition_id, last = journal.partition_row(db, partition)
        sequence = last + 1
        publication_id = str(uuid.uuid4())
        entry_id = journal.insert_entry(
            db,
            publication_id=publication_id,
            partition_id=partition_id,
            sequence=sequence,
            generation=None,
            request_id=None,
            payload_hash=None,
            operation="external",
            actor="external",
            accepted_at=looked_at,
            state="folded",
        )
        journal.put_blobs(db, [(name, data, True) for name, data in plan.texts.items()])
        journal.insert_steps(db, entry_id, plan.steps)
        entry = JournalEntry(
            entry_id, publication_id, partition, sequence, None, None, None, "external", "external", looked_at, None,
            "folded", None, None, None, plan.steps,
        )  # fmt: skip
        _store_history(state, partition_id, entry, plan, external=True)
        for change in changes:
            if change.after is None:
                state.projection.remove(db, partition, change.path)
        for change in changes:
            if change.after is not None:
                state.projection.put(db, partition, change.path, change.after, change.stamp, revision=change.revision)
        if state.git and plan.steps:
            git_queue.enqueue(db, entry_id)
    state.unpruned += 1
    return sequence


def stored_receipt(entry: JournalEntry) -> Receipt | None:
    """The final receipt of an entry, ``None`` while it is not settled."""
    if entry.receipt is None or entry.state not in ("published", "conflict"):
        return None
    final: Literal["published", "conflict"] = "published" if entry.state == "published" else "conflict"
    return Receipt(final, entry.request_id or "", entry.sequence, entry.receipt)


def pending_receipt(entry: JournalEntry, error: Exception | None) -> Receipt:
    """The status of an entry that is accepted but not finished. Not stored."""
    body: JsonObject = {
        "state": "pending",
        "requestId": entry.request_id,
        "message": "The change is accepted and stored; putting its files in place is not finished. It is tried again "
        "by itself; knowledge_resume tries it now.",
    }
    if error is not None:
        body["error"] = {"code": "storage_error", "kind": type(error).__name__}
    return Receipt("pending", entry.request_id or "", entry.sequence, _encoded(body))


def require_same(entry: JournalEntry, payload_hash: str, operation: str) -> None:
    """Raise ``RequestIdReused`` unless the entry was made by this very request."""
    if entry.payload_hash != payload_hash or entry.operation != operation:
        raise RequestIdReused(
            "this requestId belongs to another request; use a new one for a new change", requestId=entry.request_id
        )


def _encoded(body: JsonObject) -> str:
    return orjson.dumps(body).decode()
