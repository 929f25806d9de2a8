"""The authority's published view: one immutable snapshot from which every permit is resolved.

Resolution is a pure function of (view, audience, action, time), so it can be repeated anywhere without
asking the authority's mailbox (DESIGN.md, One request; stores-and-access.md, Caller authority).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType

from actors.authority.permit import MAINTENANCE, SYSTEM_MEMORY, Accountholder, Inspection, Permit, Upkeep
from actors.authority.tokens import TokenReader, require_shape
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
    token_ids,
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
from messages.operator import HOST_OPERATOR, Operator, Scope
from messages.system_memory import account_of
from messages.vocabulary import PRIVATE
from storage.grants import Access
from storage.http_keys import HttpKey, matching
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
    tokens: frozenset[str] = frozenset()
    """The ids of tokens that were minted here and not revoked: an audience that was read from another is stale."""
    token_reader: TokenReader | None = None
    http_keys: tuple[HttpKey, ...] = ()
    """Who may speak over HTTP in the host's or an operator's name."""
    operators: Mapping[str, Operator] = field(default_factory=lambda: MappingProxyType({}))
    """The configured operators, by id: a key of one that is no longer configured counts no more."""

    def vouched_for(self, monotonic: float) -> bool:
        """Whether an authority that lives stands behind the view at this time."""
        return monotonic < self.valid_until

    def content(self) -> tuple[object, ...]:
        """Everything that decides: two views with equal content have one epoch."""
        rights = (self.writes_enabled, self.operator_read, self.shared_gateway)
        who = (self.ended_runs, self.grants, self.tokens, self.token_reader, self.http_keys, self.operators)
        return rights, self.members, self.layouts, *who


@dataclass(frozen=True, slots=True)
class Unbound:
    """The caller is authorised but the agent's store does not exist yet: first use creates it."""

    agent: str


def require_audience(audience: Audience | None) -> Audience:
    """The audience; raises ``AudienceMissing`` where there is none: nobody is anybody by default."""
    if audience is None:
        raise AudienceMissing("This call carries no audience; the host must mint one for it.")
    return audience


def resolve(view: AuthorityView, audience: Audience, *, write: bool, now: datetime) -> Permit | Unbound:
    """The permit of ``audience`` in ``view``; pure, any thread.

    A delegated audience gets exactly its root's partition and grants, written as the child's agent.
    Raises ``Sandboxed``, ``AudienceStale``, ``Denied``, ``StoreAmbiguous``, ``WritesDisabled``,
    and ``ReadOnlyGrant`` where the save would be the first use of a store.
    """
    require_current(view, audience, now)
    member = view.members.get(originating(audience).agent)
    if member is None or not _knows_delegates(view, audience):
        raise Denied("This agent has no access to a knowledge store here.")
    if member.ambiguous:
        raise listed_in_several(member.ambiguous)
    _require_writes_enabled(view, write)
    granted = granted_access(view, originating(audience))
    if member.vault_id is None:
        if write and granted == "read":
            # Here already: a save that is refused is no authorised use, and must not create the store.
            raise _read_only_grant()
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


def resolve_account(view: AuthorityView, audience: Audience, *, write: bool, now: datetime) -> Permit:
    """The permit of ``audience`` in system memory, under the name of its account. Pure, any thread.

    Raises ``Sandboxed``, ``AudienceStale``, ``Denied`` (an unknown agent, or a conversation), ``WritesDisabled``.
    """
    require_current(view, audience, now)
    if not _knows_delegates(view, audience):
        raise Denied("This agent is not known here.")
    account = account_of(audience)
    _require_writes_enabled(view, write)
    return Permit(
        audience=Accountholder(audience),
        agent=account,
        vault_id=SYSTEM_MEMORY,
        partition=PRIVATE,
        may_write=view.writes_enabled,
        epoch=view.epoch,
        expires_at=earliest_expiry(audience),
    )


def listed_in_several(stores: Sequence[str]) -> StoreAmbiguous:
    """The refusal of an agent that several named stores list."""
    return StoreAmbiguous(
        "The agent is listed in several named stores and is unavailable until it is listed in one.", stores=list(stores)
    )


def require_may_save(permit: Permit) -> None:
    """Raise ``ReadOnlyGrant`` for a save under a permit to read."""
    if not permit.may_write:
        raise _read_only_grant()


def _read_only_grant() -> ReadOnlyGrant:
    return ReadOnlyGrant("This conversation may read the owner's memory, not save to it.")


def granted_access(view: AuthorityView, audience: Audience) -> Access | None:
    """What its owner granted a conversation: of the keys that cover its session key the longest decides; ``None``
    without one."""
    if not isinstance(audience, Conversation):
        return None
    grants = _grants_of(view, audience.agent)
    if not grants:
        return None
    return next((grants[key] for key in covering_keys(audience.session_key) if key in grants), None)


def _grants_of(view: AuthorityView, agent: str) -> Mapping[str, Access] | None:
    return view.grants.get(agent)


def covering_keys(session_key: str) -> Iterator[str]:
    """The keys a grant of which covers this one, the longest first: itself, and each that it extends with ``:``."""
    key = session_key
    while True:
        yield key
        key, extends, _ = key.rpartition(":")
        if not extends:
            return


def resolve_upkeep(view: AuthorityView, upkeep: Upkeep, *, write: bool) -> Permit:
    """The permit of the runtime itself on a partition of a store that agents use.

    Raises ``Denied`` for a store that no agent uses, ``WritesDisabled``.
    """
    if upkeep.vault_id not in view.layouts:
        raise Denied("No agent uses this store any more.", vaultId=upkeep.vault_id)
    _require_writes_enabled(view, write)
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
    seen = [name for name in view.members if operator.sees(name)]
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
        _require_operator_read(view)
        _require_sole_user(view, operator, scope)


def _require_operator_read(view: AuthorityView) -> None:
    if not view.operator_read:
        raise Denied("Reading by operators is switched off by the configuration (operatorRead: false).")


def _require_sole_user(view: AuthorityView, operator: Operator, scope: Scope) -> None:
    if view.shared_gateway and not operator.may("operator.admin"):
        raise Denied("Several people share this gateway: reading needs the scope operator.admin.", scope=scope)


def may_move(view: AuthorityView, operator: Operator, vault_id: str) -> bool:
    """Whether every agent that uses the store is one of the operator's."""
    users = [name for name, member in view.members.items() if member.vault_id == vault_id]
    return operator.sees(*users)


def _knows_delegates(view: AuthorityView, audience: Audience) -> bool:
    """Whether the host knows the agent of every link of the chain."""
    return all(link.agent in view.members for link in delegation_chain(audience))


def _require_writes_enabled(view: AuthorityView, write: bool) -> None:
    if write and not view.writes_enabled:
        raise WritesDisabled("Writes are disabled by the configuration (writesEnabled: false).")


def read_token(view: AuthorityView, text: str, now: datetime) -> Audience:
    """The audience that a token stands for now; what it may do, :func:`resolve` decides as for every other.

    Raises the refusals of :meth:`TokenReader.read`, ``AudienceStale`` (``reason`` ``token_revoked``, or a run that has
    ended), ``Sandboxed``.
    """
    if view.token_reader is None:
        require_shape(text)
        raise Denied("This installation has minted no token.", reason="token_signature")
    audience = view.token_reader.read(text, now)
    require_current(view, audience, now)
    return audience


def key_holder(view: AuthorityView, text: str) -> Operator:
    """Who speaks with this key of the HTTP door: :data:`HOST_OPERATOR`, or an operator as it is configured now.

    Raises ``Denied`` (``reason`` ``key_unknown``, ``operator_unknown``).
    """
    key = matching(view.http_keys, text)
    if key is None:
        raise Denied("This key is not known here; it may have been replaced or revoked.", reason="key_unknown")
    if key.operator is None:
        return HOST_OPERATOR
    if key.operator not in view.operators:
        raise Denied("The configuration names the operator of this key no more.", reason="operator_unknown")
    return view.operators[key.operator]


def require_current(view: AuthorityView, audience: Audience, now: datetime) -> None:
    """Raise unless the audience is one that still stands, whatever it may do."""
    if is_sandboxed(audience):
        raise Sandboxed("Sandboxed callers have no memory authority.")
    expiry = earliest_expiry(audience)
    if expiry is not None and expiry <= now:
        raise AudienceStale("The audience has expired; the host must mint a new one.")
    if run_ids(audience) & view.ended_runs:
        raise AudienceStale("The run of this audience has ended.")
    if not token_ids(audience) <= view.tokens:
        raise AudienceStale("The token was revoked; the host must mint a new one.", reason="token_revoked")
