"""Records that were written after the keyword index caught up for a search, and before the search ran.

The lane goes on writing while the indexer works, so a busy store would never find its index level with its catalogue.
Such records are few: they are read from the catalogue and compared with the query one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from actors.store.operations.context import OperationContext
from storage.search import ParsedQuery
from storage.state.catalogue_reader import Entry

UNINDEXED_MAX: Final = 100
"""With more of them the index catches up once more instead."""


@dataclass(frozen=True, slots=True)
class Unindexed:
    """``rows`` are those about which an index at ``position`` may be wrong: changed since, or gone."""

    context: OperationContext
    position: int
    rows: frozenset[int]

    @classmethod
    def after(cls, context: OperationContext, position: int) -> Unindexed | None:
        """Those after the index's position; ``None`` where they are too many."""
        rows = context.catalogue.touched_after(position, UNINDEXED_MAX)
        return None if rows is None else cls(context, position, frozenset(rows))

    def name(self, snapshot: str) -> str:
        """The snapshot of a list that ends with such records: they get their rank when the index has them."""
        return f"{snapshot}-behind-{self.position}" if self.rows else snapshot

    def matching(self, query: ParsedQuery, passes: Callable[[Entry], bool]) -> Sequence[Entry]:
        """Those that the query finds as they are now and that pass, oldest record first."""
        entries = self.context.catalogue.of_rows(sorted(self.rows))
        return [entry for entry in entries if passes(entry) and self._found(query, entry)]

    def _found(self, query: ParsedQuery, entry: Entry) -> bool:
        record = self.context.session.load(entry)
        return query.found_in(record.title, *record.aliases, record.body)
