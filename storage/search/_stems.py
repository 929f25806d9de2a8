"""Words in the form in which they are compared: folded, irregular forms brought to one, endings taken off."""

from __future__ import annotations

import threading

import apsw

from storage.faults import effect
from storage.search._fold import tokens
from storage.search._lemmas import lemma

FAULT_POINTS = (("search.stemmer", "opening the database in memory that lends its stemmer"),)


class _Porter(threading.local):
    """FTS5's own stemmer. A connection serves one thread at a time: each has its own, in memory."""

    def __init__(self) -> None:
        with effect("search.stemmer"):
            self.tokenize = apsw.Connection(":memory:").fts5_tokenizer("porter", ["ascii"])


_porter = _Porter()


def stems(text: str) -> list[str]:
    """The stems of the text's tokens, in order. Any thread."""
    bases = " ".join(lemma(token) for token in tokens(text))
    found = _porter.tokenize(
        bases.encode("utf-8", "replace"), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False,
    )  # fmt: skip
    return [stem for one in found for stem in ([one] if isinstance(one, str) else one) if isinstance(stem, str)]
