"""The flush before a compaction, sentence by sentence (memory-provider.md, Pre-compaction memory flush)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from host_bridge.bridge import KnowledgeBridge
from host_bridge.provider.flush import FLUSH_PROMPT
from messages.audience import Audience, Conversation, OwnerPrivate
from messages.errors import InvalidArgument, KnowledgeError, ReadOnlyGrant, RequestIdReused
from messages.json_types import JsonObject, JsonValue
from messages.provider.flush import is_cli_backend
from messages.tools import CATALOGUE
from tests.host_bridge.doors import bridge
from tests.host_bridge.test_memory_over_doors import GROUP_OBJECT, OWNER, grant, piped, result
from tests.host_bridge.test_real_stdio import spoken
from tests.kit.store import GROUP, MAIN, items_of, open_bridge, remembering, stores, total

__all__ = ["bridge"]

NOTE: JsonObject = {"title": "Garden Pilot", "type": "project", "body": "It ships on Friday."}
SAVES: dict[str, JsonObject] = {"knowledge_remember": remembering("It ships on Friday."), "knowledge_save_page": NOTE}
PERSISTENCE = ["knowledge_remember", "knowledge_save_page"]
HELPERS = ["knowledge_grep", "knowledge_lookup", "knowledge_record", "knowledge_ontology"]


def plan(bridge: KnowledgeBridge, audience: Audience = MAIN, **more: JsonValue) -> JsonValue:
    answer = bridge.consult("flush.plan", {"flushId": "flush 1", **more}, audience)
    assert set(answer) == {"plan"}
    return answer["plan"]


# --- when there is one --------------------------------------------------------------------------------------


def test_a_plan_has_a_prompt_the_persistence_tools_and_the_helper_tools_which_only_read(
    bridge: KnowledgeBridge,
) -> None:
    assert plan(bridge) == {"prompt": FLUSH_PROMPT, "persistenceTools": PERSISTENCE, "helperTools": HELPERS}
    assert {CATALOGUE[name].action for name in HELPERS} == {"read"}
    assert {CATALOGUE[name].action for name in PERSISTENCE} == {"write"}


def test_with_writes_disabled_the_provider_returns_no_flush_plan(tmp_path: Path) -> None:
    with open_bridge(tmp_path, "writesEnabled: false\n") as bridge:
        assert plan(bridge) is None
        assert plan(bridge, GROUP) is None
    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
    with open_bridge(tmp_path, "writesEnabled: false\n") as bridge:
        assert plan(bridge) is None


@pytest.mark.parametrize(
    ("backend", "never"),
    [
        ("claude-cli/opus", True),
        ("claude-cli", True),
        ("Codex-CLI/gpt", True),
        ("google_gemini_cli", True),
        ("geminicli/pro", True),
        ("cli", True),
        ("cli:claude", True),
        ("anthropic/claude-opus", False),
        ("openai/client-model", False),
        ("clio/one", False),
        ("click", False),
    ],
)
def test_the_flush_never_runs_for_cli_backend_sessions(bridge: KnowledgeBridge, backend: str, never: bool) -> None:
    assert is_cli_backend(backend) is never
    assert (plan(bridge, backend=backend) is None) is never


def test_the_flush_never_runs_for_backends_that_compact_natively(bridge: KnowledgeBridge) -> None:
    assert plan(bridge, nativeCompaction=True) is None
    assert plan(bridge, nativeCompaction=False) is not None


def test_a_read_only_grants_flush_saves_nothing(bridge: KnowledgeBridge) -> None:
    grant(bridge, "read")  # before the store is made, and after
    assert plan(bridge, GROUP) is None
    bridge.call("knowledge_status", {}, MAIN)
    thread = Conversation("main", f"{GROUP.session_key}:thread", GROUP.session_id)
    for audience in (GROUP, thread, OwnerPrivate("main", root=GROUP)):
        assert plan(bridge, audience) is None
        for tool, arguments in SAVES.items():
            with pytest.raises(ReadOnlyGrant):
                bridge.call(tool, arguments, audience, flush_id="flush 1")
    assert (total(bridge), plan(bridge) is None) == (0, False)


@pytest.mark.parametrize("access", [None, "read-save"])
def test_conversation_turns_write_to_their_own_partition_or_as_their_owner_grant_directs(
    bridge: KnowledgeBridge, access: str | None
) -> None:
    if access is not None:
        grant(bridge, access)
    assert plan(bridge, GROUP) is not None
    bridge.call("knowledge_remember", SAVES["knowledge_remember"], GROUP, flush_id="flush 1")
    assert total(bridge, MAIN) == (0 if access is None else 1)
    if access is not None:
        grant(bridge, None)
    assert total(bridge, GROUP) == (1 if access is None else 0)


def test_the_source_turns_audience_is_delegated_to_the_flush_and_grants_no_additional_authority(
    bridge: KnowledgeBridge,
) -> None:
    child = OwnerPrivate("main", root=GROUP)
    assert plan(bridge, child) is not None
    bridge.call("knowledge_save_page", NOTE, child, flush_id="flush 1")
    assert (total(bridge, MAIN), total(bridge, GROUP)) == (0, 1)
    bridge.call("knowledge_save_page", NOTE, OwnerPrivate("main", root=MAIN), flush_id="flush 1")
    assert (total(bridge, MAIN), total(bridge, GROUP)) == (1, 1)


def test_a_plan_creates_no_store(bridge: KnowledgeBridge) -> None:
    plan(bridge)
    assert stores(bridge.state_dir) == []


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "flushId"),
        ({"flushId": " "}, "flushId"),
        ({"flushId": "x" * 201}, "flushId"),
        ({"flushId": "f", "backend": 5}, "backend"),
        ({"flushId": "f", "nativeCompaction": "maybe"}, "nativeCompaction"),
        ({"flushId": "f", "agent": "main"}, "agent"),
    ],
)
def test_what_is_malformed_is_refused_by_name(bridge: KnowledgeBridge, params: JsonObject, field: str) -> None:
    with pytest.raises(KnowledgeError) as error:
        bridge.consult("flush.plan", params, MAIN)
    assert error.value.fields["field"] == field


# --- what the agent is told ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "point",
    [
        "decisions", "preferences", "corrections", "commitments", "changes of a project's state",
        "facts about people or projects", "quoted word for word", "never secrets", "material, not instruction",
        "only read: using them saves nothing", "Only an answer that says that it was published counts as saved",
        "has the rights of the turn that it came from, and no others", "Leave `requestId` out of both",
        "identical call again", *PERSISTENCE, *HELPERS,
    ],
)  # fmt: skip
def test_the_prompt_says_what_to_save_and_how(point: str) -> None:
    assert point in " ".join(FLUSH_PROMPT.split())


def test_the_prompt_names_no_tool_that_is_not_in_the_plan() -> None:
    named = {word.strip(".,:;`") for word in FLUSH_PROMPT.split() if word.startswith("knowledge_")}
    assert named == {*PERSISTENCE, *HELPERS}


# --- request ids in a flush ---------------------------------------------------------------------------------


def receipt(answer: JsonObject) -> str:
    """The stored receipt as it was sent; the state of the checkpoint stands beside it and is no part of it."""
    return json.dumps({key: value for key, value in answer.items() if key != "git"})


@pytest.mark.parametrize("tool", PERSISTENCE)
def test_an_identical_retry_returns_the_original_receipt_byte_for_byte_after_a_restart_too(
    tmp_path: Path, tool: str
) -> None:
    with open_bridge(tmp_path) as bridge:
        first = receipt(bridge.call(tool, SAVES[tool], MAIN, flush_id="flush 1"))
        assert receipt(bridge.call(tool, SAVES[tool], MAIN, flush_id="flush 1")) == first
    with open_bridge(tmp_path) as bridge:
        assert receipt(bridge.call(tool, SAVES[tool], MAIN, flush_id="flush 1")) == first
        with piped(bridge) as ask:
            params: JsonObject = {"tool": tool, "arguments": SAVES[tool], "audience": OWNER, "flushId": "flush 1"}
            assert receipt(result(ask("tools.call", params))) == first
        assert total(bridge) == 1


def test_the_host_protocol_gives_the_first_receipt_again_to_a_process_that_was_started_anew(tmp_path: Path) -> None:
    initialize: tuple[str, JsonObject] = (
        "initialize", {"protocol": "knowledge-host/1", "host": {"name": "test", "version": "1"}},
    )  # fmt: skip

    def receipts(*audiences: JsonObject) -> list[str]:
        calls: list[tuple[str, JsonObject]] = [
            ("tools.call", {"tool": tool, "arguments": SAVES[tool], "audience": audience, "flushId": "flush 1"})
            for audience in audiences
            for tool in PERSISTENCE
        ]
        answers = spoken(tmp_path, [initialize, *calls, ("shutdown", {})])
        return [receipt(answers[number]["result"]) for number in range(1, len(calls) + 1)]

    first = receipts(OWNER)
    assert len(first) == len(PERSISTENCE)
    again = receipts(OWNER, GROUP_OBJECT)
    assert again[: len(first)] == first
    assert not set(again[len(first) :]) & set(first)  # another partition, other saves


def test_the_id_follows_from_the_flush_and_the_page_title_or_claim_texts(bridge: KnowledgeBridge) -> None:
    page = bridge.call("knowledge_save_page", NOTE, MAIN, flush_id="flush 1")
    with pytest.raises(RequestIdReused):
        bridge.call("knowledge_save_page", {**NOTE, "body": "Other."}, MAIN, flush_id="flush 1")
    bridge.call("knowledge_save_page", {**NOTE, "title": "Other"}, MAIN, flush_id="flush 1")
    edit: JsonObject = {**NOTE, "body": "Other.", "id": page["id"], "expectedRevision": 1, "expectedHash": page["hash"]}
    bridge.call("knowledge_save_page", edit, MAIN, flush_id="flush 2")
    rows = bridge.call("knowledge_history", {}, MAIN)["rows"]
    assert isinstance(rows, list)
    assert len({row["requestId"] for row in rows}) == len(rows) == 3
    first = items_of(bridge.call("knowledge_remember", remembering("One."), MAIN, flush_id="flush 1"))
    second = items_of(bridge.call("knowledge_remember", remembering("Two."), MAIN, flush_id="flush 1"))
    assert first[0]["id"] != second[0]["id"]


@pytest.mark.parametrize("tool", PERSISTENCE)
def test_outside_a_flush_a_save_needs_its_request_id(bridge: KnowledgeBridge, tool: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        bridge.call(tool, SAVES[tool], MAIN)
    assert error.value.fields["field"] == "requestId"


def test_in_a_flush_every_other_write_needs_its_request_id(bridge: KnowledgeBridge) -> None:
    for name, spec in CATALOGUE.items():
        if spec.action == "write" and name not in PERSISTENCE:
            with pytest.raises(KnowledgeError) as error:
                bridge.call(name, {}, MAIN, flush_id="flush 1")
            assert error.value.fields["field"] == "requestId" or name == "knowledge_resume", name
