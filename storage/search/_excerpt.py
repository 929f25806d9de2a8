"""The passage of a stored text that shows why it was found. No file, any thread.

The index holds no text, and its tokens are folded, so an excerpt is cut from the page itself.

Source: tools.md (Search and lookup: bodies over 64 KiB), SEARCH.md section 1 (known cost).
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from storage.search._fold import RUN_CHARS, fold, fold_letters, split_unspaced, tokens, tokens_of_folded
from storage.search._query import ParsedQuery, Phrase

EXCERPT_MAX_CHARS: Final = 240
"""UTF-16 units, ellipses included."""
LOCATED_MAX_BYTES: Final = 64 * 1024
"""Bodies with more bytes of UTF-8 show their beginning."""

_LEAD_SHARE: Final = 4
_ANCHORS_MAX: Final = 200
_BISECTED_MAX_CHARS: Final = 256
# Named by what it is not: compiling a range up to the last code point takes 5 ms, and a query has its own pattern.
_NO_TOKEN: Final = r"\x00-/:-`{-\x7f"
_TOKEN: Final = f"[^{_NO_TOKEN}]"
_SEPARATOR: Final = f"[{_NO_TOKEN}]"
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
    pattern = _pattern(query.phrases)
    literals = [one.letters for one in query.literals]
    if text.isascii():  # folding moves nothing
        folded = text.lower()
        return [
            _Anchor(match.start(), _phrase(match[0]), _stands_around(literals, folded, match.start()))
            for match in islice(pattern.finditer(folded), _ANCHORS_MAX)
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
    folded = fold("\n".join(pieces)).lower()
    found: list[_Anchor] = []
    line, seen = 0, 0
    for match in islice(pattern.finditer(folded), _ANCHORS_MAX):
        line += folded.count("\n", seen, match.start())
        seen = match.start()
        piece, inside = pieces[line], folded[folded.rfind("\n", 0, seen) + 1 : seen]
        letters = fold_letters(piece) if literals else ""
        literal = any(one in letters for one in literals)
        found.append(_Anchor(starts[line] + _offset_of_token(piece, inside), _phrase(match[0]), literal))
    return found


def _pattern(phrases: Iterable[Phrase]) -> re.Pattern[str]:
    """Any of the phrases between separators, the longest that fits."""
    longest_first = sorted(phrases, key=lambda phrase: (-len(phrase), phrase))
    joined = [rf"{_SEPARATOR}+".join(map(re.escape, phrase)) for phrase in longest_first]
    # The look behind follows the first character, so that the scan can leap from one such character to the next.
    first = [len(re.escape(phrase[0][0])) for phrase in longest_first]
    branches = [rf"{one[:size]}(?<!{_TOKEN}.){one[size:]}" for one, size in zip(joined, first, strict=True)]
    return re.compile(rf"(?:{'|'.join(branches)})(?!{_TOKEN})")


def _phrase(matched: str) -> Phrase:
    return tuple(tokens_of_folded(matched))


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
