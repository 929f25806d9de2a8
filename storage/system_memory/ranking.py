"""Which rows share words with a turn, best first: BM25 over exactly the rows that may be shown.

The statistics are those of the candidates alone, so that nobody's ranking depends on rows that are not theirs to see.
Words are folded, brought to their stem and OR-ed; stop words say nothing. The database's thread.

Source: system-memory-contract.md section 5; SEARCH.md sections 1 and 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice, pairwise
from typing import Final

import apsw

from storage.faults import effect
from storage.recently_used import RecentlyUsed
from storage.search import STOP_WORDS, is_unspaced, stems
from storage.system_memory.model import Row

FAULT_POINTS: Final = (("system_memory.ranking", "indexing in memory the rows that a turn may be shown"),)

QUERY_MAX_CHARS: Final = 512
QUERY_MAX_WORDS: Final = 64
_RANKINGS_KEPT: Final = 32
_STOP_STEMS: Final = frozenset(stems(" ".join(STOP_WORDS)))


def query_phrases(query: str) -> list[tuple[str, ...]]:
    """What a turn asks for: its content words, and runs of unspaced scripts by two characters each."""
    words: dict[tuple[str, ...], None] = {}
    for unspaced, group in groupby(stems(query[:QUERY_MAX_CHARS]), key=is_unspaced):
        run = tuple(group)
        if not unspaced:
            words |= {(word,): None for word in run if word not in _STOP_STEMS}
        elif len(run) == 1:
            words[run] = None
        else:
            words |= dict.fromkeys(pairwise(run))
    return list(islice(words, QUERY_MAX_WORDS))


class Ranking:
    """An index in memory over a few rows, which are never edited."""

    def __init__(self, rows: Sequence[Row]) -> None:
        with effect("system_memory.ranking"):
            self._index = apsw.Connection(":memory:")
            self._index.execute("CREATE VIRTUAL TABLE text USING fts5(body, tokenize = 'ascii', content = '')")
            with self._index:
                self._index.executemany(
                    "INSERT INTO text (rowid, body) VALUES (?, ?)",
                    ((place, " ".join(stems(row.body))) for place, row in enumerate(rows)),
                )

    def scores(self, phrases: Sequence[tuple[str, ...]]) -> dict[int, float]:
        """The score of each row, by its place, that shares one of the phrases: above zero, more is better."""
        if not phrases:
            return {}
        match = " OR ".join(f'"{" ".join(phrase)}"' for phrase in phrases)
        with effect("system_memory.ranking"):
            found: Iterator[tuple[int, float]] = self._index.execute(
                "SELECT rowid, -bm25(text) FROM text WHERE text MATCH ?", (match,)
            )
            return dict(found)

    def close(self) -> None:
        """Give its memory back."""
        self._index.close()


class Rankings:
    """The rankings that were used lately. Rows are never edited, so their ids say whether one still fits."""

    def __init__(self) -> None:
        self._kept: RecentlyUsed[str, tuple[tuple[str, ...], Ranking]] = RecentlyUsed(
            _RANKINGS_KEPT, lambda kept: kept[1].close()
        )

    def of(self, whose: str, rows: Sequence[Row]) -> Ranking:
        """The ranking of these rows."""
        ids = tuple(row.id for row in rows)
        found = self._kept.get(whose)
        if found is not None and found[0] == ids:
            return found[1]
        self._kept.drop(whose)
        return self._kept.put(whose, (ids, Ranking(rows)))[1]

    def close(self) -> None:
        """Give the memory of all of them back."""
        self._kept.close()
