"""What the authority grants a caller for one call: a permit, bound to the epoch it was issued in."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from messages.audience import Audience, delegation_chain, run_ids
from messages.operator import Operator, Scope
from messages.vocabulary import Partition

MAINTENANCE: Final = "maintenance"
"""The author of what the runtime saves by itself."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Nobody's call: the runtime looks after one partition of a store that agents use."""

    vault_id: str
    partition: Partition


@dataclass(frozen=True, slots=True)
class Inspection:
    """An operator at the private partition of an agent's store, for something that needs ``scope``."""

    operator: Operator
    agent: str
    scope: Scope


@dataclass(frozen=True, slots=True)
class Accountholder:
    """An audience as an account of system memory."""

    audience: Audience


SYSTEM_MEMORY: Final = "system memory"
"""What the permits of accounts lead to, in the place of a store."""


@dataclass(frozen=True, slots=True)
class Permit:
    """The right of one audience to one partition of one store; ``agent`` is who saves there, an agent or an account.

    Valid while the authority's view has the same epoch; on another epoch it is resolved again and must
    come out equal (decisions.md section 6, Permits).
    """

    audience: Audience | Upkeep | Inspection | Accountholder
    agent: str
    vault_id: str
    partition: Partition
    may_write: bool
    epoch: int
    expires_at: datetime | None = None

    def covers(self, other: Permit, *, write: bool) -> bool:
        """Whether a permit resolved later still gives what ``other`` is used for: reading, or saving too."""
        return (
            self.agent == other.agent
            and self.vault_id == other.vault_id
            and self.partition == other.partition
            and (self.may_write or not write)
        )


def reaches_through(permit: Permit, agents: Collection[str]) -> bool:
    """Whether a change of these agents' stores or grants may take something from the holder of a permit."""
    match permit.audience:
        case Upkeep():
            return True  # of a store that may have lost its last agent
        case Inspection(agent=agent):
            return agent in agents
        case Accountholder(audience) | audience:
            return any(link.agent in agents for link in delegation_chain(audience))


def belongs_to(permit: Permit, run_id: str) -> bool:
    """Whether the holder of a permit is stale with the end of this run."""
    match permit.audience:
        case Upkeep() | Inspection():
            return False
        case Accountholder(audience) | audience:
            return run_id in run_ids(audience)


def leads_to(permit: Permit, vault_id: str, partition: Partition) -> bool:
    """Whether it is a right to this partition."""
    return (permit.vault_id, permit.partition) == (vault_id, partition)
