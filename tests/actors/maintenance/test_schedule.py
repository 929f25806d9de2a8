"""When maintenance runs (decisions.md section 1)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from actors.maintenance import Schedule, next_run

BERLIN = ZoneInfo("Europe/Berlin")


def local(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("every", "after", "due"),
    [
        (24, "2026-11-02T03:29:59", "2026-11-02T03:30"),
        (24, "2026-11-02T03:30:00", "2026-11-03T03:30"),
        (24, "2026-11-02T23:00:00", "2026-11-03T03:30"),
        (6, "2026-11-02T03:30:00", "2026-11-02T09:30"),
        (6, "2026-11-02T22:00:00", "2026-11-03T03:30"),
        (6, "2026-11-02T01:00:00", "2026-11-02T03:30"),
        (7, "2026-11-02T18:00:00", "2026-11-03T00:30"),
        (7, "2026-11-03T00:30:00", "2026-11-03T03:30"),
        (36, "2026-11-02T12:00:00", "2026-11-04T00:00"),
    ],
)
def test_the_next_run_is_reckoned_in_local_time(every: int, after: str, due: str) -> None:
    found = next_run(Schedule(every=timedelta(hours=every)), local(after), BERLIN)
    assert found == local(due)
    assert found is not None
    assert found.tzinfo is UTC


def test_every_second_day_stays_every_second_day_whenever_it_is_asked() -> None:
    schedule = Schedule(every=timedelta(days=2))
    first = next_run(schedule, local("2026-11-02T12:00"), BERLIN)
    assert first is not None
    second = next_run(schedule, first, BERLIN)
    assert second is not None
    assert second - first == timedelta(days=2)
    assert next_run(schedule, first + timedelta(hours=30), BERLIN) == second


def test_a_run_stays_at_its_local_hour_when_the_clocks_change() -> None:
    before, after = (next_run(Schedule(), local(text), BERLIN) for text in ("2026-10-24T12:00", "2026-10-25T12:00"))
    assert before == datetime(2026, 10, 25, 2, 30, tzinfo=UTC)
    assert after == datetime(2026, 10, 26, 2, 30, tzinfo=UTC)


def test_an_hour_that_the_clocks_leave_out_is_no_lost_day() -> None:
    schedule = Schedule(at="02:30")
    found = next_run(schedule, local("2026-03-28T12:00"), BERLIN)
    assert found is not None
    assert local("2026-03-29T01:00") < found < local("2026-03-29T04:00")


def test_a_schedule_that_is_switched_off_is_never_due() -> None:
    assert next_run(Schedule(enabled=False), local("2026-11-02T12:00"), BERLIN) is None


def test_without_a_zone_the_machine_decides() -> None:
    after = datetime(2026, 11, 2, 12, tzinfo=UTC)
    found = next_run(Schedule(), after)
    assert found is not None
    assert after < found <= after + timedelta(days=1)
    assert found.astimezone().strftime("%H:%M") == "03:30"
