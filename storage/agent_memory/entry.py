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

from messages.errors import InvalidArgument

GENERAL: Final = "general"
FIELDS: Final = (
    "id", "content", "category", "importance", "persistent", "ttl_days", "created_at", "updated_at", "metadata",
)  # fmt: skip
"""The fields in the order in which they are written."""
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)


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
        return end is not None and in_utc(now) > end

    @property
    def expires_at(self) -> datetime | None:
        """The last moment at which it is not expired; ``None`` where there is none within the calendar."""
        if self.ttl_days is None:
            return None
        try:
            return in_utc(self.created_at) + timedelta(days=self.ttl_days)
        except OverflowError:
            return None if self.ttl_days > 0 else _FIRST

    def copied(self) -> KnowledgeEntry:
        """An equal entry that shares nothing with this one."""
        return replace(self, metadata=copy.deepcopy(self.metadata) if self.metadata else {})


def in_utc(moment: datetime) -> datetime:
    """The moment in UTC; one without a zone is UTC already, one beyond the calendar its end."""
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return _FIRST if moment.year == 1 else _LAST


def days_before(now: datetime, days: float) -> datetime:
    """The moment so many days earlier, or the end of the calendar where that lies beyond it."""
    try:
        return in_utc(now) - timedelta(days=days)
    except OverflowError:
        return _FIRST if days > 0 else _LAST


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


TTL_DAYS_MAX: Final = 2**31 - 1
"""What every database has room for; more than the calendar has days."""


METADATA_DEPTH_MAX: Final = 64
"""Objects and lists within one another, so that they can be copied and written wherever a program stands."""


def storable(entry: KnowledgeEntry) -> KnowledgeEntry:
    """A copy that is what every store gives back: its metadata are as JSON has them, its times in UTC.

    Raises ``InvalidArgument`` for a field whose type no store could read or order again, and ``TypeError`` or
    ``ValueError`` for metadata that JSON cannot hold.
    """
    for name in ("id", "content", "category"):
        text: object = getattr(entry, name)
        if not isinstance(text, str) or not is_text(text):
            raise _unfit(name, "text that UTF-8 can hold")
    if not entry.id:
        raise _unfit("id", "text that is not empty")
    if not _is_number(entry.importance) or (abs(entry.importance) > 1e308 and not isinstance(entry.importance, float)):
        raise _unfit("importance", "a number")
    days: object = entry.ttl_days
    if days is not None and (not _is_whole(days) or abs(entry.ttl_days or 0) > TTL_DAYS_MAX):
        raise _unfit("ttl_days", f"a whole number between -{TTL_DAYS_MAX} and {TTL_DAYS_MAX}, or none")
    for name in ("created_at", "updated_at"):
        if not isinstance(getattr(entry, name), datetime):
            raise _unfit(name, "a datetime")
    if not isinstance(entry.metadata, dict):
        raise _unfit("metadata", "a dict")
    return replace(
        entry,
        importance=float(entry.importance),
        persistent=bool(entry.persistent),
        created_at=in_utc(entry.created_at),
        updated_at=in_utc(entry.updated_at),
        metadata=_as_json(entry.metadata) if entry.metadata else {},
    )


def _as_json(metadata: dict[str, Any]) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = json.loads(json.dumps(metadata, allow_nan=False))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if _is_deep(kept):
        raise ValueError(_TOO_DEEP)
    return kept


_TOO_DEEP: Final = f"metadata holds at most {METADATA_DEPTH_MAX} objects and lists within one another"


def _is_deep(value: object) -> bool:
    level: list[dict[str, object] | list[object]] = [value] if isinstance(value, dict | list) else []
    for _ in range(METADATA_DEPTH_MAX):
        parts = (part for one in level for part in (one.values() if isinstance(one, dict) else one))
        level = [part for part in parts if isinstance(part, dict | list)]
        if not level:
            return False
    return True


def _unfit(field_name: str, allowed: str) -> InvalidArgument:
    return InvalidArgument(
        f"An entry cannot be kept: its {field_name} must be {allowed}.",
        field=field_name,
        reason="type",
        allowed=allowed,
    )


def from_json(value: Mapping[str, Any]) -> KnowledgeEntry:
    """The entry of an object; what may be left out gets its default.

    Raises ``ValueError`` where id, text or times are missing or anything has a type that no entry has.
    """
    entry_id, content = value.get("id"), value.get("content")
    if not isinstance(entry_id, str) or not entry_id or not isinstance(content, str):
        raise ValueError("an entry has an id and a text")
    if not is_text(entry_id) or not is_text(content):
        raise ValueError("an id and a text are what UTF-8 can hold")
    category, persistent = value.get("category", GENERAL), value.get("persistent", False)
    importance, ttl_days, metadata = value.get("importance", 0.5), value.get("ttl_days"), value.get("metadata")
    if not isinstance(category, str) or not is_text(category) or not _is_number(importance):
        raise ValueError("a category is text and an importance a number")
    if ttl_days is not None and not _is_whole(ttl_days):
        raise ValueError("days to live are a whole number")
    if isinstance(metadata, str):
        metadata = json.loads(metadata)
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict) or _is_deep(metadata):
        raise ValueError("metadata is an object, and not too deep")
    try:
        weight = float(importance)
    except OverflowError as error:
        raise ValueError("an importance is a number") from error
    return KnowledgeEntry(
        id=entry_id,
        content=content,
        category=category,
        importance=weight,
        persistent=bool(persistent),
        ttl_days=ttl_days,
        created_at=parse_moment(value.get("created_at")),
        updated_at=parse_moment(value.get("updated_at")),
        metadata=metadata,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_text(value: str) -> bool:
    """Whether UTF-8 can hold it."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
