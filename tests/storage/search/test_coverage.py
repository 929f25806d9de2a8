"""How much of a message stands in each document."""

from __future__ import annotations

import pytest

from storage.search import coverage


def test_a_document_that_holds_every_content_word_is_covered_whole() -> None:
    assert coverage("who repairs the boiler", ["Bob repaired it: the boiler valve.", "the who"]) == [1.0, 0.0]


def test_forms_of_a_word_are_one_word() -> None:
    assert coverage("where did Ana go running", ["Ana went for a run"]) == [1.0]


def test_a_word_that_fewer_documents_hold_weighs_more() -> None:
    heron, boiler, _ = coverage("heron boiler", ["heron", "heron boiler", "heron"])
    rest = coverage("heron boiler", ["boiler", "heron", "heron"])
    assert heron < 0.5
    assert boiler == 1.0
    assert rest[0] > 0.5 > rest[1]


@pytest.mark.parametrize(
    ("message", "document"),
    [("Größe", "die grösse ist 4"), ("牛奶过敏", "我对牛奶过敏。"), ("C++ 🎉", "party 🎉 in C++")],
)
def test_scripts_and_marks_fold_as_in_the_index(message: str, document: str) -> None:
    assert coverage(message, [document, "nothing"]) == [1.0, 0.0]


def test_a_part_of_a_word_is_not_the_word() -> None:
    assert coverage("art", ["party"]) == [0.0]


def test_a_message_without_words_is_in_none_and_stop_words_count_where_there_are_no_others() -> None:
    assert coverage("...", ["a", "b"]) == [0.0, 0.0]
    assert coverage("who are you", ["who are you", "x"]) == [1.0, 0.0]
    assert coverage("anything", []) == []
