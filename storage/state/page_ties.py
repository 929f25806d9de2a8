"""Keeps how many pages each page is connected with, by links, relationships and shared claims, while records change.

A statement connects the current pages that it names, merge redirects followed: a relationship both its ends, a claim
all that it is about. It counts while it is active and valid; that it expires takes no connection back, since that
happens without a write. The order in which records arrive does not matter. A statement about one page costs two
queries; one about many costs as much as they have pairs. Runs inside the publication's transaction, on the lane's
thread.

Source: decisions.md section 5 (Standing index: most connected).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import combinations
from typing import Final, assert_never

from storage.records import Record
from storage.state.catalogue_reader import CatalogueReader
from storage.state.page_graph import PageGraph, is_current_page

_ROLES: Final = "'entity', 'owner', 'from', 'to'"
ABOUT: Final = (
    "CASE r.kind WHEN 'claim' THEN f.role IN ('entity', 'owner') WHEN 'relationship' THEN f.role IN ('from', 'to') END"
)
"""Whether a statement ``r`` is about what its reference ``f`` names."""
_NAMED: Final = (
    "SELECT DISTINCT f.target FROM record r CROSS JOIN reference f ON f.row = r.row WHERE r.row = ? "
    f"AND r.lifecycle = 'active' AND r.valid = 1 AND r.fixture = 0 AND {ABOUT}"
)
_TIED: Final = "SELECT page FROM tie WHERE row = ?"
_MENTIONED: Final = "SELECT 1 FROM reference WHERE partition = ? AND target = ? LIMIT 1"
# A statement that names one id connects nothing, whatever that means.
_NAMING: Final = (
    "SELECT DISTINCT f.row FROM json_each(?1) j CROSS JOIN reference f ON f.partition = ?2 AND f.target = j.value "
    f"AND f.role IN ({_ROLES}) WHERE EXISTS (SELECT 1 FROM reference o WHERE o.row = f.row "
    f"AND o.role IN ({_ROLES}) AND o.target <> f.target)"
)


def about(record: Record, *, valid: bool) -> frozenset[str]:
    """The ids that a statement is about while it counts: what :data:`_NAMED` finds once its rows are there."""
    if record.lifecycle != "active" or not valid or record.fixture:
        return frozenset()
    match record.kind:
        case "page":
            return frozenset()
        case "claim":
            named = (*record.entities, record.owner)
        case "relationship":
            named = (record.from_id, record.to_id)
        case _:
            assert_never(record.kind)
    return frozenset(one for one in named if one)


class PageTies:
    """The connections of one partition, for one change of one record."""

    def __init__(self, reader: CatalogueReader) -> None:
        self._reader = reader
        self._db = reader.database
        self._graph = PageGraph(reader)
        self._changed: Counter[int] = Counter()

    def linked(self, row: int, other: int) -> None:
        """Two pages are linked that were not."""
        if not self._stated(*sorted((row, other))):
            self._changed.update((row, other))

    def unlinked(self, row: int, other: int) -> None:
        """Two pages are linked no more."""
        if not self._stated(*sorted((row, other))):
            self._changed.subtract((row, other))

    def decide(self, row: int, named: Collection[str] | None = None, *, new: bool = False) -> None:
        """Which pages a statement connects now; none where there is none, or it does not count.

        ``named`` are the ids that it is about, by :func:`about`, where the caller has the record.
        """
        known = set() if new else {int(page) for (page,) in self._db.query(_TIED, (row,))}
        if named is None:
            named = [str(target) for (target,) in self._db.query(_NAMED, (row,))]
        pages = {page for target in named if (page := self._page_of(target)) is not None} if len(named) > 1 else set()
        if len(pages) < 2:
            pages = set()
        if pages == known:
            return
        before, now = (set(combinations(sorted(both), 2)) for both in (known, pages))
        for page, other in sorted(before - now):
            self._take(page, other)
        for page, other in sorted(now - before):
            self._give(page, other)
        self._db.execute_many("DELETE FROM tie WHERE row = ? AND page = ?", [(row, page) for page in known - pages])
        self._db.execute_many(
            "INSERT INTO tie (partition, row, page) VALUES (?, ?, ?)",
            [(self._reader.number, row, page) for page in sorted(pages - known)],
        )

    def decide_naming(self, ids: Collection[str]) -> None:
        """The same for every statement that names one of these ids, or that of a page merged into one of them."""
        if not any(self._db.query_one(_MENTIONED, (self._reader.number, one)) for one in ids):
            return  # as of almost every new record
        for (row,) in self._db.query(_NAMING, (json.dumps(sorted(self._merged_away(ids))), self._reader.number)):
            self.decide(int(row))

    def settle(self) -> None:
        """Apply to the pages what has changed."""
        self._db.execute_many(
            "UPDATE page SET connected = connected + ? WHERE row = ?",
            [(difference, row) for row, difference in sorted(self._changed.items()) if difference],
        )
        self._changed.clear()

    # --- inside ----------------------------------------------------------------------------------------

    def _page_of(self, record_id: str) -> int | None:
        entry = self._reader.one(record_id)
        page = None if entry is None else self._reader.follow_merges(entry)
        return page.row if page is not None and is_current_page(page) else None

    def _merged_away(self, ids: Iterable[str]) -> set[str]:
        found: set[str] = set()
        waiting = list(ids)
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += [entry.id for entry in self._reader.naming(one, ("merged_into",))]
        return found

    def _stated(self, page: int, other: int) -> bool:
        return self._db.query_one("SELECT 1 FROM neighbour WHERE page = ? AND other = ?", (page, other)) is not None

    def _give(self, page: int, other: int) -> None:
        made = self._db.query_one(
            "INSERT INTO neighbour (partition, page, other, statements) VALUES (?, ?, ?, 1) "
            "ON CONFLICT (page, other) DO UPDATE SET statements = statements + 1 RETURNING statements",
            (self._reader.number, page, other),
        )
        assert made is not None
        if made[0] == 1 and not self._graph.linked(page, other):
            self._changed.update((page, other))

    def _take(self, page: int, other: int) -> None:
        left = self._db.query_one(
            "UPDATE neighbour SET statements = statements - 1 WHERE page = ? AND other = ? RETURNING statements",
            (page, other),
        )
        assert left is not None, "what was given is taken once"
        if left[0] == 0:
            self._db.execute("DELETE FROM neighbour WHERE page = ? AND other = ?", (page, other))
            if not self._graph.linked(page, other):
                self._changed.subtract((page, other))
