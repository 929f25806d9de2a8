"""Entries in a table of Supabase, for agents on several machines.

A row has an entry's nine fields; the table's definition stands in ``docs/agent-memory.md``. The server answers at most
so many rows at once (a thousand, unless set otherwise): what is longer is read in pages.

Any thread, any number of machines. Errors as in :mod:`storage.agent_memory.redis_store`.

Source: agent-memory-contract.md sections 3.4 and 11.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from itertools import islice
from typing import Any, Final, TypeAlias

from storage.agent_memory.contract import is_prunable, selected
from storage.agent_memory.entry import KnowledgeEntry, from_json, in_utc, storable, to_json, utc_now
from storage.agent_memory.remote import remote

logger = logging.getLogger(__name__)

PAGE_ROWS: Final = 1_000
_IDS_MAX: Final = 100
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_-]+")

# What the client, its builders and its rows are, its optional package knows.
_Client: TypeAlias = Any
_Builder: TypeAlias = Any
_Json: TypeAlias = dict[str, Any]


class SupabaseKnowledgeStore:
    """Entries in one table; see the module."""

    __stability__ = "beta"
    _clock: Callable[[], datetime] | None = None

    def __init__(
        self, client: _Client, table_name: str = "knowledge", *, now: Callable[[], datetime] = utc_now
    ) -> None:
        """``client``: what ``supabase.create_client`` gives."""
        self._client = client
        self._table = table_name
        self._clock = now

    # --- the contract ----------------------------------------------------------------------------------

    def save(self, entry: KnowledgeEntry) -> str:
        row = _row(storable(entry))
        with remote("Supabase", writes=True):
            self._rows().upsert(row).execute()
        return entry.id

    def get(self, entry_id: str) -> KnowledgeEntry | None:
        with remote("Supabase"):
            found = self._rows().select("*").eq("id", entry_id).execute().data
        return _entry(found[0]) if found else None

    def query(
        self,
        category: str | None = None,
        min_importance: float = 0.0,
        since: datetime | None = None,
        limit: int = 50,
    ) -> list[KnowledgeEntry]:
        """As the contract says; one request, unless expired entries stand among the first or the page is too short."""
        now = self._now()
        size = limit

        def wanted(select: _Builder) -> _Builder:
            found = select.gte("importance", _number(min_importance))
            found = found.eq("category", category) if category else found
            return found if since is None else found.gte("created_at", in_utc(since).isoformat())

        def live(rows: Iterable[_Json]) -> list[KnowledgeEntry]:
            return selected(
                _entries(rows),
                now=now,
                category=category,
                min_importance=min_importance,
                since=since,
                limit=limit,
            )

        with remote("Supabase"):
            while 0 < size <= PAGE_ROWS:
                best = wanted(self._rows().select("*", count="exact")).order("importance", desc=True)
                reply = best.order("created_at").order("id").limit(size).execute()
                found = live(reply.data)
                if len(found) == limit or len(reply.data) == reply.count:
                    return found
                if len(reply.data) < size:
                    break
                size *= 4
            return live(self._all(wanted)) if limit > 0 else []

    def delete(self, entry_id: str) -> bool:
        with remote("Supabase", writes=True):
            return bool(self._rows().delete().eq("id", entry_id).execute().data)

    def count(self) -> int:
        with remote("Supabase"):
            return self._rows().select("id", count="exact").limit(1).execute().count or 0

    def prune(self, max_age_days: int | None = None, min_importance: float = 0.0) -> int:
        now = self._now()
        with remote("Supabase"):
            loose = _entries(self._all(lambda select: select.eq("persistent", False)))
        return self.remove(
            [
                entry.id
                for entry in loose
                if is_prunable(entry, now=now, max_age_days=max_age_days, min_importance=min_importance)
            ]
        )

    # --- beyond the contract ---------------------------------------------------------------------------

    def everything(self) -> list[KnowledgeEntry]:
        """All entries."""
        with remote("Supabase"):
            return _entries(self._all(lambda select: select))

    def get_many(self, entry_ids: Iterable[str]) -> dict[str, KnowledgeEntry]:
        """Those of these entries that there are, by id: one request for a hundred."""
        wanted = list(entry_ids)
        plain = iter([one for one in wanted if _PLAIN_ID.fullmatch(one)])
        found: dict[str, KnowledgeEntry] = {}
        with remote("Supabase"):
            while chunk := list(islice(plain, _IDS_MAX)):
                rows = self._rows().select("*").in_("id", chunk).execute().data
                found.update((entry.id, entry) for entry in _entries(rows))
        for entry_id in wanted:
            if not _PLAIN_ID.fullmatch(entry_id) and (entry := self.get(entry_id)) is not None:
                found[entry.id] = entry
        return found

    def version(self) -> object:
        """A table tells no one that it has changed."""
        return None

    def remove(self, entry_ids: Collection[str]) -> int:
        """Delete several entries; how many there were. What was removed before an error stays removed."""
        return sum(map(self.delete, entry_ids))

    # --- inside ----------------------------------------------------------------------------------------

    def _now(self) -> datetime:
        return utc_now() if self._clock is None else self._clock()

    def _rows(self) -> _Builder:
        return self._client.table(self._table)

    def _all(self, wanted: Callable[[_Builder], _Builder]) -> list[_Json]:
        """Every row, page by page in the order of the ids: what others remove meanwhile makes no gap."""
        reply = wanted(self._rows().select("*", count="exact")).execute()
        if len(reply.data) == reply.count:
            return list(reply.data)
        rows: list[_Json] = []
        page = wanted(self._rows().select("*")).order("id").execute().data
        while page:
            rows += page
            page = wanted(self._rows().select("*")).gt("id", page[-1]["id"]).order("id").execute().data
        return rows


def _number(value: float) -> float | str:
    """A number as PostgREST takes it: JSON has no infinite ones."""
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def _row(entry: KnowledgeEntry) -> _Json:
    return {**to_json(entry), "importance": _number(entry.importance)}


def _entries(rows: Iterable[_Json]) -> list[KnowledgeEntry]:
    return [entry for row in rows if (entry := _entry(row)) is not None]


def _entry(row: _Json) -> KnowledgeEntry | None:
    try:
        importance = row.get("importance", 0.5)
        return from_json({**row, "importance": float(importance) if isinstance(importance, str) else importance})
    except ValueError:
        logger.warning("a row of Supabase cannot be read and is passed over")
        return None
