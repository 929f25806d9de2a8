"""knowledge_timeline and knowledge_chronicle_* without a thread: partial dates, day borders, what is current.

Most names are sentences of decisions.md sections 2 and 5 and of tools.md.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from messages.errors import Ambiguous, InvalidArgument, NotFound, SnapshotChanged
from messages.json_types import JsonObject, JsonValue
from messages.text import utf16_length
from messages.tools import json_bytes
from messages.tools.timeline import TimelineRequest
from messages.vocabulary import PRIVATE
from storage.records import bound_ms, format_instant, parse_date
from storage.state import timeline as stored
from storage.state.inventory import TimeField
from tests.actors.store.test_reads import ids, relationship_file, rows
from tests.kit.store import (
    GROUP_PARTITION,
    Desk,
    claim_file,
    instant,
    page_file,
    record_file,
    request_id,
    write_note,
    write_notes,
)

# The desk's clock stands at 2026-11-02T12:00Z; records by hand are recorded on 2026-10-01 unless said otherwise.


def timeline(desk: Desk, **arguments: JsonValue) -> JsonObject:
    return desk.call("timeline", arguments)


def found(desk: Desk, **arguments: JsonValue) -> list[JsonValue]:
    return ids(timeline(desk, **arguments), "entries")


def promise(record_id: str, text: str = "I will.", **keys: JsonValue) -> str:
    """A commitment of 20 September that is due on 2 November unless ``keys`` say otherwise."""
    given: JsonObject = {
        "claim_kind": "commitment",
        "assertion_origin": "source",
        "attribution": "somebody",
        "evidence": [{"path": f"artifacts/{request_id(900)}/excerpt.txt", "sha256": "0" * 64}],
        "occurred_at": "2026-09-20",
        "due_at": "2026-11-02",
    }
    recorded_at = "2026-10-01T10:00:00.000Z"
    return record_file("claim", record_id, record_id, f"{text}\n", PRIVATE, recorded_at, {**given, **keys})


def day(desk: Desk, date: str) -> list[JsonValue]:
    return ids(desk.call("chronicle_day", {"date": date}), "entries")


def days(desk: Desk, since: str, until: str) -> dict[JsonValue, JsonObject]:
    counted = rows(desk.call("chronicle_days", {"since": since, "until": until}), "days")
    return {row["day"]: {kind: number for kind, number in row.items() if kind != "day"} for row in counted}


def dated(desk: Desk, **occurred: str) -> None:
    """A claim for each name that happened at its date."""
    write_notes(
        desk.folder(),
        [(f"c/{name}.md", claim_file(name, f"It was {name}.", occurred_at=date)) for name, date in occurred.items()],
    )


# --- dates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        ("2026-09-20", "2026-09-21", {"instant", "day", "month", "year"}),
        ("2026-09-21", "2026-09-22", {"month", "year"}),
        ("2026-09", "2026-10", {"instant", "day", "month", "year"}),
        ("2026-10", "2026-11", {"year"}),
        ("2026", "2027", {"instant", "day", "month", "year"}),
        ("2027", None, set()),
        (None, "2026-09-20", {"month", "year"}),
        (None, "2026-09", {"year"}),
        (None, "2026", set()),
        ("2026-12-31", None, {"year"}),
        ("2026-09-20T10:00:00Z", "2026-09-20T10:00:01Z", {"instant", "day", "month", "year"}),
        ("2026-09-20T10:00:01Z", "2026-09-21", {"day", "month", "year"}),
    ],
)
def test_a_partial_date_is_its_whole_interval_and_matches_when_it_overlaps_since_inclusive_until_exclusive(
    desk: Desk, since: str | None, until: str | None, expected: set[str]
) -> None:
    dated(desk, instant="2026-09-20T10:00:00Z", day="2026-09-20", month="2026-09", year="2026")
    assert set(found(desk, since=since, until=until)) == expected
    assert set(found(desk, since=since, until=until, timeField="occurred")) == expected


def test_every_window_finds_exactly_the_records_whose_interval_overlaps_it(desk: Desk) -> None:
    """Against the intervals themselves, on dates of every form around the turns of years, months and days."""
    chance = random.Random(7)

    def any_date() -> str:
        year, month, day = chance.choice((2023, 2024, 2025)), chance.choice((1, 2, 3, 12)), chance.choice((1, 15, 28))
        forms = (f"{year}", f"{year}-{month:02}", f"{year}-{month:02}-{day:02}")
        return chance.choice((*forms, f"{forms[2]}T{chance.choice(('00:00:00', '23:59:59.999'))}Z"))

    dates = {f"c{n:02}": any_date() for n in range(60)}
    dated(desk, **dates)
    intervals = {name: interval for name, date in dates.items() if (interval := parse_date(date)) is not None}
    assert intervals.keys() == dates.keys()
    for _ in range(60):
        since, until = (chance.choice((None, bound_ms(any_date()))) for _ in range(2))
        overlapping = {name for name, interval in intervals.items() if interval.overlaps(since, until)}
        if since is not None and until is not None and until <= since:
            continue
        window = {
            key: format_instant(bound) for key, bound in (("since", since), ("until", until)) if bound is not None
        }
        assert set(found(desk, limit=100, **window)) == overlapping, window


def test_until_a_day_ends_before_that_day(desk: Desk) -> None:
    dated(desk, before="2026-09-19T23:59:59.999Z", first="2026-09-20T00:00:00Z", day="2026-09-20")
    assert found(desk, until="2026-09-20") == ["before"]
    assert set(found(desk, since="2026-09-20")) == {"first", "day"}


def test_an_instant_with_an_offset_counts_on_its_utc_day(desk: Desk) -> None:
    dated(desk, west="2026-09-20T23:30:00-05:00", east="2026-09-20T00:30:00+02:00")
    assert (day(desk, "2026-09-21"), day(desk, "2026-09-19"), day(desk, "2026-09-20")) == (["west"], ["east"], [])
    assert found(desk, since="2026-09-20T23:30:00-05:00", until="2026-09-21T04:30:00.001Z") == ["west"]
    assert [row["date"] for row in rows(timeline(desk), "entries")] == ["2026-09-21", "2026-09-19"]


def test_the_leap_day_is_in_its_month_and_year_and_in_no_other(desk: Desk) -> None:
    dated(desk, leap="2028-02-29", month="2028-02", year="2028", other="2027")
    assert set(day(desk, "2028-02-29")) == {"leap", "month", "year"}
    assert set(found(desk, since="2028-02-29", until="2028-03-01")) == {"leap", "month", "year"}
    assert set(day(desk, "2028-12-31")) == {"year"}
    assert set(day(desk, "2027-12-31")) == {"other"}
    error = desk.fails("chronicle_day", {"date": "2027-02-29"})
    assert isinstance(error, InvalidArgument)


def test_the_time_field_defaults_to_occurred_else_recorded(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", claim_file("happened", "A.", occurred_at="2026-08-05", recorded_at="2026-09-05T00:00:00.000Z")),
            ("b.md", claim_file("noted", "B.", recorded_at="2026-09-05T00:00:00.000Z")),
            ("p.md", page_file("page", "P", recorded_at="2026-09-06T00:00:00.000Z")),
        ],
    )
    assert found(desk, since="2026-09") == ["page", "noted"]
    assert found(desk, until="2026-09") == ["happened"]
    assert found(desk, timeField="occurred") == ["happened"]
    assert set(found(desk, timeField="recorded", since="2026-09-05", until="2026-09-06")) == {"happened", "noted"}


@pytest.mark.parametrize("field", ["occurred", "recorded", "updated", "due"])
def test_each_time_field_tests_its_own_date_and_shows_it(desk: Desk, field: str) -> None:
    claim = claim_file(
        "c",
        "So.",
        occurred_at="2026-03-01",
        recorded_at="2026-04-01T10:00:00.000Z",
        updated_at="2026-05-01T10:00:00.000Z",
        due_at="2026-06",
    )
    write_note(desk.folder(), "c.md", claim)
    date = {"occurred": "2026-03-01", "recorded": "2026-04-01", "updated": "2026-05-01", "due": "2026-06"}[field]
    month = date[:7]
    following = f"2026-{int(month[5:]) + 1:02}"
    [row] = rows(timeline(desk, timeField=field, since=month, until=following), "entries")
    assert (row["id"], row["date"]) == ("c", date)
    assert found(desk, timeField=field, until=month) == []
    assert found(desk, timeField=field, since=following) == []


def test_a_record_without_the_date_that_is_tested_is_not_in_the_timeline(desk: Desk) -> None:
    dated(desk, happened="2026-09-20")
    assert found(desk, timeField="due") == []
    assert found(desk, timeField="due", since="2026-09") == []


def test_an_interval_that_can_hold_nothing_is_refused(desk: Desk) -> None:
    for since, until in (("2026-09-20", "2026-09-20"), ("2026-10", "2026-09")):
        error = desk.fails("timeline", {"since": since, "until": until})
        assert isinstance(error, InvalidArgument)
        assert error.fields["field"] == "until"


# --- order, rows, filters ---------------------------------------------------------------------------------------------


def test_the_timeline_is_latest_first_or_earliest_first_and_stable(desk: Desk) -> None:
    dated(desk, a="2026-09-20", b="2026-09", c="2026-09-20T08:00:00Z", d="2026-09-20", e="2026")
    latest = found(desk)
    assert latest == ["c", "d", "a", "b", "e"]
    assert found(desk, order="asc") == latest[::-1]
    assert found(desk, since="2026-09-20", order="asc") == latest[::-1], "dates that reach in keep their place"


def test_an_entry_is_its_date_plus_the_list_row(desk: Desk) -> None:
    write_notes(desk.folder(), [("p.md", page_file("p", "P")), ("c.md", claim_file("c", "So.", entities=["p"]))])
    listed = {row["id"]: row for row in rows(desk.call("records"), "records")}
    answer = timeline(desk)
    assert list(answer) == ["total", "entries"]
    for row in rows(answer, "entries"):
        assert row == {"date": "2026-10-01", **listed[row["id"]]}


def people(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("p/a.md", page_file("alex", "Alex Morgan", type="person", aliases=["Lex"])),
            ("p/b.md", page_file("bo", "Bo", type="person")),
            ("p/o.md", page_file("old", "Alexander", type="person", lifecycle="merged", merged_into="alex")),
            ("c/1.md", claim_file("about", "A.", entities=["bo", "alex"], claim_kind="decision")),
            ("c/2.md", claim_file("owned", "B.", owner="alex", claim_kind="commitment")),
            ("c/3.md", claim_file("merged", "C.", entities=["old"], owner="bo")),
            ("c/4.md", claim_file("other", "D.", entities=["bo"])),
            ("r/1.md", relationship_file("tie", "bo", "alex", label="related_to")),
        ],
    )


def test_a_timeline_filters_by_kind_subject_owner_and_claim_kind(desk: Desk) -> None:
    people(desk)
    for filters, expected in (
        ({"kind": "page"}, {"alex", "bo"}),
        ({"kind": "relationship"}, {"tie"}),
        ({"claimKind": "decision"}, {"about"}),
        ({"subject": "alex"}, {"about", "merged", "tie"}),
        ({"subject": "alex", "kind": "claim"}, {"about", "merged"}),
        ({"owner": "alex"}, {"owned"}),
        ({"subject": "alex", "owner": "bo"}, {"merged"}),
        ({"subject": "alex", "claimKind": "commitment"}, set()),
        ({"subject": "alex", "since": "2026-10-02"}, set()),
    ):
        assert set(found(desk, **filters)) == expected, filters


def test_a_subject_is_an_id_a_full_title_or_an_alias_merge_redirects_followed(desk: Desk) -> None:
    people(desk)
    for name in ("alex", "ALEX morgan", "lex", "old", "Alexander"):
        assert set(found(desk, subject=name)) == {"about", "merged", "tie"}, name


def test_a_name_of_no_page_or_of_several_is_refused_and_the_first_is_never_taken(desk: Desk) -> None:
    people(desk)
    write_note(desk.folder(), "p/c.md", page_file("lexx", "Lex", type="person"))
    missing, several = desk.fails("timeline", {"owner": "Nobody"}), desk.fails("timeline", {"subject": "Lex"})
    assert isinstance(missing, NotFound)
    assert isinstance(several, Ambiguous)
    assert (missing.fields["field"], several.fields["field"]) == ("owner", "subject")
    assert several.fields["ids"] == ["alex", "lexx"]
    assert isinstance(desk.fails("timeline", {"subject": "about"}), NotFound), "a claim is no page"


def test_a_filter_that_cannot_apply_to_the_kind_is_refused(desk: Desk) -> None:
    for filters, field in (
        ({"kind": "page", "subject": "alex"}, "subject"),
        ({"kind": "relationship", "owner": "alex"}, "owner"),
        ({"kind": "page", "claimKind": "fact"}, "claimKind"),
    ):
        error = desk.fails("timeline", filters)
        assert isinstance(error, InvalidArgument)
        assert error.fields["field"] == field


def test_only_current_eligible_records_are_in_a_timeline_or_chronicle(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("1.md", promise("current")),
            ("2.md", promise("superseded", lifecycle="superseded", superseded_by="current")),
            ("3.md", promise("withdrawn", lifecycle="withdrawn")),
            ("4.md", promise("expired", expires_at="2026-10-01")),
            ("5.md", promise("fixture", fixture=True)),
            ("6.md", page_file("invalid", "F", type="spaceship", recorded_at="2026-09-20T10:00:00.000Z")),
            ("7.md", page_file("merged", "G", lifecycle="merged", merged_into="x", recorded_at="2026-09-20T10:00:00Z")),
        ],
    )
    assert found(desk) == day(desk, "2026-09-20") == ["current"]
    assert days(desk, "2026-09-01", "2026-10-01") == {"2026-09-20": {"claim": 1}}
    due = desk.call("chronicle_due")
    assert (ids(due, "due"), due["totals"]) == (["current"], {"overdue": 0, "due": 1, "upcoming": 0})


def test_another_partitions_records_are_not_in_a_timeline(desk: Desk) -> None:
    write_note(desk.folder(GROUP_PARTITION), "c.md", claim_file("c", "So.", partition=GROUP_PARTITION))
    assert found(desk) == []
    assert ids(desk.call("timeline", partition=GROUP_PARTITION), "entries") == ["c"]


def test_timeline_summaries_preserve_surrogate_pairs_and_later_lines_do_not_fill_the_gap(desk: Desk) -> None:
    title = "t" * 199 + "🙂"
    write_notes(
        desk.folder(),
        [
            ("c.md", claim_file("c", "a" * 3_999 + "🙂\nlater line")),
            ("p.md", page_file("p", title)),
        ],
    )
    shown = {row["id"]: row for row in rows(timeline(desk), "entries")}
    assert shown["c"]["text"] == "a" * 3_999
    assert utf16_length(str(shown["c"]["text"])) == 3_999, "one unit before the cap"
    assert shown["c"]["truncated"] is True
    assert shown["p"]["title"] == "t" * 199


# --- pages ------------------------------------------------------------------------------------------------------------


def test_a_timeline_pages_with_total_next_offset_and_snapshot_like_the_inventory(desk: Desk) -> None:
    dated(desk, **{f"c{n:02}": f"2026-09-{n + 1:02}" for n in range(25)})
    first = timeline(desk)
    assert (first["total"], first["nextOffset"], len(rows(first, "entries"))) == (25, 20, 20)
    last = timeline(desk, offset=20, snapshot=first["snapshot"])
    assert "nextOffset" not in last
    assert last["snapshot"] == first["snapshot"]
    seen = [*ids(first, "entries"), *ids(last, "entries")]
    assert seen == [f"c{n:02}" for n in reversed(range(25))]
    desk.remember("Another.")
    assert isinstance(desk.fails("timeline", {"offset": 20, "snapshot": first["snapshot"]}), SnapshotChanged)


def test_every_list_stays_within_24_kib(desk: Desk) -> None:
    for month in ("2026-10", "2026-11", "2026-12"):
        names = [f"{month}-{n}" for n in range(8)]
        write_notes(desk.folder(), [(f"c/{name}.md", promise(name, "é" * 3_900, due_at=month)) for name in names])
    for tool, arguments in (
        ("timeline", {"limit": 100}),
        ("chronicle_day", {"date": "2026-09-20"}),
    ):
        answer = desk.call(tool, arguments)
        assert json_bytes(answer) <= 24 * 1024
        assert (answer["total"], answer["nextOffset"]) == (24, len(rows(answer, "entries")))
    due = desk.call("chronicle_due", {"horizonDays": 366})
    assert json_bytes(due) <= 24 * 1024
    assert due["totals"] == {"overdue": 8, "due": 8, "upcoming": 8}
    assert [bool(rows(due, name)) for name in ("overdue", "due", "upcoming")] == [True, True, True]


# --- chronicle --------------------------------------------------------------------------------------------------------


def test_days_are_counted_per_day_and_kind(desk: Desk) -> None:
    dated(desk, a="2026-09-20", b="2026-09-20T23:59:59Z", c="2026-09-22")
    write_note(desk.folder(), "p.md", page_file("p", "P", recorded_at="2026-09-22T10:00:00.000Z"))
    assert days(desk, "2026-09", "2026-10") == {
        "2026-09-20": {"claim": 2},
        "2026-09-22": {"claim": 1, "page": 1},
    }
    assert list(days(desk, "2026-09", "2026-10")) == ["2026-09-20", "2026-09-22"]


def test_each_day_counts_exactly_what_it_lists(desk: Desk) -> None:
    dated(
        desk, year="2026", month="2026-02", day="2026-02-28", instant="2026-03-01T00:00:00Z", old="1969-12-31",
        eve="2026-02-28T23:59:59.999Z", march="2026-03", leap="2024-02-29", first="0001-01-01",
    )  # fmt: skip
    for since, until in (("2026-02-20", "2026-03-10"), ("1969-12-25", "1970-01-05"), ("2024-02-25", "2024-03-05")):
        counted = days(desk, since, until)
        assert counted
        for date, kinds in counted.items():
            assert len(day(desk, str(date))) == kinds["claim"], date
    assert days(desk, "0001-01-01", "0001-01-03") == {"0001-01-01": {"claim": 1}}
    assert days(desk, "2026-02-28", "2026-03-02") == {"2026-02-28": {"claim": 4}, "2026-03-01": {"claim": 3}}


def test_a_span_of_days_is_at_most_366_days(desk: Desk) -> None:
    dated(desk, year="2028")
    counted = days(desk, "2028", "2029")
    assert (len(counted), counted["2028-02-29"]) == (366, {"claim": 1})
    error = desk.fails("chronicle_days", {"since": "2027", "until": "2028-01-03"})
    assert isinstance(error, InvalidArgument)
    assert (error.fields["field"], error.fields["reason"]) == ("until", "out_of_range")


def test_a_day_is_one_day_and_nothing_else(desk: Desk) -> None:
    for date in ("2026", "2026-09", "2026-09-20T10:00:00Z", "yesterday"):
        error = desk.fails("chronicle_day", {"date": date})
        assert isinstance(error, InvalidArgument)
        assert error.fields["field"] == "date"


def test_a_day_is_read_earliest_first_page_by_page(desk: Desk) -> None:
    dated(desk, month="2026-09", **{f"c{n:02}": f"2026-09-20T{n % 24:02}:00:00Z" for n in range(24)})
    first = desk.call("chronicle_day", {"date": "2026-09-20"})
    assert ids(first, "entries")[:3] == ["month", "c00", "c01"]
    assert (first["total"], first["nextOffset"]) == (25, 20)
    last = desk.call("chronicle_day", {"date": "2026-09-20", "offset": 20})
    assert ids(last, "entries")[-1] == "c23"
    assert last["snapshot"] == first["snapshot"]


# --- what is due ------------------------------------------------------------------------------------------------------


def commitments(desk: Desk, **due: str) -> None:
    write_notes(
        desk.folder(),
        [
            (f"c/{name}.md", claim_file(name, f"I do {name}.", claim_kind="commitment", due_at=date))
            for name, date in due.items()
        ],
    )


def lists(desk: Desk, **arguments: JsonValue) -> dict[str, list[JsonValue]]:
    answer = desk.call("chronicle_due", arguments)
    return {name: ids(answer, name) for name in ("overdue", "due", "upcoming")}


def test_commitments_are_overdue_due_or_upcoming_by_their_whole_due_date(desk: Desk) -> None:
    commitments(
        desk, year="2025", october="2026-10", sunday="2026-11-01", noon="2026-11-02T12:00:00Z", today="2026-11-02",
        month="2026-11", tonight="2026-11-02T23:59:59.999Z", tuesday="2026-11-03", last="2026-11-09", out="2026-11-10",
    )  # fmt: skip
    assert desk.call("chronicle_due")["asOf"] == "2026-11-02"
    assert lists(desk) == {
        "overdue": ["year", "october", "sunday"],
        "due": ["month", "today", "noon", "tonight"],
        "upcoming": ["tuesday", "last"],
    }


def test_the_lists_are_seen_from_as_of_and_its_whole_interval(desk: Desk) -> None:
    commitments(desk, sunday="2026-11-01", today="2026-11-02", december="2026-12", january="2027-01-02")
    assert lists(desk, asOf="2026-11-01") == {"overdue": [], "due": ["sunday"], "upcoming": ["today"]}
    assert lists(desk, asOf="2026-12", horizonDays=1) == {
        "overdue": ["sunday", "today"], "due": ["december"], "upcoming": []
    }  # fmt: skip
    assert lists(desk, asOf="2026-12", horizonDays=2)["upcoming"] == ["january"]
    assert lists(desk, asOf="2026-11-02T00:00:00+02:00")["due"] == ["sunday"], "an instant is its own moment"


def test_the_horizon_is_at_most_366_days_and_may_be_none(desk: Desk) -> None:
    commitments(desk, today="2026-11-02", tomorrow="2026-11-03", year="2027-11-02")
    assert lists(desk, horizonDays=0)["upcoming"] == []
    assert lists(desk, horizonDays=366)["upcoming"] == ["tomorrow", "year"]
    assert isinstance(desk.fails("chronicle_due", {"horizonDays": 367}), InvalidArgument)


def test_only_commitments_with_a_due_date_are_due(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", claim_file("fact", "A.", due_at="2026-11-02")),
            ("b.md", claim_file("open", "B.", claim_kind="commitment")),
        ],
    )
    assert lists(desk) == {"overdue": [], "due": [], "upcoming": []}


def test_a_commitment_that_has_expired_by_then_is_not_due(desk: Desk) -> None:
    commitment = claim_file("c", "I do.", claim_kind="commitment", due_at="2026-11-01", expires_at="2026-12-01")
    write_note(desk.folder(), "c.md", commitment)
    assert lists(desk)["overdue"] == ["c"]
    assert lists(desk, asOf="2027")["overdue"] == []
    desk.now_ms = instant("2027-01-01T00:00:00Z")
    assert lists(desk, asOf="2026-11-02")["overdue"] == []


def test_a_commitment_comes_with_its_due_date_as_written_and_its_owner(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", page_file("alex", "Alex Morgan", type="person")),
            ("o.md", page_file("old", "Lex", type="person", lifecycle="merged", merged_into="alex")),
            ("1.md", claim_file("hers", "A.", claim_kind="commitment", due_at="2026-11", owner="old")),
            ("2.md", claim_file("nobodys", "B.", claim_kind="commitment", due_at="2026-11-02T15:00:00+02:00")),
        ],
    )
    first, second = rows(desk.call("chronicle_due"), "due")
    assert (first["due"], first["owner"]) == ("2026-11", {"id": "alex", "title": "Alex Morgan"})
    assert (second["due"], "owner" in second) == ("2026-11-02T15:00:00+02:00", False)
    assert (second["kind"], second["claimKind"], second["text"]) == ("claim", "commitment", "B.")


def test_what_a_list_does_not_show_is_counted_and_paged_by_the_timeline(desk: Desk) -> None:
    commitments(desk, **{f"c{n:02}": "2026-10-01" for n in range(60)})
    answer = desk.call("chronicle_due")
    assert answer["totals"] == {"overdue": 60, "due": 0, "upcoming": 0}
    assert len(rows(answer, "overdue")) == 50
    paged = timeline(desk, timeField="due", claimKind="commitment", until="2026-11-02", limit=100)
    assert paged["total"] == 60


# --- cost -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", [None, "occurred", "recorded", "updated", "due"])
def test_a_window_is_searched_in_an_index_from_both_sides_and_a_subject_by_who_names_it(
    desk: Desk, field: TimeField | None
) -> None:
    """Beside the counts of ``tests/stress/test_costs.py``: whatever SQLite knows of the data."""
    dated(desk, a="2026-09-20", b="2026")
    reader = desk.partition().catalogue
    since, until = instant("2026-09-01T00:00:00Z"), instant("2026-10-01T00:00:00Z")
    window = stored.TimelineFilters(now_ms=desk.now_ms, time_field=field, since=since, until=until)

    def plan(filters: stored.TimelineFilters) -> list[str]:
        sql, parameters = stored._matching(reader.number, filters, "r.row AS row")
        steps = [str(row[3]) for row in reader.database.query(f"EXPLAIN QUERY PLAN {sql}", parameters)]
        return [step for step in steps if " r " in step or " f " in step]

    for step in plan(window):
        assert re.fullmatch(r"SEARCH r USING INDEX \w+ \(partition=\? AND (\S+)>\? AND \1<\?\)", step), step
    named, found = plan(replace(window, subjects=("a",)))
    assert named.startswith("SEARCH f USING"), named
    assert "partition=? AND target=? AND role=?" in named
    assert found == "SEARCH r USING INTEGER PRIMARY KEY (rowid=?)"


def test_the_default_order_is_latest_first() -> None:
    assert TimelineRequest().order == "desc"
