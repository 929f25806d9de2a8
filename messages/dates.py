"""The four written forms of a date: ``YYYY``, ``YYYY-MM``, ``YYYY-MM-DD`` and RFC 3339 (decisions.md section 2).

Only what a door needs: is it a date at all, and where does it begin. Intervals belong to the records.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

DATE_FORMS: Final = "YYYY, YYYY-MM, YYYY-MM-DD, or RFC 3339 with a time zone such as 2026-09-20T10:00:00Z"

_PARTIAL: Final = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")
_INSTANT: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
)


def parse_instant(text: str) -> datetime | None:
    """The UTC instant of an RFC 3339 text, to the microsecond; ``None`` for anything else."""
    match = _INSTANT.fullmatch(text)
    if match is None:
        return None
    seconds, fraction, zone = match.groups()
    try:
        return datetime.fromisoformat(seconds + (fraction or "")[:7] + zone.replace("Z", "+00:00")).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def date_start(text: str) -> datetime | None:
    """The UTC instant at which the date begins; ``None`` when ``text`` is in none of the four forms."""
    match = _PARTIAL.fullmatch(text)
    if match is None:
        return parse_instant(text)
    year, month, day = match.groups()
    try:
        return datetime(int(year), int(month or 1), int(day or 1), tzinfo=UTC)
    except ValueError:
        return None
