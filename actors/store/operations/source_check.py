"""``knowledge_source_check``: a manifest of sources compared with the source pages (tools.md, Ingestion and dates).

Only pages whose key is asked for are read; the rest is answered from the catalogue. A page that the ontology finds
fault with still keeps its source: a second one beside it would be worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from actors.store.operations.context import OperationContext, Outcome
from actors.store.operations.rows import current_snapshot
from messages.json_types import JsonObject, JsonValue
from messages.tools import SourceArgument, SourceCheckRequest, SourceRow, source_check_response
from messages.tools.source_check import SOURCE_KEY_MAX_CHARS
from storage.records import parse_instant, utf16
from storage.state.catalogue import SOURCE_KEY_ROLE
from storage.state.catalogue_reader import Entry

SOURCE_TYPE: Final = "source"
OTHER_PAGES_SHOWN_MAX: Final = 5


def source_check(context: OperationContext, request: SourceCheckRequest) -> Outcome:
    """The state of each source in the order of the request, then with ``complete`` the keys that are gone.

    A hash on both sides decides alone; else size and time of change do, as far as both sides have them. A source that
    cannot be compared at all counts as changed: it has to be read again.
    """
    snapshot = current_snapshot(context, request.snapshot)
    types = context.session.ontology.types_within(SOURCE_TYPE)
    rows = [_compared(context, source, types) for source in request.sources]
    if request.complete:
        seen = {source.key for source in request.sources}
        rows += _gone(context, types, seen)
    coverage: JsonObject = dict(context.session.uncovered())
    return source_check_response(rows, offset=request.offset, snapshot=snapshot, coverage=coverage or None)


def _compared(context: OperationContext, source: SourceArgument, types: frozenset[str]) -> SourceRow:
    context.check()
    pages = [
        entry
        for entry in context.catalogue.naming(source.key, (SOURCE_KEY_ROLE,))
        if entry.kind == "page" and entry.type in types and entry.lifecycle == "active" and not entry.fixture
    ]
    if not pages:
        return SourceRow(key=source.key, state="new")
    page, *others = sorted(pages, key=lambda entry: (-entry.updated_at, entry.id))
    differs = _differences(source, context.session.load(page).fields)
    return SourceRow(
        key=source.key,
        state="unchanged" if differs == [] else "changed",
        id=page.id,
        revision=page.revision,
        hash=page.hash,
        differs=differs or (),
        also=_ids(others),
    )


def _differences(source: SourceArgument, fields: Mapping[str, JsonValue]) -> list[str] | None:
    """The members that differ; ``None`` where neither a hash nor anything else can be compared."""
    kept = fields.get("sha256")
    if source.sha256 is not None and isinstance(kept, str) and kept:
        return [] if kept.lower() == source.sha256 else ["sha256"]
    same: dict[str, bool] = {}
    size = fields.get("size")
    if source.size is not None and type(size) is int:
        same["size"] = size == source.size
    modified = fields.get("modified")
    known = parse_instant(modified) if isinstance(modified, str) else None
    if source.modified is not None and known is not None:
        same["modified"] = known == parse_instant(source.modified)
    return [name for name, equal in same.items() if not equal] if same else None


def _gone(context: OperationContext, types: frozenset[str], seen: set[str]) -> list[SourceRow]:
    pages: dict[str, list[Entry]] = {}
    for key, entry in context.catalogue.keyed(types, SOURCE_KEY_ROLE):
        if key not in seen:
            pages.setdefault(key, []).append(entry)
    return [
        SourceRow(
            key=utf16.clip(key, SOURCE_KEY_MAX_CHARS),
            state="gone",
            id=page.id,
            revision=page.revision,
            hash=page.hash,
            also=_ids(others),
        )
        for key, (page, *others) in sorted(pages.items())
    ]


def _ids(entries: Sequence[Entry]) -> Sequence[str]:
    return [entry.id for entry in entries[:OTHER_PAGES_SHOWN_MAX]]
