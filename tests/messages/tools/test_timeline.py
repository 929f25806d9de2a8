"""Timelines and chronicles: what a response carries, and what it does when there is too much."""

from __future__ import annotations

from datetime import date, timedelta

from messages.tools import (
    ClaimRow,
    DueEntry,
    DueList,
    PageRef,
    TimelineEntry,
    chronicle_days_response,
    chronicle_due_response,
    json_bytes,
    timeline_response,
)
from tests.messages.tools.samples import HASH

MAX_BYTES = 24 * 1024
NONE = DueList(0, ())


def claim(number: int, text: str = "I will.") -> ClaimRow:
    return ClaimRow(id=f"c{number}", revision=1, hash=HASH, claim_kind="commitment", day="2026-10-19", text=text)


def due(number: int, text: str = "I will.") -> DueEntry:
    return DueEntry("2026-11", PageRef("p1", "Alex"), claim(number, text))


def test_an_entry_is_flat_its_date_first() -> None:
    answer = timeline_response([TimelineEntry("2026-09", claim(1))], total=1, offset=0, snapshot="s")
    assert answer == {"total": 1, "entries": [{"date": "2026-09", **claim(1).to_json()}]}
    assert next(iter(TimelineEntry("2026-09", claim(1)).to_json())) == "date"


def test_coverage_appears_only_when_incomplete() -> None:
    for response in (
        timeline_response([], total=0, offset=0, snapshot="s", coverage={"broken": 1}),
        chronicle_days_response({}, coverage={"broken": 1}),
        chronicle_due_response("2026", overdue=NONE, due=NONE, upcoming=NONE, coverage={"broken": 1}),
    ):
        assert response["coverage"] == {"broken": 1}
    assert "coverage" not in chronicle_days_response({}, coverage=None)


def test_days_that_do_not_fit_are_asked_for_from_next_since() -> None:
    counted = {
        str(date(2028, 1, 1) + timedelta(days=n)): {"page": 10**9, "claim": 10**9, "relationship": 10**9}
        for n in range(366)
    }
    first = chronicle_days_response(counted)
    assert json_bytes(first) <= MAX_BYTES
    shown = first["days"]
    assert isinstance(shown, list)
    assert first["nextSince"] == list(counted)[len(shown)]
    rest = {day: kinds for day, kinds in counted.items() if day >= str(first["nextSince"])}
    last = chronicle_days_response(rest)
    assert "nextSince" not in last
    assert isinstance(last["days"], list)
    assert len(shown) + len(last["days"]) == 366


def test_the_three_lists_stay_within_24_kib_and_a_long_one_leaves_the_others_room() -> None:
    long = DueList(900, [due(n, "é" * 3_900) for n in range(50)])
    short = DueList(3, [due(n) for n in range(3)])
    for overdue, now, upcoming in ((long, short, long), (short, long, short), (long, long, long)):
        answer = chronicle_due_response("2026-11-02", overdue=overdue, due=now, upcoming=upcoming)
        assert json_bytes(answer) <= MAX_BYTES
        assert list(answer) == ["asOf", "totals", "overdue", "due", "upcoming"]
        for name, given in (("overdue", overdue), ("due", now), ("upcoming", upcoming)):
            shown = answer[name]
            assert isinstance(shown, list)
            assert len(shown) >= (3 if given is short else 1)
        assert answer["totals"] == {"overdue": overdue.total, "due": now.total, "upcoming": upcoming.total}
    alone = chronicle_due_response("2026", overdue=long, due=NONE, upcoming=NONE)["overdue"]
    assert isinstance(alone, list)
    assert len(alone) == 2, "what the others leave over is used"


def test_a_commitment_shows_its_due_date_and_its_owner_where_it_has_one() -> None:
    assert due(1).to_json() == {"due": "2026-11", "owner": {"id": "p1", "title": "Alex"}, **claim(1).to_json()}
    assert DueEntry("2026", None, claim(1)).to_json() == {"due": "2026", **claim(1).to_json()}
