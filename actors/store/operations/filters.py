"""The filters that lookup and inventory share: kind, type, tag, lifecycle and eligibility (tools.md)."""

from __future__ import annotations

from typing import Protocol

from actors.store.operations.context import OperationContext
from messages.tools import LifecycleFilter
from messages.vocabulary import RecordKind
from storage.state.catalogue_reader import Entry


class RecordFilters(Protocol):
    """The filter arguments of a request."""

    @property
    def kind(self) -> RecordKind | None: ...
    @property
    def type(self) -> str | None: ...
    @property
    def tag(self) -> str | None: ...
    @property
    def lifecycle(self) -> LifecycleFilter: ...


def types_of(context: OperationContext, name: str | None) -> frozenset[str] | None:
    """The page type and relationship label that a name or alias stands for; ``None``: no filter.

    A name that the ontology does not know filters everything out, as no record can have it.
    """
    if name is None:
        return None
    ontology = context.session.ontology
    label = ontology.relationship_type(name)
    return ontology.spellings(name) | (frozenset() if label is None else frozenset((label.name,)))


def passes(context: OperationContext, entry: Entry, filters: RecordFilters) -> bool:
    """Whether a record passes; eligibility counts for active records, as everywhere in ordinary reads."""
    types = types_of(context, filters.type)
    return (
        (filters.kind is None or entry.kind == filters.kind)
        and (types is None or entry.type in types)
        and (filters.tag is None or context.catalogue.tagged(entry.row, filters.tag))
        and _in_lifecycle(entry, filters.lifecycle, context.now_ms)
    )


def _in_lifecycle(entry: Entry, lifecycle: LifecycleFilter, now_ms: int) -> bool:
    """``active`` is current and eligible; ``all`` adds superseded records, never withdrawn or merged ones."""
    superseded = entry.lifecycle == "superseded" and entry.valid and not entry.fixture
    match lifecycle:
        case "active":
            return entry.current(now_ms)
        case "superseded":
            return superseded
        case "all":
            return superseded or entry.current(now_ms)
