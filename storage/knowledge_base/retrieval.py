"""Ranking by shared words, exactly as documented: a question-level word weighs 3, a word of a state 2, of a text 1.

Each distinct word of the query counts once in an entry, at the heaviest place where it stands.

Source: system-memory-contract.md section 7.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from messages.errors import InvalidArgument
from messages.json_types import JsonObject
from storage.knowledge_base.corpus import Corpus
from storage.knowledge_base.documents import Doc
from storage.knowledge_base.stances import Stance
from storage.knowledge_base.words import words

LIMIT_MAX: Final = 10
DEFAULT_LIMIT: Final = 3
WORD_MIN_BYTES: Final = 3

_WEIGHTS: Final = (3, 2, 1)


@dataclass(frozen=True, slots=True)
class Hit:
    """One entry that shares words with the query. ``state``, ``date`` and ``stance_id`` are a stance's alone."""

    kind: Literal["stance", "doc"]
    title: str
    body: str
    sources: tuple[str, ...]
    score: int
    state: str | None = None
    date: str | None = None
    stance_id: str | None = None

    def to_json(self) -> JsonObject:
        """The hit as the contract shows it: without the stance's id, and without what a document does not have."""
        shown: JsonObject = {"kind": self.kind, "title": self.title, "body": self.body}
        if self.state is not None:
            shown["state"] = self.state
        shown["sources"] = self.sources
        if self.date is not None:
            shown["date"] = self.date
        return {**shown, "score": self.score}


@dataclass(frozen=True, slots=True)
class Hits:
    """What was found, the best first; none when no entry shares a word with the query."""

    hits: tuple[Hit, ...]


@dataclass(frozen=True, slots=True)
class Unsupported:
    """The query holds no word of three or more bytes, so there is nothing to rank by."""

    code: Literal["unsupported"] = "unsupported"
    message: str = "the query has no word of three or more bytes; say more"


Outcome: TypeAlias = Hits | Unsupported


def search(corpus: Corpus, query: str, limit: int = DEFAULT_LIMIT) -> Outcome:
    """The best entries for a query. Of equal scores stances come before documents, then the file's order counts.

    Raises ``InvalidArgument`` for a limit outside 1 to 10.
    """
    if not 1 <= limit <= LIMIT_MAX:
        message = f"limit must be a whole number from 1 to {LIMIT_MAX}"
        raise InvalidArgument(message, field="limit", reason="out_of_range", allowed=f"1 to {LIMIT_MAX}")
    wanted = frozenset(word for word in words(query) if len(word.encode("utf-8", "replace")) >= WORD_MIN_BYTES)
    if not wanted:
        return Unsupported()
    entries: tuple[Stance | Doc, ...] = (*corpus.stances, *corpus.docs)
    scored = [(_score(wanted, places), entry) for entry, places in zip(entries, corpus.places, strict=True)]
    # The sort is stable, and the stances stand first.
    ranked = sorted((pair for pair in scored if pair[0]), key=lambda pair: -pair[0])
    return Hits(tuple(_hit(entry, score) for score, entry in ranked[:limit]))


def _score(wanted: frozenset[str], places: Iterable[frozenset[str]]) -> int:
    score, left = 0, wanted
    for weight, place in zip(_WEIGHTS, places, strict=True):
        found = left & place
        score += weight * len(found)
        left -= found
    return score


def _hit(entry: Stance | Doc, score: int) -> Hit:
    if isinstance(entry, Doc):
        return Hit("doc", entry.title, entry.summary, (entry.source,), score)
    return Hit("stance", entry.title, entry.answer, entry.sources, score, entry.state, entry.date, entry.id)
