"""``knowledge_recall``: approve a record for automatic recall, or take that back; and whether an approval counts.

Source: memory-provider.md (Automatic recall), decisions.md sections 2 and 5.
"""

from __future__ import annotations

from typing import Final

from actors.store.operations.context import (
    OperationContext,
    Outcome,
    check_fences,
    earlier_receipt,
    fixed_receipt,
    next_instant,
    publish,
    require_private,
)
from actors.store.operations.fences import fenced_target
from messages.errors import InvalidArgument, LimitExceeded
from messages.tools import RecallRequest
from messages.vocabulary import PRIVATE, RECORD_MAX_BYTES
from storage.publication import FileChange
from storage.records import ABSENT, Change, Finding, Recall, Record, content_hash, format_instant, recall_value, rewrite
from storage.state.approvals import RECALL_KEY, RECALL_OPERATION, approval_counts, recall_block
from storage.state.catalogue_reader import Entry

APPROVED_BY: Final = "owner-private"
"""Who approves: the owner, under an owner grant too."""


def recall(context: OperationContext, request: RecallRequest) -> Outcome:
    """Set or clear the ``recall`` block of one exact active record, as a revision of its own.

    Nothing else of the file changes but revision and ``updated_at``, so a page of any size may be approved. Raises
    ``Denied`` outside the owner's partition, and ``InvalidArgument`` for a statement that is not the owner's own.
    """
    require_private(context, "Only the owner approves recall; a conversation without the owner's grant cannot.")
    earlier = earlier_receipt(context, request, RECALL_OPERATION)
    if earlier is not None:
        return earlier
    check_fences(context, request)
    entry = fenced_target(context, request.id, request.expected_revision, request.expected_hash)
    original = context.session.source(entry)
    updated = next_instant(context)
    at = format_instant(updated)
    if request.clear:
        if recall_block(original) is None:
            raise InvalidArgument(
                "The record has no recall approval; there is nothing to clear.", field="clear", reason="not_approved"
            )
        block: Change = ABSENT
    else:
        _require_approvable(context.session.load(entry))
        assert request.summary is not None
        block = recall_value(
            Recall(request.summary, request.triggers, request.importance, request.projects, APPROVED_BY, at)
        )
    revision = entry.revision + 1
    data = rewrite(original, {"revision": revision, "updated_at": at, RECALL_KEY: block})
    if len(data) > RECORD_MAX_BYTES:
        raise LimitExceeded(
            f"The complete record would have {len(data)} bytes, more than {RECORD_MAX_BYTES}.",
            field="summary",
            reason="record_too_large",
            allowed=f"at most {RECORD_MAX_BYTES} UTF-8 bytes with its frontmatter",
        )
    receipt = fixed_receipt(
        context, RECALL_OPERATION, at_ms=updated, id=entry.id, revision=revision, hash=content_hash(data),
        path=entry.path,
    )  # fmt: skip
    change = FileChange(entry.path, entry.hash, data, entry.id, revision, entry.lifecycle)
    return publish(context, request, RECALL_OPERATION, (change,), receipt)


def approved_recall(context: OperationContext, entry: Entry) -> Recall | None:
    """The approval of a record when it counts: its block is the one approved last, and still one that may be approved.

    A block of an id that several files bear counts for none of them. Whether the record is current is the caller's to
    judge (:meth:`Entry.current`).
    """
    if context.partition != PRIVATE or context.catalogue.one(entry.id) is None:
        return None
    record = context.session.load(entry)
    if record.recall is None or not _approvable(record):
        return None
    counts = approval_counts(
        context.session.store.publisher.db,
        context.partition,
        entry.id,
        entry.hash,
        lambda: context.session.source(entry),
    )
    return record.recall if counts else None


def recall_findings(context: OperationContext, entry: Entry, record: Record) -> list[Finding]:
    """The diagnostic of a block that is ignored; a block that cannot be read has one of its own."""
    if record.recall is None or approved_recall(context, entry) is not None:
        return []
    message = "`recall` is not the approval that history has for this record; it is ignored until it is approved again."
    return [Finding("recall_not_approved", RECALL_KEY, message, "note")]


def _approvable(record: Record) -> bool:
    return record.kind == "page" or record.assertion_origin == "user_belief"


def _require_approvable(record: Record) -> None:
    if _approvable(record):
        return
    raise InvalidArgument(
        f"A {record.kind} of origin {record.assertion_origin or 'unknown'} is not the owner's own word and cannot be "
        "approved for recall; approve a page or a user_belief.",
        field="id",
        reason="origin_not_approvable",
        allowed="a page, or a statement of origin user_belief",
    )
