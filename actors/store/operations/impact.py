"""What a change of one record may make wrong elsewhere: named for the agent, never changed.

Source: decisions.md section 5 (withdraw), knowledge-more-facts.md section 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from actors.store.needs import NeedIndex
from actors.store.operations.context import OperationContext
from messages.errors import IndexUnavailable, LimitExceeded
from messages.json_types import JsonObject
from messages.vocabulary import RecordKind
from storage.records import Record, normalise_name, utf16
from storage.search import SearchFilters, SearchQuery, parse_query
from storage.state.catalogue_reader import Entry
from storage.state.connections import linking_statements
from storage.state.page_graph import PageGraph

Why: TypeAlias = Literal[
    "dependency", "entity", "owner", "source_page", "continuity", "field", "relationship", "link", "mention"
]

IMPACT_MAX: Final = 100
MENTIONS_LOOKED_AT_MAX: Final = 50
_SEARCHED_UNITS: Final = 400
_SEARCHED_WORDS: Final = 32

_ROLES: Final[tuple[tuple[Why, tuple[str, ...]], ...]] = (
    ("dependency", ("dependency",)),
    ("relationship", ("from", "to")),
    ("entity", ("entity",)),
    ("owner", ("owner",)),
    ("source_page", ("source_page",)),
    ("continuity", ("continuity",)),
    ("field", ("field",)),
)


@dataclass(frozen=True, slots=True)
class Affected:
    """One record and why it is named; the first reason stands."""

    id: str
    kind: RecordKind
    why: Why

    def to_json(self) -> JsonObject:
        return {"id": self.id, "kind": self.kind, "why": self.why}


@dataclass(frozen=True, slots=True)
class Impact:
    """At most a hundred affected records of ``total``. ``mentions`` is ``None`` when the index could not be asked."""

    records: tuple[Affected, ...]
    total: int
    mentions: tuple[str, ...] | None

    def to_json(self) -> JsonObject | None:
        """For the receipt; ``None`` when nothing is affected."""
        if not self.records and self.mentions is not None:
            return None
        shown: JsonObject = {"records": [record.to_json() for record in self.records], "total": self.total}
        shown["mentions"] = None if self.mentions is None else list(self.mentions)
        return shown


def impact_of(context: OperationContext, entry: Entry, record: Record) -> Impact | NeedIndex:
    """Who depends on a record, is about it, is joined to it, links to it, or repeats its words in a page's prose.

    What names a page that was merged into this one is about this one too. A page is mentioned by its title, a claim or
    relationship by its whole text.
    """
    prepared = context.prepared
    if prepared.index_change is None and prepared.index_problem is None:
        return NeedIndex(context.catalogue.change)
    found: dict[str, Affected] = {}
    meant = (entry.id, *context.catalogue.merged_away(entry.id))
    for why, roles in _ROLES:
        for other in (other for record_id in meant for other in context.catalogue.naming(record_id, roles)):
            if other.lifecycle != "withdrawn" and other.id not in meant:
                found.setdefault(other.id, Affected(other.id, other.kind, why))
    statements = context.catalogue.of_rows(linking_statements(context.catalogue, entry, meant))
    for linking in (*PageGraph(context.catalogue).naming(entry), *statements):
        if linking.lifecycle != "withdrawn" and linking.id != entry.id:
            found.setdefault(linking.id, Affected(linking.id, linking.kind, "link"))
    wording = record.title if entry.kind == "page" else record.text
    mentions = _mentions(context, entry, wording)
    for page in mentions or ():
        found.setdefault(page.id, Affected(page.id, page.kind, "mention"))
    records = tuple(found.values())
    return Impact(records[:IMPACT_MAX], len(records), None if mentions is None else tuple(page.id for page in mentions))


def _mentions(context: OperationContext, entry: Entry, wording: str) -> list[Entry] | None:
    """Current pages whose prose has the wording, white space and case aside; ``None``: nobody can tell."""
    wanted = normalise_name(wording)
    query = _query(wanted)
    if context.prepared.index_change is None:
        return None
    if query is None:
        return []
    try:
        rows = context.open_index().search(query, at_least=context.prepared.index_change).hits
    except IndexUnavailable as error:
        context.index_failed(error)
        return None
    return [
        page
        for page in context.catalogue.of_rows(hit.rowid for hit in rows)
        if page.id != entry.id and wanted in normalise_name(context.session.load(page).body)
    ]


def _query(wanted: str) -> SearchQuery | None:
    """The beginning of the wording as a phrase; the rest is compared with the text itself."""
    begun = utf16.clip(wanted, _SEARCHED_UNITS)
    words = begun.split()
    if len(begun) < len(wanted) and len(words) > 1:
        words.pop()  # it may have been cut
    for text in _shorter_and_shorter(" ".join(words[:_SEARCHED_WORDS])):
        try:
            parsed = parse_query(text, "phrase")
        except LimitExceeded:
            continue  # unspaced scripts have a word in every character
        if not parsed.phrases:
            return None
        filters = SearchFilters(lifecycle="active", kind="page")
        return SearchQuery(text=text, mode="phrase", filters=filters, limit=MENTIONS_LOOKED_AT_MAX)
    return None


def _shorter_and_shorter(text: str) -> Iterator[str]:
    while text:
        yield text
        head, _, _ = text.rpartition(" ")
        text = head or text[: len(text) // 2]
