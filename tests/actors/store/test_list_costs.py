"""A list of many rows takes as many statements as one of a single row: what its rows need is read together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import PRIVATE
from storage import faults
from storage.layout import StoreLayout
from storage.parsed_records import ParsedRecords
from tests.kit.store import Desk, claim_file, copy_store, page_file, write_notes

EARLIEST_DAY, LONELY_DAY, BUSY_DAY = "2031-04-05", "2031-05-06", "2031-06-07"
ROWS: Final = 8
NAMED: Final = ("subject", "owner")
DAYS: Final = {0: EARLIEST_DAY, 1: LONELY_DAY}
"""Of the first claims; the earliest is overdue on both other days, so that no list of commitments is empty on one."""


def commitment(number: int, day: str) -> str:
    """About a page of its own and owned by another, so that no row shows what another one has."""
    return claim_file(
        f"claim-{number}",
        f"Promise {number} of the harbour.",
        recorded_at=f"{day}T00:00:00.000Z",
        claim_kind="commitment",
        entities=["hub", f"subject-{number}"],
        owner=f"owner-{number}",
        source_page=f"subject-{number}",
        occurred_at=day,
        due_at=day,
        aliases=["The promise"],
    )


@pytest.fixture
def desk(made_store: StoreLayout, tmp_path: Path) -> Iterator[Desk]:
    opened = Desk(copy_store(made_store, tmp_path / "store"))
    notes = [("projects/hub.md", page_file("hub", "Hub"))]
    for number in range(ROWS + len(DAYS)):
        notes += [(f"{name}/{number}.md", page_file(f"{name}-{number}", f"{name} {number}")) for name in NAMED]
        notes.append((f"claims/{number}.md", commitment(number, DAYS.get(number, BUSY_DAY))))
    write_notes(opened.folder(), notes)
    try:
        opened.call("grep", {"query": "warm"})
        yield opened
    finally:
        opened.close()


Read = Callable[[Desk, int], JsonObject]


def call(tool: str, **arguments: JsonValue) -> Read:
    return lambda desk, rows: desk.call(tool, {**arguments, "limit": rows})


def operate(method: str, **params: JsonValue) -> Read:
    return lambda desk, rows: desk.operate(method, {**params, "limit": rows})


def day_of(rows: int) -> str:
    return LONELY_DAY if rows == 1 else BUSY_DAY


LISTS: Final[dict[str, Read]] = {
    "grep": call("grep", query="promise"),
    "grep of pages": call("grep", query="subject owner", mode="any"),
    "lookup": call("lookup", query="The promise"),
    "records": call("records", kind="claim"),
    "connections": call("connections", id="hub"),
    "timeline": call("timeline", since=LONELY_DAY),
    "timeline by due dates": call("timeline", since=LONELY_DAY, timeField="due"),
    "chronicle_day": lambda desk, rows: desk.call("chronicle_day", {"date": day_of(rows)}),
    "chronicle_due": lambda desk, rows: desk.call("chronicle_due", {"asOf": day_of(rows), "horizonDays": 0}),
    "an operator's search": operate("search", query="promise"),
    "an operator's lookup": operate("lookup", query="The promise"),
    "an operator's records": operate("records", kind="claim"),
    "an operator's connections": operate("connections", id="hub"),
    "an operator's timeline": operate("timeline", since=LONELY_DAY),
}


def statements(desk: Desk, read: Read, rows: int) -> int:
    """How many one read takes that meets no record which another one parsed."""
    counted: list[str] = []
    desk.session.partition(PRIVATE)._parsed = ParsedRecords()
    with faults.installed(lambda point: counted.append(point) if point.endswith(".statement") else None):
        answer = read(desk, rows)
    lists = [value for value in answer.values() if isinstance(value, list)]
    assert sum(map(len, lists)) >= rows
    return len(counted)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_many_rows_takes_as_many_statements_as_one_of_a_single_row(desk: Desk, name: str) -> None:
    read = LISTS[name]
    one, many = statements(desk, read, 1), statements(desk, read, ROWS)
    assert one == many > 0


def test_texts_too_long_to_be_read_together_are_listed_all_the_same(desk: Desk) -> None:
    long = claim_file("claim-long", f"Promise of the harbour. {'x' * 20_000}", entities=["subject-1"])
    write_notes(desk.folder(), [("claims/long.md", long)])
    rows = desk.call("records", {"kind": "claim"})["records"]
    assert isinstance(rows, list)
    shown = {row["id"]: row for row in rows if isinstance(row, dict)}
    assert shown["claim-long"]["pages"] == [{"id": "subject-1", "title": "subject 1"}]
    assert shown["claim-1"]["pages"] == [{"id": "hub", "title": "Hub"}, {"id": "subject-1", "title": "subject 1"}]
