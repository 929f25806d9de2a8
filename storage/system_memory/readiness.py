"""Which system rows have stabilised enough to be drained into the knowledge base, and the counts behind that.

Whether to promote stays a person's judgement: nothing here is asked by a promotion. The database's thread.

Source: system-memory-boundary.md (When to promote); system-memory-contract.md section 11 (1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from messages.json_types import JsonObject
from storage.system_memory.database import COLUMNS, SystemDatabase, row_of
from storage.system_memory.model import Record, Row, instant_text
from storage.system_memory.records import records_of

_DAY_US: Final = 24 * 3_600 * 1_000_000


@dataclass(frozen=True, slots=True)
class Counters:
    """Of one row; times in UTC microseconds."""

    recalled: int
    sessions: int
    last_recalled: int | None
    admitted_since: int | None
    last_challenged: int | None

    def to_json(self) -> JsonObject:
        return {
            "recalled": self.recalled,
            "sessions": self.sessions,
            "lastRecalled": _text(self.last_recalled),
            "admittedSince": _text(self.admitted_since),
            "lastChallenged": _text(self.last_challenged),
        }


def counters(system: SystemDatabase, memory_id: str, records: list[Record]) -> Counters:
    """The counters of a row, whose records these are, the oldest first."""
    found = system.database.query_one(
        "SELECT times, last_at, (SELECT count(*) FROM recalled_in WHERE recalled_in.memory_id = recalled.memory_id) "
        "FROM recalled WHERE memory_id = ?",
        (memory_id,),
    )
    times, last, sessions = (0, None, 0) if found is None else found
    since = None
    for record in records:
        if record.role == "admission":
            # Admitted once more while it is admitted: it is since the first time.
            since = None if record.verdict == "rejected" else since or record.inserted_at
    challenged = [record.inserted_at for record in records if record.role == "challenge"]
    return Counters(times, sessions, last, since, max(challenged, default=None))


def ready(system: SystemDatabase, *, unchallenged_days: int, sessions: int) -> list[tuple[Row, Counters]]:
    """The live rows that are admitted, were recalled in so many sessions, and of which no challenge was open in the
    last so many days; the most recalled first."""
    since = system.wall_us() - unchallenged_days * _DAY_US
    found = system.database.query(
        f"SELECT {COLUMNS} FROM memory WHERE bucket = 'system' AND superseded_by IS NULL AND stance IS NULL "
        "AND (SELECT count(*) FROM recalled_in WHERE memory_id = memory.id) >= ? ORDER BY inserted_at, id",
        (sessions,),
    )
    rows: list[tuple[Row, Counters]] = []
    for columns in found:
        row = row_of(columns)
        if system.status(row.id) != "admitted":
            continue
        records = records_of(system, row.id)
        if not _was_challenged(records, since):
            rows.append((row, counters(system, row.id, records)))
    return sorted(rows, key=lambda each: (-each[1].sessions, -each[1].recalled, each[0].inserted_at))


def _was_challenged(records: list[Record], since: int) -> bool:
    """Whether a challenge, with evidence or not, was open at any time after ``since``."""
    closed: dict[str, int] = {}
    for record in records:
        if record.role == "refutation" and record.challenge_id is not None:
            closed[record.challenge_id] = min(record.inserted_at, closed.get(record.challenge_id, record.inserted_at))
    return any(record.role == "challenge" and closed.get(record.id, since + 1) > since for record in records)


def _text(microseconds: int | None) -> str | None:
    return None if microseconds is None else instant_text(microseconds)
