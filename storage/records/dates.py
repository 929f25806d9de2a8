"""Dates as records carry them: ``YYYY``, ``YYYY-MM``, ``YYYY-MM-DD`` or an RFC 3339 instant.

Each is a half-open interval ``[start, end)`` of UTC milliseconds since 1970: a partial date is the whole of its year,
month or day, an instant is one millisecond. Milliseconds as integers, because the year 9999 ends where ``datetime``
does. Source: decisions.md section 2 (Ids, Time, Dates).
"""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

_PARTIAL: Final = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")
_INSTANT: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MS: Final = 86_400_000
_FIRST_MS: Final = (1 - _EPOCH_DAY) * _DAY_MS
_END_MS: Final = (date.max.toordinal() + 1 - _EPOCH_DAY) * _DAY_MS
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Interval:
    """One date: its text as written, and the UTC milliseconds ``[start_ms, end_ms)`` that it stands for."""

    text: str
    start_ms: int
    end_ms: int

    @property
    def day(self) -> str:
        """What a list row shows: the UTC day of an instant, else the date as far as it is known."""
        return self.text if len(self.text) <= 10 else format_instant(self.start_ms)[:10]

    def overlaps(self, since_ms: int | None, until_ms: int | None) -> bool:
        """Whether any of it lies in ``[since, until)``; ``None`` leaves that side open."""
        return (until_ms is None or self.start_ms < until_ms) and (since_ms is None or self.end_ms > since_ms)


def parse_date(text: str) -> Interval | None:
    """The interval of any of the four forms, or ``None`` for other text or a day that does not exist."""
    partial = _PARTIAL.fullmatch(text)
    if partial is not None:
        return _partial(text, partial)
    start = parse_instant(text)
    return None if start is None else Interval(text, start, start + 1)


def parse_instant(text: str) -> int | None:
    """The UTC milliseconds of an RFC 3339 instant (finer digits are cut off), or ``None``.

    A leap second counts as the last millisecond before it ends.
    """
    found = _INSTANT.fullmatch(text)
    if found is None:
        return None
    hour, minute, second = int(found[4]), int(found[5]), int(found[6])
    millisecond = int((found[7] or "0")[:3].ljust(3, "0"))
    if second == 60:
        second, millisecond = 59, 999
    try:
        day = date(int(found[1]), int(found[2]), int(found[3])).toordinal() - _EPOCH_DAY
    except ValueError:
        return None
    offset = 0
    if found[8]:
        hours, minutes = int(found[9]), int(found[10])
        if hours > 23 or minutes > 59:
            return None
        offset = (hours * 60 + minutes) * (1 if found[8] == "+" else -1)
    if hour > 23 or minute > 59 or second > 59:
        return None
    value = day * _DAY_MS + ((hour * 60 + minute - offset) * 60 + second) * 1000 + millisecond
    return value if _FIRST_MS <= value < _END_MS else None


def _partial(text: str, found: re.Match[str]) -> Interval | None:
    year, month, day = int(found[1]), int(found[2] or 1), int(found[3] or 1)
    try:
        first = date(year, month, day).toordinal()
    except ValueError:
        return None
    if found[3]:
        after = first + 1
    elif found[2]:
        after = first + monthrange(year, month)[1]
    else:
        after = first + (366 if isleap(year) else 365)
    return Interval(text, (first - _EPOCH_DAY) * _DAY_MS, (after - _EPOCH_DAY) * _DAY_MS)


def bound_ms(text: str) -> int | None:
    """What ``since`` and ``until`` mean: the start of the date. ``None`` for what is no date.

    ``since`` is inclusive, ``until`` exclusive: ``until: 2026-09-20`` ends before that day.
    """
    interval = parse_date(text)
    return None if interval is None else interval.start_ms


def format_instant(ms: int) -> str:
    """``2026-09-21T10:00:00.000Z``: how every instant is written. Sorts as text. Raises outside the years 1-9999."""
    # Every record that is read has its instants written anew, and `strftime` takes twice as long.
    return f"{(_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec='milliseconds')[:23]}Z"


def instant_ms(moment: datetime) -> int:
    """The UTC milliseconds of an aware ``datetime``."""
    return (moment - _EPOCH) // _MILLISECOND
