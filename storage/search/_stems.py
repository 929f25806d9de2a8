"""Words in the form in which they are compared: folded, irregular forms brought to one, endings taken off."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

import apsw

from storage.faults import effect
from storage.search._fold import tokens
from storage.search._lemmas import lemma

FAULT_POINTS: Final = (("search.stemmer", "opening the database in memory that lends its stemmer"),)


class _Porter(threading.local):
    """FTS5's own stemmer. A connection serves one thread at a time: each has its own, in memory."""

    def __init__(self) -> None:
        with effect("search.stemmer"):
            # A tokenizer lives only as long as its connection.
            self._database = apsw.Connection(":memory:")
        self.tokenize = self._database.fts5_tokenizer("porter", ["ascii"])


_porter = _Porter()


def stems(text: str) -> list[str]:
    """The stems of the text's tokens, in order. Any thread."""
    return stems_of(tokens(text))


def stems_of(words: Iterable[str]) -> list[str]:
    """The stems of these tokens, in order, as the index of candidates holds them. Any thread."""
    bases = " ".join(map(lemma, words)).encode("utf-8", "replace")
    found = _porter.tokenize(
        bases, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
    )
    return [stem for stem in found if isinstance(stem, str)]
