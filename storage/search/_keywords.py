"""The words of free text that are worth a search. Pure; any thread."""

from __future__ import annotations

from messages.text import clip_utf16, utf16_length
from messages.vocabulary import GREP_QUERY_MAX_CHARS, GREP_QUERY_MAX_WORDS
from storage.search import _symbols
from storage.search._fold import tokens, word_count
from storage.search._lemmas import STOP_WORDS

_WORD_MAX_CHARS = GREP_QUERY_MAX_CHARS // 2


def keywords(message: str) -> str:
    """The words of a message of any length, each once and in their order, within the bounds of a query.

    Stop words are left out where it has others. Of a message with too many the words nearest to its beginning and to
    its end are taken, in turn; of one that is a single long run, as an unspaced script writes it, the beginning.
    """
    written: dict[tuple[str, ...], str] = {}
    for word in message.split():
        found = tuple(tokens(word))
        if found:
            written.setdefault(found, word)
    content = [word for found, word in written.items() if not _says_nothing(found, word)] or list(written.values())
    first, last = list[str](), list[str]()
    chars, words = GREP_QUERY_MAX_CHARS, GREP_QUERY_MAX_WORDS
    low, high = 0, len(content)
    while low < high:
        takes_first = len(first) <= len(last)
        word = clip_utf16(content[low] if takes_first else content[high - 1], _WORD_MAX_CHARS)
        chars -= utf16_length(word) + 1
        words -= max(word_count(word), 1)
        if chars < -1 or words < 0:
            break
        if takes_first:
            first.append(word)
            low += 1
        else:
            last.append(word)
            high -= 1
    return " ".join([*first, *reversed(last)])


def _says_nothing(found: tuple[str, ...], word: str) -> bool:
    """Whether a word is a stop word; what an apostrophe left, such as ``d``, is none with a sign, as in ``D#``."""
    return STOP_WORDS.issuperset(found) and not _symbols.literals(word)
