"""Grants of conversations to their agent's private partition: listing and changing them, and whom to choose from.

The authority's thread. Source: stores-and-access.md (Conversation access).
"""

from __future__ import annotations

from dataclasses import dataclass

from actors.authority.policy import Policy
from actors.supervision import Request
from messages.errors import Denied
from messages.json_types import JsonObject
from storage.grants import Access
from storage.records import format_instant
from storage.registry import Registry
from storage.registry_audit import By


@dataclass(frozen=True, slots=True)
class ListGrants(Request[JsonObject]):
    """To the authority: the grants of an agent."""

    agent: str


@dataclass(frozen=True, slots=True)
class ChangeGrant(Request[JsonObject]):
    """To the authority: set a grant, or take it away (``access`` is ``None``).

    A barrier: answered when nothing under a right that was taken can follow.
    """

    agent: str
    session_key: str
    access: Access | None
    by: By


@dataclass(frozen=True, slots=True)
class AnnounceSessions(Request[JsonObject]):
    """To the authority: the host has these conversations (agent, session key), now (UTC milliseconds)."""

    sessions: tuple[tuple[str, str], ...]
    at: int


def announce(registry: Registry, policy: Policy, message: AnnounceSessions) -> JsonObject:
    """Note them as known; how many. Raises ``Denied`` for an agent that the host does not know, ``StorageError``."""
    if any(agent not in policy.agents for agent, _ in message.sessions):
        raise Denied("There is no such agent for this operator.", field="sessions")
    registry.note_seen(dict.fromkeys(message.sessions, message.at))
    return {"announced": len(set(message.sessions))}


def listed(registry: Registry, policy: Policy, agent: str) -> JsonObject:
    """The grants of the agent by session key, and its conversations of the last 90 days to choose from.

    A grant is ``known`` when such a conversation is covered by it. Raises ``Denied`` for an agent that the host does
    not know.
    """
    if agent not in policy.agents:
        raise Denied("There is no such agent for this operator.", field="agent")
    grants = registry.grants().get(agent, {})
    conversations = registry.conversations(agent)
    shown: list[JsonObject] = [
        {"sessionKey": key, "access": access, "known": any(covers(key, called) for called in conversations)}
        for key, access in grants.items()
    ]
    seen: list[JsonObject] = [{"sessionKey": key, "seenAt": format_instant(at)} for key, at in conversations.items()]
    return {"agent": agent, "grants": [*shown], "conversations": [*seen]}


def covers(granted: str, session_key: str) -> bool:
    """Whether a grant of the one key is one for the other: the same, or extended with ``:``."""
    return session_key == granted or session_key.startswith(f"{granted}:")


def change(registry: Registry, policy: Policy, message: ChangeGrant) -> JsonObject:
    """The grants afterwards. Raises ``Denied``, ``LimitExceeded``."""
    if message.agent not in policy.agents:
        raise Denied("There is no such agent for this operator.", field="agent")
    registry.grant(message.agent, message.session_key, message.access, message.by)
    return listed(registry, policy, message.agent)
