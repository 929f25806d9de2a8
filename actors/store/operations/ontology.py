"""``knowledge_ontology``: the effective vocabulary of the caller's partition in four views (tools.md, Ontology)."""

from __future__ import annotations

from actors.store.operations.context import OperationContext
from messages.json_types import JsonObject
from messages.tools import OntologyRequest
from messages.vocabulary import TITLE_MAX_CHARS
from storage.ontology import views
from storage.records import utf16

EXAMPLES_MAX = 20


def ontology(context: OperationContext, request: OntologyRequest) -> JsonObject:
    """One page of one view. An extension with any error is not in force, and ``diagnostics`` says why."""
    activation = context.session.activation
    match request.view:
        case "catalog":
            return views.catalog(
                activation, name=request.name, kind=request.kind, limit=request.page_size, offset=request.offset
            )
        case "definitions":
            return views.definitions(
                activation,
                name=request.name,
                kind=request.kind,
                limit=request.page_size,
                offset=request.offset,
                examples=_examples(context) if request.include_records else None,
            )
        case "sources":
            if request.source_path is not None:
                return views.source_text(
                    activation, request.source_path, offset=request.offset, max_chars=request.max_chars
                )
            return views.sources(activation, limit=request.page_size, offset=request.offset)
        case "diagnostics":
            return views.diagnostics(activation, limit=request.page_size, offset=request.offset)


def _examples(context: OperationContext) -> views.Examples:
    def examples(kind: str, name: str) -> tuple[list[JsonObject], bool]:
        found = context.catalogue.current_of_type(
            "page" if kind == "page" else "relationship", name, context.now_ms, EXAMPLES_MAX + 1
        )
        rows: list[JsonObject] = [
            {"id": entry.id, "title": utf16.clip(entry.title, TITLE_MAX_CHARS)} for entry in found[:EXAMPLES_MAX]
        ]
        return rows, len(found) > EXAMPLES_MAX

    return examples
