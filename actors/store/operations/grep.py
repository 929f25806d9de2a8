"""``knowledge_grep``: ranked keywords over titles, aliases and bodies (tools.md, Search and lookup)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, assert_never

from actors.store.needs import NeedIndex
from actors.store.operations.context import OperationContext, Outcome
from actors.store.operations.filters import types_of
from actors.store.operations.rows import AGENT, Shape, coverage_of
from messages.errors import IndexUnavailable, SnapshotChanged
from messages.tools import GrepRequest, SearchHit, grep_response, grep_unavailable
from storage.records import bound_ms
from storage.search import ParsedQuery, SearchFilters, SearchQuery, TimeField, excerpt, parse_query
from storage.state.catalogue_reader import Entry

REPLACED_MAX: Final = 50
"""Superseded matches whose replacements are looked for, best first."""


def grep(context: OperationContext, request: GrepRequest, shape: Shape = AGENT) -> Outcome:
    """The best hits of a fresh index. A failed or late index is an error in the answer, never zero matches.

    An active search also returns the current replacement of a matching superseded record, after the direct hits.
    """
    prepared = context.prepared
    if prepared.index_problem is not None:
        return grep_unavailable(prepared.index_problem)
    if prepared.index_change is None:
        return NeedIndex(context.catalogue.change)
    query = SearchQuery(
        text=request.query, mode=request.mode, filters=_filters(context, request), limit=request.limit,
        offset=request.offset,
    )  # fmt: skip
    try:
        index = context.open_index()
        page = index.search(query, at_least=prepared.index_change)
        snapshot = f"{context.partition.kind}-{page.position}"
        if request.snapshot is not None and request.snapshot != snapshot:
            raise SnapshotChanged(
                "Records changed since the first page; search again from offset 0.", snapshot=snapshot
            )
        parsed = parse_query(request.query, request.mode)
        hits: list[SearchHit] = []
        for found in page.hits:
            entry = context.catalogue.by_row(found.rowid)
            if entry is not None:
                record = context.session.load(entry)
                row = shape.row(context, entry, record, titled=True)
                hits.append(SearchHit(row=row, snippet=excerpt(record.body, parsed)))
        replaced: list[tuple[Entry, Entry]] = []
        if request.lifecycle == "active" and request.offset + len(page.hits) >= page.total:
            # Offsets run on from the direct hits into the replacements, so that a full last page hides none.
            replaced = _replacements(context, request)
            start = max(0, request.offset - page.total)
            hits += _replacement_hits(context, replaced[start : start + request.limit - len(hits)], parsed, shape)
    except IndexUnavailable as error:
        context.index_failed(error)
        return grep_unavailable(error.message)
    return grep_response(
        hits,
        total=page.total,
        replacements=len(replaced),
        offset=request.offset,
        snapshot=snapshot,
        coverage=coverage_of(context),
        max_bytes=shape.max_bytes,
    )


def _filters(context: OperationContext, request: GrepRequest) -> SearchFilters:
    return SearchFilters(
        lifecycle=request.lifecycle,
        eligible_at=context.now_ms,
        kind=request.kind,
        types=types_of(context, request.type),
        tag=request.tag,
        time_field=request.time_field,
        since=None if request.since is None else bound_ms(request.since),
        until=None if request.until is None else bound_ms(request.until),
    )


def _replacements(context: OperationContext, request: GrepRequest) -> list[tuple[Entry, Entry]]:
    """(earlier record, its current replacement), each replacement once, none that is a direct hit itself."""
    earlier = SearchQuery(
        text=request.query,
        mode=request.mode,
        filters=SearchFilters(lifecycle="superseded", eligible_at=context.now_ms, kind=request.kind),
        limit=REPLACED_MAX,
    )
    index = context.open_index()
    replaced: dict[str, tuple[Entry, Entry]] = {}
    for hit in index.search(earlier, at_least=0).hits:
        old = context.catalogue.by_row(hit.rowid)
        new = None if old is None else context.catalogue.follow_supersession(old)
        if old is not None and new is not None and _eligible(context, request, new):
            replaced.setdefault(new.id, (old, new))
    # A replacement that is a direct hit stands among those, on this page or another.
    direct = index.matching(SearchQuery(request.query, request.mode), {new.row for _, new in replaced.values()})
    return [pair for pair in replaced.values() if pair[1].row not in direct]


def _replacement_hits(
    context: OperationContext, replaced: Sequence[tuple[Entry, Entry]], parsed: ParsedQuery, shape: Shape
) -> Iterator[SearchHit]:
    for old, new in replaced:
        record = context.session.load(new)
        row = shape.row(context, new, record, titled=True)
        yield SearchHit(row=row, snippet=excerpt(record.body, parsed), via=old.id)


def _eligible(context: OperationContext, request: GrepRequest, entry: Entry) -> bool:
    """Whether a replacement is current and passes the request's own filters, dates included."""
    if not entry.current(context.now_ms):
        return False
    types = types_of(context, request.type)
    return (
        (types is None or entry.type in types)
        and (request.tag is None or context.catalogue.tagged(entry.row, request.tag))
        and _in_interval(entry, request)
    )


def _in_interval(entry: Entry, request: GrepRequest) -> bool:
    since = None if request.since is None else bound_ms(request.since)
    until = None if request.until is None else bound_ms(request.until)
    if since is None and until is None:
        return True
    start, end = _interval_of(entry, request.time_field)
    return start is not None and end is not None and (until is None or start < until) and (since is None or end > since)


def _interval_of(entry: Entry, time_field: TimeField | None) -> tuple[int | None, int | None]:
    recorded = entry.recorded_at, entry.recorded_at + 1
    match time_field:
        case "due":
            return entry.due_from, entry.due_until
        case "recorded":
            return recorded
        case "updated":
            return entry.updated_at, entry.updated_at + 1
        case "occurred":
            return entry.occurred_from, entry.occurred_until
        case None:
            return recorded if entry.occurred_from is None else (entry.occurred_from, entry.occurred_until)
        case _:
            assert_never(time_field)
