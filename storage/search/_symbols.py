"""Words that punctuation belongs to, such as ``C++``, ``v2.8.3`` or ``C:\\XYZ\\``: what makes a hit a literal one.

The index matches ``C++`` wherever ``c`` stands, because punctuation separates tokens. Beside it a second, small index
keeps only the words that hold a symbol, each symbol a token of its own, so that hits with the very word can come first
even where most documents hold a plain ``c``.

Source: SEARCH.md section 2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from storage.search._fold import blank_unspaced, fold_letters, is_token_character

WORD_MAX_CHARS: Final = 2_000
"""Longer runs (data URIs, minified code) are no words."""
WORDS_MAX_COUNT: Final = 20_000
"""Symbol words kept of one document; more would only sharpen the order."""

_ASCII_SYMBOL_BASE: Final = 0xE000
_SAME: Final = str.maketrans("’‘‐‑‒–—―−", "''-------")
_AROUND: Final = "()[]{}<>\"'`“”„«»*_~|,;!?…"


class _SymbolCodes(dict[int, int | str]):
    """A ``str.translate`` table that sets each symbol apart; ASCII ones become private-use letters for FTS5."""

    def __missing__(self, codepoint: int) -> int | str:
        value: int | str
        if is_token_character(codepoint):
            reserved = _ASCII_SYMBOL_BASE <= codepoint < _ASCII_SYMBOL_BASE + 0x80
            value = "\ufffd" if reserved else codepoint
        elif codepoint < 0x80:
            value = f" {chr(_ASCII_SYMBOL_BASE + codepoint)} "
        else:
            value = f" {chr(codepoint)} "
        self[codepoint] = value
        return value


_SYMBOL_CODES: Final = _SymbolCodes()


@dataclass(frozen=True, slots=True)
class Literal:
    """A symbol word of a query: its folded letters, and its code in the symbol index."""

    letters: str
    code: str

    def stands_in(self, codes: str) -> bool:
        """Whether a document's symbol words hold this very word.

        It may be part of a longer word, but not of one that goes on with a joiner it uses itself (``v2.8.3`` in
        ``v2.8.3.1``), nor of a longer run of the symbol it begins or ends with (``C+`` in ``C++``).
        """
        return self._pattern().search(codes) is not None

    def _pattern(self) -> re.Pattern[str]:
        parts = self.code.split(" ")
        before, after = "(?:(?<=[ \n])|^)", "(?![^ \n])"
        if _is_symbol(parts[0]):
            before += f"(?<!{re.escape(parts[0])} )"
        if _is_symbol(parts[-1]):
            after += f"(?! {re.escape(parts[-1])})"
        elif joiners := {part for part in parts[1:-1] if _is_symbol(part)}:
            after += f"(?! [{''.join(map(re.escape, sorted(joiners)))}] [^\x00-/:-`{{-\x7f\ud800-\ue07f])"
        return re.compile(before + re.escape(self.code) + after)


def literals(text: str) -> tuple[Literal, ...]:
    """The symbol words of ``text``, each once, in order."""
    found: dict[str, Literal] = {}
    for run in dict.fromkeys(text.split()):
        # Most words of prose hold at most a stop or quotes around them.
        if run.isalnum() or len(run) > WORD_MAX_CHARS or _stripped(run).isalnum():
            continue
        for word in blank_unspaced(fold_letters(run).translate(_SAME)).split():
            letters = _stripped(word)
            code = " ".join(letters.translate(_SYMBOL_CODES).split())
            if " " in code and any(map(str.isalnum, letters)):
                found[letters] = Literal(letters, code)
        if len(found) >= WORDS_MAX_COUNT:
            break
    return tuple(found.values())


def _stripped(word: str) -> str:
    return word.lstrip(_AROUND).rstrip(_AROUND + ".:")


def symbol_words(*texts: str) -> str:
    """The codes of all symbol words of a document, one a line; empty when it has none."""
    return "\n".join(dict.fromkeys(literal.code for text in texts for literal in literals(text)))


def _is_symbol(part: str) -> bool:
    if len(part) != 1:
        return False
    codepoint = ord(part)
    return _ASCII_SYMBOL_BASE <= codepoint < _ASCII_SYMBOL_BASE + 0x80 or not is_token_character(codepoint)
