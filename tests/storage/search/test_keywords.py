"""Free text becomes a query within the bounds of one, whatever its length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.search import keywords, parse_query


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("Where is the harbor?", "harbor?"),
        ("What did she DO with Ana's boat, and the BOAT?", "Ana's boat,"),
        ("where is it", "where is it"),
        ("C++ or D#", "C++ D#"),
        ("港口 在 哪里", "港口 在 哪里"),
        ("?! …", ""),
        ("", ""),
    ],
)
def test_stop_words_and_repeats_are_left_out_unless_there_is_nothing_else(message: str, found: str) -> None:
    assert keywords(message) == found


def test_of_a_long_message_its_beginning_and_its_end_are_searched_for() -> None:
    found = keywords(" ".join(f"w{number}" for number in range(1_000))).split()
    assert len(found) == 64
    assert (found[:32], found[32:]) == ([f"w{n}" for n in range(32)], [f"w{n}" for n in range(968, 1_000)])


@given(st.text(max_size=3_000) | st.lists(st.text(alphabet="ab猫\U0001f600é,.'+ ", max_size=400)).map(" ".join))
def test_any_text_gives_a_query_that_is_accepted(message: str) -> None:
    parse_query(keywords(message), "any")
