"""Whom a read means: the record of an id or the page of a name, merge redirects followed (tools.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from actors.store.operations.context import OperationContext
from actors.store.operations.lookup import resolve_name
from messages.errors import Ambiguous, NotFound
from storage.state.catalogue_reader import Entry

SHOWN_MAX: Final = 10


def record_of_id(context: OperationContext, record_id: str) -> Entry:
    """The one record of an id, for a page that was merged the one it was merged into.

    A redirect that leads nowhere stands for itself. Raises ``NotFound``, or ``Ambiguous`` where several files bear it.
    """
    found = context.catalogue.by_id(record_id)
    if not found:
        raise NotFound("No record with this id is in this partition; look it up again.", field="id", id=record_id)
    if len(found) > 1:
        raise Ambiguous(
            "Several files carry this id, so it names no one record; a person must give one another id.",
            field="id",
            id=record_id,
            paths=[entry.path for entry in found[:SHOWN_MAX]],
        )
    return context.catalogue.follow_merges(found[0]) or found[0]


def page_of_name(context: OperationContext, name: str, field: str) -> Entry:
    """The one page of an id, full title or alias; a current page before one that is none.

    Raises ``NotFound``, or ``Ambiguous`` with the ids to choose from: the first is never taken for the right one.
    """
    pages = resolve_name(context.catalogue, name, lambda entry: entry.kind == "page")
    pages = [page for page in pages if page.current(context.now_ms)] or pages
    if not pages:
        raise NotFound(
            f"{field} names no page of this partition; look it up with knowledge_lookup and send its id.", field=field
        )
    if len(pages) > 1:
        raise Ambiguous(
            f"{field} names several pages; compare them and send the id of one.",
            field=field,
            ids=[page.id for page in pages[:SHOWN_MAX]],
        )
    return pages[0]


def ids_of(context: OperationContext, entry: Entry) -> Sequence[str]:
    """The id of a record and the ids of the pages whose redirects lead to it, at most a hundred of them."""
    if entry.kind != "page":
        return (entry.id,)
    return (entry.id, *(merged for merged in context.catalogue.merged_away(entry.id) if _leads(context, merged, entry)))


def _leads(context: OperationContext, merged: str, entry: Entry) -> bool:
    bearer = context.catalogue.one(merged)
    end = None if bearer is None else context.catalogue.follow_merges(bearer)
    return end is not None and end.row == entry.row
