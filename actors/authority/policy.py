"""What the configuration says of access, and where moves may edit it. Pure but for the port's implementations.

Source: stores-and-access.md (Stores); decisions.md section 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from messages.operator import Operator
from storage.registry import Holder, Isolated, Named


@dataclass(frozen=True, slots=True)
class SharedStore:
    """A named store of the configuration; without agents it stays in the inventory."""

    agents: tuple[str, ...] = ()
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """What the configuration says of access: the host's agents, and the named stores with those that use them."""

    agents: tuple[str, ...] = ("main",)
    stores: Mapping[str, SharedStore] = field(default_factory=lambda: MappingProxyType({}))
    writes_enabled: bool = True
    operator_read: bool = True
    shared_gateway: bool = False
    operators: Mapping[str, Operator] = field(default_factory=lambda: MappingProxyType({}))
    """Whom a key of the HTTP door may stand for, by id."""


def memberships(stores: Mapping[str, SharedStore]) -> dict[str, tuple[str, ...]]:
    """Agent -> the named stores that list it. More than one makes it unavailable; never the first match."""
    found: dict[str, tuple[str, ...]] = {}
    for name, store in stores.items():
        for agent in store.agents:
            found[agent] = (*found.get(agent, ()), name)
    return found


def holder_of(policy: Policy, members: Mapping[str, tuple[str, ...]], agent: str) -> Holder | None:
    """Whose store an agent uses; ``None`` when the host does not know it or several named stores list it."""
    if agent not in policy.agents:
        return None
    stores = members.get(agent, ())
    if len(stores) > 1:
        return None
    return Named(stores[0]) if stores else Isolated(agent)


class Memberships(Protocol):
    """The configuration's file, as far as moves edit it. The authority's thread."""

    def read(self) -> bytes | None:
        """The text now; ``None`` where there is no file. Raises ``StorageError``."""

    def stores(self, text: bytes | None) -> Mapping[str, SharedStore]:
        """The named stores that a text describes. Raises ``InvalidArgument`` for a text that is not valid."""

    def edited(self, text: bytes | None, wanted: Mapping[str, SharedStore]) -> bytes:
        """The text with this membership, everything else as it was. Raises ``InvalidArgument``."""

    def replace(self, before: bytes | None, after: bytes) -> None:
        """Put ``after`` in the place of ``before``, durably. Raises ``Busy`` (edited meanwhile), ``StorageError``."""

    def tidy(self, is_known: Callable[[bytes], bool]) -> None:
        """Remove what a replacement that a crash cut short left beside the file, where the text is known."""
