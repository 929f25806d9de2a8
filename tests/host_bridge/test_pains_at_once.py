"""What went wrong in comparable systems where several act at once, and how an ordinary refusal looks."""

from __future__ import annotations

import base64
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from host_bridge.bridge import KnowledgeBridge
from messages.errors import KnowledgeError, StaleFence
from messages.json_types import JsonObject
from tests.kit.store import MAIN, items_of, open_bridge, remembering, request_id

CLIENTS = 4
STEPS = 5


def record(bridge: KnowledgeBridge, record_id: object) -> JsonObject:
    found = bridge.call("knowledge_record", {"id": str(record_id)}, MAIN)["record"]
    assert isinstance(found, dict)
    return found


def fences(bridge: KnowledgeBridge, found: JsonObject) -> JsonObject:
    status = bridge.call("knowledge_status", {}, MAIN)
    return {
        "id": found["id"],
        "expectedRevision": found["revision"],
        "expectedHash": found["hash"],
        "expectedVaultId": status["vaultId"],
        "expectedOntologyFingerprint": status["ontologyFingerprint"],
    }


def counted(found: JsonObject) -> int:
    number = re.search(r"count: (\d+)", str(found["body"]))
    assert number is not None
    return int(number[1])


def test_a_counter_that_four_clients_read_and_add_to_five_times_each_is_twenty(tmp_path: Path) -> None:
    """Each reads, adds one and saves with the fences of what it read; whoever was overtaken reads again."""
    with open_bridge(tmp_path) as bridge:
        page: JsonObject = {"title": "Counter", "type": "note", "body": "count: 0", "requestId": request_id(1)}
        made = bridge.call("knowledge_save_page", page, MAIN)

        def add_one(number: int) -> int:
            overtaken = 0
            while True:
                found = record(bridge, made["id"])
                save: JsonObject = {
                    "requestId": request_id(100 + number * 1_000 + overtaken),
                    "id": found["id"],
                    "expectedRevision": found["revision"],
                    "expectedHash": found["hash"],
                    "title": "Counter",
                    "type": "note",
                    "body": f"count: {counted(found) + 1}",
                }
                try:
                    bridge.call("knowledge_save_page", save, MAIN)
                except StaleFence:
                    overtaken += 1
                else:
                    return overtaken

        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(add_one, range(CLIENTS * STEPS)))
        assert counted(record(bridge, made["id"])) == CLIENTS * STEPS


def test_of_two_corrections_of_one_claim_at_once_one_stands_and_the_other_is_refused(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        first = bridge.call("knowledge_remember", {**remembering("The pump is red."), "requestId": request_id(1)}, MAIN)
        found = record(bridge, items_of(first)[0]["id"])
        asked = fences(bridge, found)
        original: JsonObject = {
            "requestId": request_id(2),
            "filename": "note.txt",
            "mediaType": "text/plain",
            "attribution": "a client",
            "offset": 0,
            "data": base64.b64encode(b"The pump has another colour.").decode(),
            "final": True,
        }
        attached = bridge.call("knowledge_attach", original, MAIN)["evidence"]
        assert isinstance(attached, dict)
        evidence: JsonObject = {key: attached[key] for key in ("path", "sha256")}

        def correct(number: int) -> str:
            statement: JsonObject = {
                "kind": "claim",
                "attribution": "a client",
                "evidence": [evidence],
                "body": f"The pump is of colour {number}.",
                "claim_kind": "fact",
                "assertion_origin": "source",
            }
            arguments: JsonObject = {
                **asked,
                "requestId": request_id(number),
                "reason": "it was wrong",
                "replacement": statement,
            }
            try:
                bridge.call("knowledge_correct", arguments, MAIN)
            except KnowledgeError as error:
                return error.code
            return "ok"

        with ThreadPoolExecutor(2) as pool:
            answers = sorted(pool.map(correct, (11, 12)))
        assert answers == ["invalid_argument", "ok"], "what was superseded meanwhile is not corrected again"
        listed = bridge.call("knowledge_records", {"lifecycle": "active", "kind": "claim"}, MAIN)
        assert listed["total"] == 1


def test_a_stale_fence_is_an_ordinary_answer_and_no_error_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_bridge(tmp_path) as bridge:
        page: JsonObject = {"title": "Plan", "type": "note", "body": "one", "requestId": request_id(1)}
        made = bridge.call("knowledge_save_page", page, MAIN)
        stale: JsonObject = {
            **page,
            "requestId": request_id(2),
            "id": made["id"],
            "expectedRevision": made["revision"],
            "expectedHash": "0" * 64,
        }
        with caplog.at_level(logging.DEBUG), pytest.raises(KnowledgeError) as refused:
            bridge.call("knowledge_save_page", stale, MAIN)
        assert refused.value.code == "stale_fence"
        assert [entry for entry in caplog.records if entry.levelno >= logging.WARNING or entry.exc_info] == []
        assert record(bridge, made["id"])["body"] == "one\n"
