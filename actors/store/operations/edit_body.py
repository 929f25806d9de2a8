"""``knowledge_edit_body``: one exact range of a page's body (tools.md, Pages and body edits)."""

from __future__ import annotations

from actors.store.operations.context import OperationContext, Outcome, check_fences, earlier_receipt
from actors.store.operations.drafts import Drafts
from actors.store.operations.fences import fenced_target
from messages.errors import InvalidArgument
from messages.tools import EditBodyRequest
from storage.records import utf16


def edit_body(context: OperationContext, request: EditBodyRequest) -> Outcome:
    """Replace ``[start, end)`` of the body, in UTF-16 units, as a complete new revision.

    Nothing is matched or moved: an offset that does not fit this very body is refused.
    """
    earlier = earlier_receipt(context, request, "edit_body")
    if earlier is not None:
        return earlier
    check_fences(context, request)
    entry = fenced_target(context, request.id, request.expected_revision, request.expected_hash, kind="page")
    before = context.session.load(entry)
    offsets = utf16.Offsets(before.body)
    start, end = _point(offsets, request.start, "start"), _point(offsets, request.end, "end")
    body = before.body[:start] + request.replacement + before.body[end:]
    drafts = Drafts(context)
    return drafts.publish(request, main=drafts.revise(entry, before, body), reason=request.reason)


def _point(offsets: utf16.Offsets, unit: int, field: str) -> int:
    try:
        return offsets.to_points(unit)
    except utf16.OffsetInsidePair:
        raise InvalidArgument(
            f"{field} lies inside a surrogate pair.", field=field, reason="inside_pair", allowed="a character border"
        ) from None
    except IndexError:
        raise InvalidArgument(
            f"{field} lies beyond the end of the body.",
            field=field,
            reason="out_of_range",
            allowed=f"0 to {offsets.units}",
        ) from None
