"""A read is answered, or refused with the same code, field and reason, whichever door it comes in through.

Python, ``tools.call`` of the host protocol and MCP on one real runtime; the shell is a client of the host protocol.
Source: decisions.md sections 5 (Limits, Nulls and strings from models) and 7.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Final

import pytest

from host_bridge.bridge import KnowledgeBridge
from host_bridge.mcp import McpHost
from host_bridge.rpc import RpcPeer
from host_bridge.transport import LineReader, Outbox
from messages.errors import KnowledgeError
from messages.json_types import JsonObject, JsonValue
from messages.tools import CATALOGUE
from messages.vocabulary import PRIVATE
from tests.host_bridge.mcp_session import Served, only_text
from tests.kit.leaks import nothing_left
from tests.kit.store import MAIN, claim_file, only_store, open_bridge, page_file, request_id, write_notes

OWNER: Final[JsonObject] = {"kind": "owner-private", "agent": "main"}
LONE: Final = "\ud800"


class Doors:
    """One runtime and three ways in."""

    def __init__(self, bridge: KnowledgeBridge) -> None:
        self.bridge = bridge
        self._reader_end, self._writer_end = os.pipe()
        self._outbox = Outbox(self._writer_end, name="test")
        self._peer = RpcPeer(bridge, self._outbox)
        self._reader = LineReader(self._reader_end)
        self._lines = iter(self._reader)
        self._host = McpHost(bridge)
        self._served = Served(self._host, profile="full")
        self._served.open()
        self._number = 0

    def ask(self, tool: str, arguments: JsonValue) -> dict[str, JsonObject]:
        """What each door says: the answer, or the refusal without its message."""
        self._number += 1
        return {
            "python": self._python(tool, arguments),
            "host protocol": self._rpc(tool, arguments),
            "mcp": self._mcp(tool, arguments),
        }

    def close(self) -> None:
        self._served.close()
        self._host.close()
        self._outbox.close()
        os.close(self._writer_end)
        os.close(self._reader_end)
        self._reader.close()

    def _python(self, tool: str, arguments: JsonValue) -> JsonObject:
        try:
            # JSON as a program gets it from a model; some of it is no object.
            return self.bridge.call(tool, arguments, MAIN)  # type: ignore[arg-type]
        except KnowledgeError as error:
            return refusal(error.to_data())

    def _rpc(self, tool: str, arguments: JsonValue) -> JsonObject:
        params: JsonObject = {"tool": tool, "arguments": arguments, "audience": OWNER}
        message: JsonObject = {"jsonrpc": "2.0", "id": self._number, "method": "tools.call", "params": params}
        self._peer.receive(json.dumps(message).encode())
        line = next(self._lines)
        assert isinstance(line, bytes)
        answer = json.loads(line)
        if "result" in answer:
            result: JsonObject = answer["result"]
            return result
        return refusal(answer["error"]["data"])

    def _mcp(self, tool: str, arguments: JsonValue) -> JsonObject:
        self._served.request(self._number, "tools/call", {"name": tool, "arguments": arguments})
        answer = self._served.answer()
        assert "result" in answer, answer
        result = answer["result"]
        assert isinstance(result, dict)
        found: JsonObject = json.loads(only_text(result))
        return refusal(found) if result["isError"] else found


def refusal(data: JsonObject) -> JsonObject:
    return {"refused": {name: data.get(name) for name in ("code", "retry", "field", "reason", "allowed")}}


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with nothing_left(), open_bridge(tmp_path_factory.mktemp("doors")) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        folder = only_store(bridge.state_dir).partition(PRIVATE)
        body = "The harbor \N{SLIGHTLY SMILING FACE} opens. " * 200
        write_notes(
            folder,
            [
                ("p.md", page_file("p", "Harbor", aliases=["Port"], tags=["t"], body=f"{body}See [[c]].\n")),
                ("c.md", claim_file("c", "The harbor opens \u202e early.", entities=["p"], occurred_at="2026-10-02",
                                    due_at="2026-10-05", claim_kind="commitment", owner="p")),
                ("x.md", claim_file("x", "The harbor was shut.", lifecycle="superseded", superseded_by="c")),
                ("b.md", "---\nformat: [\n---\n"),
                ("s1.md", page_file("same", "Same")),
                ("s2.md", page_file("same", "Same")),
            ],
        )  # fmt: skip
        opened = Doors(bridge)
        yield opened
        opened.close()


# Arguments that are no object are a breach of MCP itself: -32602 there, before any tool is looked for.
CALLS: Final[tuple[tuple[str, JsonValue], ...]] = (
    ("ontology", {}), ("ontology", {"view": "definitions", "name": "opportunity", "includeRecords": "true"}),
    ("ontology", '{"view": "diagnostics", "limit": "5"}'), ("ontology", {"view": "sources", "sourcePath": "../x"}),
    ("ontology", {"limit": 101}), ("ontology", {"includeRecords": True}), ("ontology", {"name": "nothing"}),
    ("record", {"id": "p"}), ("record", {"id": "p", "maxChars": "1000", "includeEvidence": True}),
    ("record", {"id": "p", "offset": 12}), ("record", {"id": "p", "offset": 10**7 + 1}),
    ("record", {"id": "p", "offset": 9_999_999}), ("record", {"id": "same"}), ("record", {"id": "no one"}),
    ("record", {"id": 5}), ("record", {}), ("record", None), ("record", {"ID": "p"}),
    ("record", {"id": "p", "full": True}), ("record", {"id": None}), ("record", {"id": "p", "maxChars": 999}),
    ("records", {}), ("records", {"limit": 1, "lifecycle": "all"}), ("records", {"limit": 2.5}),
    ("records", {"limit": 10**30}), ("records", {"match": f"a{LONE}"}), ("records", {"match": "har\0"}),
    ("records", {"match": "HAR", "origin": None}), ("records", {"kind": "page", "origin": "source"}),
    ("records", {"snapshot": "private-0"}), ("records", {"since": "2026-11-02T00:00:00+01:75"}),
    ("records", {f"k{LONE}": 1}), ("records", {"\0": 1}), ("records", {"match": {"a": [LONE]}}),
    ("connections", {"id": "p"}), ("connections", {"id": "c", "direction": "backlinks", "historical": "true"}),
    ("connections", {"id": "nobody"}), ("connections", {"id": "same"}), ("connections", {"id": "p", "direction": "up"}),
    ("grep", {"query": "harbor"}), ("grep", {"query": "shut"}), ("grep", {"query": "C++ \"*' NEAR(", "mode": "any"}),
    ("grep", {"query": f"a{LONE}"}), ("grep", {"query": "a\0b"}), ("grep", {"query": "x" * 501}),
    ("grep", {"query": "x " * 65}), ("grep", {"query": "\u200b \u2060"}), ("grep", {"query": "harbor", "limit": 51}),
    ("grep", {"query": "harbor", "offset": 501}), ("grep", {"query": ["harbor"]}), ("grep", {"query": "[harbor]"}),
    ("grep", {"query": "harbor", "since": "2026", "until": "2026"}), ("grep", {"query": "harbor", "mode": "ALL"}),
    ("lookup", {"query": "port"}), ("lookup", {"query": "PORT "}), ("lookup", {"query": "same"}),
    ("lookup", {"query": "\N{CJK UNIFIED IDEOGRAPH-6587}" * 201}), ("lookup", {"query": " \n"}),
    ("timeline", {}), ("timeline", {"subject": "Port", "order": "asc"}), ("timeline", {"subject": "Nobody"}),
    ("timeline", {"subject": "Same"}), ("timeline", {"kind": "page", "owner": "p"}),
    ("chronicle_days", {"since": "2026-10", "until": "2026-11"}),
    ("chronicle_days", {"since": "2025", "until": "2027"}),
    ("chronicle_day", {"date": "2026-10-02"}), ("chronicle_day", {"date": "2026-10"}), ("chronicle_day", {}),
    ("chronicle_due", {"asOf": "2026-10-05"}), ("chronicle_due", {"horizonDays": 367}),
    ("verify", {"ids": ["p", "same", "nobody"]}), ("verify", {}), ("verify", {"ids": "[\"p\"]"}),
    ("verify", {"ids": []}), ("verify", {"ids": [f"p{LONE}"]}), ("verify", {"expectedLinks": [{"from": "p"}]}),
    ("source_check", {"sources": [{"key": "k", "size": "3"}]}), ("source_check", {"sources": [{"key": LONE}]}),
    ("history", {"id": "p"}), ("history", {"limit": 0}), ("revision", {"id": "p", "sequence": 10**9}),
    ("revision", {"id": "p", "sequence": 2**53}), ("mutation", {"requestId": request_id(7)}),
    ("mutation", {"requestId": "7"}), ("mutation", {"requestId": request_id(7), "charOffset": 1}),
    ("evidence_read", {"id": "c", "path": "artifacts/x/y", "sha256": "0" * 64}),
    ("evidence_read", {"id": "c", "path": "/etc/passwd", "sha256": "0" * 64}),
    ("evidence_read", {"id": "c", "path": "artifacts/x/y", "sha256": "0" * 16}),
    ("attachment", {"id": "c", "path": "artifacts/../y", "sha256": "0" * 64, "offset": -1}),
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_a_read_is_answered_or_refused_alike_at_every_door(doors: Doors, number: int) -> None:
    operation, arguments = CALLS[number]
    said = doors.ask(f"knowledge_{operation}", arguments)
    first = said.pop("python")
    for door, answer in said.items():
        assert answer == first, door


def test_the_calls_reach_every_read() -> None:
    reads = {spec.operation for spec in CATALOGUE.values() if spec.action == "read"}
    assert {operation for operation, _ in CALLS} == reads - {"status"}  # which changes by itself


def test_text_that_cannot_be_stored_is_refused_with_the_fields_path_at_every_door(doors: Doors) -> None:
    for text in ("a\0b", f"a{LONE}", "\udfffb"):
        for tool, arguments, field in (
            ("grep", {"query": text}, "query"),
            ("lookup", {"query": text}, "query"),
            ("records", {"match": text}, "match"),
            ("timeline", {"subject": text}, "subject"),
            ("verify", {"ids": ["p", text]}, "ids[1]"),
            ("source_check", {"sources": [{"key": "k"}, {"key": text}]}, "sources[1].key"),
        ):
            for door, answer in doors.ask(f"knowledge_{tool}", arguments).items():
                refused = answer["refused"]
                assert isinstance(refused, dict)
                assert (refused["code"], refused["field"]) == ("invalid_argument", field), door
