"""What people type, from a file or a save through catalogue, feed and index to the answer of ``knowledge_grep``.

Source: tools.md (Search and lookup), knowledge-more-facts.md section 6, SEARCH.md sections 1, 2 and 6.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Final, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from messages.errors import InvalidArgument, LimitExceeded
from messages.json_types import JsonObject
from storage.search import LOCATED_MAX_BYTES
from tests.kit.store import Desk, claim_file, items_of, page_file, remembering, write_note, write_notes

OTHERS: Final = (
    "Plain words of another page, with v2.8.4, 2026-08-30, C#, c, C:\\ABC\\ in it",
    "and or near not title x",
    "日本と中国の話。ไทย ខ្មែរ 한국",
)


def found(desk: Desk, query: str, mode: str = "all") -> list[str]:
    answer = desk.call("grep", {"query": query, "mode": mode, "limit": 50})
    ids = [str(hit["id"]) for hit in cast("list[JsonObject]", answer["hits"])]
    assert answer["total"] == len(ids)
    return ids


def shelve(desk: Desk, *texts: str) -> None:
    """Pages ``p0``, ``p1``, ... of these texts, and the others."""
    write_notes(desk.folder(), [(f"p{n}.md", page_file(f"p{n}", f"P{n}", body=f"{t}\n")) for n, t in enumerate(texts)])
    write_notes(desk.folder(), [(f"o{n}.md", page_file(f"o{n}", f"O{n}", body=f"{t}\n")) for n, t in enumerate(OTHERS)])


CASES: Final[dict[str, tuple[str, str]]] = {
    "C++": ("Written in C++ mostly.", "C++"),
    "a version": ("We run v2.8.3 here.", "v2.8.3"),
    "a date": ("We met on 2026-08-31 again.", "2026-08-31"),
    "a date written with slashes": ("We met on 2026/08/31 again.", "2026-08-31"),
    "a Windows path": ("Look into C:\\XYZ\\ for it.", "C:\\XYZ\\"),
    "a Unix path": ("Look into /usr/local/lib/python3.11/ for it.", "/usr/local/lib"),
    "a UUID": ("It is 6f1c1b0e-6a0e-4b7e-9d4d-3f2d8f0a4c11, they say.", "6f1c1b0e-6a0e-4b7e-9d4d-3f2d8f0a4c11"),
    "an emoji": ("Lift off 🚀 soon.", "🚀"),
    "an emoji of several": ("The 👩‍💻 team.", "👩‍💻"),
    "a flag": ("From 🇳🇴 with love.", "🇳🇴"),
    "combining marks": (unicodedata.normalize("NFD", "Crème brûlée wins."), "crème brûlée"),
    "a query of combining marks": ("Crème brûlée wins.", unicodedata.normalize("NFD", "CRÈME BRÛLÉE")),
    "case": ("The GARDEN pilot.", "gArDeN"),
    "diacritics left out": ("Zoë Ångström, Łódź, Đà Nẵng", "zoe angstrom lodz da nang"),
    "diacritics put in": ("Zoe Angstrom", "Zoë Ångström"),
    "sharp s": ("Die Straße ist frei.", "STRASSE"),
    "a ligature": ("The ﬁnal oﬃce.", "final office"),
    "full width": ("ＦＵＬＬ　ｗｉｄｔｈ", "full width"),
    "half-width kana": ("ﾊﾞｯｸｱｯﾌﾟ手順", "バックアップ"),
    "Chinese": ("今天我们讨论了发布计划", "发布计划"),
    "one Chinese character": ("猫が好き、今天有龍", "龍"),
    "Japanese": ("議事録は全文検索できます", "全文検索"),
    "Thai": ("การประชุมครั้งต่อไปคือวันศุกร์", "วันศุกร์"),
    "Lao": ("ການປະຊຸມຄັ້ງຕໍ່ໄປ", "ປະຊຸມ"),
    "Khmer": ("ការប្រជុំបន្ទាប់", "ប្រជុំ"),
    "Burmese": ("လာမည့်အစည်းအဝေး", "အစည်းအဝေး"),
    "Hangul": ("릴리스 일정이 바뀌었다", "일정"),
    "Hangul in jamo": (unicodedata.normalize("NFD", "릴리스 일정이 바뀌었다"), "일정이"),
    "Hindi": ("कमल की बैठक", "कमल"),
    "mixed scripts": ("明日のEnglish講座", "English講座"),
    "a word inside mixed scripts": ("明日のEnglish講座", "english"),
    "Arabic": ("اجتماع المُدَرِّسِين غداً", "المدرسين"),
    "Hebrew": ("שָׁלוֹם עולם", "שלום"),
    "right to left with marks of direction": ("ab \u200fשלום\u200f cd", "שלום"),
    "Cyrillic": ("Ещё один отчёт", "ОТЧЕТ"),
    "a word after NBSP": ("before\u00a0kingfisher\u00a0after", "kingfisher"),
    "an apostrophe": ("O’Brien said so", "O'Brien"),
    "a mail address": ("Write to ann@example.org soon", "ann@example.org"),
    "a word of 400 characters": (f"so long {'x' * 400} it is", "x" * 400),
    "a word of 500 characters of Chinese": ("始" + "长" * 600, "长" * 500),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_person_types_finds_the_page_and_no_other(desk: Desk, case: str) -> None:
    stored, query = CASES[case]
    shelve(desk, stored)
    expected = ["p0"] if case != "C++" else ["p0", "o0"]  # punctuation separates words: a bare c is a hit, and last
    for mode in ("all", "phrase"):
        assert found(desk, query, mode)[: len(expected)] == found(desk, query, mode) == expected
    assert found(desk, query, "any")[0] == "p0"


@pytest.mark.parametrize("word", ["AND", "OR", "NEAR", "NOT"])
def test_an_operator_of_fts5_is_a_word_like_any_other(desk: Desk, word: str) -> None:
    shelve(desk, "garden", "pilot")
    assert found(desk, word) == ["o1"]
    assert found(desk, f"garden {word} pilot") == []
    assert set(found(desk, f"garden {word} pilot", "any")) == {"p0", "p1", "o1"}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('"garden pilot"', ["p0", "p1"]), ("gard*", []), ("^garden", ["p0", "p1"]), ("title:garden", []),
        ("{title body}:garden", []), ("-garden", ["p0", "p1"]), ("garden^2", []), ("NEAR(garden pilot, 2)", []),
        ("(garden", ["p0", "p1"]), ('gar"den', []), ("garden;DROP TABLE text", []), ("garden + pilot", ["p0", "p1"]),
    ],
)  # fmt: skip
def test_quotes_stars_carets_and_column_filters_are_never_executed(
    desk: Desk, query: str, expected: Sequence[str]
) -> None:
    shelve(desk, "garden pilot", "pilot, then garden")
    assert sorted(found(desk, query)) == expected


@pytest.mark.parametrize(
    "query", ["." * 500, "!?" * 250, "、。" * 250, ".\u200b\u200d", "'\"`", "()", "\\", "*", "^", "-", "…" * 500]
)
@pytest.mark.parametrize("mode", ["all", "any", "phrase"])
def test_a_query_of_punctuation_finds_nothing_and_never_everything(desk: Desk, query: str, mode: str) -> None:
    shelve(desk, "a . b ! c", query)
    assert found(desk, query, mode) == []


@pytest.mark.parametrize("query", ["garden\0pilot", "\0", "garden\ud800", "\udfff"])
def test_nul_and_lone_surrogates_are_refused_with_the_fields_path(desk: Desk, query: str) -> None:
    refused = desk.fails("grep", {"query": query})
    assert isinstance(refused, InvalidArgument)
    assert refused.fields["field"] == "query"


def test_there_is_no_stemming_and_no_prefix_search(desk: Desk) -> None:
    shelve(desk, "the release", "releasing", "releases", "understand")
    assert found(desk, "release") == ["p0"]
    assert found(desk, "under") == []


def test_every_word_of_a_body_over_64_kib_is_found_and_its_excerpt_is_the_opening(desk: Desk) -> None:
    words = [f"w{number:05d}" for number in range(2 * LOCATED_MAX_BYTES // 7)]
    body = f"The opening. {' '.join(words)} 最後の言葉\n"
    write_note(desk.folder(), "big.md", page_file("big", "Big", body=body))
    write_note(desk.folder(), "other.md", page_file("other", "Other", body="w9\n"))
    for word in (*words[:: len(words) // 20], words[-1], "最後", "言葉"):
        answer = desk.call("grep", {"query": word})
        [hit] = cast("list[JsonObject]", answer["hits"])
        assert (hit["id"], str(hit["snippet"])[:12]) == ("big", "The opening.")
    assert found(desk, f"{words[100]} {words[101]}", "phrase") == ["big"]


WORDS: Final = st.text(
    st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("aZ9ß龍かไ한🚀́\u200b. -'\"*^:()"), max_size=40
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=WORDS, other=WORDS)
def test_any_text_finds_itself_or_nothing_and_never_ends_in_an_exception(desk: Desk, text: str, other: str) -> None:
    """A page of exactly the query is found unless the query holds no word; nothing but typed refusals is raised."""
    write_note(desk.folder(), "t.md", page_file("t", "One page", body=f"{text}\n"))
    write_note(desk.folder(), "n.md", page_file("n", "Another", body="\n"))
    for query in (text, other, f"{other} {text}"):
        for mode in ("all", "any", "phrase"):
            try:
                hits = found(desk, query, mode)
            except (LimitExceeded, InvalidArgument):
                continue
            assert len(hits) < 2 or mode == "any" or {"one", "page", "another"} & set(query.casefold().split())
            if query == text and any(unicodedata.category(one)[0] in "LN" for one in text):
                assert "t" in hits


# --- dates ----------------------------------------------------------------------------------------------------------

DATED: Final = {
    "year": "2028", "february": "2028-02", "leap": "2028-02-29", "march": "2028-03-01",
    "night": "2028-02-29T23:30:00-02:00", "noon": "2028-02-29T12:00:00Z",
}  # fmt: skip


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        ("2028-02-29", "2028-03-01", {"year", "february", "leap", "noon"}),
        ("2028-03-01", "2028-03-02", {"year", "march", "night"}),
        ("2028-02", "2028-03", {"year", "february", "leap", "noon"}),
        ("2028-02-28", "2028-02-29", {"year", "february"}),
        ("2029", None, set()),
        (None, "2028", set()),
        (None, "2028-01-02", {"year"}),
        ("2028-02-29T23:00:00+01:00", "2028-03-01", {"year", "february", "leap"}),
        ("2028-02-29T23:59:59.999Z", "2028-03-01T00:00:00Z", {"year", "february", "leap"}),
    ],
)
def test_since_and_until_filter_before_ranking_and_find_what_timeline_and_inventory_find(
    desk: Desk, since: str | None, until: str | None, expected: set[str]
) -> None:
    """Partial dates are whole intervals, days end at midnight UTC, offsets count, and February has its 29th."""
    write_notes(
        desk.folder(), [(f"{name}.md", claim_file(name, "the harbor", occurred_at=at)) for name, at in DATED.items()]
    )
    # More often said and so ranked before, but of another time.
    loud = [(f"l{n}.md", claim_file(f"l{n}", "harbor harbor harbor", occurred_at="2020-01-01")) for n in range(12)]
    write_notes(desk.folder(), loud)
    bounds = {name: value for name, value in (("since", since), ("until", until)) if value is not None}
    if since is None:
        bounds["since"] = "2021"
    given = {"timeField": "occurred", "kind": "claim", **bounds}
    answers = {
        "hits": desk.call("grep", {"query": "harbor", "limit": 6, **given}),
        "entries": desk.call("timeline", given),
        "records": desk.call("records", given),
    }
    for key, answer in answers.items():
        rows = cast("list[JsonObject]", answer[key])
        assert ({row["id"] for row in rows}, answer["total"]) == (expected, len(expected)), key


DATED_READS: Final[tuple[tuple[str, JsonObject, str], ...]] = (
    ("grep", {"query": "harbor"}, "since"),
    ("grep", {"query": "harbor"}, "until"),
    ("records", {}, "since"),
    ("records", {}, "until"),
    ("timeline", {}, "since"),
    ("timeline", {}, "until"),
    ("chronicle_days", {"until": "2030"}, "since"),
    ("chronicle_day", {}, "date"),
    ("chronicle_due", {}, "asOf"),
)
NO_DATES: Final = (
    "2026-11-02T00:00:00+01:75", "2026-11-02T00:00:60Z", "2026-02-29", "0000", "0001-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59-01:00", "2026-11-02T00:00:00", "2026-11-02T24:00:00Z", "10000",
)  # fmt: skip


@pytest.mark.parametrize(("tool", "arguments", "field"), DATED_READS)
def test_what_is_no_date_is_refused_by_every_read_and_never_an_open_end(
    desk: Desk, tool: str, arguments: JsonObject, field: str
) -> None:
    for text in NO_DATES:
        refused = desk.fails(tool, {**arguments, field: text})
        assert isinstance(refused, InvalidArgument)
        assert (refused.fields["field"], refused.fields["reason"]) == (field, "malformed")


@pytest.mark.parametrize("field", ["occurred_at", "due_at", "expires_at"])
def test_a_date_that_is_saved_is_a_date_when_it_is_read(desk: Desk, field: str) -> None:
    for text in NO_DATES:
        refused = desk.fails("remember", remembering({"text": "One.", "kind": "commitment", field: text}))
        assert refused.fields["field"] == f"items[0].{field}"
    assert desk.call("records")["total"] == 0
    for text in ("2026-12-31T23:59:60Z", "2027-01-01t00:59:59.5+01:00", "9999", "2028-02-29"):
        [item] = items_of(desk.remember({"text": f"At {text}.", "kind": "commitment", field: text}))
        record = desk.record(item["id"])
        shown = {"occurred_at": "occurredAt", "due_at": "dueAt", "expires_at": "expiresAt"}[field]
        assert (record[shown], "issues" in record) == (text, False)


@pytest.mark.parametrize("tool", ["grep", "records", "timeline", "chronicle_days"])
def test_an_interval_of_less_than_a_millisecond_can_hold_nothing_and_is_refused(desk: Desk, tool: str) -> None:
    bounds: JsonObject = {"since": "2026-11-02T10:00:00.0001Z", "until": "2026-11-02T10:00:00.0009Z"}
    refused = desk.fails(tool, {**bounds, **({"query": "harbor"} if tool == "grep" else {})})
    assert (refused.fields["field"], refused.fields["reason"]) == ("until", "conflict")


def test_an_expired_claim_is_in_no_search_list_day_or_due_list_from_its_instant_on(desk: Desk) -> None:
    claim = claim_file(
        "c", "the harbor", claim_kind="commitment", occurred_at="2026-11-02", due_at="2026-11-01",
        expires_at="2026-11-02T12:30:00Z",
    )  # fmt: skip
    write_note(desk.folder(), "c.md", claim)
    asked: tuple[tuple[str, JsonObject, str], ...] = (
        ("grep", {"query": "harbor"}, "hits"),
        ("records", {"kind": "claim"}, "records"),
        ("timeline", {}, "entries"),
        ("chronicle_day", {"date": "2026-11-02"}, "entries"),
        ("chronicle_days", {"since": "2026-11-02", "until": "2026-11-03"}, "days"),
        ("chronicle_due", {}, "overdue"),
    )
    assert [len(cast("list[JsonObject]", desk.call(tool, given)[key])) for tool, given, key in asked] == [1] * 6
    desk.now_ms += 30 * 60_000
    assert [len(cast("list[JsonObject]", desk.call(tool, given)[key])) for tool, given, key in asked] == [0] * 6


@pytest.mark.parametrize(
    ("due", "where"),
    [
        ("2026-11-01", "overdue"), ("2026-10", "overdue"), ("2026-11-01T23:59:59Z", "overdue"),
        ("2026-11-02T00:30:00+01:00", "overdue"), ("2026-11-02", "due"), ("2026-11", "due"), ("2026", "due"),
        ("2026-11-02T23:30:00-00:15", "due"), ("2026-11-02T23:30:00-01:00", "upcoming"), ("2026-11-09", "upcoming"),
        ("2026-11-10", None),
    ],
)  # fmt: skip
def test_a_commitment_is_overdue_due_or_upcoming_by_the_utc_days_of_its_whole_due_date(
    desk: Desk, due: str, where: str | None
) -> None:
    write_note(desk.folder(), "c.md", claim_file("c", "the harbor", claim_kind="commitment", due_at=due))
    answer = desk.call("chronicle_due", {"asOf": "2026-11-02"})
    listed = {name for name in ("overdue", "due", "upcoming") if answer[name]}
    assert listed == ({where} if where else set())
    window = desk.call("timeline", {"timeField": "due", "since": "2026-11-02", "until": "2026-11-03"})
    assert (window["total"] == 1) == (where == "due")
