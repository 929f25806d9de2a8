"""What the pump must know of the protocols whose lines it copies. Standard library only."""

from __future__ import annotations

import json

from host_bridge.mcp_greeting import greeting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from host_bridge.owner.client import OwnerError
    from messages.json_types import JsonObject, JsonValue


class McpDialect:
    """What the pump must know of MCP."""

    call = "tools/call"
    initialized = "notifications/initialized"
    cancelled = "notifications/cancelled"
    shutdown = None  # an MCP client ends by closing its end

    def __init__(self, profile: str | None) -> None:
        self._profile = profile

    def greeting(self, params: JsonValue) -> JsonObject | None:
        """The answer to ``initialize`` without an owner; None when only an owner can tell."""
        return greeting(params, self._profile)

    def failed_call(self, error: OwnerError, handshake: bool) -> JsonObject:
        """The answer to a tool call that has none: a result that says so, since models see results."""
        text = json.dumps(error.to_json(), ensure_ascii=False, separators=(",", ":"))
        result: JsonObject = {"content": [{"type": "text", "text": text}], "isError": True}
        return {"result": result if handshake else {**result, "resultType": "complete"}}


class HostDialect:
    """What the pump must know of the host protocol."""

    call = "tools.call"
    initialized = None
    cancelled = None  # a cancelled call is still answered
    shutdown = "shutdown"

    def greeting(self, params: JsonValue) -> JsonObject | None:
        return None

    def failed_call(self, error: OwnerError, handshake: bool) -> JsonObject:
        return {"error": {"code": -32000, "message": error.message, "data": error.to_json()}}
