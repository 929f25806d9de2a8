"""The authority's published view: one immutable snapshot from which every permit is resolved.

Resolution is a pure function of (view, audience, action, time), so it can be repeated anywhere without
asking the authority's mailbox (DESIGN.md, One request; stores-and-access.md, Caller authority).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType

from actors.authority.permit import MAINTENANCE, Inspection, Permit, Upkeep
from messages.audience import (
    Audience,
    Conversation,
    OwnerPrivate,
    delegation_chain,
    earliest_expiry,
    is_sandboxed,
    originating,
    own_partition,
    run_ids,
)
from messages.errors import (
    AudienceMissing,
    AudienceStale,
    Denied,
    ReadOnlyGrant,
    Sandboxed,
    StoreAmbiguous,
    WritesDisabled,
)
from messages.operator import Operator, Scope
from messages.vocabulary import PRIVATE
from storage.grants import Access
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
    operator_read: bool = True
    shared_gateway: bool = False
    grants: Mapping[str, Mapping[str, Access]] = field(default_factory=lambda: MappingProxyType({}))
    """Agent -> session key -> what conversations under that key may do in the agent's private partition."""

    def content(self) -> tuple[object, ...]:
        """Everything that decides: two views with equal content have one epoch."""
        rights = (self.writes_enabled, self.operator_read, self.shared_gateway)
        return rights, self.members, self.layouts, self.ended_runs, self.grants


@dataclass(frozen=True, slots=True)
class Unbound:
    """The caller is authorised but the agent's store does not exist yet: first use creates it."""

    agent: str


def resolve(view: AuthorityView, audience: Audience | None, *, write: bool, now: datetime) -> Permit | Unbound:
    """The permit of ``audience`` in ``view``; pure, any thread.

    A delegated audience gets exactly its root's partition and grants, written as the child's agent.
    Raises ``AudienceMissing``, ``Sandboxed``, ``AudienceStale``, ``Denied``, ``StoreAmbiguous``, ``WritesDisabled``,
    and ``ReadOnlyGrant`` where the save would be the first use of a store.
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
    granted = granted_access(view, originating(audience))
    if member.vault_id is None:
        if write and granted == "read":
            # Here already: a save that is refused is no authorised use, and must not create the store.
            raise read_only_grant()
        return Unbound(originating(audience).agent)
    return Permit(
        audience=audience,
        agent=audience.agent,
        vault_id=member.vault_id,
        partition=own_partition(audience) if granted is None else PRIVATE,
        may_write=view.writes_enabled and granted != "read",
        epoch=view.epoch,
        expires_at=earliest_expiry(audience),
    )


def read_only_grant() -> ReadOnlyGrant:
    """The refusal of a save under a grant to read."""
    return ReadOnlyGrant("This conversation may read the owner's memory, not save to it.")


def granted_access(view: AuthorityView, audience: Audience) -> Access | None:
    """What its owner granted a conversation: the longest key decides that is its session key, or that this extends
    with ``:``; ``None`` without one."""
    if not isinstance(audience, Conversation):
        return None
    grants = view.grants.get(audience.agent)
    if not grants:
        return None
    key = audience.session_key
    while key not in grants:
        key, extends, _ = key.rpartition(":")
        if not extends:
            return None
    return grants[key]


def resolve_upkeep(view: AuthorityView, upkeep: Upkeep, *, write: bool) -> Permit:
    """The permit of the runtime itself on a partition of a store that agents use.

    Raises ``Denied`` for a store that no agent uses, ``WritesDisabled``.
    """
    if upkeep.vault_id not in view.layouts:
        raise Denied("No agent uses this store any more.", vaultId=upkeep.vault_id)
    if write and not view.writes_enabled:
        raise WritesDisabled("Writes are disabled by the configuration (writesEnabled: false).")
    return Permit(
        audience=upkeep,
        agent=MAINTENANCE,
        vault_id=upkeep.vault_id,
        partition=upkeep.partition,
        may_write=view.writes_enabled,
        epoch=view.epoch,
    )


def resolve_operator(
    view: AuthorityView, operator: Operator, agent: str | None, *, scope: Scope, write: bool, now: datetime
) -> Permit | Unbound:
    """The permit of an operator on the private partition of ``agent``'s store (``None``: the first agent it may see).

    Raises ``Denied`` (no scope, another's agent, operator reading switched off), ``StoreAmbiguous``,
    ``WritesDisabled``.
    """
    require_scope(view, operator, scope)
    seen = [name for name in view.members if operator.agents is None or name in operator.agents]
    chosen = next(iter(seen), None) if agent is None else agent
    if chosen is None or chosen not in seen:
        raise Denied("There is no such agent for this operator.", field="agent")
    found = resolve(view, OwnerPrivate(chosen), write=write, now=now)
    if isinstance(found, Unbound):
        return found
    # Looked at again at every later step as an operator's: what is switched off for operators ends what is under way.
    return replace(found, audience=Inspection(operator, chosen, scope))


def require_scope(view: AuthorityView, operator: Operator, scope: Scope) -> None:
    """Raise ``Denied`` unless the operator may do what needs ``scope``."""
    if not operator.may(scope):
        raise Denied(f"This needs the scope {scope}.", scope=scope)
    if scope != "operator.admin":
        if not view.operator_read:
            raise Denied("Reading by operators is switched off by the configuration (operatorRead: false).")
        if view.shared_gateway and not operator.may("operator.admin"):
            raise Denied("Several people share this gateway: reading needs the scope operator.admin.", scope=scope)


def may_move(view: AuthorityView, operator: Operator, vault_id: str) -> bool:
    """Whether every agent that uses the store is one of the operator's."""
    users = [name for name, member in view.members.items() if member.vault_id == vault_id]
    return operator.agents is None or (bool(users) and all(name in operator.agents for name in users))


def _require_current(view: AuthorityView, audience: Audience, now: datetime) -> None:
    if is_sandboxed(audience):
        raise Sandboxed("Sandboxed callers have no memory authority.")
    expiry = earliest_expiry(audience)
    if expiry is not None and expiry <= now:
        raise AudienceStale("The audience has expired; the host must mint a new one.")
    if run_ids(audience) & view.ended_runs:
        raise AudienceStale("The run of this audience has ended.")
