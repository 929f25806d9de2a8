"""``knowledge_save_page``: create a page, or edit one behind its fences (tools.md, Pages and body edits)."""

from __future__ import annotations

from actors.store.needs import NeedEvidence
from actors.store.operations.context import OperationContext, Outcome, check_fences, earlier_receipt
from actors.store.operations.drafts import Draft, Drafts
from actors.store.operations.evidence import attached, unverified
from actors.store.operations.page_drafts import draft_page
from messages.tools import SavePageRequest


def save_page(context: OperationContext, request: SavePageRequest) -> Outcome:
    """Create or edit; a create never overwrites and never quietly doubles a page."""
    earlier = earlier_receipt(context, request, "save_page")
    if earlier is not None:
        return earlier
    check_fences(context, request)
    evidence = attached(context, request.attachments or ())
    missing = unverified(context, evidence)
    if missing:
        return NeedEvidence(missing)
    drafts = Drafts(context)
    drafted = draft_page(context, drafts, request, evidence, record_id=context.new_id())
    return drafts.publish(request, main=drafted) if isinstance(drafted, Draft) else drafted
