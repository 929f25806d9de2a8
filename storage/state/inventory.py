"""The inventory: every record of a partition that passes some filters, in one stable order.

Source: tools.md (Listing and connections), decisions.md section 5 (records).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from messages.vocabulary import AssertionOrigin, Partition, RecordKind
from storage.records import normalise_name
from storage.state.catalogue_reader import CURRENT, CatalogueReader, Entry
from storage.state.connection import Database, SqlValue

TimeField: TypeAlias = Literal["occurred", "recorded", "updated", "due"]
State: TypeAlias = Literal["active", "superseded", "withdrawn", "merged", "expired", "invalid", "fixture", "all"]
"""``active`` is current and eligible and ``superseded`` eligible; the others are what the word says, whatever else they
are; ``all`` is everything."""
Order: TypeAlias = Literal["recorded", "updated", "title"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryFilters:
    """Times are UTC milliseconds; ``match`` is a part of an id, title or alias, without regard to case."""

    kind: RecordKind | None
    types: Collection[str] | None
    match: str | None
    origin: AssertionOrigin | None
    lifecycle: State
    time_field: TimeField | None
    since: int | None
    until: int | None
    now_ms: int
    tag: str | None = None
    order: Order = "recorded"
    descending: bool = False


def inventory(
    db: Database, partition: Partition, filters: InventoryFilters, limit: int, offset: int
) -> tuple[Sequence[Entry], int]:
    """One page in the order of the filters, by default oldest record first, and how many there are."""
    reader = CatalogueReader(db, partition)
    conditions, parameters = ["r.partition = ?"], list[SqlValue]([reader.number])
    state = _STATES[filters.lifecycle]
    conditions += [state] if state else []
    parameters += [filters.now_ms] * state.count("?")
    if filters.kind is not None:
        conditions.append("r.kind = ?")
        parameters.append(filters.kind)
    if filters.types is not None:
        conditions.append(f"r.type IN ({', '.join('?' * len(filters.types))})")
        parameters += sorted(filters.types)
    if filters.origin is not None:
        conditions.append("r.assertion_origin = ?")
        parameters.append(filters.origin)
    if filters.match is not None:
        part = normalise_name(filters.match)
        conditions.append(
            "(instr(lower(r.id), ?) > 0 OR EXISTS (SELECT 1 FROM name n WHERE n.row = r.row "
            "AND instr(n.normalised, ?) > 0))"
        )
        parameters += [part, part]
    if filters.tag is not None:
        conditions.append("EXISTS (SELECT 1 FROM tag t WHERE t.partition = ? AND t.tag = ? AND t.row = r.row)")
        parameters += [reader.number, filters.tag]
    _add_interval(filters, conditions, parameters)
    way = " DESC" if filters.descending else ""
    order = ", ".join(f"{column}{way}" for column in _ORDERS[filters.order])
    return reader.select(" AND ".join(conditions), parameters, order=order, limit=limit, offset=offset)


_STATES: Final[Mapping[State, str]] = {
    "active": CURRENT,
    "superseded": "r.lifecycle = 'superseded' AND r.valid = 1 AND r.fixture = 0",
    "withdrawn": "r.lifecycle = 'withdrawn'",
    "merged": "r.lifecycle = 'merged'",
    "expired": "r.lifecycle = 'active' AND r.expires_at <= ?",
    "invalid": "r.valid = 0",
    "fixture": "r.fixture = 1",
    "all": "",
}
_ORDERS: Final[Mapping[Order, tuple[str, ...]]] = {
    "recorded": ("r.recorded_at", "r.row"),
    "updated": ("r.updated_at", "r.row"),
    "title": ("r.title COLLATE NOCASE", "r.row"),
}

INTERVALS: Final[Mapping[TimeField | None, tuple[str, str]]] = {
    "recorded": ("r.recorded_at", "r.recorded_at + 1"),
    "updated": ("r.updated_at", "r.updated_at + 1"),
    "due": ("r.due_from", "r.due_until"),
    "occurred": ("r.occurred_from", "r.occurred_until"),
    None: ("coalesce(r.occurred_from, r.recorded_at)", "coalesce(r.occurred_until, r.recorded_at + 1)"),
}
"""Where the interval of a time field begins and ends, as expressions on the record ``r``."""


def _add_interval(filters: InventoryFilters, conditions: list[str], parameters: list[SqlValue]) -> None:
    """Keep records whose interval overlaps [since, until) (decisions.md section 2, Dates)."""
    if filters.since is None and filters.until is None:
        return
    start, end = INTERVALS[filters.time_field]
    conditions.append(f"{start} IS NOT NULL")
    if filters.until is not None:
        conditions.append(f"{start} < ?")
        parameters.append(filters.until)
    if filters.since is not None:
        conditions.append(f"{end} > ?")
        parameters.append(filters.since)
