"""A host that sends everything at once and says goodbye gets every answer first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.kit.store import GROUP


def test_shutdown_is_answered_after_what_is_under_way_has_ended_on_a_store_that_is_only_opening(tmp_path: Path) -> None:
    conversation = {
        "kind": "conversation",
        "agent": GROUP.agent,
        "sessionKey": GROUP.session_key,
        "sessionId": GROUP.session_id,
    }
    owner = {"kind": "owner-private", "agent": "main"}
    requests = [
        ("initialize", {"protocol": "knowledge-host/1", "host": {"name": "test", "version": "1"}}),
        ("tools.call", {"tool": "knowledge_status", "arguments": {}, "audience": conversation}),
        ("tools.call", {"tool": "knowledge_grep", "arguments": {"query": "x"}, "audience": owner}),
        ("shutdown", {}),
    ]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate(requests)
    ]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "host_bridge", "serve", "--stdio", "--state-dir", str(tmp_path)],
        input="\n".join([*lines, ""]),
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        timeout=60,
        check=False,
    )
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0
    assert [answers[number].get("error") for number in range(4)] == [None] * 4
    assert answers[2]["result"] == {"total": 0, "hits": []}
    assert list(answers)[-1] == 3
