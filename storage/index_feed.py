"""What the keyword index follows: the catalogue's changes with the texts they refer to.

Opened by the indexer on its own thread with a reading connection of its own, so that catching up never holds the
lane's. Source: DESIGN.md (The tree, indexer), decisions.md section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from messages.vocabulary import Partition
from storage.records import ParsedRecord, parse_record
from storage.search import IndexChange, IndexDocument
from storage.state import history
from storage.state.catalogue import catalogue_identity
from storage.state.catalogue_reader import CatalogueReader, Entry
from storage.state.connection import Database

SLICE_ROWS: Final = 200


@dataclass(frozen=True, slots=True)
class Slice:
    """Some changes and the catalogue change that they lead to; ``end`` is the catalogue's own change."""

    changes: tuple[IndexChange, ...]
    position: int
    end: int


class IndexFeed:
    """One reading connection to a store's ``state.sqlite``."""

    def __init__(self, state_database: Path) -> None:
        self._db = Database.open(state_database, point_prefix="feed", read_only=True)

    @property
    def identity(self) -> str:
        """The catalogue whose changes these are."""
        return catalogue_identity(self._db)

    def end(self, partition: Partition) -> int:
        """The catalogue's own change."""
        return CatalogueReader(self._db, partition).change

    def after(self, partition: Partition, position: int, limit: int = SLICE_ROWS) -> Slice:
        """The next changes after ``position``, in order, at most ``limit`` rows of each kind."""
        reader = CatalogueReader(self._db, partition)
        end = reader.change
        entries = reader.changed_after(position, limit)
        removed = reader.removed_after(position, limit)
        # Both lists are cut at their own limit: only what lies before the earlier cut is complete.
        reached = end
        if len(entries) == limit:
            reached = min(reached, entries[-1].change)
        if len(removed) == limit:
            reached = min(reached, removed[-1][0])
        changes = [(entry.change, IndexChange(entry.row, self._document(reader, entry))) for entry in entries]
        changes += [(change, IndexChange(row, None)) for change, row in removed]
        ordered = tuple(item for change, item in sorted(changes, key=lambda pair: pair[0]) if change <= reached)
        return Slice(ordered, reached, end)

    def close(self) -> None:
        self._db.close()

    def _document(self, reader: CatalogueReader, entry: Entry) -> IndexDocument | None:
        text = history.text(self._db, entry.hash)
        parsed = None if text is None else parse_record(text, entry.path)
        if not isinstance(parsed, ParsedRecord):
            return None
        record = parsed.record
        return IndexDocument(
            kind=entry.kind,
            type=entry.type,
            lifecycle=entry.lifecycle,
            title=record.title,
            body=record.body,
            recorded_at=entry.recorded_at,
            updated_at=entry.updated_at,
            aliases=record.aliases,
            tags=record.tags,
            valid=entry.valid,
            fixture=entry.fixture,
            occurred_from=entry.occurred_from,
            occurred_until=entry.occurred_until,
            due_from=entry.due_from,
            due_until=entry.due_until,
            expires_at=entry.expires_at,
        )


FAULT_POINTS: Final = (
    ("feed.open", "opening the state database for the indexer"),
    ("feed.statement", "reading changes for the indexer"),
    ("feed.close", "closing the indexer's connection"),
)
