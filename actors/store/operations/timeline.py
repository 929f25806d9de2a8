"""``knowledge_timeline`` and ``knowledge_chronicle_*``: current records by their dates.

Source: tools.md (Ingestion and dates), decisions.md sections 2 and 5, knowledge-more-facts.md section 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from actors.store.operations.context import OperationContext, pages_among
from actors.store.operations.named_records import ids_of, page_of_name
from actors.store.operations.rows import AGENT, Listed, Shape, coverage_of, current_snapshot
from messages.errors import InvalidArgument
from messages.json_types import JsonObject
from messages.tools import (
    ChronicleDayRequest,
    ChronicleDaysRequest,
    ChronicleDueRequest,
    DueEntry,
    DueList,
    TimeField,
    TimelineEntry,
    TimelineRequest,
    chronicle_days_response,
    chronicle_due_response,
    timeline_response,
)
from storage.records import Interval, format_instant, parse_date
from storage.state.catalogue_reader import Entry
from storage.state.timeline import DAY_MS, DueWindow, TimelineFilters, commitments, days
from storage.state.timeline import timeline as dated

DAY_PAGE_ROWS: Final = 20
COMMITMENTS_SHOWN_MAX: Final = 50
"""Of each of the three lists; ``knowledge_timeline`` pages through all of them by their due dates."""


def timeline(context: OperationContext, request: TimelineRequest, shape: Shape = AGENT) -> JsonObject:
    """One page of the current records that match, within the shape's bytes.

    ``subject`` keeps the claims that name the page as an entity and the relationships that it is an end of, ``owner``
    the claims that it owns; pages that were merged into it count as it. Raises ``NotFound`` and ``Ambiguous`` for
    names, and ``SnapshotChanged``.
    """
    snapshot = current_snapshot(context, request.snapshot)
    filters = TimelineFilters(
        now_ms=context.now_ms,
        time_field=request.time_field,
        since=_start(request.since, "since"),
        until=_start(request.until, "until"),
        kind=request.kind,
        claim_kind=request.claim_kind,
        subjects=_named(context, request.subject, "subject"),
        owners=_named(context, request.owner, "owner"),
        descending=request.order == "desc",
    )
    found, total = dated(context.catalogue, filters, request.limit, request.offset)
    entries = _entries(context, found, request.time_field, shape)
    return _page(context, entries, total, request.offset, snapshot, shape)


def chronicle_days(context: OperationContext, request: ChronicleDaysRequest) -> JsonObject:
    """How many current records of each kind overlap each UTC day, by occurrence, else by when they were recorded.

    A day counts exactly what :func:`chronicle_day` lists for it, unless a bound is an instant within that day.
    """
    since, until = _interval(request.since, "since").start_ms, _interval(request.until, "until").start_ms
    counted = days(context.catalogue, since, until, context.now_ms)
    named = {format_instant(day * DAY_MS)[:10]: kinds for day, kinds in counted.items()}
    return chronicle_days_response(named, coverage=coverage_of(context))


def chronicle_day(context: OperationContext, request: ChronicleDayRequest, shape: Shape = AGENT) -> JsonObject:
    """Everything that overlaps one UTC day, earliest first, page by page."""
    day = _interval(request.date, "date")
    filters = TimelineFilters(now_ms=context.now_ms, since=day.start_ms, until=day.end_ms)
    found, total = dated(context.catalogue, filters, DAY_PAGE_ROWS, request.offset)
    entries = _entries(context, found, None, shape)
    return _page(context, entries, total, request.offset, current_snapshot(context, None), shape)


def chronicle_due(context: OperationContext, request: ChronicleDueRequest, shape: Shape = AGENT) -> JsonObject:
    """Current commitments with a due date, seen from ``asOf``: its whole interval, by default the UTC day of now.

    Overdue is what was due entirely before it, due what overlaps it, upcoming what begins within the horizon after it.
    A commitment that has expired by then is none of them.
    """
    today = format_instant(context.now_ms)[:10]
    as_of = _interval(request.as_of or today, "asOf")
    alive = max(context.now_ms, as_of.start_ms)
    horizon = as_of.end_ms + request.horizon_days * DAY_MS
    windows = {
        "overdue": DueWindow(None, as_of.start_ms, ends=True),
        "due": DueWindow(as_of.start_ms, as_of.end_ms),
        "upcoming": DueWindow(as_of.end_ms, horizon, begins=True),
    }
    lists: Mapping[str, DueList] = {name: _due(context, window, alive, shape) for name, window in windows.items()}
    return chronicle_due_response(as_of.text, **lists, coverage=coverage_of(context), max_bytes=shape.max_bytes)


# --- inside ---------------------------------------------------------------------------------------------------


def _due(context: OperationContext, window: DueWindow, alive_ms: int, shape: Shape) -> DueList:
    found, total = commitments(context.catalogue, window, alive_ms, COMMITMENTS_SHOWN_MAX)
    listed = Listed.of(context, shape, found)
    entries = []
    for entry in found:
        record = listed.record(entry)
        owner = () if record.owner is None else pages_among((record.owner,), listed.named)
        due = "" if record.due_at is None else record.due_at.text
        entries.append(DueEntry(due, next(iter(owner), None), listed.row(entry)))
    return DueList(total, entries)


def _page(
    context: OperationContext, entries: Sequence[TimelineEntry], total: int, offset: int, snapshot: str, shape: Shape
) -> JsonObject:
    return timeline_response(
        entries,
        total=total,
        offset=offset,
        snapshot=snapshot,
        coverage=coverage_of(context),
        max_bytes=shape.max_bytes,
    )


def _entries(
    context: OperationContext, found: Sequence[Entry], field: TimeField | None, shape: Shape
) -> Sequence[TimelineEntry]:
    listed = Listed.of(context, shape, found)
    return [TimelineEntry(_date(listed, entry, field), listed.row(entry)) for entry in found]


def _date(listed: Listed, entry: Entry, field: TimeField | None) -> str:
    """The date by which a record stands where it stands."""
    match field:
        case "due" if entry.due_from is not None:
            date = listed.record(entry).due_at
        case None | "occurred" if entry.occurred_from is not None:
            date = listed.record(entry).occurred_at
        case _:
            date = None
    if date is not None:
        return date.day
    return format_instant(entry.updated_at if field == "updated" else entry.recorded_at)[:10]


def _named(context: OperationContext, name: str | None, field: str) -> Sequence[str] | None:
    return None if name is None else ids_of(context, page_of_name(context, name, field))


def _start(text: str | None, field: str) -> int | None:
    return None if text is None else _interval(text, field).start_ms


def _interval(text: str, field: str) -> Interval:
    found = parse_date(text)
    if found is None:
        raise InvalidArgument(
            f"{field} lies outside the years 1 to 9999.", field=field, reason="out_of_range", allowed="years 1 to 9999"
        )
    return found
