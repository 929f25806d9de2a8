"""What a supervisor is asked from outside, and what its own timers tell it.

Source: DESIGN.md rules 3, 5 and 6.
"""

from __future__ import annotations

from dataclasses import dataclass

from actors.supervision._child import ChildSpec
from actors.supervision._handle import ActorHandle, Request


@dataclass(frozen=True, slots=True)
class StartChild(Request[ActorHandle]):
    """Start a child, or do nothing if it runs. Answered once it is known: its handle takes requests from then on."""

    spec: ChildSpec


@dataclass(frozen=True, slots=True)
class StopChild(Request[bool]):
    """Stop a child in order. Answered ``True`` once it is down; ``store_unavailable`` (stuck) if it does not end."""

    name: str
    drain: float | None = None
    """Seconds; ``None`` for the child's own setting."""


@dataclass(frozen=True, slots=True)
class QuarantineChild(Request[bool]):
    """Take a child out of service. Answered once it is down (or stuck)."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReleaseChild(Request[bool]):
    """Put a quarantined child back into service with a clean record; ``False`` if it was not quarantined."""

    name: str
    spec: ChildSpec | None = None
    """What it is started by from now on; ``None``: as before."""


@dataclass(frozen=True, slots=True)
class StartOverdue:
    """A child has not proven its start in time."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class StopOverdue:
    """A child has not ended in time."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class RestartDue:
    """A backoff is over."""

    name: str
