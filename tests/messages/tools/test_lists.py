"""List rows and list responses: what they carry, what they leave out, and how they page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from messages.json_types import JsonObject, JsonValue
from messages.tools import (
    ClaimRow,
    GitState,
    HistoryRow,
    PageRef,
    PageRow,
    RelationshipRow,
    SearchHit,
    claim_text,
    grep_response,
    grep_unavailable,
    history_response,
    json_bytes,
    lookup_response,
    paging,
    records_response,
    rows_within,
)
from tests.messages.tools.samples import HASH

PAGE = PageRow(id="p1", revision=3, hash=HASH, title="Garden Pilot", type="project")
CLAIM = ClaimRow(id="c1", revision=1, hash=HASH, claim_kind="decision", day="2026-10-19", text="Chose option B.")
RELATION = RelationshipRow(id="r1", revision=1, hash=HASH, source="p1", target="p2", label="works_at")


def test_a_page_row_has_title_and_type() -> None:
    assert PAGE.to_json() == {
        "id": "p1", "revision": 3, "hash": HASH[:16], "kind": "page", "title": "Garden Pilot", "type": "project",
    }  # fmt: skip


def test_a_claim_row_has_kind_day_and_text_and_no_empty_member() -> None:
    assert CLAIM.to_json() == {
        "id": "c1", "revision": 1, "hash": HASH[:16], "kind": "claim", "claimKind": "decision", "day": "2026-10-19",
        "text": "Chose option B.",
    }  # fmt: skip


def test_a_claim_row_names_linked_pages_and_its_source_page() -> None:
    row = ClaimRow(
        id="c1",
        revision=1,
        hash=HASH,
        claim_kind="fact",
        day="2026",
        text="x",
        pages=[PageRef("p1", "A")],
        source_page="s1",
    ).to_json()
    assert row["pages"] == [{"id": "p1", "title": "A"}]
    assert row["sourcePage"] == "s1"


def test_a_relationship_row_has_both_ends_and_its_label() -> None:
    assert RELATION.to_json() == {
        "id": "r1",
        "revision": 1,
        "hash": HASH[:16],
        "kind": "relationship",
        "from": "p1",
        "label": "works_at",
        "to": "p2",
    }


def test_lifecycle_and_origin_appear_only_when_they_are_not_the_usual_ones() -> None:
    for row in (PAGE, CLAIM, RELATION):
        assert not {"lifecycle", "assertionOrigin", "truncated", "via"} & set(row.to_json())
    odd: Sequence[JsonObject] = [
        ClaimRow(id="c", revision=1, hash=HASH, claim_kind="belief", day="2026", text="x", lifecycle="superseded",
                 assertion_origin="user_belief").to_json(),
        RelationshipRow(id="r", revision=1, hash=HASH, source="a", target="b", label="l", lifecycle="superseded",
                        assertion_origin="user_belief").to_json(),
    ]  # fmt: skip
    for shown in odd:
        assert (shown["lifecycle"], shown["assertionOrigin"]) == ("superseded", "user_belief")
    assert (
        PageRow(id="p", revision=1, hash=HASH, title="t", type="x", lifecycle="merged").to_json()["lifecycle"]
        == "merged"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a" * 4_000, {"text": "a" * 4_000}),
        ("a" * 4_001, {"truncated": True, "text": "a" * 4_000}),
        ("😀" * 2_001, {"truncated": True, "text": "😀" * 2_000}),
        ("a" + "😀" * 2_000, {"truncated": True, "text": "a" + "😀" * 1_999}),
        ("a<!-- " + "x" * 5_000 + " -->b", {"text": "ab"}),
    ],
)
def test_claim_text_is_cut_at_4000_units_without_comments_or_half_pairs(text: str, shown: JsonObject) -> None:
    assert claim_text(text) == shown


@pytest.mark.parametrize(
    ("title", "text", "shown"),
    [
        ("Chose option B", "Chose option  B because it ships sooner.", False),
        ("Chose option…", "Chose option B.", False),
        ("Release decision", "Chose option B.", True),
    ],
)
def test_a_search_hit_omits_the_title_that_its_text_repeats(title: str, text: str, shown: bool) -> None:
    row = ClaimRow(id="c", revision=1, hash=HASH, claim_kind="fact", day="2026", text=text, title=title)
    assert ("title" in SearchHit(row=row, snippet="s").to_json()) is shown


def test_a_hit_has_a_snippet_and_a_replacement_names_what_it_replaced() -> None:
    assert "via" not in SearchHit(row=CLAIM, snippet="option").to_json()
    hit = SearchHit(row=CLAIM, snippet="option", via="c0").to_json()
    assert (hit["snippet"], hit["via"]) == ("option", "c0")
    assert list(hit)[-1] == "text"


@pytest.mark.parametrize(
    ("offset", "returned", "total", "shown"),
    [
        (0, 10, 10, {}),
        (0, 10, 11, {"nextOffset": 10, "snapshot": "s"}),
        (10, 1, 11, {"snapshot": "s"}),
        (20, 0, 11, {"snapshot": "s"}),
        (0, 0, 0, {}),
    ],
)
def test_next_offset_while_another_page_remains_and_snapshot_only_when_paging(
    offset: int, returned: int, total: int, shown: JsonObject
) -> None:
    assert paging(offset=offset, returned=returned, total=total, snapshot="s") == shown


def test_an_offset_that_may_not_be_asked_for_is_not_offered() -> None:
    hits = [SearchHit(row=PAGE, snippet="s")] * 50
    assert grep_response(hits, total=900, offset=450, snapshot="s")["nextOffset"] == 500
    assert "nextOffset" not in grep_response(hits, total=900, offset=500, snapshot="s")


def test_replacement_rows_count_in_the_page_but_not_in_paging_or_total() -> None:
    hits = [SearchHit(row=PAGE, snippet="s"), SearchHit(row=PAGE, snippet="s", via="old")]
    assert grep_response(hits, total=1, offset=0, snapshot="s") == {"total": 1, "hits": [hit.to_json() for hit in hits]}


def test_a_failed_search_is_not_zero_matches() -> None:
    assert grep_unavailable("rebuilding") == {
        "index": {"state": "unavailable", "reason": "rebuilding"}, "total": None, "hits": [],
    }  # fmt: skip


@pytest.mark.parametrize(("total", "state"), [(0, "missing"), (1, "found"), (2, "ambiguous")])
def test_a_lookup_is_found_ambiguous_or_missing_by_all_its_matches(total: int, state: str) -> None:
    response = lookup_response([PAGE] * min(total, 1), total=total)
    assert response["state"] == state
    assert ("nextOffset" in response) is (total > 1)


def test_a_lookup_hit_has_no_snippet() -> None:
    assert lookup_response([PAGE], total=1)["hits"] == [PAGE.to_json()]


LONG = ClaimRow(id="c1", revision=1, hash=HASH, claim_kind="fact", day="2026", text="知" * 4_000)
LONG_HISTORY = HistoryRow(
    sequence=1,
    operation="remember",
    id="c" * 128,
    revision=1,
    hash=HASH,
    at="2026-10-19T10:00:00.000Z",
    actor="a" * 128,
    request_id="r",
    path="p" * 500,
)


@pytest.mark.parametrize(
    "response",
    [
        grep_response([SearchHit(row=LONG, snippet="s")] * 50, total=50, offset=0, snapshot="x" * 200),
        lookup_response([LONG] * 50, total=50),
        records_response([LONG] * 100, total=100, offset=0, snapshot="x" * 200),
        history_response([LONG_HISTORY] * 100, total=100, offset=0, git=GitState("pending", 9, "m" * 300)),
    ],
    ids=["grep", "lookup", "records", "history"],
)
def test_a_list_response_stays_within_24_kib_and_pages_on_from_where_it_was_cut(response: JsonObject) -> None:
    rows: Any = next(value for value in response.values() if isinstance(value, list))
    assert json_bytes(response) <= 24 * 1024
    assert response["nextOffset"] == len(rows) > 0


def test_a_row_larger_than_a_response_is_still_returned_so_that_paging_moves_on() -> None:
    assert rows_within([{"a": "x" * 30_000}, {"a": 1}]) == [{"a": "x" * 30_000}]


def test_offsets_and_totals_stand_before_the_rows() -> None:
    response = records_response([PAGE], total=5, offset=0, snapshot="s", coverage={"skipped": 1})
    assert list(response) == ["total", "nextOffset", "snapshot", "coverage", "records"]
    assert "coverage" not in records_response([PAGE], total=1, offset=0, snapshot="s")


def test_a_history_row_leaves_out_what_it_does_not_have() -> None:
    row = HistoryRow(sequence=4, operation="edit", id="p", revision=2, hash=HASH, at="t", actor="person", external=True)
    assert row.to_json() == {
        "sequence": 4, "operation": "edit", "id": "p", "revision": 2, "hash": HASH, "at": "t", "actor": "person",
        "external": True,
    }  # fmt: skip


def test_sizes_are_those_of_compact_utf8_json() -> None:
    value: JsonObject = {"a": "知😀\n", "b": [1, None]}
    assert json_bytes(value) == len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def test_a_first_row_that_does_not_fit_alone_has_its_later_pages_left_out_and_says_so() -> None:
    pages: list[JsonValue] = [{"id": f"p{n}", "title": "界" * 200} for n in range(100)]
    row: JsonObject = {"id": "c", "kind": "claim", "pages": pages, "text": "x" * 4_000}
    [shown] = rows_within([row])
    assert json_bytes([shown]) <= 23 * 1024
    assert (shown["id"], shown["text"], shown["omitted"]) == ("c", "x" * 4_000, ["pages"])
    kept = shown["pages"]
    assert isinstance(kept, list)
    assert 0 < len(kept) < 100
    assert kept == pages[: len(kept)]
    assert "truncated" not in shown


def test_a_first_row_whose_text_does_not_fit_alone_has_it_cut_between_characters() -> None:
    row: JsonObject = {"id": "c", "pages": [{"id": "p", "title": "P"}], "text": "🙂" * 2_000}
    [shown] = rows_within([row], 2_000)
    assert json_bytes([shown]) <= 2_000
    assert shown["truncated"] is True
    assert set(str(shown["text"])) == {"🙂"}
    assert "omitted" not in shown
    assert shown["pages"] == row["pages"]


def test_a_later_row_is_never_shortened_but_left_for_the_next_page() -> None:
    long: JsonObject = {"id": "b", "text": "x" * 4_000}
    assert rows_within([{"id": "a", "text": "short"}, long], 3_000) == [{"id": "a", "text": "short"}]
