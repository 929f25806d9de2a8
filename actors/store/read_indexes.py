"""The lane's reading connections to the keyword indexes, beside the indexer's writing ones.

The least recently used are closed. One thread: the lane's.
"""

from __future__ import annotations

from collections.abc import Callable

from messages.errors import IndexUnavailable, StorageError
from messages.vocabulary import Partition
from storage.recently_used import OPEN_PARTITIONS_MAX, RecentlyUsed
from storage.search import SearchIndex
from storage.session import PartitionSession, StoreSession
from storage.state.catalogue import catalogue_identity


class ReadIndexes:
    """Indexes of one store, opened when they are asked for. ``session`` gives the store's open session."""

    def __init__(self, session: Callable[[], StoreSession]) -> None:
        self._session = session
        self._indexes: RecentlyUsed[Partition, SearchIndex] = RecentlyUsed(
            OPEN_PARTITIONS_MAX, lambda index: index.close()
        )

    def open(self, partition: Partition) -> SearchIndex:
        """The index of a partition. Raises ``IndexUnavailable``."""
        opened = self._indexes.get(partition)
        if opened is None:
            session = self._session()
            try:
                opened = SearchIndex.open(
                    session.layout.search_index(partition),
                    vault_id=session.vault_id,
                    partition=partition.key,
                    catalogue=catalogue_identity(session.publisher.db),
                    read_only=True,
                )
            except StorageError as error:
                raise IndexUnavailable("The keyword index cannot be opened.", reason="missing") from error
            self._indexes.put(partition, opened)
        return opened

    def reached(self, partition: Partition, change: int) -> bool:
        """Whether the index has taken in this catalogue change."""
        try:
            return self.open(partition).position() >= change
        except IndexUnavailable:
            return False

    def state(self, partition: PartitionSession) -> str:
        """``current``, ``behind`` or ``rebuilding``."""
        try:
            position = self.open(partition.partition).position()
        except IndexUnavailable:
            return "rebuilding" if partition.catalogue.change else "current"
        return "current" if position >= partition.catalogue.change else "behind"

    def close(self) -> None:
        """Close every connection; a later call opens them again."""
        self._indexes.close()
