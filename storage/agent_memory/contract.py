"""What every store of agent memory guarantees, and the rules that all of them share.

Order: importance descending, then the oldest first, then by id; the same on every store. Expired entries are never
found by a query, persistent ones included; ``get`` and ``count`` have them still.

Source: agent-memory-contract.md sections 3 and 7.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Protocol, runtime_checkable

from storage.agent_memory.entry import KnowledgeEntry, days_before, in_utc

ALL = 1_000_000_000
"""As a limit: every entry."""


@runtime_checkable
class KnowledgeStore(Protocol):
    """Where entries are kept. Any thread."""

    def save(self, entry: KnowledgeEntry) -> str:
        """Keep the entry, in the place of one with the same id; durable when this returns. Answers the id."""
        ...

    def get(self, entry_id: str) -> KnowledgeEntry | None:
        """The entry, expired or not."""
        ...

    def query(
        self,
        category: str | None = None,
        min_importance: float = 0.0,
        since: datetime | None = None,
        limit: int = 50,
    ) -> list[KnowledgeEntry]:
        """The live entries of a category (none or empty: of all), at least so important, created at ``since`` or
        later (without a zone: UTC), at most ``limit`` of them, in the order of all stores."""
        ...

    def delete(self, entry_id: str) -> bool:
        """Whether there was such an entry; there is none now."""
        ...

    def count(self) -> int:
        """How many entries there are, expired ones included."""
        ...

    def prune(self, max_age_days: int | None = None, min_importance: float = 0.0) -> int:
        """Remove what is not persistent and expired, older than so many days, or less important; how many went."""
        ...


@runtime_checkable
class WatchedStore(Protocol):
    """What our own stores can say beside the contract, so that nothing is read again that has not changed."""

    def everything(self) -> list[KnowledgeEntry]:
        """All entries, expired ones included, in no order; not to be changed by the caller."""
        ...

    def get_many(self, entry_ids: Iterable[str]) -> dict[str, KnowledgeEntry]:
        """Those of these entries that there are, by id; not to be changed by the caller."""
        ...

    def version(self) -> object:
        """Unequal to an earlier one where entries may have changed since, by whomever; ``None``: cannot tell."""
        ...

    def remove(self, entry_ids: Collection[str]) -> int:
        """Delete several entries at once; how many there were."""
        ...


class KnowledgeBackend(Protocol):
    """Where a whole memory directory is kept as one blob between two requests."""

    def load_bytes(self) -> bytes | None:
        """What was saved last, ``None`` where nothing was."""
        ...

    def save_bytes(self, data: bytes) -> None:
        """Keep this in the place of what was there."""
        ...


KnowledgeBackend.__stability__ = "beta"  # type: ignore[attr-defined]  # a mark of maturity, no member


def order_key(entry: KnowledgeEntry) -> tuple[float, datetime, str]:
    """Sorts entries in the order of all stores."""
    return (-entry.importance, in_utc(entry.created_at), entry.id)


def selected(
    entries: Iterable[KnowledgeEntry],
    *,
    now: datetime,
    category: str | None,
    min_importance: float,
    since: datetime | None,
    limit: int,
) -> list[KnowledgeEntry]:
    """What a query finds among ``entries``. A limit below 1 finds nothing."""
    bound = None if since is None else in_utc(since)
    found = [
        entry
        for entry in entries
        if (not category or entry.category == category)
        and entry.importance >= min_importance
        and (bound is None or in_utc(entry.created_at) >= bound)
        and not entry.expired_at(now)
    ]
    return sorted(found, key=order_key)[: max(limit, 0)]


def is_prunable(
    entry: KnowledgeEntry, *, now: datetime, max_age_days: int | None, min_importance: float
) -> bool:
    """Whether a prune removes the entry: never a persistent one. 0 days is a real age, 0 importance is no bound."""
    if entry.persistent:
        return False
    too_old = max_age_days is not None and in_utc(entry.created_at) < days_before(now, max_age_days)
    return entry.expired_at(now) or too_old or (min_importance > 0 and entry.importance < min_importance)


def to_evict(entries: Iterable[KnowledgeEntry], max_entries: int) -> list[KnowledgeEntry]:
    """Which of the live entries go so that ``max_entries`` are left: the least important, of those the oldest first.

    Persistent entries count and stay.
    """
    live = list(entries)
    excess = len(live) - max_entries
    if excess <= 0:
        return []
    loose = [entry for entry in live if not entry.persistent]
    return sorted(loose, key=lambda entry: (entry.importance, in_utc(entry.created_at), entry.id))[:excess]
