"""Documents for the search tests, and a short way to ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from storage.search import IndexChange, IndexDocument, Mode, SearchFilters, SearchIndex, SearchQuery

VAULT: Final = "6f1c1b0e-6a0e-4b7e-9d4d-3f2d8f0a4c11"
NOTE: Final = IndexDocument(
    kind="page", type="note", lifecycle="active", title="", body="", recorded_at=1_000, updated_at=2_000
)


def open_index(path: Path, *, read_only: bool = False, partition: str = "private", catalogue: str = "") -> SearchIndex:
    return SearchIndex.open(path, vault_id=VAULT, partition=partition, catalogue=catalogue, read_only=read_only)


def titled(*titles: str) -> list[IndexDocument]:
    return [replace(NOTE, title=title) for title in titles]


def bodies(*texts: str) -> list[IndexDocument]:
    return [replace(NOTE, body=text) for text in texts]


def fill(index: SearchIndex, documents: Sequence[IndexDocument], first: int = 1) -> None:
    """Give the documents the rows from ``first`` on."""
    changes = [IndexChange(first + number, document) for number, document in enumerate(documents)]
    index.apply(changes, index.position() + len(changes))


def rows(
    index: SearchIndex,
    text: str,
    mode: Mode = "all",
    filters: SearchFilters | None = None,
    limit: int = 50,
    offset: int = 0,
) -> list[int]:
    query = SearchQuery(text, mode, filters or SearchFilters(), limit, offset)
    return [hit.rowid for hit in index.search(query, at_least=0).hits]


def total(index: SearchIndex, text: str, mode: Mode = "all", filters: SearchFilters | None = None) -> int:
    return index.search(SearchQuery(text, mode, filters or SearchFilters(), limit=1), at_least=0).total
