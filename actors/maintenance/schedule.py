"""When maintenance runs: local wall-clock time, reckoned from the rule alone, so that nothing drifts. Pure.

Source: decisions.md section 1 (``maintenance: {enabled, every, at}``, local time of the machine).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The configured rule. ``at`` is ``HH:MM``, local time; ``every`` counts from there."""

    enabled: bool = True
    every: timedelta = DAY
    at: str = "03:30"

    @property
    def rule(self) -> str:
        """The rule as one word, to tell whether a time was reckoned from it."""
        return f"every {self.every.total_seconds():g} s from {self.at}" if self.enabled else "off"


def next_run(schedule: Schedule, after: datetime, zone: tzinfo | None = None) -> datetime | None:
    """The first time after ``after`` (aware) at which the schedule is due, UTC; ``None`` when it is switched off.

    Whole days: at ``at``, on every n-th day of the calendar. Less than a day: at ``at``, and from there on each
    ``every`` until ``at`` comes again. Anything else: ``every`` after ``after``. ``zone`` is the machine's where left
    out.
    """
    if not schedule.enabled:
        return None
    if not schedule.every % DAY:
        days = schedule.every // DAY
        day = after.astimezone(zone).date()
        while day.toordinal() % days or _at(schedule, day, zone) <= after:
            day += DAY
        return _at(schedule, day, zone)
    if schedule.every > DAY:
        return (after + schedule.every).astimezone(UTC)
    day = after.astimezone(zone).date()
    if _at(schedule, day, zone) > after:
        day -= DAY
    start = _at(schedule, day, zone)
    steps = (after - start) // schedule.every + 1
    return min(start + steps * schedule.every, _at(schedule, day + DAY, zone))


def _at(schedule: Schedule, day: date, zone: tzinfo | None) -> datetime:
    hour, minute = schedule.at.split(":")
    local = datetime.combine(day, time(int(hour), int(minute)))
    return (local if zone is None else local.replace(tzinfo=zone)).astimezone(UTC)
