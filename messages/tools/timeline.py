"""``knowledge_timeline`` and ``knowledge_chronicle_*``: records by their dates (tools.md, Ingestion and dates).

Dates are UTC; a partial date is its whole interval, ``since`` is inclusive and ``until`` exclusive, and a record
matches when its interval overlaps theirs (decisions.md sections 2 and 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from messages.dates import DAY_MS, date_start
from messages.json_types import JsonObject
from messages.pieces import Choice, DateText, Integer, Text, refused
from messages.tools._base import (
    ClaimKindArgument,
    Kind,
    Offset,
    Snapshot,
    TimeFields,
    ToolRequest,
    check_interval,
)
from messages.tools._rows import (
    ROWS_MAX_BYTES,
    PageRef,
    Shown,
    json_bytes,
    paging,
    rows_within,
)
from messages.vocabulary import LOOKUP_QUERY_MAX_CHARS

TimelineOrder: TypeAlias = Literal["asc", "desc"]

CHRONICLE_MAX_DAYS: Final = 366
HORIZON_DEFAULT_DAYS: Final = 7

_PageName: TypeAlias = Annotated[str, Text(max_units=LOOKUP_QUERY_MAX_CHARS, one_line=True)]


class TimelineRequest(ToolRequest):
    """Current records in the order of a date, page by page."""

    tool: ClassVar[str] = "knowledge_timeline"

    since: DateText | None = Field(default=None, description="First day, inclusive: YYYY, YYYY-MM or YYYY-MM-DD.")
    until: DateText | None = Field(default=None, description="End, exclusive.")
    time_field: TimeFields | None = Field(default=None, description="Date to go by: default occurred, else recorded.")
    kind: Kind | None = Field(default=None, description="Only this kind of record.")
    subject: _PageName | None = Field(
        default=None, description="Only claims and relationships about this page: ID, exact title or alias."
    )
    owner: _PageName | None = Field(
        default=None, description="Only claims that this page owns: ID, exact title or alias."
    )
    claim_kind: ClaimKindArgument | None = Field(default=None, description="Only claims of this kind.")
    order: Annotated[TimelineOrder, Choice("asc", "desc")] = Field(
        default="desc", description="desc (default): latest first; asc: earliest first."
    )
    limit: Annotated[int, Integer(1, 100)] = Field(default=20, description="Rows per page, default 20.")
    offset: Offset = Field(default=0, description="nextOffset of the previous page.")
    snapshot: Snapshot | None = Field(default=None, description="snapshot of the previous page.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_interval(self.since, self.until)
        for field, value, kinds in (
            ("subject", self.subject, ("claim", "relationship")),
            ("owner", self.owner, ("claim",)),
            ("claimKind", self.claim_kind, ("claim",)),
        ):
            if value is not None and self.kind is not None and self.kind not in kinds:
                raise refused("conflict", f"does not apply to kind {self.kind}", list(kinds), field=field)
        return self


class ChronicleDaysRequest(ToolRequest):
    """How much happened on each day of a span of at most a year."""

    tool: ClassVar[str] = "knowledge_chronicle_days"

    since: DateText = Field(description="First day, inclusive: YYYY, YYYY-MM or YYYY-MM-DD.")
    until: DateText = Field(description="End, exclusive, at most 366 days later.")

    @model_validator(mode="after")
    def _span(self) -> Self:
        check_interval(self.since, self.until)
        start, end = date_start(self.since), date_start(self.until)
        if start is not None and end is not None and end - start > CHRONICLE_MAX_DAYS * DAY_MS:
            allowed = f"at most {CHRONICLE_MAX_DAYS} days after since"
            raise refused("out_of_range", f"must be {allowed}", allowed, field="until")
        return self


class ChronicleDayRequest(ToolRequest):
    """Everything of one day."""

    tool: ClassVar[str] = "knowledge_chronicle_day"

    date: DateText = Field(description="The day (UTC): YYYY-MM-DD.")
    offset: Offset = Field(default=0, description="nextOffset of the previous page.")

    @model_validator(mode="after")
    def _one_day(self) -> Self:
        if len(self.date) != len("YYYY-MM-DD"):
            raise refused("malformed", "must be one day: YYYY-MM-DD", "YYYY-MM-DD", field="date")
        return self


class ChronicleDueRequest(ToolRequest):
    """Commitments that are overdue, due or coming."""

    tool: ClassVar[str] = "knowledge_chronicle_due"

    as_of: DateText | None = Field(default=None, description="Day to look from, default today (UTC).")
    horizon_days: Annotated[int, Integer(0, CHRONICLE_MAX_DAYS)] = Field(
        default=HORIZON_DEFAULT_DAYS, description="Days ahead that count as upcoming, default 7."
    )


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One record at its date: of the field asked for, as far as it is known (``2026``, ``2026-09`` or a UTC day)."""

    date: str
    row: Shown

    def to_json(self) -> JsonObject:
        return {"date": self.date, **self.row.to_json()}


@dataclass(frozen=True, slots=True)
class DueEntry:
    """One commitment with its due date as it is written, and whose it is where that is known."""

    due: str
    owner: PageRef | None
    row: Shown

    def to_json(self) -> JsonObject:
        owner: JsonObject = {} if self.owner is None else {"owner": self.owner.to_json()}
        return {"due": self.due, **owner, **self.row.to_json()}


@dataclass(frozen=True, slots=True)
class DueList:
    """The first commitments of one list, and how many it has."""

    total: int
    entries: Sequence[DueEntry]


def timeline_response(
    entries: Sequence[TimelineEntry],
    *,
    total: int,
    offset: int,
    snapshot: str,
    coverage: JsonObject | None = None,
    max_bytes: int = ROWS_MAX_BYTES,
) -> JsonObject:
    """One page of a timeline or a day, cut to ``max_bytes``; ``coverage`` only where something could not be read."""
    shown = rows_within((entry.to_json() for entry in entries), max_bytes)
    page: JsonObject = {"total": total, **paging(offset=offset, returned=len(shown), total=total, snapshot=snapshot)}
    return {**page, **_covered(coverage), "entries": shown}


def chronicle_days_response(
    counted: Mapping[str, Mapping[str, int]], *, coverage: JsonObject | None = None
) -> JsonObject:
    """``{day, page?, claim?, relationship?}`` for each day that has records, in their order, cut to 24 KiB.

    ``nextSince`` is the first day that was left out: ask again from there.
    """
    rows: list[JsonObject] = [{"day": day, **kinds} for day, kinds in counted.items()]
    shown = rows_within(rows)
    more: JsonObject = {"nextSince": rows[len(shown)]["day"]} if len(shown) < len(rows) else {}
    return {**more, **_covered(coverage), "days": shown}


def chronicle_due_response(
    as_of: str,
    *,
    overdue: DueList,
    due: DueList,
    upcoming: DueList,
    coverage: JsonObject | None = None,
    max_bytes: int = ROWS_MAX_BYTES,
) -> JsonObject:
    """The three lists, within ``max_bytes`` together. ``totals`` says how many there are, shown or not.

    What a short list leaves over of its third goes to the longer ones.
    """
    lists = {"overdue": overdue, "due": due, "upcoming": upcoming}
    rows = {name: [entry.to_json() for entry in found.entries] for name, found in lists.items()}
    shown: dict[str, list[JsonObject]] = {}
    room = max_bytes
    for left, name in zip((3, 2, 1), sorted(rows, key=lambda name: json_bytes([*rows[name]])), strict=True):
        shown[name] = rows_within(rows[name], room // left)
        room -= json_bytes([*shown[name]])
    totals: JsonObject = {name: found.total for name, found in lists.items()}
    return {"asOf": as_of, "totals": totals, **_covered(coverage), **{name: [*shown[name]] for name in lists}}


def _covered(coverage: JsonObject | None) -> JsonObject:
    return {"coverage": coverage} if coverage else {}
