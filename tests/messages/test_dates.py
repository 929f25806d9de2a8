"""The four written forms of a date, and nothing beside them; one rule for doors and files."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages.dates import date_start, instant_ms, instant_of, interval_ms, is_canonical
from storage.records.dates import format_instant, parse_date


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("2026", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-09", datetime(2026, 9, 1, tzinfo=UTC)),
        ("2024-02-29", datetime(2024, 2, 29, tzinfo=UTC)),
        ("2026-09-20T10:00:00Z", datetime(2026, 9, 20, 10, tzinfo=UTC)),
        ("2026-09-20t10:00:00z", datetime(2026, 9, 20, 10, tzinfo=UTC)),
        ("2026-09-20 10:00:00Z", datetime(2026, 9, 20, 10, tzinfo=UTC)),
        ("2026-09-20T10:00:00.5+02:00", datetime(2026, 9, 20, 8, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-09-20T10:00:00.123456789Z", datetime(2026, 9, 20, 10, 0, 0, 123_000, tzinfo=UTC)),
        ("2026-09-20T10:00:00.1234567890Z", datetime(2026, 9, 20, 10, 0, 0, 123_000, tzinfo=UTC)),
        ("2016-12-31T23:59:60Z", datetime(2016, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        ("2017-01-01T00:59:60+01:00", datetime(2016, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        ("9999-12-31", datetime(9999, 12, 31, tzinfo=UTC)),
        ("9999-12-31T23:59:60Z", datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
    ],
)
def test_a_date_begins_where_its_interval_begins(text: str, start: datetime) -> None:
    assert date_start(text) == ms(start)


@pytest.mark.parametrize(
    "text",
    [
        "", "26", "0000", "2026-13", "2026-00", "2026-02-29", "2026-9-1", "2026-09-20 ", " 2026", "2026/09/20", "+2026",
        "2026-09-20T10:00", "2026-09-20T10:00:00", "2026-09-20T25:00:00Z", "2026-09-20T10:00:60Z",
        "2026-09-20T23:59:60Z", "2016-12-31T23:59:60+01:00", "2016-12-31T23:59:61Z",
        "2026-09-20T10:00:00+25:00", "2026-09-20T10:00:00+01:75", "2026-09-20T10:00:00-00:60",
        "0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-01:00",
        "٢٠٢٦", "２０２６", "2026-09-20T10:00:00.Z", "tomorrow", "2026-W01", "20260920",
    ],
)  # fmt: skip
def test_anything_else_is_no_date(text: str) -> None:
    assert date_start(text) is None


def test_a_partial_date_is_no_instant() -> None:
    assert instant_ms("2026-09-20") is None
    assert instant_of("2026-09-20") is None


_TIME = r"[Tt ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{1,4})?([Zz]|[+-][0-2][0-9]:[0-9]{2})"
NEARLY = st.from_regex(rf"\A[0-9]{{4}}(-[01][0-9](-[0-3][0-9]({_TIME})?)?)?\Z")


@given(NEARLY)
def test_what_a_door_takes_is_a_date_of_a_record_with_the_same_beginning(text: str) -> None:
    found, read = interval_ms(text), parse_date(text)
    assert (found is None) == (read is None) == (date_start(text) is None)
    if found is not None and read is not None:
        assert found == (read.start_ms, read.end_ms)
        assert found[0] == date_start(text)
        assert found[0] < found[1]


@given(
    st.tuples(
        st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32), st.integers(0, 25), st.integers(0, 60),
        st.integers(0, 61), st.integers(0, 999),
    )
)  # fmt: skip
def test_an_instant_as_we_write_it_means_what_it_means_in_another_spelling(parts: tuple[int, ...]) -> None:
    text = "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z".format(*parts)
    value = instant_ms(text)
    assert value == instant_ms(f"{text[:-1]}z")
    assert is_canonical(text) == (value is not None and format_instant(value) == text)
