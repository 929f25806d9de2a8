"""``recall.gate`` as hosts reach it: its parameters, the configuration behind it, and the host protocol."""

from __future__ import annotations

import json
import os
import time
from dataclasses import fields
from pathlib import Path

import pytest

from actors.recall_gate import GateSettings
from host_bridge.bridge import KnowledgeBridge
from host_bridge.config import RecallGate, parse_configuration
from host_bridge.rpc import RpcPeer
from host_bridge.transport import LineReader, Outbox
from messages.audience import OwnerPrivate
from messages.errors import AudienceMissing, InvalidArgument, KnowledgeError
from messages.json_types import JsonObject, JsonValue
from tests.kit.store import MAIN, open_bridge, request_id

ASKED: JsonObject = {"message": "When does the garden pilot ship?", "turnId": "turn-1"}


def save(bridge: KnowledgeBridge) -> None:
    page: JsonObject = {"title": "Garden Pilot", "type": "project", "body": "It ships on Friday."}
    bridge.call("knowledge_save_page", {**page, "requestId": request_id(1)}, MAIN)


def test_the_gate_is_off_unless_it_is_configured(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        save(bridge)
        answer = bridge.consult("recall.gate", ASKED, MAIN)
    latency = answer.pop("latencyMs")
    assert isinstance(latency, int)
    assert answer == {
        "outcome": "none", "reason": "off", "block": "", "offered": 0, "shortlisted": 0, "decisions": [],
    }  # fmt: skip


def test_an_agent_without_a_decision_model_is_not_configured(tmp_path: Path) -> None:
    with open_bridge(tmp_path, "recallGate: {mode: live}") as bridge:
        save(bridge)
        answer = bridge.consult("recall.gate", ASKED, MAIN)
    assert (answer["outcome"], answer["reason"], answer["block"]) == ("unavailable", "not-configured", "")


@pytest.mark.parametrize("model", ["rerank/unknown", "nobody/x"])
def test_a_decision_model_that_leads_nowhere_is_not_configured(tmp_path: Path, model: str) -> None:
    configuration = f"agents: {{defaults: {{decisionModel: {model}}}}}\nrecallGate: {{mode: live}}"
    with open_bridge(tmp_path, configuration) as bridge:
        save(bridge)
        assert bridge.consult("recall.gate", ASKED, MAIN)["reason"] == "not-configured"


def test_the_gate_creates_no_store(tmp_path: Path) -> None:
    with open_bridge(tmp_path, "recallGate: {mode: live}") as bridge:
        assert bridge.consult("recall.gate", ASKED, MAIN)["reason"] == "no_store"
    assert not list(tmp_path.glob("knowledge/stores/*"))


def test_every_key_of_the_configuration_reaches_the_gate(tmp_path: Path) -> None:
    written = (
        "recallGate: {mode: live, candidates: model, maxCandidates: 3, highThreshold: 0.5, excerpts: 2, "
        "excerptChars: 300, pageChars: 900, mediumThreshold: 0.25, skipHintBelow: 0.1, timeoutMs: 700, "
        "maxIndexChars: 5000}"
    )
    with open_bridge(tmp_path, written) as bridge:
        assert bridge._recall_gate() == GateSettings(
            mode="live", candidates="model", max_candidates=3, high_threshold=0.5, excerpts=2, excerpt_chars=300,
            page_chars=900, medium_threshold=0.25, skip_hint_below=0.1, timeout_ms=700, max_index_chars=5_000,
        )  # fmt: skip
    assert {one.name for one in fields(GateSettings)} == set(RecallGate.model_fields)


def test_the_defaults_are_those_of_the_table_and_shadow_once_the_section_is_written(tmp_path: Path) -> None:
    with open_bridge(tmp_path, "recallGate: {}") as bridge:
        assert bridge._recall_gate() == GateSettings(mode="shadow")
    assert GateSettings() == GateSettings(
        mode="off", candidates="keyword", max_candidates=10, high_threshold=0.75, excerpts=4, excerpt_chars=1_000,
        page_chars=2_800, medium_threshold=None, skip_hint_below=None, timeout_ms=1_500, max_index_chars=24_000,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("maxCandidates", (1, 10), (0, 11, 2.5)),
        ("highThreshold", (0, 1.0), (-0.1, 1.1)),
        ("mediumThreshold", (0, 1.0), (-0.1, 1.1)),
        ("skipHintBelow", (0, 1.0), (-0.1, 1.1)),
        ("excerpts", (1, 10), (0, 11)),
        ("excerptChars", (100, 4_000), (99, 4_001)),
        ("pageChars", (200, 6_000), (199, 6_001)),
        ("timeoutMs", (100, 10_000), (99, 10_001)),
        ("maxIndexChars", (1, 24_000), (0, -1)),
        ("mode", ("off", "shadow", "live"), ("on", "Live")),
        ("candidates", ("keyword", "model"), ("both",)),
    ],
)
def test_each_key_has_its_range(key: str, good: tuple[JsonValue, ...], bad: tuple[JsonValue, ...]) -> None:
    for value in good:
        parse_configuration(json.dumps({"recallGate": {key: value}}))
    for value in bad:
        with pytest.raises(InvalidArgument) as refused:
            parse_configuration(json.dumps({"recallGate": {key: value}}))
        assert f"recallGate.{key}" in str(refused.value.fields["field"])


@pytest.mark.parametrize(
    ("params", "field", "reason"),
    [
        ({"turnId": "t"}, "message", "missing"),
        ({"message": "m"}, "turnId", "missing"),
        ({"message": "m", "turnId": ""}, "turnId", "malformed"),
        ({"message": "m", "turnId": "two words"}, "turnId", "malformed"),
        ({"message": "m", "turnId": "t" * 129}, "turnId", "malformed"),
        ({"message": 7, "turnId": "t"}, "message", "wrong_type"),
        ({"message": "m\0", "turnId": "t"}, "message", "nul"),
        ({"message": "m", "turnId": "t", "trigger": "two\nlines"}, "trigger", "control_character"),
        ({"message": "m", "turnId": "t", "agent": "main"}, "agent", "unknown"),
        ({"message": "m", "turnId": "t", "deadlineMs": 0}, "deadlineMs", "out_of_range"),
    ],
)
def test_bad_parameters_are_refused_by_name(tmp_path: Path, params: JsonObject, field: str, reason: str) -> None:
    with open_bridge(tmp_path) as bridge, pytest.raises(KnowledgeError) as refused:
        bridge.consult("recall.gate", params, MAIN)
    assert (refused.value.fields["field"], refused.value.fields["reason"]) == (field, reason)
    assert not list(tmp_path.glob("knowledge/stores/*"))


@pytest.mark.parametrize("message", ["", "   ", "?!", "𝄞", "word " * 100_000])
def test_any_message_is_answered(tmp_path: Path, message: str) -> None:
    with open_bridge(tmp_path, "recallGate: {mode: live}") as bridge:
        save(bridge)
        assert bridge.consult("recall.gate", {"message": message, "turnId": "t"}, MAIN)["block"] == ""


def test_a_call_without_an_audience_is_refused(tmp_path: Path) -> None:
    with open_bridge(tmp_path, "recallGate: {mode: live}") as bridge, pytest.raises(AudienceMissing):
        bridge.consult("recall.gate", ASKED)


def test_an_edit_of_the_file_applies_to_the_next_turn(tmp_path: Path) -> None:
    file = tmp_path / "knowledge.yaml"
    file.write_text("recallGate: {mode: live}\n", "utf-8")
    with KnowledgeBridge(tmp_path) as bridge:
        save(bridge)
        assert bridge.consult("recall.gate", ASKED, MAIN)["reason"] == "not-configured"
        file.write_text("recallGate: {mode: off}\n", "utf-8")
        assert bridge._file is not None
        end = time.monotonic() + 10
        while bridge.configuration.recall_gate is None or bridge.configuration.recall_gate.mode != "off":
            assert time.monotonic() < end, "an edit takes effect within a second"
            bridge._file.poll()
        assert bridge.consult("recall.gate", ASKED, MAIN)["reason"] == "off"


def test_the_host_protocol_has_the_method(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    outbox = Outbox(writer, name="test")
    with open_bridge(tmp_path, "recallGate: {mode: live}") as bridge:
        save(bridge)
        peer = RpcPeer(bridge, outbox, caller=OwnerPrivate("main"), operator=None, on_shutdown=lambda: None)
        peer.receive(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "recall.gate", "params": ASKED}).encode())
        line = next(iter(LineReader(reader)))
    assert isinstance(line, bytes)
    answer = json.loads(line)
    assert answer["result"]["outcome"] == "unavailable"
    assert set(answer["result"]) == {
        "outcome", "reason", "block", "latencyMs", "offered", "shortlisted", "decisions",
    }  # fmt: skip
    outbox.close()
    os.close(reader)
