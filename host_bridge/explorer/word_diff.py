"""What differs between two texts, line by line and within a line word by word. Pure; bounded in time.

Two changed passages are compared by words while they are small; longer ones are shown as removed and added whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final, Literal, TypeAlias

Change: TypeAlias = Literal["same", "removed", "added"]

LINES_MAX: Final = 3_000
"""Of either text: beyond, everything is taken for one passage."""
WORDS_MAX: Final = 1_500
"""Of either side of one changed passage: beyond, it is removed and added whole."""
CONTEXT_LINES: Final = 3

_WORD: Final = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of text that both have, or one of them. Joined without the added ones they are the earlier text."""

    change: Change
    text: str


@dataclass(frozen=True, slots=True)
class Passage:
    """Lines that belong together. ``skipped`` counts equal lines before it that are not shown."""

    pieces: Sequence[Piece]
    skipped: int = 0


def compare(earlier: str, later: str) -> tuple[Piece, ...]:
    """All of both texts, as pieces in order."""
    return tuple(_joined(_pieces(earlier, later)))


def passages(earlier: str, later: str) -> tuple[Passage, ...]:
    """Only what changed, with a few equal lines around each change. None where the texts are equal."""
    found: list[Passage] = []
    shown: list[Piece] = []
    skipped = 0
    pieces = compare(earlier, later)
    for index, piece in enumerate(pieces):
        if piece.change != "same":
            shown.append(piece)
            continue
        lines = piece.text.splitlines(keepends=True)
        # The rest of a line that changed is no line of context.
        head = CONTEXT_LINES + (not pieces[index - 1].text.endswith("\n")) if index else 0
        tail = CONTEXT_LINES + (not piece.text.endswith("\n")) if index + 1 < len(pieces) else 0
        if len(lines) <= head + tail + 1:
            shown.append(piece)
            continue
        if shown:
            found.append(Passage((*shown, Piece("same", "".join(lines[:head]))), skipped))
        skipped = len(lines) - head - tail
        shown = [Piece("same", "".join(lines[len(lines) - tail :]))] if tail else []
    if any(piece.change != "same" for piece in shown):
        found.append(Passage(tuple(shown), skipped))
    return tuple(found)


def _pieces(earlier: str, later: str) -> Iterator[Piece]:
    old, new = earlier.splitlines(keepends=True), later.splitlines(keepends=True)
    if len(old) > LINES_MAX or len(new) > LINES_MAX:
        yield from _replaced(earlier, later)
        return
    for tag, a, b, c, d in SequenceMatcher(None, old, new).get_opcodes():
        if tag == "equal":
            yield Piece("same", "".join(old[a:b]))
        else:
            yield from _replaced("".join(old[a:b]), "".join(new[c:d]))


def _replaced(earlier: str, later: str) -> Iterator[Piece]:
    old, new = _WORD.findall(earlier), _WORD.findall(later)
    if not old or not new or len(old) > WORDS_MAX or len(new) > WORDS_MAX:
        yield Piece("removed", earlier)
        yield Piece("added", later)
        return
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield Piece("same", "".join(old[a:b]))
        else:
            yield Piece("removed", "".join(old[a:b]))
            yield Piece("added", "".join(new[c:d]))


def _joined(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Neighbours of one kind as one, without empty ones."""
    last: Piece | None = None
    for piece in pieces:
        if not piece.text:
            continue
        if last is not None and last.change == piece.change:
            last = Piece(last.change, last.text + piece.text)
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last
