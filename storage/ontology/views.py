"""The four views of ``knowledge_ontology`` as plain functions of an activation: JSON objects out.

Lists are paged by ``limit`` and ``offset``; ``nextOffset`` is there only while more remains. Every view carries the
effective fingerprint, so that a reader who pages can tell whether the vocabulary changed in between.

Source: tools.md (Ontology).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias, TypeVar

from messages.errors import InvalidArgument
from messages.json_types import JsonObject, JsonValue
from storage.ontology._field_types import field_json
from storage.ontology.activation import Activation
from storage.ontology.model import Ontology, PageType, RelationshipType
from storage.records import utf16

Kind: TypeAlias = Literal["page", "relationship"]
Definition: TypeAlias = PageType | RelationshipType

Examples: TypeAlias = Callable[[Kind, str], tuple[Sequence[JsonObject], bool]]
"""Up to :data:`EXAMPLES_MAX` list rows of records of a type or label, and whether there are more."""

EXAMPLES_MAX: Final = 20

T = TypeVar("T")


def catalog(
    activation: Activation, *, name: str | None = None, kind: Kind | None = None, limit: int = 50, offset: int = 0
) -> JsonObject:
    """Names, kinds and descriptions, in the order in which the vocabulary declares them."""
    ontology = activation.ontology
    chosen = _chosen(ontology, name, kind)
    return _paged(ontology, "types", chosen, _head, limit, offset)


def definitions(
    activation: Activation,
    *,
    name: str | None = None,
    kind: Kind | None = None,
    limit: int = 10,
    offset: int = 0,
    examples: Examples | None = None,
) -> JsonObject:
    """Everything that a write of a type needs: fields with their values, filing, endpoints, and where it comes from.

    With ``examples`` each definition also has ``records`` and ``recordsTruncated``.
    """
    ontology = activation.ontology

    def shown(found: Definition) -> JsonObject:
        definition = _page(found) if isinstance(found, PageType) else _relationship(found)
        if examples is not None:
            records, more = examples(_kind(found), found.name)
            definition["records"] = list(records[:EXAMPLES_MAX])
            definition["recordsTruncated"] = more or len(records) > EXAMPLES_MAX
        return definition

    return _paged(ontology, "definitions", _chosen(ontology, name, kind), shown, limit, offset)


def sources(activation: Activation, *, limit: int = 50, offset: int = 0) -> JsonObject:
    """The ontology files of the partition: path, whether it is in force, size in bytes."""
    return _paged(
        activation.ontology,
        "sources",
        activation.sources,
        lambda source: {"path": source.path, "valid": source.valid, "size": source.size},
        limit,
        offset,
    )


def source_text(activation: Activation, source_path: str, *, offset: int = 0, max_chars: int = 12_000) -> JsonObject:
    """A window of one file's text; offsets and sizes in UTF-16 units, surrogate pairs kept whole.

    Raises :class:`InvalidArgument` for a path that is not listed and for an offset outside the text or inside a pair.
    """
    for source in activation.sources:
        if source.path == source_path:
            break
    else:
        listed = [source.path for source in activation.sources]
        message = f"sourcePath must be one of: {', '.join(listed)}."
        raise InvalidArgument(message, field="sourcePath", reason="unknown", allowed=listed)
    try:
        text, following = utf16.window(source.text, offset, max_chars)
    except utf16.OffsetInsidePair:
        message = "offset is inside a surrogate pair; use the nextOffset that was returned."
        raise InvalidArgument(message, field="offset", reason="inside_pair") from None
    except IndexError:
        length = utf16.length(source.text)
        message = f"offset is beyond the end of the text; it has {length} characters."
        raise InvalidArgument(message, field="offset", reason="out_of_range", allowed=f"0 to {length}") from None
    answer: JsonObject = {
        "fingerprint": activation.ontology.fingerprint,
        "path": source.path,
        "valid": source.valid,
        "size": source.size,
    }
    if following is not None:
        answer["nextOffset"] = following
    answer["text"] = text
    return answer


def diagnostics(activation: Activation, *, limit: int = 50, offset: int = 0) -> JsonObject:
    """Why an extension is not in force: each issue with its line and inheritance chain.

    ``active`` says whether every file is in force; without that ``core`` alone is.
    """
    answer = _paged(activation.ontology, "issues", activation.issues, lambda issue: issue.to_json(), limit, offset)
    return {"active": all(source.valid for source in activation.sources), **answer}


def _chosen(ontology: Ontology, name: str | None, kind: Kind | None) -> list[Definition]:
    """The definitions with this name or alias and kind; a name that nothing has is refused with what there is."""
    pages: list[Definition] = list(ontology.pages.values())
    relationships: list[Definition] = list(ontology.relationships.values())
    if name is not None:
        page, relationship = ontology.page_type(name), ontology.relationship_type(name)
        pages = [] if page is None else [page]
        relationships = [] if relationship is None else [relationship]
    chosen = (pages if kind != "relationship" else []) + (relationships if kind != "page" else [])
    if name is not None and not chosen:
        known = [found.name for found in _chosen(ontology, None, kind)]
        raise InvalidArgument("name is no type, label or alias.", field="name", reason="unknown", allowed=known)
    return chosen


def _paged(
    ontology: Ontology,
    key: str,
    rows: Sequence[T],
    show: Callable[[T], JsonObject],
    limit: int,
    offset: int,
) -> JsonObject:
    shown: list[JsonValue] = [show(row) for row in rows[offset : offset + limit]]
    answer: JsonObject = {"fingerprint": ontology.fingerprint, "total": len(rows)}
    if offset + len(shown) < len(rows) and shown:
        answer["nextOffset"] = offset + len(shown)
    answer[key] = shown
    return answer


def _kind(found: Definition) -> Kind:
    return "page" if isinstance(found, PageType) else "relationship"


def _head(found: Definition) -> JsonObject:
    head: JsonObject = {"kind": _kind(found), "name": found.name, "description": found.description}
    if isinstance(found, PageType):
        if found.abstract:
            head["abstract"] = True
        if found.parent is not None:
            head["parent"] = found.parent
    return head


def _page(page: PageType) -> JsonObject:
    shown = _head(page)
    if page.chain[1:]:
        shown["chain"] = list(page.chain)
    if page.aliases:
        shown["aliases"] = list(page.aliases)
    if page.folder:
        shown["folder"] = page.folder
    if page.prefixes:
        shown["prefixes"] = list(page.prefixes)
    fields: JsonObject = {}
    for name, declared in page.fields.items():
        owner = page.field_owners[name]
        fields[name] = field_json(declared) if owner == page.name else {**field_json(declared), "inheritedFrom": owner}
    shown["fields"] = fields
    shown["sources"] = list(page.sources)
    return shown


def _relationship(relationship: RelationshipType) -> JsonObject:
    shown = _head(relationship)
    if relationship.aliases:
        shown["aliases"] = list(relationship.aliases)
    # An empty list means any page: left out rather than shown as "none".
    if relationship.from_types:
        shown["from"] = list(relationship.from_types)
    if relationship.to_types:
        shown["to"] = list(relationship.to_types)
    if relationship.inverse is not None:
        shown["inverse"] = relationship.inverse
    if relationship.symmetric:
        shown["symmetric"] = True
    shown["fields"] = {name: field_json(declared) for name, declared in relationship.fields.items()}
    shown["sources"] = list(relationship.sources)
    return shown
