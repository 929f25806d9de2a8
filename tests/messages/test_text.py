"""UTF-16 lengths and cuts, and what makes text unstorable or blank."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages.text import clip_utf16, is_blank, is_one_line, text_fault, utf16_length, without_html_comments

ANY_TEXT = st.text(alphabet=st.characters(codec="utf-8"))


@given(ANY_TEXT)
def test_length_is_the_number_of_utf16_code_units(text: str) -> None:
    assert utf16_length(text) == len(text.encode("utf-16-le")) // 2


@given(ANY_TEXT, st.integers(-2, 40))
def test_a_cut_is_the_longest_beginning_that_splits_no_pair(text: str, units: int) -> None:
    cut = clip_utf16(text, units)
    assert text.startswith(cut)
    assert utf16_length(cut) <= max(units, 0)
    if cut != text:
        assert utf16_length(text[: len(cut) + 1]) > units


def test_a_cut_inside_a_pair_stops_one_unit_before_its_cap() -> None:
    assert clip_utf16("a😀b", 2) == "a"
    assert clip_utf16("a😀b", 3) == "a😀"


@pytest.mark.parametrize(
    ("text", "fault"),
    [("a\0b", "nul"), ("a\ud800b", "lone_surrogate"), ("\udc00", "lone_surrogate"), ("😀é", None), ("", None)],
)
def test_nul_and_lone_surrogates_are_faults(text: str, fault: str | None) -> None:
    assert text_fault(text) == fault


@pytest.mark.parametrize("text", ["", " \t\n", "\u200b\u200d", "\u3000\xa0", "\ufeff\x07"])
def test_text_that_shows_nothing_is_blank(text: str) -> None:
    assert is_blank(text)


@pytest.mark.parametrize("text", ["a", " é ", "😀", "\u200b.", "知"])
def test_text_that_shows_something_is_not_blank(text: str) -> None:
    assert not is_blank(text)


@pytest.mark.parametrize("breaking", ["\n", "\r", "\t", "\x00", "\x1f", "\x7f", "\x85", "\u2028", "\u2029"])
def test_a_line_break_or_control_character_ends_the_line(breaking: str) -> None:
    assert not is_one_line(f"a{breaking}b")
    assert is_one_line("a b 知😀")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a <!-- b --> c", "a  c"),
        ("<!-- a\nb -->c", "c"),
        ("a <!-- never closed", "a"),
        ("a<!-->b", "ab"),
        ("a<!--->b", "ab"),
        ("a <!-- b --> c <!-- d --> e", "a  c  e"),
        ("a --> b", "a --> b"),
        ("Write `<!-- more -->` <!-- not this --> there", "Write `<!-- more -->`  there"),
        ("é `` <!-- ` --> `` <!-- x -->😀", "é `` <!-- ` --> `` 😀"),
        ("```html\n<!-- a -->\n```\n<!-- b -->c", "```html\n<!-- a -->\n```\nc"),
        ("~~~\n<!-- open\n~~~\nc <!-- d -->", "~~~\n<!-- open\n~~~\nc"),
        ("a\n\n    <!-- code -->\n\nb", "a\n\n    <!-- code -->\n\nb"),
        ("`a <!-- b", "`a"),
        ("a <!-- `b` --> `c`", "a  `c`"),
        (" a ", "a"),
    ],
)
def test_html_comments_are_not_shown(text: str, shown: str) -> None:
    assert without_html_comments(text) == shown


def test_many_unclosed_comments_cost_no_more_than_their_length() -> None:
    assert without_html_comments("a" + "<!--" * 200_000) == "a"
    spans = "`<!--`" * 10_000
    assert without_html_comments(spans) == spans
