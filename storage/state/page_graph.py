"""Which pages the bodies of pages lead to: one partition's links as the catalogue keeps them.

A link names its page by id, then by title or alias, then by path, then by file name; merge redirects are followed, and
what several pages could be meant by leads nowhere, as in a lookup. A page's degree is the number of distinct current
pages that it links to or that link to it.

Reads only, on the thread that owns the connection. Source: tools.md (Page budgets, Search and lookup).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from storage.records.links import LinkKey
from storage.state.catalogue_reader import CatalogueReader, Entry


@dataclass(frozen=True, slots=True)
class Standing:
    """A page among the current pages of its partition. A page that is none of them has degree 0."""

    degree: int
    lower: int
    """Current pages with a lower degree."""
    pages: int

    @property
    def percentile(self) -> float:
        """The share of current pages with a lower degree, in percent."""
        return 100 * self.lower / self.pages if self.pages else 0.0


class PageGraph:
    """Queries on the links of one partition."""

    def __init__(self, reader: CatalogueReader) -> None:
        self._reader = reader
        self._db = reader.database

    def page_of(self, link: LinkKey) -> Entry | None:
        """The current page that a link leads to now; whether it is the link's own page is the caller's to see."""
        meant = self.meant(link)
        return meant[0] if len(meant) == 1 else None

    def meant(self, link: LinkKey) -> Sequence[Entry]:
        """The current pages that a link could mean: it leads to one only when that is the only one.

        An id that several files bear means all of them, whatever they are.
        """
        if link.form == "path":
            return self._current(self._at("path", link.path))
        bearers = self._reader.by_id(link.written)
        if bearers:
            return self._current(bearers) if len(bearers) == 1 else bearers
        for candidates in (
            (entry for _, entry in self._reader.by_names((link.name,))),
            self._at("path", link.path),
            self._at("file", link.path),
        ):
            pages = self._current(candidates)
            if pages:
                return pages
        return []

    def standing(self, row: int | None) -> Standing:
        """The degree of a page and where that puts it; ``None`` for a page that is not there yet.

        Costs as much as there are different degrees, whatever the number of pages.
        """
        found = None if row is None else self._db.query_one("SELECT degree FROM page WHERE row = ?", (row,))
        degree = 0 if found is None or found[0] is None else int(found[0])
        counted = self._db.query_one(
            "SELECT coalesce(sum(pages), 0), coalesce(sum(pages) FILTER (WHERE degree < ?), 0) FROM degree "
            "WHERE partition = ?",
            (degree, self._reader.number),
        )
        assert counted is not None
        return Standing(degree, int(counted[1]), int(counted[0]))

    def linked(self, row: int, other: int) -> bool:
        """Whether one of two pages links to the other."""
        return (
            self._db.query_one("SELECT 1 FROM body_link WHERE row = ? AND target = ? LIMIT 1", (row, other)) is not None
            or self._db.query_one("SELECT 1 FROM body_link WHERE row = ? AND target = ? LIMIT 1", (other, row))
            is not None
        )

    def neighbours(self, row: int, limit: int) -> Sequence[Entry]:
        """Up to ``limit`` current pages that this one links to or that link to it, each once, oldest first."""
        found = self._db.query(
            "SELECT target FROM body_link WHERE row = ?1 AND target IS NOT NULL "
            "UNION SELECT row FROM body_link WHERE target = ?1 ORDER BY 1 LIMIT ?2",
            (row, limit),
        )
        entries = (self._reader.by_row(int(number)) for (number,) in found)
        return [entry for entry in entries if entry is not None]

    def naming(self, entry: Entry) -> Sequence[Entry]:
        """The pages whose bodies link to a record of any kind, whatever it is now; each once, oldest first."""
        found = self._db.query(
            "SELECT row FROM body_link WHERE target = ?1 "
            "UNION SELECT row FROM body_link WHERE partition = ?2 AND form = 'wiki' AND written = ?3 ORDER BY 1",
            (entry.row, self._reader.number, entry.id),
        )
        entries = (self._reader.by_row(int(number)) for (number,) in found)
        return [page for page in entries if page is not None]

    # --- inside ----------------------------------------------------------------------------------------

    def _at(self, column: str, path: str) -> list[Entry]:
        rows = self._db.query(
            f"SELECT row FROM page WHERE partition = ? AND {column} = ? ORDER BY row", (self._reader.number, path)
        )
        entries = (self._reader.by_row(int(number)) for (number,) in rows)
        return [entry for entry in entries if entry is not None]

    def _current(self, candidates: Iterable[Entry]) -> list[Entry]:
        """The distinct current pages that these stand for."""
        found: dict[int, Entry] = {}
        for candidate in candidates:
            page = self._reader.follow_merges(candidate)
            if page is not None and is_current_page(page):
                found.setdefault(page.row, page)
        return list(found.values())


def is_current_page(entry: Entry) -> bool:
    """Whether a record counts as a page among pages; pages do not expire."""
    return entry.kind == "page" and entry.lifecycle == "active" and entry.valid and not entry.fixture
