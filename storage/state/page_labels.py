"""Pages as labels: which are connected most, and the names by which a lookup finds exactly one of them.

Reads only, on the thread that owns the connection. Source: decisions.md section 5 (Standing index: most connected).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence

from storage.state.catalogue_reader import CatalogueReader, Entry


class PageLabels:
    """Queries on the pages of one partition."""

    def __init__(self, reader: CatalogueReader) -> None:
        self._reader = reader
        self._db = reader.database

    def most_connected(self, now_ms: int, without_types: Collection[str]) -> Iterator[Entry]:
        """Current pages by the number of pages that they are connected with, the highest first, ties by id.

        Costs as much as is taken of it.
        """
        rows = self._db.iterate(
            "SELECT p.row FROM page p JOIN record r ON r.row = p.row WHERE p.partition = ? AND p.connected IS NOT NULL "
            "AND r.type NOT IN (SELECT value FROM json_each(?)) ORDER BY p.connected DESC, p.id",
            (self._reader.number, json.dumps(sorted(without_types))),
        )
        for (row,) in rows:
            entry = self._reader.by_row(int(row))
            if entry is not None and entry.current(now_ms):
                yield entry

    def own_names(self, entries: Collection[Entry]) -> Mapping[int, Sequence[tuple[str, bool]]]:
        """Of each of these pages, by row, the names under lookup's normalisation that no other record bears, the title
        first; whether each is it. One statement."""
        rows = self._db.query(
            "SELECT n.row, n.normalised, min(n.source = 'alias') FROM json_each(?1) j CROSS JOIN name n "
            "ON n.row = j.value "
            "WHERE NOT EXISTS (SELECT 1 FROM name o WHERE o.partition = ?2 AND o.normalised = n.normalised "
            "AND o.row <> n.row) "
            "AND NOT EXISTS (SELECT 1 FROM record r WHERE r.partition = ?2 AND r.id = n.normalised AND r.row <> n.row) "
            "GROUP BY n.row, n.normalised ORDER BY n.row, 3, 2",
            (json.dumps([entry.row for entry in entries]), self._reader.number),
        )
        found: dict[int, list[tuple[str, bool]]] = {entry.row: [] for entry in entries}
        for row, name, alias in rows:
            found[int(row)].append((str(name), not alias))
        return found
