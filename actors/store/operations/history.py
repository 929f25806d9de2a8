"""``knowledge_history``, ``_revision``, ``_mutation`` and ``_resume``: what was written, and how to recover it.

Source: tools.md, Receipts, history, and recovery.
"""

from __future__ import annotations

from typing import Final

import orjson

from actors.store.operations.context import OperationContext, shown_receipt
from messages.errors import NotFound
from messages.json_types import JsonObject
from messages.tools import (
    HistoryRequest,
    HistoryRow,
    MutationFile,
    MutationRequest,
    ResumeRequest,
    RevisionRequest,
    history_response,
    mutation_response,
    revision_response,
)
from storage.records import format_instant
from storage.state import history as store_history
from storage.state.connection import Database


def history(context: OperationContext, request: HistoryRequest, *, complete: bool = False) -> JsonObject:
    """Revisions of the partition or of one record, newest first, external edits included.

    ``complete`` rows say everything that history knows of them, as operators see it.
    """
    db = context.session.store.publisher.db
    found = store_history.rows(db, context.partition, record_id=request.id, limit=request.limit, offset=request.offset)
    extent = store_history.extent(db, context.partition, record_id=request.id)
    snapshot = f"{context.partition.kind}-{context.catalogue.origin}-history-{extent.newest}-{extent.rows}"
    answer = history_response(
        [_row(row, complete=complete) for row in found],
        total=extent.rows,
        offset=request.offset,
        git=context.git_state(),
        snapshot=snapshot,
    )
    return {**answer, "nextOffset": answer.get("nextOffset"), "snapshot": snapshot} if complete else answer


def revision(context: OperationContext, request: RevisionRequest, *, complete: bool = False) -> JsonObject:
    """One retained revision's exact text, in windows."""
    db = context.session.store.publisher.db
    found = store_history.at_sequence(db, context.partition, request.id, request.sequence)
    text = None if found is None or found.hash is None else store_history.text(db, found.hash)
    if found is None or text is None or found.sequence != request.sequence:
        raise NotFound("History has no such revision of this record.", id=request.id, sequence=request.sequence)
    return revision_response(_row(found, complete=complete), text.decode("utf-8", "replace"), request)


def mutation(context: OperationContext, request: MutationRequest) -> JsonObject:
    """One publication's complete receipt and the texts that recovery would use."""
    db = context.session.store.publisher.db
    found = store_history.mutation(db, context.partition, request.request_id)
    if found is None:
        raise NotFound("No accepted write has this requestId in this partition.", requestId=request.request_id)
    entry, _ = found
    files = [
        MutationFile(
            path=step.path.removeprefix(f"{context.partition.key}/"),
            id=step.record_id,
            texts={
                "before": _text(db, step.before),
                "proposed": _text(db, step.after),
                "displaced": _text(db, step.displaced),
            },
        )
        for step in entry.steps
    ]
    receipt: JsonObject = (
        {"state": "pending", "requestId": request.request_id} if entry.receipt is None else orjson.loads(entry.receipt)
    )
    return mutation_response(receipt, files, request, commit=entry.git_commit, git=context.git_state())


def resume(context: OperationContext, request: ResumeRequest) -> JsonObject:
    """Finish an accepted publication; a conflict stays one."""
    return shown_receipt(context, context.session.store.publisher.resume(context.partition, request.request_id))


_STATES: Final = {"folded": "published", "rolling_back": "pending"}


def _row(row: store_history.Revision, *, complete: bool) -> HistoryRow:
    state = _STATES.get(row.state, row.state)
    return HistoryRow(
        sequence=row.sequence,
        operation=row.operation,
        id=row.record_id or "",
        revision=row.revision or 0,
        hash=row.hash or "",
        at=format_instant(row.at // 1_000_000),
        actor=row.actor,
        request_id=row.request_id,
        external=row.external,
        path=_shown_path(row),
        state=state,
        commit=row.commit,
        complete={
            "external": row.external,
            "state": state,
            "removed": row.hash is None,
            "before": row.before,
            "lifecycle": row.lifecycle,
        }
        if complete
        else None,
    )


def _shown_path(row: store_history.Revision) -> str | None:
    """A file that is no record of this partition, or not now, is not named: its name is its title."""
    return row.path if row.record_id else None


def _text(db: Database, digest: str | None) -> str | None:
    data = None if digest is None else store_history.text(db, digest)
    return None if data is None else data.decode("utf-8", "replace")
