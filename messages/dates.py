"""The four written forms of a date: ``YYYY``, ``YYYY-MM``, ``YYYY-MM-DD`` and RFC 3339 (decisions.md section 2).

The one rule for doors and files: what a door takes is a date to whatever reads it later, and begins at the same
instant. Times are UTC milliseconds since 1970, as integers, because the year 9999 ends where ``datetime`` does.
"""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from datetime import UTC, date, datetime, timedelta
from typing import Final

DATE_FORMS: Final = "YYYY, YYYY-MM, YYYY-MM-DD, or RFC 3339 with a time zone such as 2026-09-20T10:00:00Z"

DAY_MS: Final = 86_400_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_PARTIAL: Final = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")
_INSTANT: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
# Nearly every instant that is read was written by us; the library reads this one form in a tenth of the time.
_CANONICAL: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{3}Z")
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH_DAY: Final = EPOCH.toordinal()
_FIRST_MS: Final = (1 - _EPOCH_DAY) * DAY_MS
_END_MS: Final = (date.max.toordinal() + 1 - _EPOCH_DAY) * DAY_MS


def interval_ms(text: str) -> tuple[int, int] | None:
    """``[start, end)`` of a date in any of the four forms; ``None`` for other text or a day that does not exist.

    A partial date is the whole of its year, month or day, an instant is one millisecond.
    """
    partial = _PARTIAL.fullmatch(text)
    if partial is not None:
        return _partial(partial)
    start = instant_ms(text)
    return None if start is None else (start, start + 1)


def instant_ms(text: str) -> int | None:
    """The instant of an RFC 3339 text (finer digits are cut off), or ``None``.

    A leap second, which only the last minute of a UTC month may have, counts as the last millisecond before it ends.
    """
    if is_canonical(text):
        return (datetime.fromisoformat(text) - EPOCH) // _MILLISECOND
    found = _INSTANT.fullmatch(text)
    if found is None:
        return None
    hour, minute, second = int(found[4]), int(found[5]), int(found[6])
    millisecond = int((found[7] or "0")[:3].ljust(3, "0"))
    leap = second == 60
    if leap:
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
    value = day * DAY_MS + ((hour * 60 + minute - offset) * 60 + second) * 1000 + millisecond
    if not _FIRST_MS <= value < _END_MS or (leap and not _ends_a_month(value + 1)):
        return None
    return value


def is_canonical(text: str) -> bool:
    """Whether the text is an instant as every instant is written: ``2026-09-21T10:00:00.000Z``."""
    if _CANONICAL.fullmatch(text) is None:
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:  # a day that does not exist, or a leap second
        return False
    return True


def instant_of(text: str) -> datetime | None:
    """The same as an aware ``datetime``."""
    value = instant_ms(text)
    return None if value is None else EPOCH + timedelta(milliseconds=value)


def date_start(text: str) -> int | None:
    """Where the date begins; ``None`` when ``text`` is in none of the four forms."""
    found = interval_ms(text)
    return None if found is None else found[0]


def _ends_a_month(value: int) -> bool:
    day, rest = divmod(value, DAY_MS)
    return rest == 0 and (value == _END_MS or date.fromordinal(day + _EPOCH_DAY).day == 1)


def _partial(found: re.Match[str]) -> tuple[int, int] | None:
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
    return (first - _EPOCH_DAY) * DAY_MS, (after - _EPOCH_DAY) * DAY_MS
