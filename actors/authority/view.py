"""The authority's published view: one immutable snapshot from which every permit is resolved.

Resolution is a pure function of (view, audience, action, time), so it can be repeated anywhere without
asking the authority's mailbox (DESIGN.md, One request; stores-and-access.md, Caller authority).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from actors.authority.permit import Permit
from messages.audience import (
    Audience,
    delegation_chain,
    earliest_expiry,
    is_sandboxed,
    originating,
    own_partition,
    run_ids,
)
from messages.errors import AudienceMissing, AudienceStale, Denied, Sandboxed, StoreAmbiguous, WritesDisabled
from storage.layout import StoreLayout


@dataclass(frozen=True, slots=True)
class Membership:
    """How an agent reaches its store: the vault once the store exists.

    ``ambiguous`` holds the names of the stores that all list the agent: it is unavailable until mended.
    """

    vault_id: str | None = None
    ambiguous: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AuthorityView:
    """Everything that decides access, at one epoch. ``valid_until`` is monotonic seconds: a dead authority
    stops renewing it and every resolution fails closed."""

    epoch: int
    valid_until: float
    writes_enabled: bool
    members: Mapping[str, Membership] = field(default_factory=lambda: MappingProxyType({}))
    layouts: Mapping[str, StoreLayout] = field(default_factory=lambda: MappingProxyType({}))
    ended_runs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Unbound:
    """The caller is authorised but the agent's store does not exist yet: first use creates it."""

    agent: str


def resolve(view: AuthorityView, audience: Audience | None, *, write: bool, now: datetime) -> Permit | Unbound:
    """The permit of ``audience`` in ``view``; pure, any thread.

    A delegated audience gets exactly its root's partition, written as the child's agent.
    Raises ``AudienceMissing``, ``Sandboxed``, ``AudienceStale``, ``Denied``, ``StoreAmbiguous`` or ``WritesDisabled``.
    """
    if audience is None:
        raise AudienceMissing("This call carries no audience; the host must mint one for it.")
    _require_current(view, audience, now)
    member = view.members.get(originating(audience).agent)
    if member is None or any(link.agent not in view.members for link in delegation_chain(audience)):
        raise Denied("This agent has no access to a knowledge store here.")
    if member.ambiguous:
        raise StoreAmbiguous(
            "The agent is listed in several named stores and is unavailable until it is listed in one.",
            stores=list(member.ambiguous),
        )
    if write and not view.writes_enabled:
        raise WritesDisabled("Writes are disabled by the configuration (writesEnabled: false).")
    if member.vault_id is None:
        return Unbound(originating(audience).agent)
    return Permit(
        audience=audience,
        agent=audience.agent,
        vault_id=member.vault_id,
        partition=own_partition(audience),
        may_write=view.writes_enabled,
        epoch=view.epoch,
        expires_at=earliest_expiry(audience),
    )


def _require_current(view: AuthorityView, audience: Audience, now: datetime) -> None:
    if is_sandboxed(audience):
        raise Sandboxed("Sandboxed callers have no memory authority.")
    expiry = earliest_expiry(audience)
    if expiry is not None and expiry <= now:
        raise AudienceStale("The audience has expired; the host must mint a new one.")
    if run_ids(audience) & view.ended_runs:
        raise AudienceStale("The run of this audience has ended.")
