"""Dates as records carry them: ``YYYY``, ``YYYY-MM``, ``YYYY-MM-DD`` or an RFC 3339 instant.

Each is a half-open interval ``[start, end)`` of UTC milliseconds since 1970, by the rule that doors go by too
(:mod:`messages.dates`). Source: decisions.md section 2 (Ids, Time, Dates).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from messages.dates import EPOCH, interval_ms, is_canonical
from messages.dates import instant_ms as parse_instant

__all__ = ["Interval", "bound_ms", "format_instant", "instant_ms", "is_canonical", "parse_date", "parse_instant"]

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
    found = interval_ms(text)
    return None if found is None else Interval(text, *found)


def bound_ms(text: str) -> int | None:
    """What ``since`` and ``until`` mean: the start of the date. ``None`` for what is no date.

    ``since`` is inclusive, ``until`` exclusive: ``until: 2026-09-20`` ends before that day.
    """
    found = interval_ms(text)
    return None if found is None else found[0]


def format_instant(ms: int) -> str:
    """``2026-09-21T10:00:00.000Z``: how every instant is written. Sorts as text. Raises outside the years 1-9999."""
    # Every record that is read has its instants written anew, and `strftime` takes twice as long.
    return f"{(EPOCH + timedelta(milliseconds=ms)).isoformat(timespec='milliseconds')[:23]}Z"


def instant_ms(moment: datetime) -> int:
    """The UTC milliseconds of an aware ``datetime``."""
    return (moment - EPOCH) // _MILLISECOND
