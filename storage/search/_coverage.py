"""How much of a message stands in each of a few documents. No file, any thread.

Words are those by which candidates are found: stop words left out, irregular forms brought to one, endings cut by
FTS5's ``porter``. Source: SEARCH.md section 5 (coverage).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, cast

import apsw

from storage.search._candidates import parse_message
from storage.search._fold import tokens
from storage.search._lemmas import lemma

_TOKENIZER: Final = ("porter", ["ascii"])
"""As of the index of candidates."""


def coverage(message: str, documents: Sequence[str]) -> list[float]:
    """The share of the message's content words that each document holds, 0 to 1, in the order of ``documents``.

    A word weighs the more the fewer of the documents hold it. A message without a word is in none.
    """
    stem = _Stemmer()
    phrases = {stem(word.indexed) for word in parse_message(message).words}
    if not phrases:
        return [0.0] * len(documents)
    held = [{phrase for phrase in phrases if phrase in text} for text in (stem(tokens(each)) for each in documents)]
    weights = {phrase: _weight(sum(phrase in each for each in held), len(documents)) for phrase in sorted(phrases)}
    whole = sum(weights.values())
    return [sum(weights[phrase] for phrase in sorted(each)) / whole for each in held]


class _Stemmer:
    """Tokens as the index of candidates holds them, each between two spaces, so that a phrase is a part of a text."""

    def __init__(self) -> None:
        self._database = apsw.Connection(":memory:")  # a tokenizer lives only as long as its connection
        self._tokenizer = self._database.fts5_tokenizer(*_TOKENIZER)

    def __call__(self, words: Iterable[str]) -> str:
        text = " ".join(map(lemma, words)).encode("utf-8", "replace")
        stems = self._tokenizer(
            text, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
        )
        return f" {' '.join(cast('list[str]', stems))} "


def _weight(holding: int, documents: int) -> float:
    return math.log(1 + (documents - holding + 0.5) / (holding + 0.5))
