"""Who bound, moved, granted or mended what, and when: rows of ``registry.sqlite``, appended in the change's own commit.

Guarantees: a row is durable exactly when its change is; rows hold ids and names, never text; at most :data:`KEPT` rows
stay, the newest. The registry's thread.

Source: decisions.md section 6 (An append-only audit ...).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

import orjson

from messages.json_types import JsonObject
from storage.state.connection import Database

KEPT: Final = 10_000

Action: TypeAlias = Literal[
    "store.create",
    "store.share",
    "store.join",
    "store.own",
    "store.relocate",
    "store.register",
    "grant.set",
    "grant.remove",
    "token.mint",
    "token.revoke",
    "httpKey.make",
    "httpKey.revoke",
    "conversation.erase",
    "registry.rebuild",
    "registry.restore",
    "store.repair",
    "memory.admit",
    "memory.refute",
    "memory.supersede",
    "memory.promote",
    "memory.erase",
]


@dataclass(frozen=True, slots=True)
class By:
    """Who does something, through which door, and when (UTC milliseconds)."""

    actor: str
    door: str
    at: int


def note(database: Database, by: By, action: Action, subject: JsonObject) -> None:
    """Append one row, inside the caller's transaction; beyond :data:`KEPT` the oldest go."""
    database.execute(
        "INSERT INTO audit (at, actor, door, action, subject) VALUES (?, ?, ?, ?, ?)",
        (by.at, by.actor, by.door, action, orjson.dumps(subject).decode()),
    )
    database.execute("DELETE FROM audit WHERE sequence <= ?", (database.last_insert_rowid - KEPT,))


def has(database: Database, by: By, action: Action, subject: JsonObject) -> bool:
    """Whether this very row is there."""
    found = database.query_one(
        "SELECT 1 FROM audit WHERE at = ? AND actor = ? AND door = ? AND action = ? AND subject = ?",
        (by.at, by.actor, by.door, action, orjson.dumps(subject).decode()),
    )
    return found is not None


def rows(database: Database, *, limit: int) -> list[JsonObject]:
    """The newest rows first."""
    found = database.query(
        "SELECT sequence, at, actor, door, action, subject FROM audit ORDER BY sequence DESC LIMIT ?", (limit,)
    )
    return [
        {
            "sequence": sequence,
            "at": at,
            "actor": actor,
            "door": door,
            "action": action,
            **cast(JsonObject, orjson.loads(subject)),
        }
        for sequence, at, actor, door, action, subject in found
    ]


__all__ = ["KEPT", "Action", "By", "has", "note", "rows"]
