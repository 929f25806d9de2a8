"""Which entries a query is about. Pure; any thread.

``bm25`` compares stems, rates a rare word above a frequent one and a short entry above a long one, and lets a part of a
word count half, so that it finds all that the released package finds. ``tokens`` is that package's rule: how many words
of the query occur anywhere, parts of words included.

Source: agent-memory.md (The recall Tool), agent-memory-contract.md section 8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from messages.errors import LimitExceeded
from storage.agent_memory.entry import KnowledgeEntry
from storage.search import STOP_WORDS, parse_query, rarity, stems

Ranking: TypeAlias = Literal["bm25", "tokens"]

_K1, _B = 1.2, 0.75
_PART_OF_A_WORD: Final = 0.5
_WORDS_MAX, _CHARS_MAX = 64, 500
_ROUNDED: Final = 9


def recalled(entries: Sequence[KnowledgeEntry], query: str, limit: int, ranking: Ranking) -> list[KnowledgeEntry]:
    """The ``limit`` entries that match best, of equal ones the most important; without a word the most important.

    ``entries`` come in the order of all stores, which is kept among equals.
    """
    if not query.strip():
        return sorted(entries, key=lambda entry: -entry.importance)[:limit]
    rate = _RANKINGS[ranking](entries, query)
    found = [(score, entry) for entry in entries if (score := rate(entry)) > 0]
    found.sort(key=lambda one: (-round(one[0], _ROUNDED), -one[1].importance))
    return [entry for _, entry in found[:limit]]


Rate: TypeAlias = Callable[[KnowledgeEntry], float]


def _by_tokens(entries: Sequence[KnowledgeEntry], query: str) -> Rate:
    words = query.lower().split()
    return lambda entry: sum(word in _text(entry).lower() for word in words)


def _by_bm25(entries: Sequence[KnowledgeEntry], query: str) -> Rate:
    phrases = _phrases(query)
    if not phrases:  # symbols alone
        return _by_tokens(entries, query)
    counted = {entry.id: _counted(_text(entry), phrases) for entry in entries}
    lengths = sum(length for length, _ in counted.values()) or 1
    average = lengths / max(len(counted), 1)
    weights = [
        rarity(sum(frequencies[number] > 0 for _, frequencies in counted.values()), len(counted))
        for number in range(len(phrases))
    ]

    def rate(entry: KnowledgeEntry) -> float:
        length, frequencies = counted[entry.id]
        damped = _K1 * (1 - _B + _B * length / average)
        return sum(
            weight * frequency * (_K1 + 1) / (frequency + damped)
            for weight, frequency in zip(weights, frequencies, strict=True)
        )

    return rate


_RANKINGS: Final[Mapping[Ranking, Callable[[Sequence[KnowledgeEntry], str], Rate]]] = {
    "bm25": _by_bm25,
    "tokens": _by_tokens,
}


def _text(entry: KnowledgeEntry) -> str:
    return f"{entry.content} {entry.category}"


def _phrases(query: str) -> list[tuple[str, tuple[str, ...]]]:
    """The words of a query as they were written and as stems; such as say nothing are left out beside others."""
    written = _parsed(" ".join(query.split()[:_WORDS_MAX])[:_CHARS_MAX])
    telling = [phrase for phrase in written if not STOP_WORDS.issuperset(phrase)] or written
    return [(" ".join(phrase), tuple(stems(" ".join(phrase)))) for phrase in telling]


def _parsed(query: str) -> tuple[tuple[str, ...], ...]:
    try:
        return parse_query(query, "any").phrases
    except LimitExceeded:
        return _parsed(query[: len(query) // 2])


def _counted(text: str, phrases: Sequence[tuple[str, tuple[str, ...]]]) -> tuple[int, list[float]]:
    """How many words a text has, and how often each phrase stands in it."""
    found = stems(text)
    # A space on each side, so that a phrase is never found across the edge of a word; doubled, so that two in a row
    # are found both.
    joined = f" {'  '.join(found)} "
    lowered = text.lower()
    return len(found), [
        float(joined.count(f" {'  '.join(stemmed)} ")) or (_PART_OF_A_WORD if written in lowered else 0.0)
        for written, stemmed in phrases
    ]
