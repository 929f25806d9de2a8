"""The pages that the recall gate chooses from (memory-provider.md, Recall gate, step 1; SEARCH.md sections 3 and 6)."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from messages.errors import IndexUnavailable
from storage.search import IndexChange, IndexDocument, SearchIndex
from storage.search._candidates import POOL, WORDS_MAX, parse_message
from storage.search._lemmas import STOP_WORDS, lemma
from tests.storage.search.samples import NOTE, bodies, fill, open_index, titled


def candidates(index: SearchIndex, message: str, limit: int = POOL, without: Collection[str] = ()) -> list[int]:
    found = index.candidates(parse_message(message), at_least=0, without_types=without, limit=limit)
    return [one.rowid for one in found.candidates]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("the harbor opens at nine", "When does the harbor open?"),
        ("京都の庭園", "庭園はどこですか"),
        ("今天的天气", "天气怎么样"),
        ("회의 자료를 보냈다", "회의가 언제야"),
        ("โรงเรียนเปิด", "โรงเรียนอยู่ไหน"),
        ("Пристань открыта", "когда пристань"),
        ("الكتاب هنا", "اين الكِتاب"),
        ("🦊 seen in the garden", "🦊"),
        ("written in C++ mostly", "C++"),
    ],
)
def test_a_page_that_shares_a_word_of_any_script_with_the_message_is_a_candidate(
    index: SearchIndex, body: str, message: str
) -> None:
    fill(index, bodies("nothing of the kind", body))
    assert candidates(index, message)[0] == 2


def test_a_page_that_shares_no_word_with_the_message_is_never_one_though_it_shares_a_stem(index: SearchIndex) -> None:
    fill(index, bodies("universal rules", "the university of Bergen"))
    assert candidates(index, "my university") == [2]
    fill(index, bodies("she went away"), first=3)
    assert candidates(index, "goes") == []


def test_irregular_forms_rank_a_page_that_also_shares_a_word(index: SearchIndex) -> None:
    fill(index, bodies("Ann sat in Oslo", "Ann went to Bergen", "Ann is in Oslo"))
    assert candidates(index, "where did Ann go")[0] == 2
    assert lemma("went") == lemma("gone") == "go"


@pytest.mark.parametrize(
    "other",
    [
        replace(NOTE, kind="claim", type="", body="the harbor"),
        replace(NOTE, kind="relationship", body="the harbor"),
        replace(NOTE, lifecycle="superseded", body="the harbor"),
        replace(NOTE, lifecycle="withdrawn", body="the harbor"),
        replace(NOTE, lifecycle="merged", body="the harbor"),
        replace(NOTE, valid=False, body="the harbor"),
        replace(NOTE, fixture=True, body="the harbor"),
    ],
)
def test_only_current_pages_are_candidates(index: SearchIndex, other: IndexDocument) -> None:
    fill(index, [*bodies("the harbor"), other])
    assert candidates(index, "harbor") == [1]


def test_source_and_artifact_pages_are_left_out_before_the_best_are_taken(index: SearchIndex) -> None:
    sources = [replace(NOTE, type="source", title="harbor", body="harbor") for _ in range(2 * POOL)]
    fill(index, [*sources, *bodies("a word on the harbor")])
    assert candidates(index, "harbor", without=("source", "artifact")) == [2 * POOL + 1]


@pytest.mark.parametrize("sources", [1, POOL - 1, POOL, POOL + 1, 3 * POOL])
def test_the_best_of_the_other_types_are_the_same_however_many_are_left_out(index: SearchIndex, sources: int) -> None:
    held = [1 + 7 * number % 101 for number in range(2 * POOL)]
    fill(index, bodies(*("harbor " * times + "boat " * (200 - times) for times in held)))
    source = replace(NOTE, type="source", body="harbor " * 150 + "boat " * 50)
    fill(index, [source] * sources, first=len(held) + 1)
    best = sorted(range(len(held)), key=lambda number: -held[number])[:POOL]
    assert candidates(index, "harbor", without=("source", "artifact")) == [number + 1 for number in best]


def test_a_word_in_the_title_counts_more_than_one_in_the_body_and_an_alias_as_the_title(index: SearchIndex) -> None:
    fill(
        index,
        [
            replace(NOTE, title="Pier", body="harbor and other words"),
            replace(NOTE, title="Harbor", body="pier and other words"),
            replace(NOTE, title="Quay", body="words and other things", aliases=("the old harbor",)),
        ],
    )
    assert set(candidates(index, "harbor", limit=2)) == {2, 3}


def test_more_different_words_of_the_message_win_over_more_of_one(index: SearchIndex) -> None:
    fill(index, bodies("harbor " * 40, "the harbor has a crane"))
    assert candidates(index, "the crane of the harbor") == [2, 1]


def test_words_that_stand_together_as_in_the_message_win(index: SearchIndex) -> None:
    apart = "garden " + "other words stand here in between them all " * 2 + " pilot"
    turned = "pilot " + apart.replace("pilot", "")
    together = "a garden pilot " + apart.removeprefix("garden ").replace("pilot", "x")
    fill(index, bodies(apart, turned, together))
    assert candidates(index, "garden pilot")[0] == 3


def test_a_name_on_most_pages_still_finds_them(index: SearchIndex) -> None:
    fill(index, [*bodies(*(f"Marta {n}" for n in range(9))), *bodies("somebody else")])
    assert len(candidates(index, "Marta")) == 9


def test_stop_words_make_no_candidate_unless_the_message_holds_nothing_else(index: SearchIndex) -> None:
    fill(index, bodies("who is it", "the harbor", "it was all over"))
    assert candidates(index, "what is the harbor") == [2]
    assert candidates(index, "who is it")[0] == 1
    assert all(word == word.lower() for word in STOP_WORDS)


def test_a_message_without_a_word_has_no_candidates(index: SearchIndex) -> None:
    fill(index, bodies("the harbor"))
    for message in ("", " ", "?!…", "\0", "\ud800", '"', "*" * 5_000):
        assert candidates(index, message) == []


@pytest.mark.parametrize(
    "message", ['harbor" OR "', "NEAR(harbor crane)", "names:harbor", "har*", "^harbor", "harbor\0"]
)
def test_nothing_in_a_message_is_run_as_syntax(index: SearchIndex, message: str) -> None:
    fill(index, bodies("nothing", "the harbor"))
    assert set(candidates(index, message)) <= {2}


def test_a_message_of_any_length_is_searched_by_its_rarest_words(index: SearchIndex) -> None:
    fill(index, bodies(*(f"common{n % 100} words" for n in range(300)), "rare kingfisher"))
    long = " ".join(f"common{n}" for n in range(5_000)) + " kingfisher"
    assert candidates(index, long)[0] == 301
    assert len(parse_message(long).words) > WORDS_MAX
    assert candidates(index, "漢字" * 20_000) == []


def test_a_page_of_any_length_is_scored(index: SearchIndex) -> None:
    fill(index, bodies("harbor " * 100_000, "crane"))
    assert candidates(index, "the crane in the harbor") != []


def test_the_order_is_total_and_a_smaller_limit_is_its_beginning(index: SearchIndex) -> None:
    source = random.Random(4)
    words = ["harbor", "crane", "pier", "tide", "boat"]
    fill(index, bodies(*(" ".join(source.choices(words, k=6)) for _ in range(200))))
    every = candidates(index, "the crane and the tide at the pier")
    assert len(every) == len(set(every)) == POOL
    assert candidates(index, "the crane and the tide at the pier", limit=10) == every[:10]
    same = bodies("unseen words", "unseen words", "unseen words")
    fill(index, same, first=300)
    assert candidates(index, "unseen") == [300, 301, 302]


def test_a_page_that_changes_is_a_candidate_by_what_it_says_now(index: SearchIndex) -> None:
    fill(index, titled("Harbor", "Pier"))
    index.apply([IndexChange(1, replace(NOTE, title="Crane"))], 3)
    assert candidates(index, "harbor crane pier") == [1, 2]
    assert candidates(index, "harbor") == []
    index.apply([IndexChange(1, replace(NOTE, title="Crane", lifecycle="withdrawn")), IndexChange(2, None)], 4)
    assert candidates(index, "harbor crane pier") == []
    assert index.check()


def test_an_index_that_is_behind_has_no_candidates_but_an_error(index: SearchIndex) -> None:
    with pytest.raises(IndexUnavailable) as refused:
        index.candidates(parse_message("harbor"), at_least=1)
    assert refused.value.fields["reason"] == "behind"


def test_a_reader_beside_the_writer_finds_the_same(tmp_path: Path) -> None:
    writer = open_index(tmp_path / "private.sqlite")
    fill(writer, bodies("the harbor", "the crane"))
    reader = open_index(tmp_path / "private.sqlite", read_only=True)
    assert candidates(reader, "harbor") == candidates(writer, "harbor") == [1]
    reader.close()
    writer.close()
