"""Text measured and cut in UTF-16 code units, the unit of every offset and limit of Knowledge.

A cut never splits a surrogate pair: it may stop one unit before its cap instead (tools.md, Reading records).
Pure functions; any thread.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from typing import Final, Literal

import pyromark

TextFault = Literal["nul", "lone_surrogate"]

_LINE_BREAKING: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PARSED_MAX_BYTES: Final = 64 * 1024
# An unclosed comment hides everything after it, as an HTML block does when Markdown is rendered.
_HTML_COMMENT: Final = re.compile(rb"<!--(?:-?>|.*?-->|.*\Z)", re.DOTALL)


def utf16_length(text: str) -> int:
    """The number of UTF-16 code units: two for each character beyond U+FFFF."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def clip_utf16(text: str, units: int) -> str:
    """The longest beginning of ``text`` of at most ``units`` code units that splits no pair."""
    if units <= 0:
        return ""
    if text.isascii():
        return text[:units]
    head = text[:units].encode("utf-16-le", "surrogatepass")[: units * 2]
    if len(head) >= 2 and 0xD8 <= head[-1] <= 0xDB:
        head = head[:-2]
    return head.decode("utf-16-le", "surrogatepass")


def text_fault(text: str) -> TextFault | None:
    """What makes ``text`` unstorable: a NUL, or half a surrogate pair (no UTF-8 file can hold it)."""
    if "\0" in text:
        return "nul"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "lone_surrogate"
    return None


def is_blank(text: str) -> bool:
    """Whether nothing in ``text`` can be seen: white space, controls and zero-width marks only."""
    return all(char.isspace() or unicodedata.category(char) in ("Cc", "Cf") for char in text)


def is_one_line(text: str) -> bool:
    """Whether ``text`` holds no line break and no other control character."""
    return _LINE_BREAKING.search(text) is None


def one_line(text: str) -> str:
    """``text`` on one line, as :func:`is_one_line` asks: line breaks, controls and runs of white space as one space."""
    return " ".join(_LINE_BREAKING.sub(" ", text).split())


def without_html_comments(text: str) -> str:
    """``text`` as a reader of the rendered page sees it: comments gone, outer white space trimmed.

    What looks like a comment inside code is code, and stays, in a text of at most 64 KiB: no tool saves a longer claim,
    and a list has many rows.
    """
    if "<!--" not in text:
        return text.strip()
    written = text.encode("utf-8", "replace")
    shown, place = list[bytes](), 0
    code = _code_of(written.decode()) if len(written) <= _PARSED_MAX_BYTES else []
    starts = [start for start, _ in code]
    while (found := _HTML_COMMENT.search(written, place)) is not None:
        around = bisect_right(starts, found.start()) - 1
        if around >= 0 and found.start() < code[around][1]:
            shown.append(written[place : code[around][1]])
            place = code[around][1]
        else:
            shown.append(written[place : found.start()])
            place = found.end()
    return b"".join([*shown, written[place:]]).decode().strip()


def _code_of(text: str) -> list[tuple[int, int]]:
    """Where the code spans and code blocks of a Markdown text lie, in bytes of UTF-8, in order."""
    found: list[tuple[int, int]] = []
    for event, place in pyromark.events_with_range(text):
        match event:
            case {"Code": _} | {"Start": {"CodeBlock": _}}:
                found.append((place["start"], place["end"]))
    return found
