"""Dates: four written forms, each a half-open interval."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.records.dates import bound_ms, format_instant, instant_ms, parse_date, parse_instant


def ms(*parts: int) -> int:
    return instant_ms(datetime(*parts, tzinfo=UTC))  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2026", ms(2026, 1, 1), ms(2027, 1, 1)),
        ("2026-02", ms(2026, 2, 1), ms(2026, 3, 1)),
        ("2024-02", ms(2024, 2, 1), ms(2024, 3, 1)),
        ("2026-12", ms(2026, 12, 1), ms(2027, 1, 1)),
        ("2026-09-20", ms(2026, 9, 20), ms(2026, 9, 21)),
        ("2026-12-31", ms(2026, 12, 31), ms(2027, 1, 1)),
    ],
)
def test_a_partial_date_is_its_whole_interval(text: str, start: int, end: int) -> None:
    found = parse_date(text)
    assert found is not None
    assert (found.text, found.start_ms, found.end_ms, found.day) == (text, start, end, text)


def test_an_instant_is_one_millisecond_and_shows_its_utc_day() -> None:
    found = parse_date("2026-09-20T23:30:00.1239-05:00")
    assert found is not None
    assert (found.start_ms, found.end_ms) == (ms(2026, 9, 21, 4, 30, 0, 123_000), ms(2026, 9, 21, 4, 30, 0, 124_000))
    assert found.day == "2026-09-21"


@pytest.mark.parametrize(
    "text",
    ["2026-09-20T10:00:00Z", "2026-09-20t10:00:00z", "2026-09-20 10:00:00Z", "2026-09-20T12:00:00+02:00",
     "2026-09-20T10:00:00.0000001Z", "2026-09-20T04:30:00-05:30"],
)  # fmt: skip
def test_every_rfc_3339_spelling_of_an_instant_is_the_same_instant(text: str) -> None:
    assert parse_instant(text) == ms(2026, 9, 20, 10)


def test_a_leap_second_counts_as_the_millisecond_before_it_ends() -> None:
    assert parse_instant("2016-12-31T23:59:60Z") == ms(2017, 1, 1) - 1


@pytest.mark.parametrize(
    "text",
    ["", "26", "202", "20266", "2026-9", "2026-13", "2026-00", "2026-02-30", "2026-09-20T10:00:00", "2026-09-20T10:00Z",
     "2026-09-20T24:00:00Z", "2026-09-20T10:60:00Z", "2026-09-20T10:00:61Z", "2026-09-20T10:00:00+24:00", "0000",
     "2026-09-20T10:00:00+02", "2026-09-20T10:00:00.Z", "٢٠٢٦", "２０２６", " 2026", "2026\n",
     "0001-01-01T00:00:00+01:00",
     "9999-12-31T23:59:59-01:00", "yesterday"],
)  # fmt: skip
def test_what_is_no_date_is_no_date(text: str) -> None:
    assert parse_date(text) is None
    assert bound_ms(text) is None


def test_the_first_and_the_last_year_have_intervals() -> None:
    for text in ("0001", "9999", "9999-12", "9999-12-31", "9999-12-31T23:59:59.999Z"):
        found = parse_date(text)
        assert found is not None
        assert found.start_ms < found.end_ms
        assert format_instant(found.start_ms).startswith(text[:4])


def test_since_is_inclusive_and_until_exclusive() -> None:
    day = parse_date("2026-09-20")
    assert day is not None
    assert day.overlaps(bound_ms("2026-09-20"), None)
    assert not day.overlaps(bound_ms("2026-09-21"), None)
    assert not day.overlaps(None, bound_ms("2026-09-20"))
    assert day.overlaps(None, bound_ms("2026-09-21"))
    assert day.overlaps(None, None)
    month = parse_date("2026-09")
    assert month is not None
    assert month.overlaps(bound_ms("2026-09-30"), bound_ms("2026-10"))


@given(st.datetimes(timezones=st.just(UTC)))
def test_written_instants_read_back_and_sort_as_text(moment: datetime) -> None:
    value = instant_ms(moment)
    text = format_instant(value)
    assert parse_instant(text) == value
    assert len(text) == 24
    if value < ms(9999, 12, 31):
        assert text < format_instant(value + 1)
