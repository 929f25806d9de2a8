"""Who is calling: what the host minted (decisions.md section 6).

Nothing in tool arguments selects an agent, store, path or scope; the audience alone does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class OwnerPrivate:
    """The owner talking to their agent: reaches the private partition of the agent's store."""

    agent: str
    run_id: str | None = None
    account: str | None = None
    expires_at: datetime | None = None
    sandboxed: bool = False
    root: Audience | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """A group or channel conversation: reaches its own partition unless an owner granted more."""

    agent: str
    session_key: str
    session_id: str
    run_id: str | None = None
    account: str | None = None
    expires_at: datetime | None = None
    sandboxed: bool = False
    root: Audience | None = None


Audience: TypeAlias = OwnerPrivate | Conversation
