"""``knowledge_lookup``: exact identity by id, full title or alias (tools.md, Search and lookup)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from actors.store.operations.context import OperationContext
from actors.store.operations.filters import passes
from actors.store.operations.rows import AGENT, Listed, Shape, coverage_of, current_snapshot
from messages.json_types import JsonObject
from messages.tools import LookupRequest, lookup_response
from storage.state.catalogue_reader import CatalogueReader, Entry


def lookup(context: OperationContext, request: LookupRequest, shape: Shape = AGENT) -> JsonObject:
    """Every record that has exactly this id, title or alias and passes the filters.

    A merged page stands for the page it was merged into. Ids are case-sensitive and borne by one record; names are
    compared by lookup's normalisation.
    """
    found = resolve_name(context.catalogue, request.query, lambda entry: passes(context, entry, request))
    window = found[request.offset : request.offset + request.limit]
    listed = Listed.of(context, shape, window)
    rows = [listed.row(entry, titled=True) for entry in window]
    return lookup_response(
        rows,
        total=len(found),
        offset=request.offset,
        snapshot=current_snapshot(context, None),
        coverage=coverage_of(context),
        max_bytes=shape.max_bytes,
    )


def resolve_name(catalogue: CatalogueReader, query: str, wanted: Callable[[Entry], bool]) -> list[Entry]:
    """The wanted records that ``query`` identifies, an id before names, merge redirects followed, each once.

    An id that is borne by a record that is not wanted, or by several files, hides no record of that name: whoever
    hears that it is missing may create it again.
    """
    bearers = catalogue.by_id(query.strip())
    # An id that several files bear identifies none of them.
    by_id = _ends(catalogue, bearers, wanted) if len(bearers) == 1 else []
    return by_id or _ends(catalogue, catalogue.by_name(query), wanted)


def _ends(catalogue: CatalogueReader, entries: Iterable[Entry], wanted: Callable[[Entry], bool]) -> list[Entry]:
    found: dict[int, Entry] = {}
    for entry in entries:
        target = catalogue.follow_merges(entry)
        if target is not None and wanted(target):
            found.setdefault(target.row, target)
    return list(found.values())
