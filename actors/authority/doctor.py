"""What is wrong with the registry and the stores, and making a lost registry anew on a person's word.

Looking changes nothing and works whatever state the registry is in. The authority's thread.

Source: stores-and-access.md (Stores, Storage layout); decisions.md section 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from actors.authority.inventory import inventory
from actors.authority.policy import Policy, memberships
from actors.supervision import Request
from messages.access import RebuildRegistryRequest
from messages.errors import InvalidArgument, NotFound, StoreUnavailable
from messages.json_types import JsonObject
from messages.operator import LOCAL_OPERATOR
from storage.layout import Layout
from storage.registry import Holder, Isolated, Named, Registry
from storage.registry_audit import By
from storage.registry_recovery import FoundStore, find_stores, look_at, rebuild

LOST: Final = frozenset(("registry_missing", "registry_emptied", "registry_damaged", "registry_foreign"))
"""Reasons for which a registry may be made anew; one of a newer format is whole."""


@dataclass(frozen=True, slots=True)
class Examine(Request[JsonObject]):
    """To the authority: look at everything."""


@dataclass(frozen=True, slots=True)
class RebuildRegistry(Request[JsonObject]):
    """To the authority: make the lost registry anew from these stores."""

    request: RebuildRegistryRequest
    by: By


def examination(layout: Layout, opened: Registry | StoreUnavailable, policy: Policy) -> JsonObject:
    """``healthy``, the registry's ``state``, every store, what was found on disk beside them, and ``findings``.

    A finding is ``{code, message}`` with the ids it is about; what to do is in its message.
    """
    findings: list[JsonObject] = []
    registry: JsonObject = {"state": "ok", "path": str(layout.registry)}
    shown: JsonObject = {"registry": registry}
    if isinstance(opened, StoreUnavailable):
        reason = str(opened.fields.get("reason", "unavailable"))
        registry |= {"state": reason, "message": opened.message}
        found = find_stores(layout)
        findings.append({"code": reason, "message": opened.message})
        shown |= {"stores": [], "rebuildable": reason in LOST}
    else:
        listed = inventory(opened, policy, LOCAL_OPERATOR)
        shown |= {"agents": listed["agents"], "stores": listed["stores"]}
        findings += _of_stores(listed)
        found = tuple(look_at(root) for root in opened.strangers())
        known = {entry.vault_id for entry in opened.entries()}
        findings += [_of_stranger(store, known) for store in found]
    findings += [_of_agent(agent, names) for agent, names in memberships(policy.stores).items() if len(names) > 1]
    shown |= {"found": [store.to_json() for store in found], "findings": [*findings], "healthy": not findings}
    return shown


def _of_stores(listed: JsonObject) -> list[JsonObject]:
    stores = listed["stores"]
    assert isinstance(stores, list)
    return [
        {
            "code": "store_unavailable",
            "message": "Parts of a store are gone. Put them back from a backup (is a disk not mounted?), or name the "
            "place where they lie now with `knowledge store relocate`. Nothing is made anew.",
            "vaultId": store["vaultId"],
            "path": store["path"],
            "missing": store["missing"],
        }
        for store in stores
        if isinstance(store, dict) and store["state"] == "unavailable"
    ]


def _of_stranger(store: FoundStore, known: set[str]) -> JsonObject:
    if store.vault_id in known:
        return {
            "code": "duplicate_identity",
            "message": "A copy of a registered store lies beside the stores; it is not used. Move it away.",
            **store.to_json(),
        }
    return {
        "code": "stranger",
        "message": "A folder beside the stores is none that the registry knows; it is not used. Move it away.",
        **store.to_json(),
    }


def _of_agent(agent: str, names: tuple[str, ...]) -> JsonObject:
    return {
        "code": "store_ambiguous",
        "message": "An agent is listed in several named stores and has none until it is listed in one; "
        "`knowledge stores join` or `own` mends it.",
        "agent": agent,
        "names": list(names),
    }


def made_anew(layout: Layout, opened: Registry | StoreUnavailable, message: RebuildRegistry) -> JsonObject:
    """The new registry is in place; nothing has opened it yet.

    Raises ``InvalidArgument`` (it is not lost, a store is left out or has two holders), ``NotFound``,
    ``DuplicateIdentity``, ``StorageError``.
    """
    if not isinstance(opened, StoreUnavailable):
        raise InvalidArgument("The registry is whole; there is nothing to make anew.", field="stores", reason="whole")
    if opened.fields.get("reason") not in LOST:
        raise opened
    request = message.request
    found = find_stores(layout, [Path(place) for place in request.places])
    usable = [store for store in found if store.vault_id is not None]
    wanted = _holders(request)
    there = [str(store.vault_id) for store in usable]
    unknown = [vault_id for vault_id in wanted if vault_id not in there]
    if unknown:
        raise NotFound(f"No store {unknown[0]} was found; `knowledge doctor` lists what is there.", vaultId=unknown[0])
    left_out = [vault_id for vault_id in there if vault_id not in wanted]
    if left_out:
        # A store that is forgotten here would be replaced by an empty one at its agent's next use.
        raise InvalidArgument(
            "Say of each store that was found whose it is, or that it is nobody's: one was left out.",
            field="stores",
            reason="left_out",
            stores=[*left_out],
        )
    entries = [(vault_id, store.root, wanted[vault_id]) for vault_id, store in zip(there, usable, strict=True)]
    aside = rebuild(layout, entries, message.by)
    return {"stores": [*there], "setAside": aside}


def _holders(request: RebuildRegistryRequest) -> dict[str, Holder | None]:
    wanted: dict[str, Holder | None] = {}
    taken: set[Holder] = set()
    for index, item in enumerate(request.stores):
        if item.agent is not None and item.name is not None:
            raise _refused(index, "is an agent's own or has a name, not both", "conflict")
        holder = Isolated(item.agent) if item.agent is not None else None if item.name is None else Named(item.name)
        if item.store in wanted:
            raise _refused(index, "stands twice", "duplicate")
        if holder is not None and holder in taken:
            raise _refused(index, "has a holder that another store has already", "duplicate")
        wanted[item.store] = holder
        taken |= set[Holder]() if holder is None else {holder}
    return wanted


def _refused(index: int, what: str, reason: str) -> InvalidArgument:
    return InvalidArgument(f"stores[{index}] {what}.", field=f"stores[{index}]", reason=reason)
