"""Offsets and lengths in UTF-16 units."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.records import utf16
from storage.records.text import text_problem

mixed = st.text(st.sampled_from("aé日😀𐍈\n"), max_size=30)


@given(mixed)
def test_length_and_offsets_agree_with_the_utf16_encoding(text: str) -> None:
    offsets = utf16.Offsets(text)
    assert offsets.units == utf16.length(text) == len(text.encode("utf-16-le")) // 2
    for point in range(len(text) + 1):
        unit = offsets.to_units(point)
        assert unit == utf16.length(text[:point])
        assert offsets.to_points(unit) == point


@given(mixed)
def test_an_offset_inside_a_pair_is_refused_not_rounded(text: str) -> None:
    offsets = utf16.Offsets(text)
    whole = {utf16.length(text[:point]) for point in range(len(text) + 1)}
    for unit in range(offsets.units + 1):
        if unit not in whole:
            with pytest.raises(utf16.OffsetInsidePair):
                offsets.to_points(unit)
    for outside in (-1, offsets.units + 1):
        with pytest.raises(IndexError):
            offsets.to_points(outside)


@given(mixed, st.integers(0, 40))
def test_a_clip_keeps_pairs_whole_and_stops_at_most_one_unit_early(text: str, limit: int) -> None:
    cut = utf16.clip(text, limit)
    assert text.startswith(cut)
    assert utf16.length(cut) <= limit
    if cut != text:
        assert utf16.length(cut) >= limit - 1
        assert utf16.length(text[: len(cut) + 1]) > limit


@given(mixed, st.integers(1, 9))
def test_windows_give_back_the_whole_text_in_order(text: str, limit: int) -> None:
    parts: list[str] = []
    offset: int | None = 0
    while offset is not None:
        part, offset = utf16.window(text, offset, limit)
        parts.append(part)
        assert utf16.length(part) <= max(limit, 2)
    assert "".join(parts) == text


def test_nul_and_lone_surrogates_cannot_be_stored() -> None:
    assert text_problem("a\x00") == "nul"
    assert text_problem("a\ud800") == "lone_surrogate"
    assert text_problem("\udc00é") == "lone_surrogate"
    assert text_problem("😀 \x01 é") is None
