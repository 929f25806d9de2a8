"""What differs between two texts: nothing is lost, nothing is invented, and it stays quick."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_bridge.explorer.evidence import numbered
from host_bridge.explorer.record import compared, envelope
from host_bridge.explorer.word_diff import CONTEXT_LINES, LINES_MAX, WORDS_MAX, Piece, compare, passages

TEXTS = st.lists(st.sampled_from(["one", "two ", " three", "\n", "ü😀", "\r\n", "  ", ".", "four\n"]), max_size=30).map(
    "".join
)


@given(TEXTS, TEXTS)
def test_the_pieces_without_the_added_are_the_earlier_text_and_without_the_removed_the_later(a: str, b: str) -> None:
    pieces = compare(a, b)
    assert "".join(piece.text for piece in pieces if piece.change != "added") == a
    assert "".join(piece.text for piece in pieces if piece.change != "removed") == b
    assert all(one.change != other.change for one, other in pairwise(pieces))
    assert all(piece.text for piece in pieces)


@given(TEXTS, TEXTS)
def test_passages_hold_every_change_and_skip_only_lines_that_are_the_same(a: str, b: str) -> None:
    shown = [piece for passage in passages(a, b) for piece in passage.pieces if piece.change != "same"]
    assert shown == [piece for piece in compare(a, b) if piece.change != "same"]
    if a == b:
        assert passages(a, b) == ()


def test_a_change_is_shown_with_three_lines_around_it() -> None:
    lines = [f"line {number}\n" for number in range(40)]
    later = [*lines[:20], "line twenty\n", *lines[21:]]
    [passage] = passages("".join(lines), "".join(later))
    assert passage.skipped == 20 - CONTEXT_LINES
    text = "".join(piece.text for piece in passage.pieces if piece.change != "added")
    assert text.splitlines() == [f"line {number}" for number in range(17, 24)]


def test_only_the_changed_word_is_marked() -> None:
    assert compare("the shed is dry", "the loft is dry") == (
        Piece("same", "the "), Piece("removed", "shed"), Piece("added", "loft"), Piece("same", " is dry"),
    )  # fmt: skip


def test_passages_beyond_the_bounds_are_removed_and_added_whole() -> None:
    seeded = random.Random(7)
    many = " ".join(str(seeded.random()) for _ in range(WORDS_MAX))
    other = " ".join(str(seeded.random()) for _ in range(WORDS_MAX))
    assert [piece.change for piece in compare(many, other)] == ["removed", "added"]
    lines = "x\n" * (LINES_MAX + 1)
    assert [piece.change for piece in compare(lines, "y\n" + lines)] == ["removed", "added"]


def test_lines_of_an_original_are_numbered_and_the_cited_ones_and_the_quotation_marked() -> None:
    lines = numbered("one\r\ntwo words\r\nthree\n", 5, 6, 6, "words")
    assert [(line.number, line.cited) for line in lines] == [(5, False), (6, True), (7, False)]
    assert (lines[1].before, lines[1].quoted, lines[1].after) == ("two ", "words", "")
    assert (lines[0].before, lines[0].quoted) == ("one", "")


def test_a_quotation_over_two_lines_is_marked_in_both_and_one_elsewhere_is_not() -> None:
    lines = numbered("a b\nc d\na b\n", 1, 1, 2, "b\nc")
    assert [line.quoted for line in lines] == ["b", "c", ""]
    assert [line.quoted for line in numbered("a\nb\na\n", 1, 3, 3, "a")] == ["", "", "a"]
    assert [line.quoted for line in numbered("a\nb\n", 1, 1, 1, "z")] == ["", ""]


def test_a_citation_of_the_whole_original_marks_all_of_it() -> None:
    assert [line.cited for line in numbered("a\nb", 1, None, None, "")] == [True, True]


@pytest.mark.parametrize(
    ("text", "head", "body"),
    [("---\nid: x\n---\n\nBody\n", "id: x\n", "Body\n"), ("No head\n", "", "No head\n"), ("", "", ""),
     ("---\nopen: yes\n", "", "---\nopen: yes\n"), ("---\na: b\n---\n", "a: b\n", "")],
)  # fmt: skip
def test_the_envelope_of_a_file_is_told_from_its_body(text: str, head: str, body: str) -> None:
    assert envelope(text) == (head, body)


def test_each_revision_names_the_one_that_it_replaced_where_that_is_known() -> None:
    rows = compared([
        {"sequence": 9, "hash": None, "before": "c", "removed": True},
        {"sequence": 7, "hash": "c", "before": "b", "removed": False},
        {"sequence": 2, "hash": "a", "before": None, "removed": False},
    ])  # fmt: skip
    assert [row["against"] for row in rows] == [7, None, None]
