"""Current records by their dates: in order, counted by day, and commitments by when they are due.

A date is an interval ``[from, until)`` of UTC milliseconds, and a record matches when it overlaps the one asked for.
Dates are instants, days, months or years: what began more than a day before the window can only reach into it as a
month or a year, and those have an index of their own. So a read costs what lies in its window or, with a subject or
an owner, what names that page; never a scan of the partition.

Reads only, on the thread that owns the connection. Source: decisions.md sections 2 (dates) and 5 (timeline).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from messages.vocabulary import ClaimKind, RecordKind
from storage.state.catalogue_reader import CURRENT, CatalogueReader, Entry
from storage.state.connection import Row, SqlValue
from storage.state.inventory import INTERVALS, TimeField

DAY_MS: Final = 86_400_000
LONGEST_DATE_MS: Final = 366 * DAY_MS
_DAYS_BEFORE_1970: Final = 719_162
"""Days from the year 1 on, so that no day counts below zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineFilters:
    """What a timeline shows. ``subjects`` and ``owners`` are ids, any of which a record may name; times are UTC ms."""

    now_ms: int
    time_field: TimeField | None = None
    since: int | None = None
    until: int | None = None
    kind: RecordKind | None = None
    claim_kind: ClaimKind | None = None
    subjects: Sequence[str] | None = None
    owners: Sequence[str] | None = None
    descending: bool = False


@dataclass(frozen=True, slots=True)
class _Field:
    """``start`` and ``end`` of a record's date, the index on ``start``, what makes it one that has such a date, and
    the interval and the index of dates that are longer than a day."""

    start: str
    end: str
    index: str
    dated: str = "1"
    long: tuple[str, str, str] | None = None


_MOMENT: Final = INTERVALS[None]
_LONG_MOMENT: Final = ("r.occurred_from", "r.occurred_until", "record_by_long_moment")
_FIELDS: Final[Mapping[TimeField | None, _Field]] = {
    None: _Field(*_MOMENT, "record_by_moment", long=_LONG_MOMENT),
    "occurred": _Field(*_MOMENT, "record_by_moment", "r.occurred_from IS NOT NULL", _LONG_MOMENT),
    "recorded": _Field(*INTERVALS["recorded"], "record_by_time"),
    "updated": _Field(*INTERVALS["updated"], "record_by_update"),
    "due": _Field(*INTERVALS["due"], "record_by_due", "r.due_from IS NOT NULL", (*INTERVALS["due"], "record_by_due")),
}


def timeline(reader: CatalogueReader, filters: TimelineFilters, limit: int, offset: int) -> tuple[Sequence[Entry], int]:
    """One page of the current records that match, by the beginning of their date, and how many there are."""
    field = _FIELDS[filters.time_field]
    matching, parameters = _matching(reader.number, filters, f"{field.start} AS at, r.row AS row")
    database = reader.database
    counted = database.query_one(f"SELECT count(*) FROM ({matching})", parameters)
    way = "DESC" if filters.descending else "ASC"
    rows = database.query(
        f"SELECT row FROM ({matching}) ORDER BY at {way}, row {way} LIMIT ? OFFSET ?", (*parameters, limit, offset)
    )
    return _entries(reader, rows), 0 if counted is None else int(counted[0])


def days(reader: CatalogueReader, since: int, until: int, now_ms: int) -> Mapping[int, Mapping[str, int]]:
    """How many current records of each kind overlap each UTC day (counted from 1970) of ``[since, until)``.

    A month counts on each of its days, as each of them lists it. Days without records are left out.
    """
    filters = TimelineFilters(now_ms=now_ms, since=since, until=until)
    start, end = _MOMENT
    shift = _DAYS_BEFORE_1970 * DAY_MS
    matching, parameters = _matching(reader.number, filters, f"r.kind AS kind, {start} AS start, {end} AS stop")
    rows = reader.database.query(
        f"SELECT kind, (max(start, ?) + {shift}) / {DAY_MS} AS first, (min(stop, ?) - 1 + {shift}) / {DAY_MS} AS last, "
        f"count(*) FROM ({matching}) GROUP BY kind, first, last",
        (since, until, *parameters),
    )
    counted: dict[int, dict[str, int]] = {}
    for kind, first, last, number in rows:
        for day in range(int(first), int(last) + 1):
            of_day = counted.setdefault(day - _DAYS_BEFORE_1970, {})
            of_day[str(kind)] = of_day.get(str(kind), 0) + int(number)
    return dict(sorted(counted.items()))


@dataclass(frozen=True, slots=True)
class DueWindow:
    """Commitments by their due date: those that overlap ``[since, until)``.

    With ``ends`` only those that end by ``until``, with ``begins`` only those that begin at ``since`` or later.
    """

    since: int | None
    until: int
    ends: bool = False
    begins: bool = False


def commitments(reader: CatalogueReader, window: DueWindow, alive_ms: int, limit: int) -> tuple[Sequence[Entry], int]:
    """Up to ``limit`` current commitments of a window that do not expire before ``alive_ms``, earliest due date first;
    and how many there are."""
    conditions = ["r.partition = ?", CURRENT, "r.claim_kind = 'commitment'", "r.due_from IS NOT NULL"]
    parameters: list[SqlValue] = [reader.number, alive_ms]
    conditions.append("r.due_from < ?")
    parameters.append(window.until)
    if window.ends:
        conditions.append("r.due_until <= ?")
        parameters.append(window.until)
    if window.since is not None:
        conditions.append("r.due_from >= ? AND r.due_until > ?")
        parameters += [window.since if window.begins else window.since - LONGEST_DATE_MS, window.since]
    source = f"FROM record r INDEXED BY record_by_due WHERE {' AND '.join(conditions)}"
    counted = reader.database.query_one(f"SELECT count(*) {source}", parameters)
    rows = reader.database.query(f"SELECT r.row {source} ORDER BY r.due_from, r.row LIMIT ?", (*parameters, limit))
    return _entries(reader, rows), 0 if counted is None else int(counted[0])


# --- inside ---------------------------------------------------------------------------------------------------


def _entries(reader: CatalogueReader, rows: Sequence[Row]) -> Sequence[Entry]:
    return reader.of_rows(int(row) for (row,) in rows)


def _matching(number: int, filters: TimelineFilters, columns: str) -> tuple[str, list[SqlValue]]:
    """The select of every matching record."""
    field = _FIELDS[filters.time_field]
    conditions, values = _conditions(number, filters, field)
    everything = " AND ".join(conditions)
    if filters.subjects is not None or filters.owners is not None:
        named, named_values = _naming(number, filters)
        source = f"FROM ({named}) n CROSS JOIN record r ON r.row = n.row"
        return f"SELECT {columns} {source} WHERE {everything}", [*named_values, *values]
    source = f"FROM record r INDEXED BY {field.index}"
    if filters.since is None or field.long is None:
        return f"SELECT {columns} {source} WHERE {everything}", values
    start, end, index = field.long
    day_before = filters.since - DAY_MS
    here = f"SELECT {columns} {source} WHERE {everything} AND {field.start} >= ?"
    reaching_in = (
        f"SELECT {columns} FROM record r INDEXED BY {index} WHERE {everything} "
        f"AND {end} - {start} > {DAY_MS} AND {start} >= ? AND {start} < ?"
    )
    return (
        f"{here} UNION ALL {reaching_in}",
        [*values, day_before, *values, filters.since - LONGEST_DATE_MS, day_before],
    )


def _conditions(number: int, filters: TimelineFilters, field: _Field) -> tuple[list[str], list[SqlValue]]:
    conditions = ["r.partition = ?", CURRENT, field.dated]
    values: list[SqlValue] = [number, filters.now_ms]
    for condition, value in (
        (f"{field.start} < ?", filters.until),
        (f"{field.end} > ?", filters.since),
        ("r.kind = ?", filters.kind),
        ("r.claim_kind = ?", filters.claim_kind),
    ):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    if filters.since is not None and field.long is None:
        # An instant: its end is no column that an index has.
        conditions.append(f"{field.start} >= ?")
        values.append(filters.since)
    return conditions, values


def _naming(number: int, filters: TimelineFilters) -> tuple[str, list[SqlValue]]:
    """The rows of the records that name the wanted pages."""
    parts: list[str] = []
    values: list[SqlValue] = []
    for ids, roles in ((filters.subjects, "'entity', 'from', 'to'"), (filters.owners, "'owner'")):
        if ids is not None:
            parts.append(
                "SELECT f.row AS row FROM json_each(?) j CROSS JOIN reference f "
                f"ON f.partition = ? AND f.target = j.value AND f.role IN ({roles})"
            )
            values += [json.dumps(ids), number]
    # Either way each row comes once.
    return (" INTERSECT ".join(parts) if len(parts) > 1 else parts[0].replace("SELECT", "SELECT DISTINCT", 1)), values
