"""Grants of conversations to their agent's private partition, as rows of ``registry.sqlite``.

One row a pair of agent and session key; a change is durable, with its row of the audit, when the function returns. The
registry's thread.

Source: stores-and-access.md (Conversation access).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from messages.errors import LimitExceeded
from storage import registry_audit
from storage.registry_audit import By
from storage.state.connection import Database

Access: TypeAlias = Literal["read", "read-save"]
GRANTS_MAX: Final = 1_000
"""Of one agent."""


def all_grants(database: Database) -> dict[str, Mapping[str, Access]]:
    """Agent -> session key -> access, in a fixed order."""
    found: dict[str, dict[str, Access]] = {}
    rows = database.query("SELECT agent, session_key, access FROM conversation_grant ORDER BY agent, session_key")
    for agent, session_key, access in rows:
        found.setdefault(agent, {})[session_key] = access
    return dict(found)


def set_grant(database: Database, agent: str, session_key: str, access: Access, by: By) -> bool:
    """Give the conversation this access; whether that changed anything. Raises ``LimitExceeded``."""
    rows = database.query("SELECT session_key, access FROM conversation_grant WHERE agent = ?", (agent,))
    known: dict[str, str] = dict(rows)
    if known.get(session_key) == access:
        return False
    if session_key not in known and len(known) >= GRANTS_MAX:
        raise LimitExceeded(
            f"An agent has at most {GRANTS_MAX} grants; remove one that is not needed any more.", limit=GRANTS_MAX
        )
    with database.transaction(full=True, point="registry.grant"):
        database.execute("INSERT OR REPLACE INTO conversation_grant VALUES (?, ?, ?)", (agent, session_key, access))
        registry_audit.note(
            database, by, "grant.set", {"agent": agent, "sessionKey": session_key, "access": access}
        )
    return True


def remove_grant(database: Database, agent: str, session_key: str, by: By) -> bool:
    """Take the grant of exactly this key away; whether there was one."""
    found = database.query_one(
        "SELECT 1 FROM conversation_grant WHERE agent = ? AND session_key = ?", (agent, session_key)
    )
    if found is None:
        return False
    with database.transaction(full=True, point="registry.grant"):
        database.execute(
            "DELETE FROM conversation_grant WHERE agent = ? AND session_key = ?", (agent, session_key)
        )
        registry_audit.note(database, by, "grant.remove", {"agent": agent, "sessionKey": session_key})
    return True


__all__ = ["GRANTS_MAX", "Access", "all_grants", "remove_grant", "set_grant"]
