"""Excerpts are cut from the stored text: around the words, never through a character."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.search import EXCERPT_MAX_CHARS, LOCATED_MAX_BYTES, Mode, excerpt, parse_query
from storage.search._excerpt import _matches
from storage.search._query import Phrase

FILLER = "lorem ipsum dolor sit amet " * 40


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def test_a_short_text_is_shown_whole_on_one_line() -> None:
    assert excerpt("  A short\n\n text.\t", parse_query("text")) == "A short text."
    assert excerpt("", parse_query("text")) == ""


@pytest.mark.parametrize(
    ("query", "passage"),
    [
        ("needle", "a needle here"),
        ("NEEDLE", "a needle here"),
        ("nadel", "eine Nädel hier"),
        ("istanbul", "in İstanbul heute"),
        ("全文検索", "日本語の全文検索について"),
        ("ประชุม", "การประชุมครั้งต่อไป"),
        ("C++", "we write C++ here"),
        ("2026-08-31", "on 2026/08/31 we met"),
        ("🚀", "launch 🚀 party"),
        ("ﬁnal", "the final word"),
        ("v2.8.3 needle", "v2.8.3 has the needle"),
    ],
)
def test_the_passage_with_the_words_is_shown(query: str, passage: str) -> None:
    shown = excerpt(FILLER + passage + " " + FILLER, parse_query(query))
    assert passage in shown
    assert shown.startswith("…")
    assert shown.endswith("…")
    assert units(shown) <= EXCERPT_MAX_CHARS


def test_the_place_with_the_most_different_words_wins() -> None:
    text = f"garden {FILLER} pilot {FILLER} the garden of the pilot in May {FILLER}"
    assert "the garden of the pilot" in excerpt(text, parse_query("garden pilot may"))


def test_the_literal_word_wins_over_the_same_letters() -> None:
    text = f"plan c {FILLER} we write C++ here {FILLER}"
    assert "C++" in excerpt(text, parse_query("C++"))


def test_a_phrase_is_shown_where_its_words_are_adjacent() -> None:
    text = f"garden {FILLER} pilot {FILLER} my Garden,\nPilot! {FILLER}"
    assert "my Garden, Pilot!" in excerpt(text, parse_query("garden pilot", "phrase"))


def test_a_match_in_the_title_alone_shows_the_beginning() -> None:
    assert excerpt(FILLER, parse_query("needle")) == excerpt(FILLER, None)
    assert excerpt(FILLER, None).startswith("lorem ipsum")


def test_a_match_near_the_beginning_or_end_shows_the_beginning_or_end() -> None:
    assert excerpt("needle " + FILLER, parse_query("needle")).startswith("needle lorem")
    assert excerpt(FILLER + "needle", parse_query("needle")).endswith("amet needle")


def test_a_body_over_64_kib_shows_its_opening_and_one_of_64_kib_is_located() -> None:
    at_limit = "a " * (LOCATED_MAX_BYTES // 2 - 3) + "needle"
    assert len(at_limit.encode()) == LOCATED_MAX_BYTES
    assert excerpt(at_limit, parse_query("needle")).endswith("needle")
    over = excerpt("é" + at_limit[1:], parse_query("needle"))
    assert over.startswith("é a a")
    assert over.endswith("…")
    assert "needle" not in over


def test_a_word_inside_a_text_without_spaces_is_shown() -> None:
    for letters in ("語", "한", "ไ", "が"):
        shown = excerpt(letters * 9_000 + "全文検索" + letters * 9_000, parse_query("全文検索"))
        assert "全文検索" in shown
        assert units(shown) <= EXCERPT_MAX_CHARS
    assert "needle" in excerpt("x" * 20_000 + "-needle-" + "x" * 20_000, parse_query("needle"))


def test_many_matches_in_a_text_without_spaces_are_bounded_work() -> None:
    text = "検索語" * 7_000
    assert units(excerpt(text, parse_query("検索 語検 索語", "any"))) <= EXCERPT_MAX_CHARS


def test_no_character_is_split_from_its_marks_and_no_emoji_from_its_parts() -> None:
    family = "👩‍👩‍👧‍👦"
    for width in range(20, 60):
        for unit in (family, "e\u0301", "नि", "👍🏽"):
            shown = excerpt(unit * 200, None, max_chars=width)
            assert units(shown) <= width
            body = shown.removesuffix("…")
            assert body == unit * (len(body) // len(unit))


@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \n🚀日é"), max_size=600),
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    st.sampled_from(["all", "any", "phrase"]),
    st.integers(min_value=10, max_value=120),
)
def test_an_excerpt_is_a_bounded_part_of_the_text(body: str, word: str, mode: Mode, width: int) -> None:
    shown = excerpt(f"{body} {word} {body}", parse_query(word, mode), max_chars=width)
    assert units(shown) <= width
    assert "\n" not in shown
    shown.encode("utf-8")  # no lone surrogate
    whole = " ".join(f"{body} {word} {body}".split())
    inner = shown.removeprefix("…").removesuffix("…")
    assert inner in whole or shown in whole


def test_the_shown_text_is_the_stored_one_not_its_fold() -> None:
    stored = unicodedata.normalize("NFD", "Ünïcode ﾃｽﾄ ①")
    assert excerpt(stored, parse_query("unicode")) == stored


def test_no_query_compiles_a_class_up_to_the_last_code_point() -> None:
    """Such a class takes 5 ms to compile, and each word with a symbol has a pattern of its own."""
    patterns = [literal._pattern().pattern for literal in parse_query("plain words v2.8.3", "any").literals]
    assert len(patterns) == 1
    assert not [pattern for pattern in patterns if "\U0010ffff" in pattern or "U0010ffff" in pattern]


_WORDS = st.sampled_from(["a", "b", "ab", "ba", "é"])


@given(
    st.lists(st.tuples(_WORDS, st.sampled_from([" ", "\n", ", ", "--"])), max_size=30),
    st.sets(st.lists(_WORDS, min_size=1, max_size=3).map(tuple), min_size=1, max_size=4),
)
def test_phrases_are_found_from_left_to_right_the_longest_first_and_none_inside_another(
    text: list[tuple[str, str]], phrases: set[Phrase]
) -> None:
    folded = "".join(word + separator for word, separator in text).encode()
    words = list(re.finditer(rb"[a-z\x80-\xff]+", folded))
    expected, number = [], 0
    while number < len(words):
        at = [word[0].decode() for word in words[number : number + 3]]
        fitting = [phrase for phrase in phrases if tuple(at[: len(phrase)]) == phrase]
        longest = max(fitting, key=len, default=None)
        if longest is not None:
            expected.append((words[number].start(), longest))
        number += 1 if longest is None else len(longest)
    assert list(_matches(folded, phrases)) == expected
