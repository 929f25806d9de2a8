"""Which pages the bodies of pages lead to: one partition's links as the catalogue keeps them.

A link names its page by id, then by title or alias, then by path, then by file name; merge redirects are followed, and
what several pages could be meant by leads nowhere, as in a lookup. A page's degree is the number of distinct current
pages that it links to or that link to it.

Reads only, on the thread that owns the connection. Source: tools.md (Page budgets, Search and lookup).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from storage.records.link_keys import LinkKey
from storage.state.catalogue_reader import CatalogueReader, Entry
from storage.state.connection import Row


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
        row = self.row_of(link)
        return None if row is None else self._reader.by_row(row)

    def meant(self, link: LinkKey) -> Sequence[Entry]:
        """The current pages that a link could mean: it leads to one only when that is the only one.

        An id that several files bear means all of them, whatever they are.
        """
        entries = (self._reader.by_row(row) for row in self._rows_meant(link))
        return [entry for entry in entries if entry is not None]

    def row_of(self, link: LinkKey) -> int | None:
        """The row of that page. One query, but for pages that were merged into others."""
        rows = self._rows_meant(link)
        return rows[0] if len(rows) == 1 else None

    def _rows_meant(self, link: LinkKey) -> Sequence[int]:
        number = self._reader.number
        if link.form == "path":
            found = self._db.query(_BY_PATH, (number, link.path))
        else:
            found = self._db.query(_BY_ANY_NAME, (number, link.written, link.name, link.path))
        tiers: dict[int, list[Row]] = {}
        for tier, *candidate in found:
            tiers.setdefault(int(tier), []).append(tuple(candidate))
        for tier, candidates in sorted(tiers.items()):
            if tier == _ID and len(candidates) > 1:
                return [int(row) for row, *_ in candidates]
            pages = {row for candidate in candidates if (row := self._current(candidate)) is not None}
            # What an id means is settled by it, be it a page or not.
            if pages or tier == _ID:
                return sorted(pages)
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
        found = self._db.query_one(
            "SELECT EXISTS (SELECT 1 FROM body_link WHERE target = ?2 AND row = ?1) "
            "OR EXISTS (SELECT 1 FROM body_link WHERE target = ?1 AND row = ?2)",
            (row, other),
        )
        return found is not None and bool(found[0])

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
        """The records whose bodies link to a record of any kind, whatever it is now; each once, oldest first.

        Claims and relationships only where they link by its id; :func:`~storage.state.connections.linking_statements`
        has those that link to a page by another name.
        """
        found = self._db.query(
            "SELECT row FROM body_link WHERE target = ?1 "
            "UNION SELECT row FROM body_link WHERE partition = ?2 AND form = 'wiki' AND written = ?3 ORDER BY 1",
            (entry.row, self._reader.number, entry.id),
        )
        entries = (self._reader.by_row(int(number)) for (number,) in found)
        return [page for page in entries if page is not None]

    # --- inside ----------------------------------------------------------------------------------------

    def _current(self, candidate: Row) -> int | None:
        """The row of the current page that a candidate stands for."""
        row, current, lifecycle = candidate
        if lifecycle != "merged":
            return int(row) if current else None
        entry = self._reader.by_row(int(row))
        page = None if entry is None else self._reader.follow_merges(entry)
        return page.row if page is not None and is_current_page(page) else None


_ID: Final = 0
_CANDIDATE: Final = "r.row, r.kind = 'page' AND r.lifecycle = 'active' AND r.valid AND NOT r.fixture, r.lifecycle FROM "
_BY_PATH: Final = f"SELECT 2, {_CANDIDATE} page p JOIN record r ON r.row = p.row WHERE p.partition = ?1 AND p.path = ?2"
_BY_ANY_NAME: Final = (
    f"SELECT {_ID}, {_CANDIDATE} record r WHERE r.partition = ?1 AND r.id = ?2 "
    f"UNION ALL SELECT 1, {_CANDIDATE} name n JOIN record r ON r.row = n.row "
    "WHERE n.partition = ?1 AND n.normalised = ?3 AND r.kind = 'page' "
    f"UNION ALL SELECT 2, {_CANDIDATE} page p JOIN record r ON r.row = p.row WHERE p.partition = ?1 AND p.path = ?4 "
    f"UNION ALL SELECT 3, {_CANDIDATE} page p JOIN record r ON r.row = p.row WHERE p.partition = ?1 AND p.file = ?4"
)


def is_current_page(entry: Entry) -> bool:
    """Whether a record counts as a page among pages; pages do not expire."""
    return entry.kind == "page" and entry.lifecycle == "active" and entry.valid and not entry.fixture
