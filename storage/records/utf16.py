"""Lengths and offsets in UTF-16 code units, the unit of every limit and offset of Knowledge.

Python counts code points; a character beyond U+FFFF is two units. Text without such characters costs one scan.

Source: tools.md (Ontology, Reading records), decisions.md section 5, MARKDOWN.md (Offsets).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import Final

from messages.text import clip_utf16 as clip
from messages.text import utf16_length as length

__all__ = ["OffsetInsidePair", "Offsets", "clip", "length", "window"]

_ASTRAL: Final = re.compile("[\U00010000-\U0010ffff]")


class OffsetInsidePair(ValueError):
    """The offset lies between the two halves of a surrogate pair, where no text can be cut."""


class Offsets:
    """Converts offsets of one text in both directions; build it once for many conversions."""

    __slots__ = ("_astral", "_astral_units", "_length")

    def __init__(self, text: str) -> None:
        self._astral = [] if text.isascii() else [found.start() for found in _ASTRAL.finditer(text)]
        self._astral_units = [point + index for index, point in enumerate(self._astral)]
        self._length = len(text)

    def to_units(self, point: int) -> int:
        """The UTF-16 offset of a code point offset."""
        return point + bisect_left(self._astral, point) if self._astral else point

    def to_points(self, unit: int) -> int:
        """The code point offset of a UTF-16 offset.

        Raises :class:`OffsetInsidePair` between two halves, ``IndexError`` outside the text.
        """
        if not 0 <= unit <= self._length + len(self._astral):
            raise IndexError(f"offset {unit} is outside the text")
        before = bisect_left(self._astral_units, unit)
        if before and self._astral_units[before - 1] == unit - 1:
            raise OffsetInsidePair(f"offset {unit} is inside a surrogate pair")
        return unit - before

    @property
    def units(self) -> int:
        """The length of the whole text in UTF-16 units."""
        return self._length + len(self._astral)


def window(text: str, start: int, limit: int) -> tuple[str, int | None]:
    """The text from offset ``start`` on, at most ``limit`` units, and the offset where the next window begins.

    Pairs stay whole, so a window may stop one unit before its limit; a limit too small for the next character still
    gives that character, so that reading always advances. ``None`` once nothing is left. Raises as
    :meth:`Offsets.to_points` does.
    """
    offsets = Offsets(text)
    begin = offsets.to_points(start)
    cut = clip(text[begin : begin + max(limit, 0)], limit) or text[begin : begin + 1]
    end = begin + len(cut)
    return cut, offsets.to_units(end) if end < len(text) else None
