"""The tools for retained sources through MCP, with the real runtime behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_bridge.mcp import McpHost
from messages.json_types import JsonObject
from tests.host_bridge.mcp_session import Served
from tests.kit.leaks import nothing_left
from tests.kit.sources import ATTRIBUTION, chunk, descriptor, digest, upload_id
from tests.kit.store import open_bridge, request_id

TEXT = b"first line\nsecond line\n"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A session of the owner on a new state directory, with a workspace that holds one file."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "minutes.txt").write_bytes(TEXT)
    with nothing_left(), open_bridge(tmp_path / "state", f"workspace: {work}\n") as bridge:
        host = McpHost(bridge)
        session = Served(host)
        session.open()
        try:
            yield session
        finally:
            session.close()
            host.close()


def call(served: Served, tool: str, arguments: JsonObject) -> tuple[JsonObject, bool]:
    """The one text block of a result as JSON, and whether it is an error."""
    served.request(tool, "tools/call", {"name": f"knowledge_{tool}", "arguments": arguments})
    result = served.result()
    content = result["content"]
    assert isinstance(content, list)
    [block] = content
    assert isinstance(block, dict)
    answer: JsonObject = json.loads(str(block["text"]))
    return answer, result.get("isError") is True


def test_an_agent_attaches_cites_reads_downloads_and_reconciles(served: Served) -> None:
    assert call(served, "attach", chunk(1, 0, TEXT[:5])) == ({"received": 5}, False)
    gap, refused = call(served, "attach", chunk(1, 6, TEXT[6:]))
    assert refused
    assert (gap["code"], gap["retry"], gap["received"]) == ("invalid_argument", "never", 5)
    one, _ = call(served, "attach", chunk(1, 5, TEXT[5:], final=True))
    assert one == {"evidence": descriptor(1, TEXT)}
    file: JsonObject = {
        "requestId": upload_id(2), "filePath": "minutes.txt", "sha256": digest(TEXT), "filename": "minutes.txt",
        "attribution": ATTRIBUTION,
    }  # fmt: skip
    two, _ = call(served, "attach_file", file)
    evidence = two["evidence"]
    assert isinstance(evidence, dict)
    assert (evidence["path"], evidence["filename"]) == (descriptor(1, TEXT)["path"], "minutes.txt")
    page, _ = call(served, "save_page", {
        "requestId": request_id(1), "title": "A", "type": "project", "body": "",
        "attachments": [{**evidence, "start_line": 2}],
    })  # fmt: skip
    source: JsonObject = {"id": page["id"], "path": evidence["path"], "sha256": evidence["sha256"]}
    assert call(served, "evidence_read", source)[0] == {"text": "second line\n", "startLine": 2, "endLine": 2}
    whole, _ = call(served, "attachment", source)
    assert (whole["data"], whole["nextOffset"]) == (chunk(1, 0, TEXT)["data"], None)
    fence: JsonObject = {"id": page["id"], "expectedRevision": page["revision"], "expectedHash": page["hash"]}
    receipt, _ = call(served, "reconcile_evidence", {
        **fence, "requestId": request_id(2), "evidence": [one["evidence"]], "reason": "the whole source",
    })  # fmt: skip
    assert receipt["revision"] == 2
    assert call(served, "evidence_read", source)[0]["startLine"] == 1
    gone, refused = call(served, "attachment", {**source, "sha256": "0" * 64})
    assert refused
    assert (gone["code"], gone["reason"]) == ("evidence_invalid", "not_cited")
