"""Passages of a page for a message: which are quoted, in which order, and where they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages.text import utf16_length
from storage.search import PASSAGE_GAP, beginning, clip_message, message_words, passages


def quoted(body: str, message: str, *, most: int = 4, chars: int = 1_000, total: int = 2_800) -> list[str]:
    return list(passages(body, message_words(message), most=most, chars=chars, total=total))


BODY = "Intro.\n\nThe harbor opens.\n\nNothing here.\n\nThe harbor opens on Friday.\n"


def test_passages_are_separated_by_blank_lines_and_the_best_matching_come_first() -> None:
    assert quoted(BODY, "does the harbor open on friday? friday!") == [
        "The harbor opens on Friday.",
        "The harbor opens.",
    ]


@pytest.mark.parametrize("gap", ["\n\n", "\r\n\r\n", "\n \t \n", "\n\n\n\n"])
def test_a_line_of_white_space_is_a_blank_line(gap: str) -> None:
    assert quoted(f"harbor one{gap}harbor two", "harbor") == ["harbor one", "harbor two"]


def test_lines_without_a_blank_line_between_them_are_one_passage() -> None:
    assert quoted("harbor\n- open\n- friday\n\nother", "friday") == ["harbor\n- open\n- friday"]


def test_at_most_so_many_passages_are_quoted() -> None:
    body = "\n\n".join(f"harbor {number}" for number in range(9))
    assert quoted(body, "harbor", most=3) == ["harbor 0", "harbor 1", "harbor 2"]


def test_all_passages_with_what_stands_between_them_stay_within_the_page_s_characters() -> None:
    body = "\n\n".join("harbor " + "x" * 190 for _ in range(9))
    found = quoted(body, "harbor", most=9, total=700)
    assert utf16_length(PASSAGE_GAP.join(found)) <= 700
    assert len(found) == 4  # three whole ones, and what is left for a fourth
    assert found[3].endswith("…")


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    body = "the project grows\n\nthe project slows\n\nthe project waits\n\nthe visa ran out"
    assert quoted(body, "project visa")[0] == "the visa ran out"


def test_an_irregular_form_is_the_same_word() -> None:
    assert quoted("She stays.\n\nShe went to Oslo.", "where did she go") == ["She went to Oslo."]


def test_where_no_passage_holds_a_word_the_first_ones_are_quoted() -> None:
    assert quoted("one\n\ntwo\n\nthree", "harbor", most=2) == ["one", "two"]


def test_a_longer_passage_is_clipped_to_the_window_around_its_matching_words() -> None:
    [found] = quoted(f"{'before ' * 300}the harbor opens on Friday {'after ' * 300}", "harbor friday", chars=100)
    assert "the harbor opens on Friday" in found
    assert (found[0], found[-1]) == ("…", "…")
    assert utf16_length(found) <= 100


@pytest.mark.parametrize("filler", ["word ", "слово ", "𝄞x ", "\U0001f468\u200d\U0001f469\u200d\U0001f467 "])
def test_a_passage_deep_inside_a_page_of_more_than_64_kib_is_found(filler: str) -> None:
    far = filler * (80_000 // len(filler))
    assert quoted(f"{far}\n\nthe harbor opens", "harbor") == ["the harbor opens"]
    [found] = quoted(f"{far} the harbor opens {far}", "harbor", chars=120)
    assert "harbor" in found


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("会議は金曜日です。\n\n天気がいい。", "金曜日の会議"),
        ("ประชุมวันศุกร์\n\nอากาศดี", "ประชุม"),
        ("встреча в пятницу\n\nпогода", "Пятницу?"),
    ],
    ids=["ja", "th", "ru"],
)
def test_any_script_is_matched(body: str, message: str) -> None:
    assert quoted(body, message) == [body.split("\n\n")[0]]


@given(
    st.text(st.sampled_from("ab \n𝄞é日"), max_size=400), st.integers(1, 4), st.integers(100, 200), st.integers(200, 300)
)
def test_no_surrogate_pair_is_split_and_no_bound_is_passed(body: str, most: int, chars: int, total: int) -> None:
    found = quoted(body, "a 日", most=most, chars=chars, total=total)
    assert len(found) <= most
    assert all(utf16_length(one) <= chars for one in found)
    assert utf16_length(PASSAGE_GAP.join(found)) <= total
    assert all(one.encode("utf-16", "strict") for one in found)


def test_an_empty_page_has_no_passage() -> None:
    assert quoted("", "harbor") == []
    assert quoted(" \n\n \n", "harbor") == []


@pytest.mark.parametrize(
    ("body", "chars", "expected"),
    [
        ("\n\nshort\n", 10, "short"),
        ("one two three", 9, "one two…"),
        ("𝄞𝄞𝄞𝄞", 4, "𝄞…"),
        ("line\nbreak stays", 12, "line\nbreak…"),
    ],
)
def test_a_beginning_ends_at_a_word_and_splits_no_pair(body: str, chars: int, expected: str) -> None:
    assert beginning(body, chars) == expected


def test_of_a_very_long_message_its_beginning_and_its_end_count() -> None:
    message = f"harbor {'filler ' * 100_000} friday"
    clipped = clip_message(message)
    assert len(clipped) < 40_000
    assert set(message_words(clipped).query.phrases) >= {("harbor",), ("friday",)}
    assert clip_message("short") == "short"
