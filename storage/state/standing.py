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
from storage.state.connection import Row
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
        limit = "" if self._most is None else f"LIMIT {self._most + 1}"
        rows = self._db.query(
            "SELECT r.row, r.kind, r.recorded_at, f.target, t.row, t.lifecycle, "
            "t.kind = 'page' AND t.lifecycle = 'active' AND t.valid = 1 AND t.fixture = 0 "
            f"FROM record r LEFT JOIN reference f ON f.row = r.row AND {ABOUT} "
            "LEFT JOIN record t ON t.partition = r.partition AND t.id = f.target "
            f"WHERE r.partition = ? AND r.recorded_at > ? AND r.recorded_at <= ? AND {CURRENT} {limit}",
            (self._reader.number, after_ms, until_ms, self._at),
        )
        if self._most is not None and len(rows) > self._most:
            raise TooMany
        rows_of: dict[int, list[Row]] = {}
        for found in rows:
            rows_of.setdefault(found[0], []).append(found)
        led: dict[int, int | None] = {}
        return [
            Recent(row, of_one[0][1], of_one[0][2], self._pages_of(row, of_one, led)) for row, of_one in rows_of.items()
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

    def _pages_of(self, row: int, rows: Sequence[Row], led: dict[int, int | None]) -> tuple[int, ...]:
        """The current pages that a record is or is about, by its rows: one for each bearer of each id that it names."""
        if len(rows) == 1:  # as of almost every record
            _, kind, _, _, bearer, lifecycle, current = rows[0]
            if kind == "page":
                return (row,)
            page = None if bearer is None else self._leads_to((bearer, lifecycle, bool(current)), led)
            return () if page is None else (page,)
        bearers: dict[str, list[tuple[int, str, bool]]] = {}
        for _, _, _, target, bearer, lifecycle, current in rows:
            if bearer is not None:
                bearers.setdefault(target, []).append((bearer, lifecycle, bool(current)))
        leads = (self._leads_to(found[0], led) for found in bearers.values() if len(found) == 1)
        return tuple(sorted({page for page in leads if page is not None}))

    def _leads_to(self, bearer: tuple[int, str, bool], led: dict[int, int | None]) -> int | None:
        """The current page that an id stands for; ``led`` keeps where merged pages lead."""
        row, lifecycle, current = bearer
        if current:
            return row
        if lifecycle != "merged":
            return None
        if row not in led:
            entry = self._reader.by_row(row)
            page = None if entry is None else self._reader.follow_merges(entry)
            led[row] = page.row if page is not None and is_current_page(page) else None
        return led[row]
