"""Every agent with its store, and every store with who may use it: what settings and operators see of membership.

Looking creates nothing and opens no store. The authority's thread.

Source: stores-and-access.md (Stores, Manage stores).
"""

from __future__ import annotations

from dataclasses import dataclass

from actors.authority.policy import Policy, holder_of, memberships
from actors.supervision import Request
from messages.json_types import JsonObject
from messages.operator import Operator
from storage.registry import Holder, Isolated, Named, Registry, StoreEntry
from storage.store_parts import missing_parts


@dataclass(frozen=True, slots=True)
class ListStores(Request[JsonObject]):
    """To the authority: the inventory, as far as this operator may see it."""

    operator: Operator


def inventory(registry: Registry, policy: Policy, operator: Operator) -> JsonObject:
    """``agents`` and ``stores``. An operator with a role sees its agents, and the stores that they alone may use.

    A store's ``use`` is ``used``, ``unused`` (an agent's own while it uses a named one), ``empty`` (named, without
    agents), ``unassigned`` (a name that the configuration does not hold, an agent that the host has not, or nobody).
    Its ``state`` is ``ready``, ``not_created`` or ``unavailable`` with what is ``missing``.
    """
    members = memberships(policy.stores)
    bound = registry.bound()
    agents: list[JsonObject] = []
    for agent in policy.agents:
        if not operator.sees(agent):
            continue
        shown: JsonObject = {"agent": agent}
        holder = holder_of(policy, members, agent)
        if holder is None:
            shown |= {"store": "ambiguous", "names": list(members[agent])}
        else:
            shown["store"] = "own" if isinstance(holder, Isolated) else "named"
            if isinstance(holder, Named):
                shown["name"] = holder.name
            entry = bound.get(holder)
            if entry is not None:
                shown["vaultId"] = entry.vault_id
        agents.append(shown)
    stores = [_store(entry, policy, members, operator) for entry in registry.entries()]
    stores += [
        {
            "kind": "named",
            "name": name,
            **({} if store.label is None else {"label": store.label}),
            "agents": list(store.agents),
            "use": "used" if _used(policy, members, Named(name)) else "empty",
            "state": "not_created",
        }
        for name, store in policy.stores.items()
        if Named(name) not in bound and operator.sees(*store.agents)
    ]
    return {"agents": [*agents], "stores": [store for store in stores if store is not None]}


def _store(
    entry: StoreEntry, policy: Policy, members: dict[str, tuple[str, ...]], operator: Operator
) -> JsonObject | None:
    shown: JsonObject = {"vaultId": entry.vault_id}
    match entry.holder:
        case Isolated(agent):
            shown |= {"kind": "isolated", "agents": [agent]}
            own = holder_of(policy, members, agent) == entry.holder
            shown["use"] = "used" if own else "unused" if agent in policy.agents else "unassigned"
            seen = operator.sees(agent)
        case Named(name):
            configured = policy.stores.get(name)
            using = () if configured is None else configured.agents
            shown |= {"kind": "named", "name": name, "agents": list(using)}
            if configured is not None and configured.label is not None:
                shown["label"] = configured.label
            used = _used(policy, members, entry.holder)
            shown["use"] = "unassigned" if configured is None else "used" if used else "empty"
            seen = operator.sees(*using)
        case _:
            shown |= {"kind": "none", "agents": [], "use": "unassigned"}
            seen = operator.sees()
    if not seen:
        return None
    missing = missing_parts(entry.layout) if entry.made else ()
    shown["state"] = "not_created" if not entry.made else "unavailable" if missing else "ready"
    if missing:
        shown["missing"] = list(missing)
    if operator.may("operator.admin"):
        shown["path"] = str(entry.layout.root)
    return shown


def _used(policy: Policy, members: dict[str, tuple[str, ...]], holder: Holder) -> bool:
    """Whether an agent of the host uses it; one that is listed twice uses none."""
    listed = policy.stores[holder.name].agents if isinstance(holder, Named) and holder.name in policy.stores else ()
    return any(holder_of(policy, members, agent) == holder for agent in listed)
