"""Entries in Redis, for agents on several machines.

Keys: the hash ``PREFIX:ID`` with an entry's fields as text; the sorted set ``PREFIX:importance``; a set
``PREFIX:category:CATEGORY`` each; the set ``PREFIX:all_ids``; and the counter ``PREFIX:changes``, by which others see
that something changed. Each change is one transaction of the server, so that no reader sees half of it, and as durable
as the server's own persistence makes it.

Any thread, any number of processes and machines. Errors, where the released package logs and reports success:
``StoreUnavailable`` (not reachable) and ``StorageError`` (refused). ``retry`` is ``safe`` where nothing can have been
changed and ``unknown`` where a change may have been made; a repeat with the same entry does no harm.

Source: agent-memory-contract.md sections 3.3 and 11.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Final, TypeAlias

from messages.errors import InvalidArgument
from storage.agent_memory.contract import is_prunable, selected
from storage.agent_memory.entry import KnowledgeEntry, from_json, storable, to_json, utc_now
from storage.agent_memory.remote import remote

logger = logging.getLogger(__name__)

# The client is of an optional package; what of it is used stands in the class below.
_Client: TypeAlias = Any

_CHUNK: Final = 500
_RESERVED: Final = ("importance", "all_ids", "changes")


class RedisKnowledgeStore:
    """Entries below one prefix of a Redis database; see the module."""

    __stability__ = "beta"
    _clock: Callable[[], datetime] | None = None

    def __init__(
        self, redis_client: _Client, prefix: str = "knowledge", *, now: Callable[[], datetime] = utc_now
    ) -> None:
        """``redis_client``: one whose replies are text (``decode_responses=True``)."""
        self._client = redis_client
        self._prefix = prefix
        self._clock = now

    # --- the contract ----------------------------------------------------------------------------------

    def save(self, entry: KnowledgeEntry) -> str:
        kept = storable(entry)
        if _is_reserved(kept.id):
            raise InvalidArgument(
                "An entry cannot be kept: its id is the name of a key that this store needs for itself.",
                field="id",
                reason="reserved",
            )
        key = self._entry_key(kept.id)
        with remote("Redis", writes=True):
            before = _text(self._client.hget(key, "category"))
            pipeline = self._client.pipeline()
            if before is not None and before != kept.category:
                pipeline.srem(self._category_key(before), kept.id)
            pipeline.hset(key, mapping=_fields(kept))
            pipeline.zadd(self._importance_key, {kept.id: kept.importance})
            pipeline.sadd(self._category_key(kept.category), kept.id)
            pipeline.sadd(self._ids_key, kept.id)
            pipeline.incr(self._changes_key)
            pipeline.execute()
        return entry.id

    def get(self, entry_id: str) -> KnowledgeEntry | None:
        if _is_reserved(entry_id):
            return None
        with remote("Redis"):
            return _entry(self._client.hgetall(self._entry_key(entry_id)))

    def query(
        self,
        category: str | None = None,
        min_importance: float = 0.0,
        since: datetime | None = None,
        limit: int = 50,
    ) -> list[KnowledgeEntry]:
        if limit < 1:
            return []
        with remote("Redis"):
            if category:
                ids = self._client.smembers(self._category_key(category))
            else:
                ids = self._client.zrevrangebyscore(self._importance_key, "+inf", str(min_importance))
            found = self.get_many(map(_known_text, ids))
        return selected(
            found.values(),
            now=self._now(),
            category=category,
            min_importance=min_importance,
            since=since,
            limit=limit,
        )

    def delete(self, entry_id: str) -> bool:
        return self.remove([entry_id]) == 1

    def count(self) -> int:
        with remote("Redis"):
            return int(self._client.scard(self._ids_key))

    def prune(self, max_age_days: int | None = None, min_importance: float = 0.0) -> int:
        now = self._now()
        return self.remove(
            [
                entry.id
                for entry in self.everything()
                if is_prunable(entry, now=now, max_age_days=max_age_days, min_importance=min_importance)
            ]
        )

    # --- beyond the contract ---------------------------------------------------------------------------

    def everything(self) -> list[KnowledgeEntry]:
        """All entries."""
        with remote("Redis"):
            return list(self.get_many(map(_known_text, self._client.smembers(self._ids_key))).values())

    def get_many(self, entry_ids: Iterable[str]) -> dict[str, KnowledgeEntry]:
        """Those of these entries that there are, by id: one round trip for some hundreds."""
        found: dict[str, KnowledgeEntry] = {}
        with remote("Redis"):
            for chunk in _chunks(one for one in entry_ids if not _is_reserved(one)):
                pipeline = self._client.pipeline(transaction=False)
                for entry_id in chunk:
                    pipeline.hgetall(self._entry_key(entry_id))
                found.update((entry.id, entry) for entry in map(_entry, pipeline.execute()) if entry is not None)
        return found

    def version(self) -> object:
        """How many changes were made, and how many entries there are: the released package counts no changes, but
        what it adds or removes shows in the second."""
        with remote("Redis"):
            pipeline = self._client.pipeline()
            pipeline.get(self._changes_key)
            pipeline.scard(self._ids_key)
            changes, entries = pipeline.execute()
            return _text(changes), entries

    def remove(self, entry_ids: Collection[str]) -> int:
        """Delete several entries; how many there were. What was removed before an error stays removed."""
        removed = 0
        with remote("Redis", writes=True):
            for chunk in _chunks(one for one in entry_ids if not _is_reserved(one)):
                looks = self._client.pipeline(transaction=False)
                for entry_id in chunk:
                    looks.hget(self._entry_key(entry_id), "category")
                categories = map(_text, looks.execute())
                pipeline = self._client.pipeline()
                for entry_id in chunk:
                    pipeline.delete(self._entry_key(entry_id))
                for entry_id, category in zip(chunk, categories, strict=True):
                    if category is not None:
                        pipeline.srem(self._category_key(category), entry_id)
                pipeline.zrem(self._importance_key, *chunk)
                pipeline.srem(self._ids_key, *chunk)
                pipeline.incr(self._changes_key)
                removed += sum(pipeline.execute()[: len(chunk)])
        return removed

    # --- inside ----------------------------------------------------------------------------------------

    def _now(self) -> datetime:
        return utc_now() if self._clock is None else self._clock()

    def _entry_key(self, entry_id: str) -> str:
        return f"{self._prefix}:{entry_id}"

    def _category_key(self, category: str) -> str:
        return f"{self._prefix}:category:{category}"

    @property
    def _importance_key(self) -> str:
        return f"{self._prefix}:importance"

    @property
    def _ids_key(self) -> str:
        return f"{self._prefix}:all_ids"

    @property
    def _changes_key(self) -> str:
        return f"{self._prefix}:changes"


def _is_reserved(entry_id: str) -> bool:
    return entry_id in _RESERVED or entry_id.startswith("category:")


def _chunks(entry_ids: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(entry_ids)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk


def _text(value: str | bytes | None) -> str | None:
    """A reply as text, also that of a client that was made without ``decode_responses``."""
    return value.decode("utf-8") if isinstance(value, bytes) else value


def _known_text(value: str | bytes) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else value


def _fields(entry: KnowledgeEntry) -> dict[str, str]:
    value = to_json(entry)
    return {
        **{name: value[name] for name in ("id", "content", "category", "created_at", "updated_at")},
        "importance": str(entry.importance),
        "persistent": "1" if entry.persistent else "0",
        "ttl_days": "" if entry.ttl_days is None else str(entry.ttl_days),
        "metadata": json.dumps(entry.metadata),
    }


def _entry(reply: Mapping[str | bytes, str | bytes]) -> KnowledgeEntry | None:
    """The entry of a hash; ``None`` where there is none, or none that can be read."""
    fields: dict[str, Any] = {_known_text(name): _known_text(value) for name, value in reply.items()}
    if not fields:
        return None
    try:
        return from_json(
            {
                **fields,
                "importance": float(fields.get("importance", 0.5)),
                "persistent": fields.get("persistent") == "1",
                "ttl_days": int(fields["ttl_days"]) if fields.get("ttl_days") else None,
                "metadata": fields.get("metadata") or None,
            }
        )
    except ValueError:
        logger.warning("an entry in Redis cannot be read and is passed over")
        return None
