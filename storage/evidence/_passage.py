"""Follows cited lines and a quote through a file that passes by in chunks, and keeps only a short excerpt.

Lines end with LF or CRLF, which count as the same; the memory used does not grow with the file.

Source: decisions.md section 2 (a quote lies inside the cited lines, equal after CRLF -> LF).
"""

from __future__ import annotations

import codecs
from typing import Final

from storage.records import utf16

EXCERPT_MAX_CHARS: Final = 4_000
# A UTF-16 unit takes at most three bytes of UTF-8.
_EXCERPT_MAX_BYTES: Final = EXCERPT_MAX_CHARS * 3 + 4


class Passage:
    """The lines ``start`` to ``end`` (1-based, inclusive; all lines where ``start`` is ``None``) of what is fed."""

    __slots__ = ("_end", "_held", "_kept", "_last", "_line", "_quote", "_start", "_tail", "quote_found")

    def __init__(self, start: int | None, end: int | None, quote: str | None) -> None:
        self._start = start or 1
        self._end = end
        self._quote = None if quote is None else quote.replace("\r\n", "\n").encode("utf-8", "surrogatepass")
        self.quote_found = not self._quote
        self._line = 1  # the line that the next byte belongs to
        self._last = b"\n"  # the last byte that was fed
        self._held = b""  # a CR at the end of a chunk, whose LF may follow
        self._kept = b""
        self._tail = b""

    @property
    def complete(self) -> bool:
        """Whether the cited lines are behind us, so that more bytes change nothing but the number of lines."""
        return self._end is not None and self._line > self._end

    @property
    def full(self) -> bool:
        """Whether the excerpt has all that it may hold."""
        return len(self._kept) >= _EXCERPT_MAX_BYTES

    @property
    def lines(self) -> int:
        """How many lines were fed; an unfinished last one counts, an empty rest after the last line end does not."""
        return self._line if self._last != b"\n" else self._line - 1

    def feed(self, chunk: bytes) -> None:
        data = self._held + chunk
        self._held = b"\r" if data.endswith(b"\r") else b""
        self._pass((data[:-1] if self._held else data).replace(b"\r\n", b"\n"))

    def finish(self) -> None:
        """The file is at its end."""
        held, self._held = self._held, b""
        self._pass(held)

    def excerpt(self) -> str:
        """The beginning of the cited lines, at most 4,000 UTF-16 units; ``""`` when they are no text."""
        if b"\0" in self._kept:
            return ""
        try:
            text = codecs.getincrementaldecoder("utf-8")().decode(self._kept, final=not self.full)
        except UnicodeDecodeError:
            return ""
        return utf16.clip(text.removesuffix("\n"), EXCERPT_MAX_CHARS)

    def _pass(self, data: bytes) -> None:
        if not data:
            return
        first = self._line
        self._line += data.count(b"\n")
        self._last = data[-1:]
        if self._line < self._start or (self._end is not None and first > self._end):
            return
        begin = _after_lines(data, self._start - first)
        stop = len(data) if self._end is None or self._line <= self._end else _after_lines(data, self._end - first + 1)
        self._look(data[begin:stop])

    def _look(self, data: bytes) -> None:
        room = _EXCERPT_MAX_BYTES - len(self._kept)
        if room > 0:
            self._kept += data[:room]
        if not self.quote_found and self._quote:
            window = self._tail + data
            self.quote_found = self._quote in window
            overlap = len(self._quote) - 1
            self._tail = window[-overlap:] if overlap else b""


def _after_lines(data: bytes, count: int) -> int:
    """The offset behind the ``count``-th line end; 0 where ``count`` is not positive."""
    at = 0
    for _ in range(count):
        at = data.index(b"\n", at) + 1
    return at
