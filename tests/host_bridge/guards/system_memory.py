"""The guards of system memory: whose account it is, and who is a steward.

Source: system-memory-contract.md sections 3 and 4, decisions.md section 6.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import pytest

from messages.audience import Audience, OwnerPrivate, originating
from messages.json_types import JsonObject
from tests.host_bridge.guards.kit import SECRET, Attempt, Guard, World, patched
from tests.kit.store import GROUP, MAIN

CLAIM: Final[JsonObject] = {
    "account": "ann",
    "slug": "sys:aquarium",
    "body": "The aquarium is open",
    "tier": "glass",
    "asOf": "2026-09-20",
    "evidenceRefs": [{"kind": "receipt", "ref": "r", "digest": "d"}],
}


def as_its_agent(audience: Audience) -> str:
    """As if every audience had the account of its agent."""
    return originating(audience).agent


def lists_for(audience: Audience) -> Callable[[World], str]:
    def lists(world: World) -> str:
        world.bridge.consult("systemMemory.create", {"body": f"{SECRET} dreams."}, MAIN)
        return json.dumps(world.bridge.consult("systemMemory.list", {}, audience))

    return lists


def admits(world: World) -> str:
    claim = world.bridge.steward("steward.observe", CLAIM)
    said: JsonObject = {"steward": "mallory", "id": claim["id"], "verdict": "admitted", "ground": "I say so"}
    return json.dumps(world.bridge.steward("steward.admit", said))


def anybody_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    patched("storage.system_memory.records.require_steward", lambda acting: None)(monkeypatch)


GUARDS: Final = (
    Guard("account of an audience", patched("actors.authority.view.account_of", as_its_agent)),
    Guard("stewards of the configuration", anybody_decides),
)
ATTEMPTS: Final = [
    Attempt(("account of an audience",), "a conversation that lists its owner's rows", lists_for(GROUP), "denied",
            alone=True),
    Attempt(("account of an audience",), "a child of a conversation", lists_for(OwnerPrivate("main", root=GROUP)),
            "denied", alone=True),
    Attempt(("stewards of the configuration",), "a claim that mallory admits", admits, "steward_required", alone=True,
            reached=lambda told: '"status": "admitted"' in told),
]  # fmt: skip
