"""Reading a retained source piece by piece: exact bytes, or a passage of text by lines.

Guarantees: a piece is read only while the file has the stamp for which it was verified; a passage never leaves its
lines, never splits a character or a surrogate pair, and is refused as a whole when it is no UTF-8 text; memory does not
grow with the file. What a file says is never kept: :class:`Spans` holds offsets.

:func:`read_piece` may run on any thread; a :class:`Spans` belongs to one.

Source: tools.md (Reading records, Attachments), stores-and-access.md (Runtime, Limits).
"""

from __future__ import annotations

import codecs
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from storage import files
from storage.evidence.verify import open_source_file
from storage.files import CHUNK_BYTES, Stamp
from storage.records import utf16

FAULT_POINTS: Final = (
    ("evidence.piece", "reading a piece of a retained source for a caller"),
)

SPANS_MAX: Final = 256
_UNIT_MAX_BYTES: Final = 4

PassageProblem: TypeAlias = Literal["changed", "binary", "out_of_range", "offset"]


@dataclass(frozen=True, slots=True)
class Point:
    """A place in a passage: byte offset in the file, and the 1-based line it lies in."""

    offset: int
    line: int


@dataclass(frozen=True, slots=True)
class Window:
    """A piece of a passage: its text, its first and last line (``None``: there is none), where the next begins."""

    text: str
    start_line: int | None
    end_line: int | None
    following: Point | None


@dataclass(frozen=True, slots=True)
class NoWindow:
    """Why there is none: the file ``changed``, is ``binary``, has fewer ``lines``, or no text begins at the offset."""

    problem: PassageProblem
    lines: int = 0


@dataclass(frozen=True, slots=True)
class _Span:
    begin: int
    stop: int
    line: int


def read_piece(root_fd: int, path: str, stamp: Stamp, offset: int, size: int) -> bytes | None:
    """Up to ``size`` bytes of a source; ``None`` when it is not the file of that stamp any more."""
    fd = open_source_file(root_fd, path, stamp)
    if fd is None:
        return None
    try:
        data = files.read_at(fd, size, offset, at="evidence.piece")
        return data if Stamp.of(files.stat_open(fd, at="evidence.stat")) == stamp else None
    finally:
        files.close(fd)


class Spans:
    """Where passages lie in their files, so that following windows are read without a search. One thread."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, Stamp, int | None, int | None], _Span | NoWindow] = OrderedDict()

    def window(
        self,
        root_fd: int,
        path: str,
        stamp: Stamp,
        lines: tuple[int | None, int | None],
        point: Point | None,
        max_chars: int,
        check: Callable[[], None],
    ) -> Window | NoWindow:
        """At most ``max_chars`` UTF-16 units (2 or more) of the lines (first and last, inclusive) from ``point`` on.

        An end beyond the file is its end. ``check`` runs once a mebibyte and may raise.
        """
        fd = open_source_file(root_fd, path, stamp)
        if fd is None:
            return NoWindow("changed")
        try:
            key = (path, stamp, *lines)
            span = self._known.get(key) or _span(fd, *lines, check)
            found = span if isinstance(span, NoWindow) else _window(fd, span, point, max_chars)
            if Stamp.of(files.stat_open(fd, at="evidence.stat")) != stamp:
                return NoWindow("changed")
        finally:
            files.close(fd)
        self._known[key] = span
        self._known.move_to_end(key)
        if len(self._known) > SPANS_MAX:
            self._known.popitem(last=False)
        return found


def _window(fd: int, span: _Span, point: Point | None, max_chars: int) -> Window | NoWindow:
    at = point or Point(span.begin, span.line)
    if at.offset == span.stop == span.begin:
        return Window("", None, None, None)
    if not span.begin <= at.offset < span.stop:
        return NoWindow("offset")
    wanted = min(max_chars * _UNIT_MAX_BYTES, span.stop - at.offset)
    data = files.read_at(fd, wanted, at.offset, at="evidence.piece")
    try:
        decoded = codecs.getincrementaldecoder("utf-8")().decode(data, final=at.offset + wanted == span.stop)
    except UnicodeDecodeError:
        return NoWindow("offset")
    text = utf16.clip(decoded, max_chars)
    breaks = text.count("\n")
    offset = at.offset + len(text.encode())
    last = at.line + breaks - text.endswith("\n")
    return Window(text, at.line, last, Point(offset, at.line + breaks) if offset < span.stop else None)


def _span(fd: int, start: int | None, end: int | None, check: Callable[[], None]) -> _Span | NoWindow:
    """Where the lines lie, if they are text: no NUL, all UTF-8."""
    first = start or 1
    line, at = 1, 0  # of the beginning of the chunk
    begin: int | None = 0 if first == 1 else None
    decoder = codecs.getincrementaldecoder("utf-8")()
    ended = False
    last = b"\n"
    while not ended:
        check()
        chunk = files.read_at(fd, CHUNK_BYTES, at, at="evidence.piece")
        if not chunk:
            break
        last = chunk[-1:]
        breaks = chunk.count(b"\n")
        cut_from, cut_to = 0, len(chunk)
        if begin is None and line + breaks >= first:
            cut_from = _behind(chunk, first - line)
            begin = at + cut_from
        if begin is not None:
            if end is not None and line + breaks > end:
                cut_to, ended = _behind(chunk, end - line + 1), True
            piece = chunk[cut_from:cut_to]
            try:
                decoder.decode(piece, final=ended)
            except UnicodeDecodeError:
                return NoWindow("binary")
            if b"\0" in piece:
                return NoWindow("binary")
        line += breaks
        at += cut_to if ended else len(chunk)
    if not ended:
        try:
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return NoWindow("binary")
    if begin is None or (begin == at and first > 1):
        return NoWindow("out_of_range", line if last != b"\n" else line - 1)
    return _Span(begin, at, first)


def _behind(data: bytes, breaks: int) -> int:
    """The offset behind the ``breaks``-th line end."""
    at = 0
    for _ in range(breaks):
        at = data.index(b"\n", at) + 1
    return at
