"""Plain FTS5: the same texts and the same words, with a tokenizer of SQLite's and nothing of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import apsw

from stress.recall.corpus import Document
from stress.recall.metrics import DEPTH

Tokenizer: TypeAlias = Literal["unicode61", "porter"]
TOKENIZERS: Final[tuple[Tokenizer, ...]] = ("unicode61", "porter")
Mode: TypeAlias = Literal["any", "all"]


class PlainFts:
    """An FTS5 table in memory with title, aliases and text, ranked by ``bm25``. One thread."""

    def __init__(self, tokenizer: Tokenizer, mode: Mode, documents: Sequence[Document]) -> None:
        self.name = f"FTS5 {tokenizer}"
        self._operator = {"any": " OR ", "all": " AND "}[mode]
        self._db = apsw.Connection(":memory:")
        self._db.execute(f"CREATE VIRTUAL TABLE found USING fts5(title, aliases, body, tokenize = '{tokenizer}')")
        self._db.executemany(
            "INSERT INTO found(rowid, title, aliases, body) VALUES (?, ?, ?, ?)",
            [(row, one.title, "\n".join(one.aliases), one.text) for row, one in enumerate(documents)],
        )
        self._ids = [document.id for document in documents]

    def search(self, query: str) -> list[str]:
        """The first ten documents: any or every word, each quoted, so that nothing in it is syntax."""
        words = ('"' + word.replace('"', '""') + '"' for word in query.split())
        rows = self._db.execute(
            "SELECT rowid FROM found WHERE found MATCH ? ORDER BY rank, rowid LIMIT ?",
            (self._operator.join(words), DEPTH),
        )
        return [self._ids[row] for (row,) in rows]

    def close(self) -> None:
        self._db.close()
