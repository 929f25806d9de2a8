"""Pages as labels: which are connected most, and the names by which a lookup finds exactly one of them.

Reads only, on the thread that owns the connection. Source: decisions.md section 5 (Standing index: most connected).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence

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

    def own_names(self, entry: Entry) -> Sequence[tuple[str, bool]]:
        """The names under lookup's normalisation that no other record bears, the title first; whether each is it."""
        rows = self._db.query(
            "SELECT n.normalised, min(n.source = 'alias') FROM name n WHERE n.row = ?1 "
            "AND NOT EXISTS (SELECT 1 FROM name o WHERE o.partition = ?2 AND o.normalised = n.normalised "
            "AND o.row <> ?1) "
            "AND NOT EXISTS (SELECT 1 FROM record r WHERE r.partition = ?2 AND r.id = n.normalised AND r.row <> ?1) "
            "GROUP BY n.normalised ORDER BY 2, 1",
            (entry.row, self._reader.number),
        )
        return [(str(name), not alias) for name, alias in rows]
