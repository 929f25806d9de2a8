"""Who may approve a summary for automatic recall, as callers reach it (memory-provider.md, Automatic recall)."""

from __future__ import annotations

from pathlib import Path

import pytest

from host_bridge.bridge import KnowledgeBridge
from messages.audience import Audience, Conversation, OwnerPrivate
from messages.errors import Denied, InvalidArgument, KnowledgeError, NotFound, ReadOnlyGrant, Sandboxed, WritesDisabled
from messages.json_types import JsonObject
from messages.operator import OPERATOR_METHODS
from messages.tools.catalogue import CATALOGUE
from tests.kit.store import GROUP, MAIN, open_bridge, request_id

TOPIC = Conversation("main", f"{GROUP.session_key}:topic:9", "44444444-4444-4444-8444-444444444444")
TWO = "agents: {list: [{id: main}, {id: helper}]}\n"


def plan(bridge: KnowledgeBridge) -> JsonObject:
    page: JsonObject = {"title": "Plan", "type": "project", "body": "About it.", "requestId": request_id(1)}
    return bridge.call("knowledge_save_page", page, MAIN)


def approve(bridge: KnowledgeBridge, page: JsonObject, audience: Audience, number: int = 2) -> JsonObject:
    return bridge.call(
        "knowledge_recall",
        {
            "requestId": request_id(number),
            "id": page["id"],
            "expectedRevision": page["revision"],
            "expectedHash": page["hash"],
            "summary": "It ships on Friday.",
            "triggers": ["release"],
        },
        audience,
    )


def candidates(bridge: KnowledgeBridge, audience: Audience = MAIN) -> list[str]:
    found = bridge.consult("memory.candidates", {"kind": "trigger"}, audience)["candidates"]
    assert isinstance(found, list)
    return [str(one["excerpt"]) for one in found]


def grant(bridge: KnowledgeBridge, access: str) -> None:
    bridge.ask("access.grants.set", {"agent": "main", "sessionKey": GROUP.session_key, "access": access})


def test_a_conversation_approves_with_a_read_and_save_grant_only(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        page = plan(bridge)
        with pytest.raises(Denied):
            approve(bridge, page, GROUP)
        grant(bridge, "read")
        for audience in (GROUP, TOPIC):
            with pytest.raises(ReadOnlyGrant):
                approve(bridge, page, audience)
        assert candidates(bridge) == []
        grant(bridge, "read-save")
        approve(bridge, page, TOPIC)
        assert candidates(bridge) == candidates(bridge, GROUP) == ["It ships on Friday."]
    [file] = tmp_path.rglob("plan.md")
    [block] = [line for line in file.read_text("utf-8").splitlines() if line.startswith("recall: ")]
    assert '"approved_by": "owner-private"' in block


def test_what_a_grant_let_approve_stays_approved_for_the_owner_once_the_grant_is_gone(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        page = plan(bridge)
        grant(bridge, "read-save")
        approve(bridge, page, GROUP)
        bridge.ask("access.grants.remove", {"agent": "main", "sessionKey": GROUP.session_key})
        assert candidates(bridge) == ["It ships on Friday."]
        assert candidates(bridge, GROUP) == []


def test_approving_requires_writes_enabled(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        page = plan(bridge)
    with open_bridge(tmp_path, "writesEnabled: false\n") as bridge, pytest.raises(WritesDisabled):
        approve(bridge, page, MAIN)


def test_a_child_approves_what_its_root_may_and_nobody_else_does(tmp_path: Path) -> None:
    with open_bridge(tmp_path, TWO) as bridge:
        page = plan(bridge)
        refused: list[tuple[Audience, type[KnowledgeError]]] = [
            (OwnerPrivate("helper", root=GROUP), Denied),
            (OwnerPrivate("helper"), NotFound),  # in a store of its own
            (OwnerPrivate("stranger"), Denied),
            (OwnerPrivate("main", sandboxed=True), Sandboxed),
        ]
        for audience, refusal in refused:
            with pytest.raises(refusal):
                approve(bridge, page, audience)
        assert candidates(bridge) == []
        approve(bridge, page, OwnerPrivate("helper", root=MAIN))
        assert candidates(bridge) == ["It ships on Friday."]


def test_operators_and_the_browser_have_no_method_that_approves(tmp_path: Path) -> None:
    assert [name for name in OPERATOR_METHODS if "recall" in name.lower() or "approve" in name.lower()] == []
    assert CATALOGUE["knowledge_recall"].action == "write"
    with open_bridge(tmp_path) as bridge, pytest.raises(InvalidArgument) as refused:
        bridge.ask("operator.recall", {"id": "x", "summary": "s"})
    assert refused.value.fields["field"] == "method"
