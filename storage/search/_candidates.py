"""The pages that a whole message could need, for the recall gate to choose from: found and ranked by words alone.

Two stages. A second index of names and bodies, stemmed, with current pages only, gives the best pages by BM25 that
hold any content word of the message. Those few are scored again by what BM25 does not see: how many of the words are
there at all and in the name, neighbours that stand together, and words in the very form in which they were written.
The weights are those that SEARCH.md found on public sets; they were not fitted to the corpus of the bench.

Source: memory-provider.md (Recall gate, step 1), SEARCH.md section 3.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from typing import Final, NamedTuple, Protocol, TypeAlias

import orjson

from storage.search._filters import LISTED, ROW_MASK, listed
from storage.search._fold import tokens
from storage.search._lemmas import STOP_WORDS, lemma
from storage.search._query import Phrase, alternatives, expression
from storage.search._rarity import rarity
from storage.state.connection import Database, Row

POOL: Final = 50
"""Pages that the first stage hands to the second, and that a caller can be given at most."""
WORDS_MAX: Final = 64
"""The rarest words of a message that are searched for."""
WORDS_COUNTED_MAX: Final = 256
"""Different words of a message that are counted at all: half from its beginning, half from its end."""
PLACES_MAX: Final = 200
"""Places of one word in one field that are compared with its neighbours'."""

PLACES: Final = "candidate_places"
PRESENT: Final = "candidate_words"

_NAME_WEIGHT: Final = 2.0
_K1, _B = 2.0, 0.5
_COVERAGE, _IN_NAME, _ADJACENT, _NEAR, _EXACT = 1.0, 1.0, 0.5, 0.2, 0.2
_NEAR_WORDS: Final = 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """A catalogue row and its score: higher is better, comparable within one answer only."""

    rowid: int
    score: float


class _Word(NamedTuple):
    """One content word of a message: as it is indexed, and as it was written, in every form that came."""

    indexed: Phrase
    written: tuple[Phrase, ...]


class Message(NamedTuple):
    """The content words of a message, each once, and which of them followed one another."""

    words: tuple[_Word, ...]
    neighbours: frozenset[tuple[int, int]]


_Fields: TypeAlias = list[tuple[int, list[int]]]
"""How often a word stands in the name and in the body, and where first."""


class FtsRow(Protocol):
    """What the functions below use of SQLite's row under search."""

    @property
    def phrase_count(self) -> int: ...
    @property
    def row_count(self) -> int: ...
    def phrase_locations(self, phrase: int, /) -> list[list[int]]: ...
    def phrase_columns(self, phrase: int, /) -> tuple[int, ...]: ...
    def column_size(self, col: int = -1, /) -> int: ...
    def column_total_size(self, col: int = -1, /) -> int: ...


def places(row: FtsRow, *_: object) -> bytes:
    """Where each phrase stands: ``[size, total size, rows, [phrase, [in the name], [in the body]] of each there]``."""
    found: list[list[object]] = []
    for phrase, (name, body) in enumerate(map(row.phrase_locations, range(row.phrase_count))):
        if name or body:
            found.append([phrase, [len(name), name[:PLACES_MAX]], [len(body), body[:PLACES_MAX]]])
    return orjson.dumps([row.column_size(), row.column_total_size(), row.row_count, found])


def present(row: FtsRow, *_: object) -> bytes:
    """One byte for each phrase: whether the row holds it."""
    return bytes(map(bool, map(row.phrase_columns, range(row.phrase_count))))


def parse_message(text: str) -> Message:
    """The content words of a message of any length; its stop words where it has no others."""
    every = [phrase for word in text.split() if (whole := tuple(tokens(word))) for phrase in alternatives(whole)]
    content = [phrase for phrase in every if not (len(phrase) == 1 and phrase[0] in STOP_WORDS)] or every
    half = WORDS_COUNTED_MAX // 2
    if len(content) > WORDS_COUNTED_MAX:
        content = [*content[:half], *content[-half:]]
    written: dict[Phrase, dict[Phrase, None]] = {}
    order: list[Phrase] = []
    for phrase in content:
        indexed = tuple(map(lemma, phrase))
        written.setdefault(indexed, {})[phrase] = None
        order.append(indexed)
    number = {indexed: place for place, indexed in enumerate(written)}
    words = tuple(_Word(indexed, tuple(forms)) for indexed, forms in written.items())
    beside = frozenset((number[one], number[other]) for one, other in pairwise(order) if one != other)
    return Message(words, beside)


def find_candidates(
    database: Database, asked: Message, without_types: Collection[str], limit: int
) -> Sequence[Candidate]:
    """The current pages that share a word with a message, best first, at most ``limit`` of :data:`POOL`."""
    message, frequencies = _found_and_rarest(database, asked)
    if not message.words:
        return ()
    match = expression((word.indexed for word in message.words), " OR ")
    # One more walk through the words finds the places of the best sooner than fifty look-ups do.
    pool = database.query(
        f"SELECT stem.rowid, {PLACES}(stem) FROM stem WHERE stem MATCH ? AND +stem.rowid IN ({LISTED})",
        (match, listed(_best(database, match, without_types))),
    )
    weights = [rarity(frequency, _rows(pool)) for frequency in frequencies]
    exact = _exact(database, message, [int(rowid) for rowid, _ in pool])
    best = [
        Candidate(
            rowid & ROW_MASK,
            _score(message, weights, orjson.loads(where)) + _EXACT * sum(weights[place] for place in exact[rowid]),
        )
        for rowid, where in pool
        if rowid in exact
    ]
    best.sort(key=lambda one: (-one.score, one.rowid))
    return best[:limit]


# --- inside ---------------------------------------------------------------------------------------------------------


def _best(database: Database, match: str, without_types: Collection[str]) -> list[int]:
    """The rowids of the first stage."""
    excluded = f"d.type IN ({LISTED})"
    # Few pages are left out by their type: asking of the best alone whether they are is cheaper than of every match.
    asked = 2 * POOL if without_types else POOL
    best = [int(rowid) for (rowid,) in database.query(_by_bm25(asked), (match,))]
    if not without_types:
        return best
    out = database.query(
        f"SELECT j.value FROM json_each(?) j CROSS JOIN document d ON d.row = (j.value & {ROW_MASK}) WHERE {excluded}",
        (listed(best), listed(without_types)),
    )
    left = set(best).difference(int(rowid) for (rowid,) in out)
    if len(left) >= POOL or len(best) < asked:
        return [rowid for rowid in best if rowid in left][:POOL]
    none = f" AND NOT EXISTS (SELECT 1 FROM document d WHERE d.row = (stem.rowid & {ROW_MASK}) AND {excluded})"
    return [int(rowid) for (rowid,) in database.query(_by_bm25(POOL, none), (match, listed(without_types)))]


def _by_bm25(limit: int, condition: str = "") -> str:
    # By ``rank`` FTS5 would sort in a statement of its own and look every row up a second time.
    return (
        f"SELECT stem.rowid FROM stem WHERE stem MATCH ?{condition} "
        f"ORDER BY bm25(stem, {_NAME_WEIGHT}, 1.0), stem.rowid LIMIT {limit}"
    )


def _found_and_rarest(database: Database, message: Message) -> tuple[Message, list[int]]:
    """The same message with the words that any page holds, the rarest of them where they are too many; and how many
    pages hold each. A word that no page holds would only be looked for again in every row of every walk."""
    asked = [expression((word.indexed,), " OR ") for word in message.words]
    rows = database.query(
        "SELECT j.key, (SELECT count(*) FROM stem WHERE stem MATCH j.value) FROM json_each(?) j",
        (json.dumps(asked, ensure_ascii=False),),
    )
    frequencies = [int(count) for _, count in sorted(rows)]
    rarest = sorted((frequency, place) for place, frequency in enumerate(frequencies) if frequency)[:WORDS_MAX]
    kept = sorted(place for _, place in rarest)
    moved = {place: index for index, place in enumerate(kept)}
    beside = ((moved[one], moved[other]) for one, other in message.neighbours if one in moved and other in moved)
    return (
        Message(tuple(message.words[place] for place in kept), frozenset(beside)),
        [frequencies[place] for place in kept],
    )


def _exact(database: Database, message: Message, rowids: Sequence[int]) -> dict[int, list[int]]:
    """Which words each page holds as they were written; a page that holds none shares no word with the message."""
    if not rowids:
        return {}
    forms = [(place, form) for place, word in enumerate(message.words) for form in word.written]
    places_of_forms = [place for place, _ in forms]
    # One walk through the words, between the first and the last of the pages: looking each page up costs more.
    rows = database.query(
        f"SELECT text.rowid, {PRESENT}(text) FROM text WHERE text MATCH ? AND text.rowid BETWEEN ? AND ? "
        f"AND +text.rowid IN ({LISTED})",
        (expression((form for _, form in forms), " OR "), min(rowids), max(rowids), listed(rowids)),
    )
    return {
        # Each word once, in the order of the message: sums in another order would differ in their last bit.
        int(rowid): list(dict.fromkeys(compress(places_of_forms, found)))
        for rowid, found in rows
    }


def _rows(pool: Sequence[Row]) -> int:
    """How many pages could be candidates."""
    return int(orjson.loads(pool[0][1])[2]) if pool else 0


def _score(message: Message, weights: Sequence[float], where: list[object]) -> float:
    """The score of a page by its stems, to which words in their very form add."""
    size, total, rows, phrases = where
    assert isinstance(size, int)
    assert isinstance(total, int)
    assert isinstance(rows, int)
    assert isinstance(phrases, list)
    length = 1 - _B + _B * size / max(total / rows, 1)
    score = 0.0
    there: dict[int, _Fields] = {}
    for phrase, *fields in phrases:
        there[phrase] = fields
        (in_name, _), (in_body, _) = fields
        times = _NAME_WEIGHT * in_name + in_body
        score += weights[phrase] * (times * (_K1 + 1) / (times + _K1 * length) + _COVERAGE)
        if in_name:
            score += _IN_NAME * weights[phrase]
    for one, other in message.neighbours:
        if one not in there or other not in there:
            continue
        both = (weights[one] + weights[other]) / 2
        nearest = min(_distances(there[one], there[other]), key=lambda step: (step != 1, abs(step)), default=0)
        if nearest == 1:
            score += _ADJACENT * both
        if nearest and abs(nearest) <= _NEAR_WORDS:
            score += _NEAR * both
    return score


def _distances(one: _Fields, other: _Fields) -> Iterator[int]:
    """From each place of one word to the nearest places of another in the same field."""
    for (_, first), (_, second) in zip(one, other, strict=True):
        at = 0
        for place in first:
            while at < len(second) and second[at] <= place:
                at += 1
            if at < len(second):
                yield second[at] - place
            if at:
                yield second[at - 1] - place
