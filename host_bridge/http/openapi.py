"""``GET /openapi.json``: the plain routes as OpenAPI 3.1, made from the tool table and the table of codes.

A tool's arguments are its exported schema, as an MCP client gets it; its answer is an object whose parts depend on the
tool; a refusal names its codes by status. What is in the document is served, and what the plain routes serve is in it.

Source: decisions.md section 7; the specification OpenAPI 3.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import host_bridge
from host_bridge.http.refusals import STATUS_OF
from host_bridge.http.tools_route import AUDIENCE_HEADER, DEADLINE_HEADER, FLUSH_HEADER
from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import DEADLINE_MAX_MS

OPENAPI: Final = "3.1.0"
DOOR_STATUSES: Final[Mapping[int, str]] = {
    401: "No bearer that counts: missing, unknown, revoked or expired.",
    408: "The body did not come in time.",
    413: "The body is larger than a request may be.",
    415: "The body is not JSON.",
    421: "The server is not addressed by that name.",
    429: "As many calls are open as this server takes at once; see Retry-After.",
}
"""What the door answers before a route is reached."""
_WORDS: Final[Mapping[int, str]] = {
    400: "The request cannot be read, or an argument is refused.",
    401: "The bearer does not count, or does not count any more.",
    403: "Whoever speaks may not do this.",
    404: "There is no such tool, or nothing of that id.",
    409: "What is there is not what the request expects.",
    413: "Something is larger than it may be.",
    422: "The evidence, or something it needs, does not hold.",
    429: "Too much is under way; see Retry-After.",
    500: "A defect of the runtime.",
    503: "The runtime cannot serve this now; see Retry-After.",
    504: "The deadline passed.",
    507: "The partition is full.",
}


def document(tools: Iterable[JsonObject]) -> JsonObject:
    """The document for these tools, in the shape ``mcp``."""
    paths: JsonObject = {}
    for tool in tools:
        paths[f"/v1/tools/{tool['name']}"] = {"post": _operation(tool)}
    paths |= {
        "/healthz": {"get": _plain("healthz", "Whether the process lives.", "Health", {200: "It lives."})},
        "/readyz": {
            "get": _plain(
                "readyz",
                "Whether a call would be served now.",
                "Readiness",
                {200: "It would.", 503: "It would not: starting, stopping, or full."},
            )
        },
    }
    return {
        "openapi": OPENAPI,
        "info": {
            "title": "Knowledge Runtime",
            "version": host_bridge.__version__,
            "description": "Tools of a trustworthy memory, one POST each. The host protocol is at /rpc, MCP at /mcp.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of an audience, or the host's key.",
                }
            },
            "schemas": {"Refusal": _refusal(), "Health": _HEALTH, "Readiness": _READINESS},
        },
        "security": [{"bearer": []}],
    }


def _operation(tool: JsonObject) -> JsonObject:
    schema = tool["inputSchema"]
    required = isinstance(schema, Mapping) and bool(schema.get("required"))
    return {
        "operationId": tool["name"],
        "summary": tool.get("title") or tool["name"],
        "description": tool["description"],
        "parameters": [_AUDIENCE, _DEADLINE, _FLUSH],
        "requestBody": {"required": required, "content": {"application/json": {"schema": schema}}},
        "responses": _responses(),
    }


def _responses() -> JsonObject:
    by_status: dict[int, list[str]] = {}
    for code, status in STATUS_OF.items():
        by_status.setdefault(status, []).append(code)
    shown: JsonObject = {
        "200": {"description": "The tool's answer.", "content": {"application/json": {"schema": {"type": "object"}}}}
    }
    for status in sorted({*by_status, *DOOR_STATUSES}):
        codes = by_status.get(status, [])
        words = _WORDS.get(status) or DOOR_STATUSES[status]
        named = f" Codes: {', '.join(sorted(codes))}." if codes else ""
        shown[str(status)] = {"description": f"{words}{named}", "content": _REFUSED}
    return shown


def _plain(operation: str, summary: str, schema: str, statuses: Mapping[int, str]) -> JsonObject:
    content: JsonObject = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {
        "operationId": operation,
        "summary": summary,
        "security": [],
        "responses": {
            **{str(status): {"description": words, "content": content} for status, words in statuses.items()},
            "421": {"description": DOOR_STATUSES[421], "content": _REFUSED},
        },
    }


def _refusal() -> JsonObject:
    return {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message", "retry"],
                "properties": {
                    "code": {"enum": sorted(STATUS_OF)},
                    "message": {"type": "string"},
                    "retry": {"enum": ["never", "safe", "unknown"]},
                },
            }
        },
        "additionalProperties": False,
    }


_REFUSED: Final[JsonObject] = {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
_HEALTH: Final[JsonObject] = {
    "type": "object",
    "required": ["status"],
    "properties": {"status": {"const": "ok"}},
    "additionalProperties": False,
}
_READINESS: Final[JsonObject] = {
    "type": "object",
    "required": ["ready"],
    "properties": {"ready": {"type": "boolean"}},
    "additionalProperties": False,
}


def _header(name: str, description: str, schema: JsonValue) -> JsonObject:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


_AUDIENCE: Final = _header(
    AUDIENCE_HEADER,
    "With the host's key: the audience that the host minted, as the JSON object of tools.call or a token.",
    {"type": "string", "minLength": 1},
)
_DEADLINE: Final = _header(
    DEADLINE_HEADER,
    "Milliseconds until the answer must be there (30,000).",
    {"type": "integer", "minimum": 1, "maximum": DEADLINE_MAX_MS},
)
_FLUSH: Final = _header(
    FLUSH_HEADER, "The flush in whose course this saves.", {"type": "string", "minLength": 1, "maxLength": 200}
)

__all__ = ["DOOR_STATUSES", "document"]
