"""One fold for everything that is searched: what a document, a query word and an excerpt have in common.

``fold`` writes text so that the FTS5 index needs no tokenizer of its own: words of unspaced scripts come out one
character a token, emoji stand alone, and what people leave out when they type (marks, case, width) is gone. ``tokens``
is the same split in Python. Both read no files and may run on any thread.

Source: SEARCH.md section 1 (the steps) and section 6 (the traps).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

FOLD_VERSION: Final = 1
"""Rises when the same text folds to other tokens, so that an index written with the old fold is rebuilt."""

PIECE_CHARS: Final = 32_768
"""Long bodies are folded in pieces of about this many code points, so that other threads get their turn."""

RUN_CHARS: Final = 64
"""Runs of unspaced scripts are located in pieces of about this many code points."""

# Step 2. Characters that are written but not read: zero width, soft hyphen, bidi marks, variation selectors 15 and
# 16, the Arabic tatweel, emoji skin tones.
_UNSEEN: Final = re.compile(
    "[\u00ad\u0640\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufe0e\ufe0f\ufeff\U0001f3fb-\U0001f3ff]"
)

# Step 3, on decomposed text. Latin, Greek and Cyrillic marks (the breve of й and ў is a letter, not a mark), keycaps,
# Hebrew points, Arabic vowel signs and hamza. Indic, Thai and kana marks carry the word and stay.
_MARKS: Final = re.compile(
    "(?<![\u0438\u0443])\u0306|[\u0300-\u0305\u0307-\u036f\u20e3"
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed]"
)

# Step 4. Letters that no decomposition reaches.
_LETTERS: Final = str.maketrans("ıđłøħðٱىیکς", "idlohdاييكσ")

# Step 5. Scripts written without spaces, with the marks that belong to the character before them.
_UNSPACED_LETTERS: Final = (
    "\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46\u0e50-\u0e59"  # Thai
    "\u0e81-\u0eb0\u0eb2\u0eb3\u0ebd\u0ec0-\u0ec6\u0ed0-\u0edf"  # Lao
    "\u1000-\u102a\u103f-\u1049\u1050-\u1055\u105a-\u105d\u1061\u1065\u1066\u106e-\u1070\u1075-\u1081\u108e\u1090-\u1099"
    "\ua9e0-\ua9e4\ua9e6-\ua9fe\uaa60-\uaa7a\uaa7e\uaa7f"  # Myanmar
    "\u1780-\u17b3\u17d7\u17dc\u17e0-\u17e9"  # Khmer
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb"  # Hangul
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\U0001aff0-\U0001b16f"  # kana
    "\u2e80-\u2fd5\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U000323af"  # Han
)
_UNSPACED_MARKS: Final = (
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece"
    "\u102b-\u103e\u1056-\u1059\u105e-\u1060\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u108d\u108f\u109a-\u109d"
    "\ua9e5\uaa7b-\uaa7d\u17b4-\u17d3\u17dd\u302a-\u302f\u3099\u309a"
)
_UNSPACED: Final = re.compile(f"[{_UNSPACED_LETTERS}][{_UNSPACED_MARKS}]*")
_UNSPACED_RUN: Final = re.compile(f"(?:[{_UNSPACED_LETTERS}][{_UNSPACED_MARKS}]*)+")
_UNSPACED_LETTER: Final = re.compile(f"[{_UNSPACED_LETTERS}]")
# Letters that nothing before them composes with: no jamo, no Thai or Lao AM (which begins with a mark).
_CUT_BEFORE: Final = re.compile(
    "[\u0e01-\u0e30\u0e40-\u0e46\u0e81-\u0eb0\u0ec0-\u0ec6\u1000-\u102a\u1780-\u17b3"
    "\u3041-\u3096\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\U00020000-\U000323af]"
)
# By what is no token: compiling a range up to the last code point takes 5 ms.
_TOKEN_CHARS: Final = r"^\x00-/:-@\[-`{-\x7f"
_AFTER_UNSPACED: Final = re.compile(
    f"(?<=[{_UNSPACED_LETTERS}{_UNSPACED_MARKS}])(?![{_UNSPACED_LETTERS}{_UNSPACED_MARKS}])(?=[{_TOKEN_CHARS}])"
)

# A run without white space that holds more than ASCII. Nothing composes across white space, so runs fold alone.
_OTHER_RUN: Final = re.compile(r"(?<!\S)[!-~\x00-\x08\x0e-\x1b\x7f]*+[^\x00-\x7f]\S*")
_TOKEN: Final = re.compile(f"[{_TOKEN_CHARS}]+")
_WHITE_SPACE: Final = re.compile(r"\s")


class _TokenCharacters(dict[int, int | str]):
    """A ``str.translate`` table of Unicode facts, each learned once.

    A character outside tokens becomes a space, an emoji stands between spaces, a letter of an unspaced script
    begins with one, and the letters of step 4 are mapped.
    """

    def __missing__(self, codepoint: int) -> int | str:
        character = chr(codepoint)
        category = unicodedata.category(character)
        value: int | str
        if codepoint in _LETTERS:
            value = _LETTERS[codepoint]
        elif codepoint < 0x80:
            value = codepoint
        elif category == "So" or character in _EMOJI_OUTSIDE_SO:
            value = f" {character} "
        elif _UNSPACED_LETTER.match(character):
            value = f" {character}"
        elif category[0] in "LNM" or category == "Co":
            value = codepoint
        else:
            value = " "
        self[codepoint] = value
        return value


# Emoji that Unicode files under mathematical symbols or punctuation.
_EMOJI_OUTSIDE_SO: Final = frozenset("↔▶◀◻◼◽◾⤴⤵〰〽‼⁉")
_TOKEN_CHARACTERS: Final = _TokenCharacters()


def fold(text: str) -> str:
    """The text as it is indexed: its tokens, in order, between ASCII separators.

    ``\\n`` is kept and none is added, so that line *n* of the result is line *n* of the text. Runs of pure ASCII are
    left as they are, since FTS5 lowers those letters itself. Folding again changes no token.
    """
    if text.isascii():
        return text
    if len(text) > 2 * PIECE_CHARS:
        return "".join(map(_fold_piece, _pieces(text)))
    return _fold_piece(text)


def fold_letters(text: str) -> str:
    """Letters folded (steps 2 to 4), punctuation and the places of words untouched."""
    if text.isascii():
        return text.lower()
    return _fold_marks(text).translate(_LETTERS)


def tokens(text: str) -> list[str]:
    """The tokens that the index holds for ``text``, in order."""
    return tokens_of_folded(fold(text))


def tokens_of_folded(folded: str) -> list[str]:
    """The tokens of a text that :func:`fold` has written already."""
    return _TOKEN.findall(folded.lower())


def is_token_character(codepoint: int) -> bool:
    """Whether a character of folded letters belongs to words; emoji and punctuation do not."""
    if codepoint < 0x80:
        return chr(codepoint).isalnum()
    value = _TOKEN_CHARACTERS[codepoint]
    return isinstance(value, int) or not value.endswith(" ")


def is_unspaced(token: str) -> bool:
    """Whether the token is one character of a script that is written without spaces."""
    return _UNSPACED.fullmatch(token) is not None


def blank_unspaced(letters: str) -> str:
    """Letters of unspaced scripts replaced by spaces: what is left is written in words."""
    return letters if letters.isascii() else _UNSPACED_RUN.sub(" ", letters)


def split_unspaced(run: str) -> Iterator[str]:
    """``run`` in pieces of about ``RUN_CHARS``, cut only where both sides fold as they do together."""
    start = 0
    if len(run) > RUN_CHARS and not run.isascii():
        while (found := _CUT_BEFORE.search(run, start + RUN_CHARS)) is not None:
            yield run[start : found.start()]
            start = found.start()
    yield run[start:]


def word_count(text: str) -> int:
    """How many words a person typed: runs between white space and punctuation, a run of Chinese being one."""
    return len(tokens(_UNSPACED_RUN.sub("x", fold_letters(text))))


def _fold_piece(text: str) -> str:
    if text.isascii():
        return text
    if len(text.encode("utf-8", "surrogatepass")) - len(text) > len(text) >> 3:
        return _fold_other(text)
    folded: dict[str, str] = {}

    def fold_run(match: re.Match[str]) -> str:
        run = match[0]
        if run not in folded:
            folded[run] = _fold_other(run)
        return folded[run]

    return _OTHER_RUN.sub(fold_run, text)


def _fold_other(text: str) -> str:
    text = _fold_marks(text).translate(_TOKEN_CHARACTERS)
    return text if text.isascii() else _AFTER_UNSPACED.sub(" ", text)


def _fold_marks(text: str) -> str:
    decomposed = _UNSEEN.sub("", unicodedata.normalize("NFKD", text)).casefold()
    return unicodedata.normalize("NFC", _MARKS.sub("", decomposed))


def _pieces(text: str) -> Iterator[str]:
    """The text cut after white space, where no character composes with the next one."""
    start = 0
    while start < len(text):
        end = start + PIECE_CHARS
        if end < len(text):
            found = _WHITE_SPACE.search(text, end)
            end = len(text) if found is None else found.end()
        yield text[start:end]
        start = end
