"""The three moves of an agent between stores: what each changes, and how it is carried out as one.

*Share* gives the agent's own store a name that other agents use too: the store is renamed, never copied, and the agent
has no store of its own any more. *Join* lets an agent use a named store, *own* lets it use its own again; neither moves
or removes anything. Every move also takes the agent out of each other named store, which mends one in two.

The configuration is edited first and the registry follows, under a note that survives a crash (storage.assignments).
The authority's thread; no view is published between the two.

Source: stores-and-access.md (Stores, Manage stores).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from actors.authority.policy import Memberships, Policy, SharedStore
from actors.supervision import Request
from messages.access import JoinStoreRequest, OwnStoreRequest, ShareStoreRequest
from messages.errors import Denied, InvalidArgument, KnowledgeError, NotFound, StoreUnavailable
from messages.json_types import JsonObject
from messages.operator import Operator
from storage.assignments import Assignment, Kind
from storage.registry import Isolated, Named, Registry
from storage.registry_audit import By


@dataclass(frozen=True, slots=True)
class MoveAgent(Request[JsonObject]):
    """To the authority: one of the three moves. A barrier: answered when nothing under the old store can follow."""

    agent: str
    request: ShareStoreRequest | JoinStoreRequest | OwnStoreRequest
    operator: Operator
    by: By


@dataclass(frozen=True, slots=True)
class _Plan:
    """``wanted`` is the membership afterwards; ``binds`` the store that the move gives its name."""

    kind: Kind
    agents: tuple[str, ...]
    name: str | None
    binds: str | None
    wanted: Mapping[str, SharedStore]


def move(registry: Registry, memberships: Memberships | None, policy: Policy, message: MoveAgent) -> JsonObject:
    """Carry the move out; what changed. A move that is made already changes nothing.

    Raises ``Denied`` (unknown agent, beyond the operator's role), ``InvalidArgument``, ``NotFound``, ``Busy``,
    ``StorageError``; then nothing was changed.
    """
    if memberships is None:
        raise InvalidArgument(
            "This runtime was given its configuration by its program, not by a file that could be edited; change the "
            "membership there.",
            field="agent",
            reason="fixed_configuration",
        )
    _require_agents(policy, message.operator, agents_of(message))
    text = memberships.read()
    stores = memberships.stores(text)
    plan = _plan(registry, stores, policy, message)
    if dict(plan.wanted) != dict(stores) or plan.binds is not None:
        _carry_out(registry, memberships, text, plan, message.by)
    shown: JsonObject = {"agents": list(plan.agents)}
    if plan.name is not None:
        entry = registry.find(Named(plan.name))
        shown |= {"name": plan.name, "vaultId": None if entry is None else entry.vault_id}
    else:
        entry = registry.find(Isolated(message.agent))
        shown["vaultId"] = None if entry is None else entry.vault_id
    return shown


def recover(registry: Registry, memberships: Memberships | None, policy: Policy) -> None:
    """Finish or drop the move that a crash left, before anybody looks: as the configuration has it or not."""
    left = registry.unfinished()
    if left is None:
        return
    text = None if memberships is None else memberships.read()
    if memberships is not None and _hash(text) == left.after:
        # Beside it lies what it displaced; a text that somebody wrote at that moment is not ours to remove.
        memberships.tidy(lambda found: _hash(found) == left.before)
        registry.finish(left)
        return
    if memberships is not None and _hash(text) == left.before:
        memberships.tidy(lambda _: True)  # ours, perhaps cut short
        registry.drop()
        return
    # Somebody edited the file since, or it is another configuration: what it says of these agents decides.
    try:
        stores = policy.stores if memberships is None else memberships.stores(text)
    except KnowledgeError as error:
        raise StoreUnavailable(
            "A move of an agent to another store is not finished, and knowledge.yaml cannot be read to tell how it "
            "ended. Correct the file.",
            reason="assignment_unfinished",
        ) from error
    used = [name for name, store in stores.items() if left.agents[0] in store.agents]
    made = left.name in used if left.name is not None else not used
    if made and (left.binds is None or registry.entry(left.binds) is not None):
        registry.finish(left)
    else:
        registry.drop()


def _carry_out(registry: Registry, memberships: Memberships, text: bytes | None, plan: _Plan, by: By) -> None:
    after = memberships.edited(text, plan.wanted)
    assignment = Assignment(
        kind=plan.kind,
        agents=plan.agents,
        name=plan.name,
        binds=plan.binds,
        before=_hash(text),
        after=_hash(after),
        actor=by.actor,
        door=by.door,
        at=by.at,
    )
    registry.begin(assignment)
    try:
        if after != text:
            memberships.replace(text, after)
    except KnowledgeError:
        # A sync that failed may come after the rename: what stands there decides, not what went wrong.
        if _hash(memberships.read()) != assignment.after:
            registry.drop()
            raise
    registry.finish(assignment)


def _plan(registry: Registry, stores: Mapping[str, SharedStore], policy: Policy, message: MoveAgent) -> _Plan:
    match message.request:
        case ShareStoreRequest() as request:
            return _share(registry, stores, message.agent, request)
        case JoinStoreRequest() as request:
            return _join(registry, stores, policy, message, request)
        case OwnStoreRequest():
            return _Plan("own", (message.agent,), None, None, _without(stores, (message.agent,)))


def _share(registry: Registry, stores: Mapping[str, SharedStore], agent: str, request: ShareStoreRequest) -> _Plan:
    name = request.name
    agents = tuple(dict.fromkeys((agent, *request.agents)))
    used = [known for known, store in stores.items() if agent in store.agents]
    if used == [name] and set(agents) <= set(stores[name].agents) and registry.find(Named(name)) is not None:
        # Repeated because its answer got lost.
        return _Plan("share", agents, name, None, stores)
    if used:
        raise InvalidArgument(
            f"The agent uses the named store {used[0]!r} already; let other agents join that, or let this one use its "
            "own store first.",
            field="agent",
            reason="shared_already",
        )
    if name in stores or registry.find(Named(name)) is not None:
        raise InvalidArgument(
            "A store of that name exists already; choose another name, or let the agents join it.",
            field="name",
            reason="taken",
        )
    entry = registry.find(Isolated(agent))
    if entry is None or not entry.made:
        raise NotFound(
            "The agent has no store of its own to share yet; its first use creates one. Or let it join a name.",
            field="agent",
        )
    wanted = {**_without(stores, agents), name: SharedStore(agents, request.label)}
    return _Plan("share", agents, name, entry.vault_id, wanted)


def _join(
    registry: Registry,
    stores: Mapping[str, SharedStore],
    policy: Policy,
    message: MoveAgent,
    request: JoinStoreRequest,
) -> _Plan:
    name, agent = request.name, message.agent
    known = registry.find(Named(name))
    target = stores.get(name)
    if target is None and known is None and request.store is None:
        raise NotFound("There is no store of that name; `knowledge stores list` names them.", field="name")
    _require_agents_of_target(message.operator, target)
    binds = None
    if request.store is not None and (known is None or known.vault_id != request.store):
        binds = _nameless(registry, request.store, name if known is not None else None)
    others = _without({key: store for key, store in stores.items() if key != name}, (agent,))
    held = target or SharedStore()
    joined = held if agent in held.agents else replace(held, agents=(*held.agents, agent))
    # The order of the names stays what it was.
    wanted = {key: joined if key == name else others[key] for key in stores} | {name: joined}
    return _Plan("join", (agent,), name, binds, wanted)


def _nameless(registry: Registry, vault_id: str, taken: str | None) -> str:
    """A store that belongs to nobody, which may be given a name."""
    entry = registry.entry(vault_id)
    if entry is None or not entry.made:
        raise NotFound("No store of that identity is registered here.", vaultId=vault_id)
    if entry.holder is not None:
        raise InvalidArgument(
            "That store has a name or an agent already; only one that has neither is given a name.",
            field="store",
            reason="has_holder",
        )
    if taken is not None:
        raise InvalidArgument("Another store has that name already; choose another.", field="name", reason="taken")
    return vault_id


def _without(stores: Mapping[str, SharedStore], agents: Sequence[str]) -> dict[str, SharedStore]:
    """The same stores, used by none of these agents."""
    return {
        name: replace(store, agents=tuple(agent for agent in store.agents if agent not in agents))
        if set(agents) & set(store.agents)
        else store
        for name, store in stores.items()
    }


def agents_of(message: MoveAgent) -> tuple[str, ...]:
    """The agents whose store a move may change."""
    return (message.agent, *_others(message))


def _others(message: MoveAgent) -> tuple[str, ...]:
    return message.request.agents if isinstance(message.request, ShareStoreRequest) else ()


def _require_agents(policy: Policy, operator: Operator, agents: Sequence[str]) -> None:
    for agent in agents:
        if agent not in policy.agents or not operator.sees(agent):
            raise Denied("There is no such agent for this operator.", field="agent")


def _require_agents_of_target(operator: Operator, target: SharedStore | None) -> None:
    """Whoever joins reads what the others saved: that is for whoever may speak for all of them."""
    if not operator.sees(*(() if target is None else target.agents)):
        raise Denied("That store is not among those of this operator's agents.", field="name")


def _hash(text: bytes | None) -> str | None:
    return None if text is None else hashlib.sha256(text).hexdigest()
