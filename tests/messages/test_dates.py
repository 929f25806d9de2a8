"""The four written forms of a date, and nothing beside them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from messages.dates import date_start, parse_instant


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("2026", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-09", datetime(2026, 9, 1, tzinfo=UTC)),
        ("2024-02-29", datetime(2024, 2, 29, tzinfo=UTC)),
        ("2026-09-20T10:00:00Z", datetime(2026, 9, 20, 10, tzinfo=UTC)),
        ("2026-09-20T10:00:00.5+02:00", datetime(2026, 9, 20, 8, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-09-20T10:00:00.123456789Z", datetime(2026, 9, 20, 10, 0, 0, 123_456, tzinfo=UTC)),
        ("9999-12-31", datetime(9999, 12, 31, tzinfo=UTC)),
    ],
)
def test_a_date_begins_where_its_interval_begins(text: str, start: datetime) -> None:
    assert date_start(text) == start


@pytest.mark.parametrize(
    "text",
    [
        "", "26", "0000", "2026-13", "2026-00", "2026-02-29", "2026-9-1", "2026-09-20 ", " 2026", "2026/09/20", "+2026",
        "2026-09-20T10:00", "2026-09-20T10:00:00", "2026-09-20T25:00:00Z", "2026-09-20T10:00:60Z",
        "2026-09-20T10:00:00z",
        "2026-09-20 10:00:00Z", "2026-09-20T10:00:00+25:00", "0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-01:00",
        "٢٠٢٦", "２０２６", "2026-09-20T10:00:00.1234567890Z", "tomorrow", "2026-W01", "20260920",
    ],
)  # fmt: skip
def test_anything_else_is_no_date(text: str) -> None:
    assert date_start(text) is None


def test_a_partial_date_is_no_instant() -> None:
    assert parse_instant("2026-09-20") is None
