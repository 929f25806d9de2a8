"""A host that sends everything at once and says goodbye gets every answer first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from messages.json_types import JsonObject, JsonValue
from tests.kit.store import GROUP, remembering, request_id


def spoken(state_dir: Path, requests: Sequence[tuple[str, JsonObject]]) -> dict[JsonValue, Any]:
    """The answers to all requests, by number in the order in which they came; the process must end well."""
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate(requests)
    ]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "host_bridge", "serve", "--stdio", "--state-dir", str(state_dir)],
        input="\n".join([*lines, ""]),
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    return {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}


def test_shutdown_is_answered_after_what_is_under_way_has_ended_on_a_store_that_is_only_opening(tmp_path: Path) -> None:
    conversation: JsonObject = {
        "kind": "conversation",
        "agent": GROUP.agent,
        "sessionKey": GROUP.session_key,
        "sessionId": GROUP.session_id,
    }
    owner: JsonObject = {"kind": "owner-private", "agent": "main"}
    requests: list[tuple[str, JsonObject]] = [
        ("initialize", {"protocol": "knowledge-host/1", "host": {"name": "test", "version": "1"}}),
        ("tools.call", {"tool": "knowledge_status", "arguments": {}, "audience": conversation}),
        ("tools.call", {"tool": "knowledge_grep", "arguments": {"query": "x"}, "audience": owner}),
        ("shutdown", {}),
    ]
    answers = spoken(tmp_path, requests)
    assert [answers[number].get("error") for number in range(4)] == [None] * 4
    assert answers[2]["result"] == {"total": 0, "hits": []}
    assert list(answers)[-1] == 3


def test_an_operator_that_the_host_names_reads_a_store_in_complete_shapes_and_within_its_role(tmp_path: Path) -> None:
    owner: JsonObject = {"kind": "owner-private", "agent": "main"}
    reader: JsonObject = {"id": "ana", "scopes": ["operator.read"], "agents": ["main"]}
    save: JsonObject = {**remembering("The bell rang."), "requestId": request_id(1)}
    answers = spoken(
        tmp_path,
        [
            ("initialize", {"protocol": "knowledge-host/1", "host": {"name": "test", "version": "1"}}),
            ("tools.call", {"tool": "knowledge_remember", "arguments": save, "audience": owner}),
            ("shutdown", {}),
        ],
    )
    assert "error" not in answers[1]
    answers = spoken(
        tmp_path,
        [
            ("initialize", {"protocol": "knowledge-host/1", "host": {"name": "test", "version": "1"}}),
            ("operator.search", {"operator": reader, "query": "bell"}),
            ("operator.search", {"operator": reader, "query": "bell", "agent": "ben"}),
            ("operator.search", {"operator": {"id": "eve", "scopes": []}, "query": "bell"}),
            ("operator.search", {"query": "bell"}),
            ("shutdown", {}),
        ],
    )
    [card] = answers[1]["result"]["hits"]
    assert (card["text"], len(card["hash"]), card["current"]) == ("The bell rang.", 64, True)
    codes = [answers[number]["error"]["data"]["code"] for number in (2, 3, 4)]
    assert codes == ["denied", "denied", "invalid_argument"]
