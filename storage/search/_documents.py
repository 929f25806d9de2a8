"""What goes into the index and what comes out. All times are UTC milliseconds, intervals half open."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from messages.vocabulary import Lifecycle, RecordKind
from storage.search._query import Mode

TimeField: TypeAlias = Literal["occurred", "recorded", "updated", "due"]
LifecycleFilter: TypeAlias = Literal["active", "superseded", "all"]


@dataclass(frozen=True, slots=True)
class IndexDocument:
    """One record as search sees it. The texts are folded into the index and kept nowhere else."""

    kind: RecordKind
    type: str
    lifecycle: Lifecycle
    title: str
    body: str
    recorded_at: int
    updated_at: int
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    valid: bool = True
    fixture: bool = False
    occurred_from: int | None = None
    occurred_until: int | None = None
    due_from: int | None = None
    due_until: int | None = None
    expires_at: int | None = None


@dataclass(frozen=True, slots=True)
class IndexChange:
    """The record in catalogue row ``rowid`` is now ``document``, or gone. Rows are 1 to 2**40 - 1, never reused."""

    rowid: int
    document: IndexDocument | None


@dataclass(frozen=True, slots=True)
class SearchFilters:
    """What a hit has to be, decided before ranking and counting. ``None`` leaves a condition out.

    ``eligible_at`` is the time at which a record must be valid and no fixture, and an active one not expired; without
    it such records are found too. Withdrawn and merged records are never found. ``types`` are names of the ontology,
    aliases resolved; ``tag`` is compared exactly. A record matches [``since``, ``until``) when the interval of its
    ``time_field`` overlaps it; without a ``time_field`` that is when it occurred, else when it was recorded.
    """

    lifecycle: LifecycleFilter = "active"
    eligible_at: int | None = None
    kind: RecordKind | None = None
    types: Collection[str] | None = None
    tag: str | None = None
    time_field: TimeField | None = None
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A question: ``text`` as typed, and which stretch of the ordered hits is wanted.

    ``by_score``: in the order of their scores alone, whatever was literally written.
    """

    text: str
    mode: Mode = "all"
    filters: SearchFilters = field(default_factory=SearchFilters)
    limit: int = 20
    offset: int = 0
    by_score: bool = False


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A catalogue row, its BM25 score (higher is better, above 0), and whether it holds what was literally written."""

    rowid: int
    score: float
    literal: bool


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Some hits of ``total``, as the index stood at the catalogue change ``position``."""

    hits: tuple[SearchHit, ...]
    total: int
    position: int
