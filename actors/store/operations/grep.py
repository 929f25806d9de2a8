"""``knowledge_grep``: ranked keywords over titles, aliases and bodies (tools.md, Search and lookup)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final, assert_never

from actors.store.needs import NeedIndex
from actors.store.operations.context import OperationContext, Outcome
from actors.store.operations.filters import passes, types_of
from actors.store.operations.rows import AGENT, Listed, Shape, coverage_of, same_snapshot
from actors.store.operations.unindexed import Unindexed
from messages.errors import IndexUnavailable
from messages.tools import GrepRequest, SearchHit, grep_response, grep_unavailable
from storage.records import bound_ms
from storage.search import ParsedQuery, SearchFilters, SearchQuery, TimeField, excerpt, parse_query
from storage.state.catalogue_reader import Entry

REPLACED_MAX: Final = 550
"""Superseded matches whose replacements are looked for, best first: as many rows as offsets and limits reach."""


def grep(context: OperationContext, request: GrepRequest, shape: Shape = AGENT) -> Outcome:
    """The best hits of a fresh index. A failed or late index is an error in the answer, never zero matches.

    An active search also returns the current replacement of a matching superseded record, after the direct hits.
    Records written since the index caught up are judged by what they say now, and follow behind the hits it ranks.
    """
    prepared = context.prepared
    if prepared.index_problem is not None:
        return grep_unavailable(prepared.index_problem)
    if prepared.index_change is None:
        return NeedIndex(context.catalogue.change)
    try:
        index = context.open_index()
        late = Unindexed.after(context, index.position())
        if late is None:
            return NeedIndex(context.catalogue.change)
        snapshot = same_snapshot(late.name(context.catalogue.snapshot(context.now_ms)), request.snapshot)
        parsed = parse_query(request.query, request.mode)
        query = SearchQuery(request.query, request.mode, _filters(context, request), request.limit, request.offset)
        page = index.search(query, at_least=prepared.index_change, without=late.rows)
        found = list(context.catalogue.of_rows(hit.rowid for hit in page.hits))
        behind = late.matching(parsed, lambda entry: _passes(context, request, entry))
        total = page.total + len(behind)
        if request.offset + len(found) >= page.total:
            start = max(0, request.offset - page.total)
            found += behind[start : start + request.limit - len(found)]
        hits = _hits(context, found, parsed, shape)
        replaced: list[tuple[Entry, Entry]] = []
        if request.lifecycle == "active" and request.offset + len(hits) >= total:
            # Offsets run on from the direct hits into the replacements, so that a full last page hides none.
            replaced = _replacements(context, request, parsed, late)
            start = max(0, request.offset - total)
            shown = replaced[start : start + request.limit - len(hits)]
            hits += _hits(context, [new for _, new in shown], parsed, shape, via=[old.id for old, _ in shown])
    except IndexUnavailable as error:
        context.index_failed(error)
        return grep_unavailable(error.message)
    return grep_response(
        hits,
        total=total,
        replacements=len(replaced),
        offset=request.offset,
        snapshot=snapshot,
        coverage=coverage_of(context),
        max_bytes=shape.max_bytes,
    )


def _hits(
    context: OperationContext, found: Sequence[Entry], parsed: ParsedQuery, shape: Shape, via: Sequence[str] = ()
) -> list[SearchHit]:
    listed = Listed.of(context, shape, found, texts=True)
    return [
        SearchHit(row=listed.row(entry, titled=True), snippet=excerpt(listed.record(entry).body, parsed), via=old)
        for entry, old in zip_longest(found, via)
    ]


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


def _replacements(
    context: OperationContext, request: GrepRequest, parsed: ParsedQuery, late: Unindexed
) -> list[tuple[Entry, Entry]]:
    """(earlier record, its current replacement), each replacement once, none that is a direct hit itself."""
    filters = SearchFilters(lifecycle="superseded", eligible_at=context.now_ms, kind=request.kind)
    earlier = SearchQuery(request.query, request.mode, filters, limit=REPLACED_MAX)
    index = context.open_index()
    catalogue = context.catalogue
    found = list(catalogue.of_rows(hit.rowid for hit in index.search(earlier, at_least=0, without=late.rows).hits))
    found += late.matching(parsed, lambda entry: _superseded(request, entry))
    replaced: dict[str, tuple[Entry, Entry]] = {}
    for old in found[:REPLACED_MAX]:
        new = catalogue.follow_supersession(old)
        if new is not None and new.current(context.now_ms) and _passes(context, request, new):
            replaced.setdefault(new.id, (old, new))
    # A replacement that is a direct hit stands among those, on this page or another.
    known = {new.row for _, new in replaced.values() if new.row not in late.rows}
    direct = index.matching(SearchQuery(request.query, request.mode), known)
    direct |= {entry.row for entry in late.matching(parsed, lambda entry: _passes(context, request, entry))}
    return [pair for pair in replaced.values() if pair[1].row not in direct]


def _superseded(request: GrepRequest, entry: Entry) -> bool:
    """Whether a record's wording leads to its replacement."""
    eligible = entry.lifecycle == "superseded" and entry.valid and not entry.fixture
    return eligible and (request.kind is None or entry.kind == request.kind)


def _passes(context: OperationContext, request: GrepRequest, entry: Entry) -> bool:
    """Whether a record passes the request's own filters, dates included."""
    return passes(context, entry, request) and _in_interval(entry, request)


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
