"""What comes first, what is counted, and what the filters leave (SEARCH.md section 2, knowledge-more-facts.md)."""

from __future__ import annotations

import calendar
from dataclasses import replace

import pytest

from storage.search import (
    IndexChange,
    IndexDocument,
    SearchFilters,
    SearchIndex,
    SearchQuery,
    TimeField,
)
from storage.search._symbols import literals
from tests.storage.search.samples import NOTE, bodies, fill, rows, titled, total

NOW = 1_000_000


def day(year: int, month: int, number: int) -> int:
    return calendar.timegm((year, month, number, 0, 0, 0)) * 1_000


# query -> titles of the literal hits, titles of the other hits
LITERAL_FIRST = [
    ("C++", ["C++ style", "modern c++11"], ["C# style", "plan C", "F C"]),
    ("C#", ["C# style"], ["C++ style", "plan C"]),
    (".NET", ["the .NET runtime", "ASP.NET site"], ["net gain"]),
    ("v2.8.3", ["v2.8.3 is out", "(v2.8.3), at last", "tag/v2.8.3."], ["v2.8.3.1 is out", "v2 8 3"]),
    ("nginx.conf", ["edit nginx.conf", "/etc/nginx/nginx.conf"], ["edit nginx.conf.bak", "nginx conf"]),
    ("fe80::1", ["ping fe80::1", "[fe80::1]:443"], ["ping fe80::1:2"]),
    ("AT&T", ["call AT&T"], ["look at t"]),
    ("2026-08-31", ["on 2026-08-31", "2026-08-31, 10:00"], ["on 2026/08/31", "on 2026-08-31-02"]),
    ("#release", ["see #release"], ["the release"]),
    ("@ann", ["ask @ann"], ["ask ann", "ask @@ann"]),
    ("O'Brien", ["O’Brien called", "O'Brien called"], ["o brien"]),
    ("user_id", ["the user_id field"], ["user id"]),
    ("C:\\XYZ\\", ["in C:\\XYZ\\a.txt"], ["c xyz"]),
    ("-5", ["at -5 degrees"], ["at 5 degrees"]),
    ("a-b.md", ["file a-b.md"], ["file a b.md", "file a_b.md"]),
    ("50%", ["about 50% done"], ["about 50 done"]),
    ("用C++写", ["用C++写的"], ["用C写的"]),
    ("C+", ["grade C+"], ["grade C++", "grade C"]),
    ("naïve-bayes", ["NAÏVE–Bayes"], ["naive bayes"]),
]


@pytest.mark.parametrize(("query", "first", "after"), LITERAL_FIRST)
def test_hits_that_hold_the_very_word_come_first(
    index: SearchIndex, query: str, first: list[str], after: list[str]
) -> None:
    fill(index, titled(*after, *first))
    hits = index.search(SearchQuery(query, limit=50), at_least=0).hits
    titles = [(after + first)[hit.rowid - 1] for hit in hits]
    assert sorted(titles[: len(first)]) == sorted(first)
    assert sorted(titles[len(first) :]) == sorted(after)
    assert [hit.literal for hit in hits] == [True] * len(first) + [False] * len(after)


def test_the_few_pages_with_the_symbol_are_found_first_in_a_store_full_of_the_letter(index: SearchIndex) -> None:
    fill(index, titled(*["c"] * 3_000))
    fill(index, bodies("a very long text " * 50 + "about C++ and more"), first=3_001)
    hits = index.search(SearchQuery("C++", limit=2), at_least=0).hits
    assert [(hit.rowid, hit.literal) for hit in hits] == [(3_001, True), (1, False)]


def test_in_any_mode_a_hit_on_a_plain_word_is_not_put_behind_a_literal_one(index: SearchIndex) -> None:
    fill(index, titled("migration migration plan", "old C++ notes", "plan c"))
    hits = index.search(SearchQuery("C++ migration", "any"), at_least=0).hits
    assert [hit.literal for hit in hits] == [True, True, False]
    assert hits[-1].rowid == 3


def test_every_symbol_word_has_to_stand_there_for_a_literal_hit_of_all_words(index: SearchIndex) -> None:
    fill(index, titled("C++ v2 8", "c v2.8", "C++ v2.8"))
    hits = index.search(SearchQuery("C++ v2.8"), at_least=0).hits
    assert [(hit.rowid, hit.literal) for hit in hits] == [(3, True), (1, False), (2, False)]


def test_plain_words_make_every_hit_literal_and_leave_the_order_to_bm25(index: SearchIndex) -> None:
    fill(index, [*titled("other garden words here"), *bodies("garden"), *titled("garden")])
    hits = index.search(SearchQuery("Garden."), at_least=0).hits
    assert [hit.literal for hit in hits] == [True] * 3
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert hits[0].rowid == 3


def test_symbol_words_of_ordinary_prose_and_hindi_are_none() -> None:
    assert literals('He said: "Yes, we can," (maybe) — *really*... कमल की बैठक 今日は、晴れ。') == ()
    assert [one.letters for one in literals("see a/b, C++! and it's")] == ["a/b", "c++", "it's"]


def test_a_private_use_character_of_a_text_is_no_symbol_of_ours(index: SearchIndex) -> None:
    fill(index, titled("C\ue02b\ue02b icon"))
    hits = index.search(SearchQuery("C++"), at_least=0).hits
    assert [hit.literal for hit in hits] in ([], [False])


def test_a_phrase_lies_within_one_field_and_one_alias(index: SearchIndex) -> None:
    fill(
        index,
        [
            replace(NOTE, title="garden", body="pilot"),
            replace(NOTE, title="x", aliases=("garden", "pilot")),
            replace(NOTE, title="x", aliases=("the garden pilot", "y")),
            replace(NOTE, body="pilot garden"),
            replace(NOTE, body="garden.\nPilot"),
        ],
    )
    assert sorted(rows(index, "garden pilot", "phrase")) == [3, 5]
    assert sorted(rows(index, "garden pilot", "all")) == [1, 2, 3, 4, 5]


def test_a_word_that_most_pages_hold_still_ranks_and_still_finds(index: SearchIndex) -> None:
    fill(index, titled(*["alex"] * 20, "alex zeppelin", "zeppelin"))
    assert sorted(rows(index, "alex zeppelin", "any", limit=2)) == [21, 22]
    assert total(index, "alex zeppelin", "any") == 22
    assert rows(index, "alex zeppelin") == [21]
    assert all(hit.score > 0 for hit in index.search(SearchQuery("alex", limit=50), at_least=0).hits)


def test_a_word_in_a_name_counts_more_than_in_a_body(index: SearchIndex) -> None:
    fill(index, [replace(NOTE, title="other", body="garden"), replace(NOTE, title="garden", body="other")])
    assert rows(index, "garden") == [2, 1]


def test_a_word_after_a_megabyte_is_found(index: SearchIndex) -> None:
    fill(index, bodies("filler words " * 90_000 + "needle", "ﬁller ünd " * 90_000 + "nädel"))
    assert rows(index, "needle") == [1]
    assert rows(index, "nadel") == [2]


def test_pages_of_hits_fit_together_whatever_their_size(index: SearchIndex) -> None:
    fill(index, titled(*(f"garden v{number % 3}.{number % 7} {'x ' * (number % 5)}" for number in range(120))))
    for text in ("garden", "garden v1.2", "v1.2"):
        whole = rows(index, text, limit=200)
        assert len(whole) == total(index, text) == len(set(whole))
        for size in (1, 7, 50):
            pages = [rows(index, text, limit=size, offset=offset) for offset in range(0, len(whole) + size, size)]
            assert [row for page in pages for row in page] == whole


def test_an_offset_behind_the_last_hit_gives_no_hits_and_the_true_total(index: SearchIndex) -> None:
    fill(index, titled("garden", "garden"))
    page = index.search(SearchQuery("garden", offset=500), at_least=0)
    assert (page.hits, page.total) == ((), 2)


def test_equal_hits_are_ordered_by_row(index: SearchIndex) -> None:
    fill(index, titled(*["garden"] * 30))
    assert rows(index, "garden") == list(range(1, 31))


FILTERED: list[tuple[SearchFilters, IndexDocument, IndexDocument]] = [
    (SearchFilters(kind="claim"), replace(NOTE, kind="claim"), replace(NOTE, kind="relationship")),
    (SearchFilters(types=frozenset({"deal", "sale"})), replace(NOTE, type="deal"), replace(NOTE, type="Deal")),
    (SearchFilters(tag="Alpha"), replace(NOTE, tags=("x", "Alpha")), replace(NOTE, tags=("alpha", "Alpha2"))),
    (SearchFilters(), NOTE, replace(NOTE, lifecycle="superseded")),
    (SearchFilters(), NOTE, replace(NOTE, lifecycle="withdrawn")),
    (SearchFilters(), NOTE, replace(NOTE, lifecycle="merged")),
    (SearchFilters(lifecycle="superseded"), replace(NOTE, lifecycle="superseded"), NOTE),
    (SearchFilters(lifecycle="all"), replace(NOTE, lifecycle="superseded"), replace(NOTE, lifecycle="withdrawn")),
    (SearchFilters(lifecycle="all"), NOTE, replace(NOTE, lifecycle="merged")),
    (SearchFilters(eligible_at=NOW), replace(NOTE, expires_at=NOW + 1), replace(NOTE, expires_at=NOW)),
    (SearchFilters(eligible_at=NOW), NOTE, replace(NOTE, fixture=True)),
    (SearchFilters(eligible_at=NOW), NOTE, replace(NOTE, valid=False)),
    (
        SearchFilters(lifecycle="superseded", eligible_at=NOW),
        replace(NOTE, lifecycle="superseded", expires_at=5),
        replace(NOTE, lifecycle="superseded", fixture=True),
    ),
    (
        SearchFilters(lifecycle="all", eligible_at=NOW),
        replace(NOTE, lifecycle="superseded"),
        replace(NOTE, expires_at=5),
    ),
    (SearchFilters(since=1_000), NOTE, replace(NOTE, recorded_at=999)),
    (SearchFilters(until=1_001), NOTE, replace(NOTE, recorded_at=1_001)),
    (
        SearchFilters(until=1_001),
        replace(NOTE, recorded_at=5_000, occurred_from=0, occurred_until=10),
        replace(NOTE, occurred_from=5_000, occurred_until=6_000),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("filters", "kept", "left_out"), FILTERED)
def test_a_filter_keeps_what_it_names_and_nothing_else(
    index: SearchIndex, filters: SearchFilters, kept: IndexDocument, left_out: IndexDocument
) -> None:
    fill(index, [replace(left_out, title="garden"), replace(kept, title="garden")])
    assert rows(index, "garden", filters=filters) == [2]
    assert total(index, "garden", filters=filters) == 1


def test_without_an_eligible_time_expired_invalid_and_fixture_records_are_found(index: SearchIndex) -> None:
    fill(index, [replace(one, title="garden") for one in (
        replace(NOTE, expires_at=1), replace(NOTE, valid=False), replace(NOTE, fixture=True),
    )])  # fmt: skip
    assert sorted(rows(index, "garden")) == [1, 2, 3]
    assert rows(index, "garden", filters=SearchFilters(eligible_at=NOW)) == []


def test_filters_apply_before_ranking_limit_and_total(index: SearchIndex) -> None:
    many = [replace(NOTE, title="garden garden")] * 200
    few = [replace(NOTE, kind="claim", body="one garden in a long text " * 5, type="fact")] * 3
    fill(index, [*many, *few])
    page = index.search(SearchQuery("garden", filters=SearchFilters(kind="claim"), limit=2), at_least=0)
    assert ([hit.rowid for hit in page.hits], page.total) == ([201, 202], 3)


def test_all_filters_together_are_one_condition(index: SearchIndex) -> None:
    wanted = replace(NOTE, kind="claim", type="fact", title="garden", tags=("a",), due_from=10, due_until=20)
    near_misses = [
        replace(wanted, kind="page"), replace(wanted, type="event"), replace(wanted, tags=()),
        replace(wanted, lifecycle="superseded"), replace(wanted, due_from=None, due_until=None),
        replace(wanted, due_from=20, due_until=30), replace(wanted, title="other"), replace(wanted, fixture=True),
    ]  # fmt: skip
    fill(index, [*near_misses, wanted])
    filters = SearchFilters(
        "active", NOW, "claim", frozenset({"fact", "belief"}), "a", "due", since=15, until=16
    )  # fmt: skip
    assert rows(index, "garden", filters=filters) == [len(near_misses) + 1]


INTERVALS = [
    # field, document's interval, since, until, matches
    ("occurred", (day(2026, 9, 1), day(2026, 10, 1)), day(2026, 9, 30), None, True),  # a month reaches its last day
    ("occurred", (day(2026, 9, 1), day(2026, 10, 1)), day(2026, 10, 1), None, False),  # and ends before the next
    ("occurred", (day(2026, 9, 20), day(2026, 9, 21)), None, day(2026, 9, 20), False),  # until is exclusive
    ("occurred", (day(2026, 9, 19), day(2026, 9, 20)), None, day(2026, 9, 20), True),
    ("occurred", (day(2024, 2, 29), day(2024, 3, 1)), day(2024, 2, 29), day(2024, 3, 1), True),
    ("occurred", (day(2024, 2, 29), day(2024, 3, 1)), day(2024, 3, 1), None, False),
    ("occurred", (day(2025, 1, 1), day(2026, 1, 1)), day(2025, 6, 1), day(2025, 6, 2), True),  # a year holds a day
    ("due", (day(2026, 9, 25), day(2026, 9, 26)), day(2026, 9, 25), day(2026, 9, 26), True),
    ("due", None, day(2026, 9, 25), None, False),
    ("occurred", None, 0, None, False),
]


@pytest.mark.parametrize(("field", "interval", "since", "until", "matches"), INTERVALS)
def test_a_record_matches_when_its_interval_overlaps_the_asked_one(
    index: SearchIndex,
    field: TimeField,
    interval: tuple[int, int] | None,
    since: int | None,
    until: int | None,
    matches: bool,
) -> None:
    begin, end = interval or (None, None)
    document = replace(NOTE, title="garden")
    document = (
        replace(document, due_from=begin, due_until=end)
        if field == "due"
        else replace(document, occurred_from=begin, occurred_until=end)
    )
    fill(index, [document])
    filters = SearchFilters(time_field=field, since=since, until=until)
    assert (rows(index, "garden", filters=filters) == [1]) is matches


def test_recorded_and_updated_are_fields_of_their_own(index: SearchIndex) -> None:
    fill(index, titled("garden"))
    instants: list[tuple[TimeField, int]] = [("recorded", 1_000), ("updated", 2_000)]
    for field, instant in instants:
        inside = SearchFilters(time_field=field, since=instant, until=instant + 1)
        before = SearchFilters(time_field=field, until=instant)
        assert rows(index, "garden", filters=inside) == [1]
        assert rows(index, "garden", filters=before) == []


def test_a_record_that_changes_its_state_moves_and_leaves_nothing_behind(index: SearchIndex) -> None:
    fill(index, [replace(NOTE, title="garden C++", tags=("a",))])
    for number, changed in enumerate(
        (
            replace(NOTE, title="garden", lifecycle="superseded"),
            replace(NOTE, title="meadow C#"),
            replace(NOTE, title="garden", fixture=True, tags=("b",)),
            replace(NOTE, title="garden v1.2", tags=("a", "b", "a")),
        )
    ):
        index.apply([IndexChange(1, changed)], index.position() + 1)
        assert index.count() == 1
        found = [total(index, word, filters=SearchFilters("all")) for word in ("garden", "meadow")]
        assert found == ([0, 1] if number == 1 else [1, 0])
    assert rows(index, "garden", filters=SearchFilters(tag="a")) == [1]
    index.apply([IndexChange(1, None)], index.position() + 1)
    assert (index.count(), total(index, "garden", filters=SearchFilters("all"))) == (0, 0)
    assert index.check()


def test_matching_tells_which_of_some_rows_the_query_finds(index: SearchIndex) -> None:
    fill(index, [*titled("garden", "meadow", "garden"), replace(NOTE, title="garden", kind="claim")])
    assert index.matching(SearchQuery("garden", limit=1), {1, 2, 4, 99}) == {1, 4}
    assert index.matching(SearchQuery("garden", filters=SearchFilters(kind="claim")), {1, 4}) == {4}
    assert index.matching(SearchQuery("garden"), ()) == frozenset()
    assert index.matching(SearchQuery("!"), {1}) == frozenset()
