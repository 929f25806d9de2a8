"""``memory.search``: the host's shared search over current records (memory-provider.md, Shared memory reads).

A host asks with free text, a whole message perhaps, so any of its content words may match: if every word had to, a
question would find nothing. What ranks is BM25 alone, so that scores fall from hit to hit and ``minScore`` cuts off the
end of the list.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from actors.store.needs import NeedIndex
from actors.store.operations.context import OperationContext, Outcome
from actors.store.operations.unindexed import Unindexed
from messages.errors import IndexUnavailable, InvalidArgument, SnapshotChanged
from messages.provider import MemorySearchRequest
from messages.provider.cursors import SearchCursor, broken_cursor, digest, foreign_cursor, read_cursor
from messages.provider.reads import MemoryHit, fitting_hits, search_response
from messages.provider.references import reference
from messages.vocabulary import ATTRIBUTION_MAX_CHARS, TITLE_MAX_CHARS
from storage.records import utf16
from storage.search import ParsedQuery, SearchFilters, SearchQuery, excerpt, keywords, parse_query
from storage.state.catalogue import catalogue_identity
from storage.state.catalogue_reader import Entry

UNRANKED = 0.0
"""The score of a record that was written after the index had caught up: it stands behind what is ranked."""


def memory_search(context: OperationContext, request: MemorySearchRequest) -> Outcome:
    """The best current records for free text, best first, from where a cursor says.

    Raises ``IndexUnavailable`` where a search could not be made: never an empty answer then. A cursor of another store
    raises ``ReferenceForeign``, one of an earlier snapshot ``SnapshotChanged``, any other that is not this search's
    ``InvalidArgument`` with a ``reason``.
    """
    prepared = context.prepared
    if prepared.index_problem is not None:
        raise IndexUnavailable(f"The search could not be made: {prepared.index_problem}.", reason="not_ready")
    if prepared.index_change is None:
        return NeedIndex(context.catalogue.change)
    try:
        late = Unindexed.after(context, context.open_index().position())
        if late is None:
            return NeedIndex(context.catalogue.change)
        search = _Search(context, request, late)
        began = _began(context, request, search.snapshot)
        return search.page(began)
    except IndexUnavailable as error:
        context.index_failed(error)
        raise


@dataclass(frozen=True, slots=True)
class _Began:
    """Where a search goes on, and the score of its best hit; ``None`` before its first page."""

    offset: int = 0
    best: float | None = None


class _Search:
    def __init__(self, context: OperationContext, request: MemorySearchRequest, late: Unindexed) -> None:
        self._context = context
        self._request = request
        self._late = late
        self._parsed = parse_query(keywords(request.query), "any")
        self.snapshot = late.name(context.catalogue.snapshot(context.now_ms))

    def page(self, began: _Began) -> Outcome:
        context, request = self._context, self._request
        # One more than is wanted tells whether there is another page.
        query = SearchQuery(
            keywords(request.query),
            "any",
            SearchFilters(eligible_at=context.now_ms, kind=request.kind),
            request.limit + 1,
            began.offset,
            by_score=True,
        )
        assert context.prepared.index_change is not None
        page = context.open_index().search(query, at_least=context.prepared.index_change, without=self._late.rows)
        entries = {entry.row: entry for entry in context.catalogue.of_rows(hit.rowid for hit in page.hits)}
        best = began.best or max((hit.score for hit in page.hits), default=1.0)
        scored = [(entries[hit.rowid], hit.score / best) for hit in page.hits if hit.rowid in entries]
        found = [(entry, score) for entry, score in scored if score >= request.min_score]
        if began.offset + len(scored) >= page.total and request.min_score <= UNRANKED:
            start = max(0, began.offset - page.total)
            found += [(entry, UNRANKED) for entry in self._behind()[start : start + request.limit + 1 - len(found)]]
        hits = fitting_hits(self._hits(found[: request.limit]))
        more = len(found) > len(hits)
        following = _cursor(context, request, self.snapshot, _Began(began.offset + len(hits), best)) if more else None
        return search_response(hits, following)

    def _behind(self) -> list[Entry]:
        kind, now = self._request.kind, self._context.now_ms
        wanted = self._late.matching(
            self._parsed, lambda entry: entry.current(now) and (kind is None or entry.kind == kind)
        )
        return list(wanted)

    def _hits(self, found: list[tuple[Entry, float]]) -> Iterator[MemoryHit]:
        for entry, score in found:
            yield _hit(self._context, entry, score, self._parsed)


def _hit(context: OperationContext, entry: Entry, score: float, parsed: ParsedQuery) -> MemoryHit:
    record = context.session.load(entry)
    attribution = record.attribution
    return MemoryHit(
        ref=reference(context.session.store.vault_id, entry.id, entry.revision, entry.hash),
        title=utf16.clip(entry.title, TITLE_MAX_CHARS),
        kind=entry.kind,
        score=min(score, 1.0),
        snippet=excerpt(record.body, parsed),
        assertion_origin=None if entry.kind == "page" else record.assertion_origin or "source",
        attribution=None if attribution is None else utf16.clip(attribution, ATTRIBUTION_MAX_CHARS),
    )


def _cursor(context: OperationContext, request: MemorySearchRequest, snapshot: str, at: _Began) -> str:
    assert at.best is not None
    return SearchCursor(
        store=context.session.store.vault_id,
        scope=_scope(context),
        query=digest(request.query),
        filters=digest(request.filters()),
        origin=context.catalogue.origin,
        snapshot=snapshot,
        offset=at.offset,
        best=at.best,
    ).write(_secret(context))


def _began(context: OperationContext, request: MemorySearchRequest, snapshot: str) -> _Began:
    """Where the request's cursor says that the search goes on."""
    if request.cursor is None:
        return _Began()
    read = read_cursor(request.cursor)
    cursor = read.said
    if cursor.store != context.session.store.vault_id:
        raise foreign_cursor()
    if cursor.scope != _scope(context):
        raise _another("scope", "what this audience may read and save is not what it was")
    if cursor.origin != context.catalogue.origin:
        # The catalogue was built anew, and what it sealed is not known any more.
        raise _snapshot_changed()
    if not read.is_sealed(_secret(context)):
        raise broken_cursor()
    if cursor.query != digest(request.query):
        raise _another("query", "it belongs to another query")
    if cursor.filters != digest(request.filters()):
        raise _another("filters", "it belongs to a search with other filters (minScore, kind)")
    if cursor.snapshot != snapshot:
        raise _snapshot_changed()
    return _Began(cursor.offset, cursor.best)


def _another(what: str, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"The cursor does not go on with this search: {why}. Search again without it.",
        field="cursor",
        reason=f"other_{what}",
        allowed="the nextCursor of an earlier page of this search",
    )


def _snapshot_changed() -> SnapshotChanged:
    return SnapshotChanged("Records changed since the search began; search again without the cursor.", field="cursor")


def _scope(context: OperationContext) -> str:
    rights = "read-save" if context.writes_enabled else "read"
    return digest(f"{context.partition.key} {rights}")


def _secret(context: OperationContext) -> bytes:
    return hashlib.sha256(f"cursor {catalogue_identity(context.catalogue.database)}".encode()).digest()
