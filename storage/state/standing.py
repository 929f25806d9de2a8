"""What a standing index is chosen from: pages by what they are connected with, and what was recorded of late.

Queries on one partition's catalogue, bounded where ``most`` is given: :class:`TooMany` says that an answer needs more
rows than that. Nothing depends on row numbers, so that a catalogue that is made again, or made for an earlier moment,
answers the same. Reads only, on the thread that owns the connection.

Source: memory-provider.md (Knowledge index), decisions.md section 5 (Standing index).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from messages.vocabulary import ClaimKind, RecordKind
from storage.state.catalogue_reader import CURRENT, CatalogueReader
from storage.state.connection import Row, SqlValue
from storage.state.page_graph import is_current_page
from storage.state.page_ties import ABOUT


class TooMany(Exception):
    """The answer needs more rows than may be read here."""


@dataclass(frozen=True, slots=True)
class Page:
    """A current page as an index may list it."""

    row: int
    id: str
    type: str
    title: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A current claim as an index may list it; ``recorded_at`` in UTC milliseconds."""

    row: int
    id: str
    kind: ClaimKind
    title: str
    recorded_at: int


class Recent(NamedTuple):
    """What was recorded of late. ``pages`` are the rows of the current pages that it is, or is about."""

    row: int
    kind: RecordKind
    recorded_at: int
    pages: tuple[int, ...]


class StandingReader:
    """One catalogue at ``at_ms``: what had expired by then does not count."""

    def __init__(self, reader: CatalogueReader, at_ms: int, most: int | None = None) -> None:
        self._reader = reader
        self._db = reader.database
        self._at = at_ms
        self._most = most

    def connected(self, hidden: Collection[str], limit: int, offset: int = 0) -> Sequence[Page]:
        """Up to ``limit`` current pages that are not of the ``hidden`` types, after the first ``offset`` of them: those
        connected with most others first, ties by id."""
        rows = self._db.query(
            "SELECT p.row, p.id, r.type, r.title FROM page p CROSS JOIN record r ON r.row = p.row "
            "WHERE p.partition = ?1 AND p.connected IS NOT NULL AND r.type NOT IN (SELECT value FROM json_each(?2)) "
            "ORDER BY p.connected DESC, p.id, r.path LIMIT ?3 OFFSET ?4",
            (self._reader.number, json.dumps(sorted(hidden)), limit, offset),
        )
        return [Page(*row) for row in rows]

    def counts(self) -> Mapping[str, int]:
        """How many current pages there are of each type."""
        rows = self._db.query(
            "SELECT type, count(*) FROM record WHERE partition = ? AND kind = 'page' AND lifecycle = 'active' "
            "AND valid = 1 AND fixture = 0 GROUP BY type",
            (self._reader.number,),
        )
        return {str(name): int(number) for name, number in rows}

    def pages(self, rows: Iterable[int], hidden: Collection[str]) -> Sequence[Page]:
        """Those of these pages that are not of the ``hidden`` types."""
        found = self._db.query(
            "SELECT r.row, r.id, r.type, r.title FROM json_each(?) j CROSS JOIN record r ON r.row = j.value",
            (json.dumps(list(rows)),),
        )
        return [Page(*row) for row in found if row[2] not in hidden]

    def claims(self, rows: Iterable[int]) -> Sequence[Claim]:
        """These claims."""
        found = self._db.query(
            "SELECT r.row, r.id, r.claim_kind, r.title, r.recorded_at FROM json_each(?) j "
            "CROSS JOIN record r ON r.row = j.value",
            (json.dumps(list(rows)),),
        )
        return [Claim(*row) for row in found]

    def with_alias(self, rows: Collection[int]) -> set[int]:
        """Those of these records that have an alias."""
        found = self._db.query(
            "SELECT DISTINCT n.row FROM json_each(?) j CROSS JOIN name n ON n.row = j.value WHERE n.source = 'alias'",
            (json.dumps(sorted(rows)),),
        )
        return {int(row) for (row,) in found}

    def recent(self, after_ms: int, until_ms: int) -> Sequence[Recent]:
        """The current records that were recorded after one time and at or before another, with their pages."""
        rows = self._bounded(
            "SELECT r.row, r.kind, r.recorded_at, f.target "
            f"FROM record r LEFT JOIN reference f ON f.row = r.row AND {ABOUT} "
            f"WHERE r.partition = ? AND r.recorded_at > ? AND r.recorded_at <= ? AND {CURRENT}",
            (self._reader.number, after_ms, until_ms, self._at),
        )
        leads = self._leads_of({target for _, _, _, target in rows if target is not None})
        kept: dict[int, tuple[RecordKind, int, set[int]]] = {}
        for row, kind, recorded_at, target in rows:
            pages = kept.setdefault(row, (kind, recorded_at, set()))[2]
            page = row if kind == "page" else leads.get(target)
            if page is not None:
                pages.add(page)
        return [
            Recent(row, kind, recorded_at, tuple(sorted(pages))) for row, (kind, recorded_at, pages) in kept.items()
        ]

    def newest_about(self, page: Page, kinds: Collection[ClaimKind], until_ms: int, limit: int) -> Sequence[Claim]:
        """Up to ``limit`` current claims of these kinds about a page, recorded by ``until_ms``: newest first, then by
        id."""
        ids = json.dumps([page.id, *self._reader.merged_away(page.id)])
        about = (
            "FROM json_each(?1) j CROSS JOIN reference f ON f.partition = ?2 AND f.target = j.value "
            "AND f.role IN ('entity', 'owner')"
        )
        if self._most is not None:
            counted = self._db.query_one(
                f"SELECT count(*) FROM (SELECT 1 {about} LIMIT ?3)", (ids, self._reader.number, self._most + 1)
            )
            if counted is not None and counted[0] > self._most:
                raise TooMany
        rows = self._db.query(
            f"SELECT DISTINCT r.row, r.id, r.claim_kind, r.title, r.recorded_at {about} "
            "CROSS JOIN record r ON r.row = f.row WHERE r.kind = 'claim' "
            "AND r.claim_kind IN (SELECT value FROM json_each(?3)) AND r.recorded_at <= ?4 "
            f"AND {CURRENT.replace('?', '?5')} ORDER BY r.recorded_at DESC, r.id, r.path LIMIT ?6",
            (ids, self._reader.number, json.dumps(sorted(kinds)), until_ms, self._at, limit),
        )
        return [Claim(*row) for row in rows]

    def _leads_of(self, ids: Collection[str]) -> Mapping[str, int]:
        """The rows of the current pages that these ids stand for; an id of none, or of several files, is left out.

        In the order of the index by id, which is walked once: a search for each as it comes takes twice as long.
        """
        rows = self._bounded(
            "SELECT r.id, r.row, CASE WHEN p.connected IS NULL THEN r.lifecycle END FROM json_each(?) j "
            "CROSS JOIN record r ON r.partition = ? AND r.id = j.value LEFT JOIN page p ON p.row = r.row",
            (json.dumps(sorted(ids)), self._reader.number),
        )
        bearers: dict[str, list[tuple[int, str | None]]] = {}
        for record_id, row, lifecycle in rows:
            bearers.setdefault(record_id, []).append((row, lifecycle))
        found: dict[str, int] = {}
        for record_id, of_one in bearers.items():
            row, lifecycle = of_one[0]
            page = row if lifecycle is None else self._end_of(row) if lifecycle == "merged" else None
            if len(of_one) == 1 and page is not None:
                found[record_id] = page
        return found

    def _end_of(self, row: int) -> int | None:
        """The current page that a merged one leads to."""
        entry = self._reader.by_row(row)
        page = None if entry is None else self._reader.follow_merges(entry)
        return page.row if page is not None and is_current_page(page) else None

    def _bounded(self, sql: str, parameters: Sequence[SqlValue]) -> Sequence[Row]:
        """The rows of a statement; :class:`TooMany` where they are more than may be read."""
        if self._most is None:
            return self._db.query(sql, parameters)
        rows = self._db.query(f"{sql} LIMIT {self._most + 1}", parameters)
        if len(rows) > self._most:
            raise TooMany
        return rows
