"""The passage of a stored text that shows why it was found. No file, any thread.

The index holds no text, and its tokens are folded, so an excerpt is cut from the page itself.

Source: tools.md (Search and lookup: bodies over 64 KiB), SEARCH.md section 1 (known cost).
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple

from storage.search._fold import RUN_CHARS, fold, fold_letters, split_unspaced, tokens
from storage.search._query import ParsedQuery, Phrase

EXCERPT_MAX_CHARS: Final = 240
"""UTF-16 units, ellipses included."""
LOCATED_MAX_BYTES: Final = 64 * 1024
"""Bodies with more bytes of UTF-8 show their beginning."""

_LEAD_SHARE: Final = 4
_ANCHORS_MAX: Final = 200
_BISECTED_MAX_CHARS: Final = 256
# In folded text whatever is not ASCII belongs to a token.
_SPACE: Final = 0x20
_SPACED: Final = bytes(byte if byte >= 0x80 or chr(byte).isalnum() else _SPACE for byte in range(256))
_ELLIPSIS: Final = "…"


class _Anchor(NamedTuple):
    offset: int
    phrase: Phrase
    literal: bool


def excerpt(body: str, query: ParsedQuery | None, *, max_chars: int = EXCERPT_MAX_CHARS) -> str:
    """At most ``max_chars`` UTF-16 units of ``body`` on one line, around the query's words where they stand closest.

    White space is collapsed; ``…`` marks a cut end. No character is split, nor one from its marks. A body over
    64 KiB, or one that holds no word of the query, gives its beginning.
    """
    if len(body) > LOCATED_MAX_BYTES or (not body.isascii() and len(body.encode()) > LOCATED_MAX_BYTES):
        return _cut(" ".join(body[: 4 * max_chars].split()), 0, max_chars, more=True)
    words = body.split()
    text = " ".join(words)
    if _units(text) <= max_chars:
        return text
    anchors = _anchors(words, text, query) if query is not None else []
    return _cut(text, _beginning(text, anchors, max_chars), max_chars, more=False)


def _anchors(words: list[str], text: str, query: ParsedQuery) -> list[_Anchor]:
    """Where the query's phrases stand in ``text``, which is the words joined by single spaces."""
    if not query.phrases:
        return []
    literals = [one.letters for one in query.literals]
    if text.isascii():  # folding moves nothing, and each character is a byte
        folded = text.lower()
        return [
            _Anchor(place, phrase, _stands_around(literals, folded, place))
            for place, phrase in islice(_matches(folded.encode(), query.phrases), _ANCHORS_MAX)
        ]
    # Folding keeps lines: with one piece a line, a line number leads back to the text as it was written.
    pieces: list[str] = []
    starts: list[int] = []
    offset = 0
    for word in words:
        for piece in (word,) if len(word) <= RUN_CHARS else split_unspaced(word):
            pieces.append(piece)
            starts.append(offset)
            offset += len(piece)
        offset += 1
    encoded = fold("\n".join(pieces)).lower().encode()
    found: list[_Anchor] = []
    line, seen = 0, 0
    for place, phrase in islice(_matches(encoded, query.phrases), _ANCHORS_MAX):
        line += encoded.count(b"\n", seen, place)
        seen = place
        piece, inside = pieces[line], encoded[encoded.rfind(b"\n", 0, place) + 1 : place].decode()
        letters = fold_letters(piece) if literals else ""
        literal = any(one in letters for one in literals)
        found.append(_Anchor(starts[line] + _offset_of_token(piece, inside), phrase, literal))
    return found


def _matches(folded: bytes, phrases: Iterable[Phrase]) -> Iterator[tuple[int, Phrase]]:
    """Where phrases stand in a folded text, from left to right; the longest at a place, and none inside another.

    A pattern of the query's own would do, but compiling one takes longer than looking for it in a page of hits.
    """
    text = b" %b \0" % spaced(folded)  # the NUL ends the last gap
    end = 0
    for place, _, stop, phrase in merge(*(_places(text, phrase) for phrase in phrases)):
        if place >= end:
            end = stop
            yield place, phrase


def spaced(folded: bytes) -> bytes:
    """A folded text in UTF-8 with its tokens where they were and spaces in between."""
    return folded.translate(_SPACED)


def _places(text: bytes, phrase: Phrase) -> Iterator[tuple[int, int, int, Phrase]]:
    """Each place of one phrase: where it begins, its length for the order of longest first, where it ends, itself."""
    first, *rest = (b"%b " % token.encode() for token in phrase)
    found = text.find(b" " + first)
    while found >= 0:
        end = found + len(first)
        for token in rest:
            begin = end
            while text[begin] == _SPACE:
                begin += 1
            if not text.startswith(token, begin):
                break
            end = begin + len(token) - 1
        else:
            yield found, -len(phrase), end - 1, phrase
        found = text.find(b" " + first, found + len(first))


def _stands_around(literals: list[str], folded: str, place: int) -> bool:
    """Whether one of the words, symbols included, stands at or just before ``place``."""
    return any(folded.find(one, max(0, place - len(one)), place + len(one)) >= 0 for one in literals)


def _offset_of_token(word: str, inside: str) -> int:
    """How many characters of ``word`` stand before the token that ``inside``, its folded beginning, leads up to."""
    if word.isascii():
        return len(inside)
    if len(word) > _BISECTED_MAX_CHARS:
        return min(len(inside), len(word) - 1)  # near enough: such a word is no prose
    index = len(tokens(inside))
    low, high = 0, len(word)
    while low < high:
        middle = (low + high) // 2
        if len(tokens(word[: middle + 1])) > index:
            high = middle
        else:
            low = middle + 1
    return low


def _beginning(text: str, anchors: list[_Anchor], max_chars: int) -> int:
    """Where the excerpt starts: a little before the stretch with the most different words of the query."""
    if not anchors:
        return 0
    lead = max_chars // _LEAD_SHARE
    offsets = [anchor.offset for anchor in anchors]
    best, best_score = 0, (0, 0)
    for index, anchor in enumerate(anchors):
        inside = anchors[index : bisect_right(offsets, anchor.offset + max_chars - lead)]
        score = (len({one.phrase for one in inside if one.literal}), len({one.phrase for one in inside}))
        if score > best_score:
            best, best_score = anchor.offset, score
    if best <= lead:
        return 0
    begin = best - lead
    space = text.find(" ", begin, best)
    return begin if space < 0 else space + 1


def _cut(text: str, begin: int, max_chars: int, *, more: bool) -> str:
    """``text`` from ``begin``, ended at a word where one ends in the second half; ``more`` when it goes on."""
    while begin and _continues(text, begin):
        begin -= 1
    head = _ELLIPSIS if begin else ""
    rest = text[begin:]
    if not more and _units(rest) <= max_chars - len(head):
        return head + rest
    room = max_chars - len(head) - len(_ELLIPSIS)
    # Half of a surrogate pair at the end is left out by the decoder.
    end = len(rest[:room].encode("utf-16-le")[: 2 * room].decode("utf-16-le", "ignore"))
    space = rest.rfind(" ", end // 2, end + 1)
    if space > 0 and end < len(rest):
        end = space
    while 0 < end < len(rest) and _continues(rest, end):
        end -= 1
    return head + rest[:end].rstrip() + _ELLIPSIS


def _continues(text: str, index: int) -> bool:
    """Whether the character at ``index`` belongs to the one before it: a mark, or part of a joined emoji."""
    character = text[index]
    return (
        unicodedata.combining(character) != 0
        or unicodedata.category(character) in ("Mn", "Mc", "Me")
        or character == "\u200d"
        or text[index - 1] == "\u200d"
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )


def _units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
