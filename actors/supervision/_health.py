"""Health: what an actor's slot publishes, read without asking the actor.

Source: DESIGN.md rule 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from messages.errors import KnowledgeError
from messages.json_types import JsonValue

State: TypeAlias = Literal[
    "absent", "starting", "opening", "ready", "restarting", "quarantined", "stopping", "stopped", "stuck"
]
"""``starting``: not proven yet. ``opening``: proven, replaying or scanning. ``stuck``: told to end, still in C."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Out of service until released: why, since when (UTC), and the typed error that led to it, if one did."""

    reason: str
    since: datetime
    cause: KnowledgeError | None = None
    detail: str = ""
    """Types and places in our source, for operators; ``reason`` is what callers are told."""


@dataclass(frozen=True, slots=True)
class ActorHealth:
    """One actor at one moment. ``live`` (a thread runs) is not ``ready`` (requests are served)."""

    name: str
    state: State
    incarnation: int
    live: bool
    ready: bool
    queued: int
    """Messages waiting, tells included."""
    unanswered: int
    """Requests admitted and not answered: queued, running and parked."""
    unanswered_bytes: int
    handled: int
    """Messages handled by all incarnations."""
    crashes: int
    busy_seconds: float
    """How long the current handler has been running; 0 between messages."""
    quarantine: Quarantine | None = None
    last_error: str = ""
    """The code of the last error that ended an incarnation."""
    progress: Mapping[str, JsonValue] = field(default_factory=dict)
    """While opening: how far it is."""
    detail: Mapping[str, JsonValue] = field(default_factory=dict)
    """What the actor published about itself."""
