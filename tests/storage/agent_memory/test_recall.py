"""Recall: the entry that a query is about comes first, and all that the released package finds is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.agent_memory import KnowledgeEntry
from storage.agent_memory.recall import Ranking, recalled


def entries(*texts: str, category: str = "general") -> list[KnowledgeEntry]:
    return [KnowledgeEntry(content=text, category=category) for text in texts]


def found(query: str, among: list[KnowledgeEntry], ranking: Ranking = "bm25", limit: int = 5) -> list[str]:
    return [entry.content for entry in recalled(among, query, limit, ranking)]


def test_a_rare_word_counts_more_than_a_frequent_one() -> None:
    among = entries("user likes tea", "user likes dogs", "user likes cats", "timezone is PST")
    assert found("user timezone", among)[0] == "timezone is PST"


def test_endings_and_irregular_forms_make_no_difference() -> None:
    among = entries("Alice went to Lima", "Debugging the parser", "nothing else")
    assert found("go", among) == ["Alice went to Lima"]
    assert found("debug", among) == ["Debugging the parser"]
    assert found("PARSERS", among) == ["Debugging the parser"]


def test_marks_and_scripts_are_folded_as_in_every_search() -> None:
    among = entries("Café in Łódź", "会議は東京で", "other")
    assert found("cafe lodz", among) == ["Café in Łódź"]
    assert found("東京", among) == ["会議は東京で"]


def test_the_category_is_searched_too() -> None:
    assert found("preference", [*entries("dark mode", category="preferences"), *entries("x")]) == ["dark mode"]


def test_a_whole_word_comes_before_a_part_of_one() -> None:
    among = entries("catalogue", "concatenation", "cat")
    assert found("cat", among)[0] == "cat"
    assert len(found("cat", among)) == 3


def test_words_that_say_nothing_find_nothing_beside_others() -> None:
    among = entries("what is the plan", "shoe size 42")
    assert found("what is the shoe size", among) == ["shoe size 42"]
    assert found("what", among) == ["what is the plan"]


def test_importance_breaks_ties_and_then_the_order_of_the_stores() -> None:
    among = entries("tea one", "tea two", "tea six")
    among[2].importance = 0.9
    for ranking in ("bm25", "tokens"):
        assert found("tea", among, ranking) == ["tea six", "tea one", "tea two"]


def test_a_query_without_a_word_gives_the_most_important() -> None:
    among = entries("a", "b")
    among[1].importance = 0.9
    assert found("  \n", among) == ["b", "a"]


def test_the_token_rule_counts_words_of_the_query_that_occur_anywhere_repeats_too() -> None:
    among = entries("alpha beta", "alpha alpha gamma", "delta")
    assert found("beta beta alph", among, "tokens") == ["alpha beta", "alpha alpha gamma"]
    assert found("c++", entries("I write C++ daily", "C only"), "tokens") == ["I write C++ daily"]


@pytest.mark.parametrize("query", ["++", "---", "\ud800", "x" * 2_000, "a " * 500, "😀" * 400, "\0"])
def test_no_query_is_refused(query: str) -> None:
    among = entries("a ++ --- b", "😀")
    assert set(found(query, among)) <= {"a ++ --- b", "😀"}


_WORDS = st.lists(st.sampled_from(["cat", "concat", "dark", "mode", "prefers", "Preference", "7", "café"]), max_size=5)


@given(st.lists(_WORDS.map(" ".join), max_size=6), _WORDS.map(" ".join))
def test_whatever_the_token_rule_finds_is_found_by_rank_too(texts: list[str], query: str) -> None:
    among = entries(*texts)
    assert set(found(query, among, "tokens", 100)) <= set(found(query, among, "bm25", 100))
