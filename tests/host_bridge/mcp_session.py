"""One MCP session over a socket pair, line by line, in either era of the protocol."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from typing import Final, Literal

from host_bridge.mcp import McpHost, McpSession
from host_bridge.transport import LineReader, Outbox
from messages.audience import Audience, OwnerPrivate
from messages.json_types import JsonObject, JsonValue

Era = Literal["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
ERAS: Final[tuple[Era, ...]] = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
_OWNER: Final = OwnerPrivate("main")
_ENVELOPE: Final[JsonObject] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Served:
    """One MCP session of one host, opened in one of the two eras, and its raw lines."""

    def __init__(
        self,
        host: McpHost,
        era: Era = "2025-11-25",
        profile: str | None = None,
        audience: Audience = _OWNER,
    ) -> None:
        self.era = era
        self.ours, self.theirs = socket.socketpair()
        self.outbox = Outbox(self.ours.fileno(), name="test")
        self.session: McpSession = host.open(self.outbox, audience, profile)
        self._reader = LineReader(self.ours.fileno())
        self._thread = threading.Thread(target=self._feed)
        self._thread.start()
        self._answers = LineReader(self.theirs.fileno())
        self._lines = iter(self._answers)

    def _feed(self) -> None:
        for line in self._reader:
            self.session.feed(line)

    def send(self, line: bytes) -> None:
        self.theirs.sendall(line + b"\n")

    def request(self, request_id: JsonValue, method: str, params: JsonObject) -> None:
        if self.era == "2026-07-28":
            params = {**params, "_meta": {**_ENVELOPE, **mapping(params.get("_meta", {}))}}
        message: JsonObject = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        self.send(json.dumps(message).encode())

    def call(self, request_id: JsonValue, arguments: JsonValue, **more: JsonValue) -> None:
        self.request(request_id, "tools/call", {"name": "knowledge_status", "arguments": arguments, **more})

    def open(self) -> Mapping[str, JsonValue]:
        """The handshake, or ``server/discover`` in the newer era; its result."""
        client: JsonObject = {"name": "test", "version": "1"}
        if self.era == "2026-07-28":
            self.request("open", "server/discover", {})
        else:
            params: JsonObject = {"protocolVersion": self.era, "capabilities": {}, "clientInfo": client}
            self.request("open", "initialize", params)
        answer = self.answer()
        assert answer["id"] == "open"
        if self.era != "2026-07-28":
            self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return mapping(answer["result"])

    def result(self) -> Mapping[str, JsonValue]:
        return mapping(self.answer()["result"])

    def failure(self) -> Mapping[str, JsonValue]:
        """The facts of a result that is an error, in its one text block."""
        result = self.result()
        assert result["isError"] is True
        return mapping(json.loads(only_text(result)))

    def answer(self) -> JsonObject:
        line = next(self._lines)
        assert isinstance(line, bytes)
        message: JsonObject = json.loads(line)
        return message

    def close(self) -> None:
        self._reader.stop()
        self._thread.join()
        self.session.close()
        self.outbox.close()
        for end in (self.ours, self.theirs):
            end.close()
        self._reader.close()
        self._answers.close()


def only_text(result: Mapping[str, JsonValue]) -> str:
    """The text of a result that has exactly one block, and nothing that would hide it."""
    content = result["content"]
    assert isinstance(content, list)
    assert len(content) == 1
    assert set(content[0]) == {"type", "text"}
    assert content[0]["type"] == "text"
    assert set(result) <= {"content", "isError", "resultType", "_meta"}
    assert isinstance(content[0]["text"], str)
    return content[0]["text"]


def mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    assert isinstance(value, Mapping)
    return value
