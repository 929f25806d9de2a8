"""One remembered entry, as every store of agent memory keeps it.

Source: agent-memory-contract.md section 2.
"""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

GENERAL: Final = "general"
FIELDS: Final = (
    "id", "content", "category", "importance", "persistent", "ttl_days", "created_at", "updated_at", "metadata",
)  # fmt: skip
"""The fields in the order in which they are written."""


def utc_now() -> datetime:
    """The wall clock with its time zone."""
    return datetime.now(UTC)


@dataclass
class KnowledgeEntry:
    """A fact with what is known about it. Mutable, compared by its fields, not validated.

    ``importance`` orders entries and is usually 0 to 1; ``ttl_days`` counts from ``created_at``; times carry a zone.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    content: str = ""
    category: str = GENERAL
    importance: float = 0.5
    persistent: bool = False
    ttl_days: int | None = None
    created_at: datetime = field(default_factory=utc_now)
    updated_at: datetime = field(default_factory=utc_now)
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def is_expired(self) -> bool:
        """Whether its days are over. Without ``ttl_days`` never; a ``created_at`` without a zone is read as UTC."""
        return self.expired_at(utc_now())

    def expired_at(self, now: datetime) -> bool:
        """The same at another time."""
        end = self.expires_at
        return end is not None and now > end

    @property
    def expires_at(self) -> datetime | None:
        """The last moment at which it is not expired; ``None`` where there is none within the calendar."""
        if self.ttl_days is None:
            return None
        try:
            return in_utc(self.created_at) + timedelta(days=self.ttl_days)
        except OverflowError:
            return None if self.ttl_days > 0 else datetime.min.replace(tzinfo=UTC)

    def copied(self) -> KnowledgeEntry:
        """An equal entry that shares nothing with this one."""
        return replace(self, metadata=copy.deepcopy(self.metadata) if self.metadata else {})


def in_utc(moment: datetime) -> datetime:
    """The moment in UTC; one without a zone is UTC already."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def parse_moment(value: object) -> datetime:
    """The moment of an ISO 8601 text (``Z`` is accepted) or of a datetime, in UTC. Raises ``ValueError``."""
    if isinstance(value, datetime):
        return in_utc(value)
    if not isinstance(value, str):
        raise ValueError("a time must be ISO 8601 text")
    return in_utc(datetime.fromisoformat(value))


def to_json(entry: KnowledgeEntry) -> dict[str, Any]:
    """The entry with exactly :data:`FIELDS`, in their order."""
    return {
        "id": entry.id,
        "content": entry.content,
        "category": entry.category,
        "importance": entry.importance,
        "persistent": entry.persistent,
        "ttl_days": entry.ttl_days,
        "created_at": in_utc(entry.created_at).isoformat(),
        "updated_at": in_utc(entry.updated_at).isoformat(),
        "metadata": entry.metadata,
    }


def from_json(value: Mapping[str, Any]) -> KnowledgeEntry:
    """The entry of an object; what may be left out gets its default.

    Raises ``ValueError`` where id, text or times are missing or anything has a type that no entry has.
    """
    entry_id, content = value.get("id"), value.get("content")
    if not isinstance(entry_id, str) or not entry_id or not isinstance(content, str):
        raise ValueError("an entry has an id and a text")
    category, persistent = value.get("category", GENERAL), value.get("persistent", False)
    importance, ttl_days, metadata = value.get("importance", 0.5), value.get("ttl_days"), value.get("metadata")
    if not isinstance(category, str) or not _is_number(importance):
        raise ValueError("a category is text and an importance a number")
    if ttl_days is not None and (not isinstance(ttl_days, int) or isinstance(ttl_days, bool)):
        raise ValueError("days to live are a whole number")
    if isinstance(metadata, str):
        metadata = json.loads(metadata)
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict):
        raise ValueError("metadata is an object")
    return KnowledgeEntry(
        id=entry_id,
        content=content,
        category=category,
        importance=float(importance),
        persistent=bool(persistent),
        ttl_days=ttl_days,
        created_at=parse_moment(value.get("created_at")),
        updated_at=parse_moment(value.get("updated_at")),
        metadata=metadata,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
