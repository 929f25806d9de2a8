"""A store as a memory directory follows it: asked once at the beginning of an operation whether it has changed, and
read as a whole only then, since it may lie on another machine.

A store that cannot tell is read again when it has another number of entries, and once a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Final

from storage.agent_memory.contract import ALL, KnowledgeStore, WatchedStore
from storage.agent_memory.entry import KnowledgeEntry

UNSURE_SECONDS: Final = 60


class FollowedStore:
    """One store; for the holder of the directory's lock."""

    def __init__(self, store: KnowledgeStore, now: Callable[[], datetime]) -> None:
        self.store = store
        self._now = now
        self._known: dict[str, KnowledgeEntry] = {}
        self._known_at: object = object()
        self._can_tell = False
        self.version: object = object()
        """Unequal to an earlier one where entries may have changed since; as of :meth:`look` and our own changes."""

    def look(self) -> None:
        """Ask whether it has changed."""
        version = self.store.version() if isinstance(self.store, WatchedStore) else None
        self._can_tell = version is not None
        if version is None:
            version = (self.store.count(), self._now().timestamp() // UNSURE_SECONDS)
        self.version = version

    def entries(self) -> dict[str, KnowledgeEntry]:
        """All entries by id, those included that are expired where the store gives them; not to be changed."""
        if self._known_at != self.version:
            if isinstance(self.store, WatchedStore):
                found = self.store.everything()
            else:
                found = self.store.query(min_importance=float("-inf"), limit=ALL)
            self._known, self._known_at = {entry.id: entry for entry in found}, self.version
        return self._known

    def get_many(self, entry_ids: Collection[str]) -> dict[str, KnowledgeEntry]:
        """Those of these entries that there are now."""
        if self._can_tell:
            known = self.entries()
            return {one: known[one] for one in entry_ids if one in known}
        if isinstance(self.store, WatchedStore):
            return self.store.get_many(entry_ids)
        return {one: entry for one in entry_ids if (entry := self.store.get(one)) is not None}

    def save(self, entry: KnowledgeEntry) -> KnowledgeEntry:
        """Save it; the entry under the id that the store gave it. Raises ``TypeError`` where that is none."""
        kept: object = self.store.save(entry)
        if not isinstance(kept, str):
            raise TypeError("a store's save answers the id of what it keeps")
        saved = replace(entry.copied(), id=kept)
        known = self._known if self._known_at == self.version else None
        self.look()
        if known is not None:
            known[kept] = saved
        self._known_at = object() if known is None else self.version
        return saved

    def remove(self, entry_ids: Iterable[str]) -> None:
        """Delete entries, with their texts where the store can."""
        gone = list(entry_ids)
        if not gone:
            return
        if isinstance(self.store, WatchedStore):
            self._forget(gone, lambda: self.store.remove(gone))  # type: ignore[attr-defined]  # it was looked at above
        else:
            self.delete(gone)

    def delete(self, entry_ids: Collection[str]) -> None:
        """Delete a few entries, each on its own."""
        if entry_ids:
            self._forget(entry_ids, lambda: [self.store.delete(one) for one in entry_ids])

    def _forget(self, entry_ids: Iterable[str], change: Callable[[], object]) -> None:
        known = self._known if self._known_at == self.version else None
        change()
        self.look()
        if known is None:
            self._known_at = object()
            return
        for one in entry_ids:
            known.pop(one, None)
        self._known_at = self.version
