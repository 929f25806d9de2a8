"""Where a new record's file goes, and whether the partition has room for it (decisions.md section 2)."""

from __future__ import annotations

from typing import Final

from actors.store.operations.context import OperationContext
from messages.errors import PartitionFull
from storage.records import Record, file_name, path_key, record_folder
from storage.records.names import CROWDED_FOLDER

# A new file may bring its folder, the month and the year with it.
_ENTRIES_PER_FILE: Final = 4


class Filing:
    """Paths for the new records of one publication: taken on disk or by an earlier record of it counts as taken."""

    def __init__(self, context: OperationContext) -> None:
        self._context = context
        self._given: set[str] = set()

    def path_for(self, record: Record, recorded_at: str, *, page_folder: str = "") -> str:
        """A free path for the record, relative to the partition."""
        crowded = bool(page_folder) and self._context.catalogue.folder_size(page_folder) >= CROWDED_FOLDER
        folder = record_folder(record.kind, record.id, recorded_at, page_folder=page_folder, crowded=crowded)
        path = file_name(folder, record.title, record.id, self._taken)
        self._given.add(path_key(path))
        return path

    def require_room(self, files: int) -> None:
        """Refuse what would make the next scan fail."""
        limit = self._context.scan_entries
        if self._context.session.entries + files * _ENTRIES_PER_FILE > limit:
            raise PartitionFull(
                f"This partition holds about {self._context.session.entries} of at most {limit} files and folders; "
                "raise limits.scanEntries in the configuration.",
                limit=limit,
            )

    def _taken(self, path: str) -> bool:
        return path_key(path) in self._given or self._context.session.taken(path)
