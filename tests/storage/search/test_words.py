"""What counts as the same word, in every script (SEARCH.md sections 1 and 6)."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages.errors import LimitExceeded
from storage.search import MODES, SearchIndex, SearchQuery, parse_query
from storage.search._fold import PIECE_CHARS, fold, split_unspaced, tokens, word_count
from tests.storage.search.samples import bodies, fill, rows, titled

# (stored text, query that finds it)
FOUND = [
    ("日本語の全文検索について", "全文検索"),
    ("日本語の全文検索について", "検"),
    ("今天我们讨论了发布计划", "发布计划"),
    ("회의사실을 기록했다", "회의사실"),
    ("릴리스 일정이 바뀌었다", "일정"),
    ("การประชุมครั้งต่อไปคือวันศุกร์", "ประชุม"),
    ("การประชุมครั้งต่อไปคือวันศุกร์", "วันศุกร์"),
    ("ການປະຊຸມຄັ້ງຕໍ່ໄປ", "ປະຊຸມ"),
    ("ការប្រជុំបន្ទាប់", "ប្រជុំ"),
    ("လာမည့်အစည်းအဝေး", "အစည်းအဝေး"),
    ("कमल की बैठक", "कमल"),
    ("कमल की बैठक", "की"),
    ("اجتماع المُدَرِّسِين غداً", "المدرسين"),
    ("أحمد وإيمان", "احمد"),
    ("مـــرحبا", "مرحبا"),
    ("فارسی کتاب", "فارسي كتاب"),
    ("שָׁלוֹם עולם", "שלום"),
    ("Ο Σίσυφος κόσμος", "ΚΟΣΜΟΣ"),
    ("Ещё один отчёт", "еще отчет"),
    ("Новый файл", "НОВЫЙ"),
    ("İstanbul ofisi", "istanbul"),
    ("ışık", "isik"),
    ("Đà Nẵng", "da nang"),
    ("Łódź i Gdańsk", "lodz"),
    ("Straße in Köln", "STRASSE koln"),
    ("Bjørn Þórsson", "bjorn"),
    ("Café Zürich", "CAFE zurich"),
    (unicodedata.normalize("NFD", "Café Zürich ガイド"), "café ガイド"),
    ("Café", unicodedata.normalize("NFD", "Café")),
    ("ﾊﾞｯｸｱｯﾌﾟ手順", "バックアップ"),
    ("ＦＵＬＬ　ｗｉｄｔｈ　１２３", "full width 123"),
    ("launch 🚀 party", "🚀"),
    ("done👍🏽 today", "👍"),
    ("by 👩‍💻 team", "👩‍💻"),
    ("we ❤️ it", "❤"),
    ("arrow ↔️ here", "↔"),
    ("step 1️⃣ first", "1"),
    ("zero\u200bwidth soft\u00adhyphen", "zerowidth softhyphen"),
    ("O’Brien said", "O'Brien"),
    ("O'Brien said", "O’Brien"),
    ("don’t panic", "don't"),
    ("ﬁnal oﬃce", "final office"),
    ("日本語とEnglishの混在", "english"),
    ("日本語とEnglishの混在", "とEnglishの"),
    ("C:\\XYZ\\report.txt", "C:\\XYZ\\"),
    ("released v2.8.3 today", "v2.8.3"),
    ("on 2026/08/31 we met", "2026-08-31"),
    ("see jira-summary", "jira-summary"),
    ("id 6f1c1b0e-6a0e-4b7e-9d4d-3f2d8f0a4c11 here", "6f1c1b0e-6a0e-4b7e-9d4d-3f2d8f0a4c11"),
    ("mail ann@example.org", "ann@example.org"),
    ("in /usr/local/lib/python3.11/", "/usr/local/lib"),
    ("new \U0001fae0 face", "\U0001fae0"),
    ("before\u00a0kingfisher\u00a0after it all", "kingfisher"),
    ("before\u00a0kingfisher\u00a0after it all", "after"),
    ("one\u3000two\u2003three\u2028four\u0085five in plain words", "five four three two one"),
]

# (stored text, query that must not find it)
NOT_FOUND = [
    ("कमल", "कमाल"),
    ("й", "и"),
    ("ўзбек", "узбек"),
    ("か", "が"),
    ("released", "release"),
    ("releases", "release"),
    ("understand", "under"),
    ("日本語", "本日"),
    ("2.8.3", "v2.8.3"),
    ("getUserId", "user id"),
]


@pytest.mark.parametrize(("stored", "query"), FOUND)
def test_a_person_finds_the_text_by_what_they_would_type(index: SearchIndex, stored: str, query: str) -> None:
    fill(index, bodies("another text altogether", stored))
    assert rows(index, query) == [2]


@pytest.mark.parametrize(("stored", "query"), NOT_FOUND)
def test_another_word_is_never_found(index: SearchIndex, stored: str, query: str) -> None:
    fill(index, bodies(stored))
    assert rows(index, query) == []


def test_a_word_of_one_language_is_not_found_in_another_just_because_marks_were_dropped(index: SearchIndex) -> None:
    fill(index, titled("किताब", "कताब", "کتاب", "kitab"))
    assert rows(index, "किताब") == [1]
    assert rows(index, "كتاب") == [3]


def test_every_letter_digit_and_emoji_of_unicode_gives_a_token_that_folds_to_itself() -> None:
    lost = []
    for codepoint in range(0x80, sys.maxunicode + 1):
        character = chr(codepoint)
        category = unicodedata.category(character)
        alike = category in ("Cn", "Co", "Cs") or 0x3400 <= codepoint < 0xA000 or codepoint > 0x1FFFF
        if alike or character == "\u0640":  # thousands of one kind; and the tatweel, which is only a stroke
            continue
        found = tokens(character)
        assert tokens(" ".join(found)) == found, hex(codepoint)
        if not found and (category[0] in "LN" or category == "So"):
            lost.append(codepoint)
    # What is left are Arabic vowel signs that Unicode also lists as letters standing alone.
    assert all(0x06E5 <= one <= 0x06E6 or 0xFC5E <= one <= 0xFC63 or 0xFCF2 <= one <= 0xFE7F for one in lost)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=80))
def test_folding_keeps_lines_and_folding_again_changes_no_token(text: str) -> None:
    assert fold(text).count("\n") == text.count("\n")
    assert tokens(" ".join(tokens(text))) == tokens(text)


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12), max_size=12))
def test_the_tokens_of_a_text_are_those_of_its_words(words: list[str]) -> None:
    text = " ".join(words)
    assert tokens(text) == [token for word in text.split() for token in tokens(word)]


@given(st.text(alphabet="กาำิ日本がガｶﾞ한글ᄀ\u1161abc\u0301é क्ष", max_size=400))
def test_a_run_cut_into_pieces_has_the_same_tokens(text: str) -> None:
    assert [token for piece in split_unspaced(text) for token in tokens(piece)] == tokens(text)
    assert "".join(split_unspaced(text)) == text


def test_a_long_text_is_folded_in_pieces_with_the_same_result() -> None:
    text = ("Ünïcode wörds 日本語 " * 6_000) + "e" + "\u0301"
    assert len(text) > 2 * PIECE_CHARS
    assert tokens(text) == ["unicode", "words", "日", "本", "語"] * 6_000 + ["e"]


def test_a_text_without_a_space_of_any_length_is_folded(index: SearchIndex) -> None:
    fill(index, bodies("é" * (3 * PIECE_CHARS), "検" * (3 * PIECE_CHARS) + "索"))
    assert rows(index, "検索") == [2]


def test_every_white_space_of_unicode_separates_words_wherever_it_stands() -> None:
    spaces = [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()]
    assert len(spaces) > 20
    for space in spaces:
        for text in (f"one{space}two{space}three", f"{space}one two{space}three", f"one é{space}two{space}three"):
            assert set(tokens(text)) >= {"one", "two", "three"}, hex(ord(space))


def test_there_is_no_stemming_no_prefix_search_and_no_stop_list(index: SearchIndex) -> None:
    fill(index, titled("the release", "releasing", "releases"))
    assert rows(index, "release") == [1]
    assert rows(index, "relea*") == []
    assert rows(index, "the") == [1]


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 0),
        ("one two", 2),
        ("v2.8.3", 3),
        ("日本語の全文検索について", 1),
        ("日本語text混在", 1),
        ("don't", 2),
        ("🚀 go", 2),
        ("... !!! ---", 0),
    ],
)
def test_words_are_counted_as_a_person_counts_them(query: str, count: int) -> None:
    assert word_count(query) == count


def test_a_query_of_64_words_is_searched_and_65_are_refused_by_field(index: SearchIndex) -> None:
    fill(index, bodies(" ".join(f"w{number}" for number in range(70))))
    assert rows(index, " ".join(f"w{number}" for number in range(64))) == [1]
    with pytest.raises(LimitExceeded) as refused:
        rows(index, " ".join(f"w{number}" for number in range(65)))
    assert refused.value.fields == {"field": "query", "limit": 64, "words": 65}


def test_a_query_of_500_characters_is_searched_and_501_are_refused(index: SearchIndex) -> None:
    fill(index, bodies("x" * 500, "検索" * 300))
    assert rows(index, "x" * 500) == [1]
    with pytest.raises(LimitExceeded):
        rows(index, "x" * 501)
    with pytest.raises(LimitExceeded):
        rows(index, "🚀" * 251)  # two UTF-16 units each


def test_500_characters_of_chinese_are_one_word_and_never_too_many(index: SearchIndex) -> None:
    text = "".join(chr(0x4E00 + number) for number in range(500))
    fill(index, bodies(text, text[250:252]))
    assert rows(index, text) == [1]
    assert rows(index, text, "any") == [1, 2]


@pytest.mark.parametrize("query", ["", " ", "\t\n", "." * 500, "!!! ??? ---", '"', "''", "\u200b", "()", "*", "、。"])
def test_a_query_without_a_word_finds_nothing_and_never_everything(index: SearchIndex, query: str) -> None:
    fill(index, titled("a . b", "! c", "、 d"))
    for mode in MODES:
        page = index.search(SearchQuery(query, mode), at_least=0)
        assert (page.hits, page.total) == ((), 0)


@pytest.mark.parametrize(
    "query",
    [
        "garden OR pilot", "garden NOT pilot", "NEAR(garden pilot)", "title:garden",
        '"garden" "pilot"',
        "garden AND pilot", "garden^2", "-garden", "gard*",
        "{title body}: garden", "garden + pilot", "(garden", 'garden"', "garden\\",
        "a:b:c", "garden;DROP TABLE text", "%", "_", "garden\x00pilot", "\ud800", "?1", ":pilot", "rank", "rowid",
    ],
)  # fmt: skip
def test_nothing_in_a_query_is_run_as_syntax(index: SearchIndex, query: str) -> None:
    titles = ["garden", "pilot", "garden pilot", f"prefix {query.encode('utf-8', 'replace').decode()} suffix"]
    fill(index, titled(*titles))
    wanted = set(tokens(query))
    holding = [number for number, title in enumerate(titles, 1) if wanted and wanted <= set(tokens(title))]
    words = [set(tokens(word)) for word in query.split()]
    touching = [
        number for number, title in enumerate(titles, 1) if any(word and word <= set(tokens(title)) for word in words)
    ]
    assert sorted(rows(index, query, "all")) == holding
    assert sorted(rows(index, query, "any")) == touching
    assert set(rows(index, query, "phrase")) <= set(holding)


def test_parsing_keeps_each_phrase_once_and_adds_none_that_was_not_typed() -> None:
    assert parse_query("pilot garden pilot", "any").phrases == (("pilot",), ("garden",))
    assert parse_query("日本語 ab", "any").phrases == (("日", "本"), ("本", "語"), ("ab",))
    assert parse_query("日本語 ab", "all").phrases == (("日", "本", "語"), ("ab",))
    assert parse_query("日本語 ab", "phrase").phrases == (("日", "本", "語", "ab"),)
