"""Which conversations called lately, as rows of ``registry.sqlite``: whoever grants access chooses from them.

A help for people, never a reason for access. Kept for :data:`KEPT_MS`, at most :data:`KNOWN_MAX` of all agents, the
newest. Inside the caller's transaction; the registry's thread.

Source: stores-and-access.md (Conversation access), decisions.md section 7 (known conversations).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from storage.state.connection import Database

KEPT_MS: Final = 90 * 24 * 3_600_000
KNOWN_MAX: Final = 10_000
SHOWN_MAX: Final = 1_000


def note(database: Database, seen: Mapping[tuple[str, str], int]) -> None:
    """Note when (UTC milliseconds) each pair of agent and session key called."""
    database.execute_many(
        "INSERT INTO conversation VALUES (?, ?, ?) "
        "ON CONFLICT (agent, session_key) DO UPDATE SET seen_at = max(seen_at, excluded.seen_at)",
        [(agent, session_key, at) for (agent, session_key), at in seen.items()],
    )
    newest = max(seen.values(), default=0)
    database.execute("DELETE FROM conversation WHERE seen_at < ?", (newest - KEPT_MS,))
    database.execute(
        "DELETE FROM conversation WHERE (agent, session_key) IN "
        "(SELECT agent, session_key FROM conversation ORDER BY seen_at DESC, agent, session_key LIMIT -1 OFFSET ?)",
        (KNOWN_MAX,),
    )


def of(database: Database, agent: str) -> dict[str, int]:
    """Session key -> when it called last, the newest first."""
    rows = database.query(
        "SELECT session_key, seen_at FROM conversation WHERE agent = ? ORDER BY seen_at DESC, session_key LIMIT ?",
        (agent, SHOWN_MAX),
    )
    return dict(rows)


__all__ = ["KEPT_MS", "KNOWN_MAX", "SHOWN_MAX", "note", "of"]
