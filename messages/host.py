"""The host protocol ``knowledge-host/1``: the parameters of each method, its results, and errors as JSON-RPC objects.

Framing, concurrency and transport belong to the doors; here is what may be said (decisions.md section 7). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from messages.arguments import Arguments, validate
from messages.errors import InvalidArgument, KnowledgeError
from messages.json_types import JsonObject
from messages.pieces import Choice, Integer, RawJson, Text
from messages.schemas import PROFILES, TOOL_FORMATS, Profile, ToolFormat
from messages.tools import CATALOGUE
from messages.vocabulary import (
    DEADLINE_DEFAULT_MS,
    DEADLINE_MAX_MS,
    PROTOCOL,
    REMEMBER_MAX_ITEMS,
    REQUEST_MAX_BYTES,
    VAULT_FORMAT,
)

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
KNOWLEDGE_ERROR: Final = -32000

RECALL_TOOLS: Final = ("knowledge_grep", "knowledge_lookup", "knowledge_record")
SOURCES: Final = ("memory",)

_Word: TypeAlias = Annotated[str, Text(max_units=200, one_line=True)]
_Raw: TypeAlias = Annotated[Any, RawJson()]


class HostName(Arguments):
    """Who is at the other end, for logs and status."""

    name: _Word
    version: _Word


class InitializeParams(Arguments):
    """The first request of a connection; another protocol is refused with the one we speak."""

    protocol: Annotated[Literal["knowledge-host/1"], Choice(PROTOCOL)]
    host: HostName


class ShutdownParams(Arguments):
    """No parameters: answered after the drain."""


class ToolsListParams(Arguments):
    """Which tools, in which shape; all of them unless a profile is named."""

    format: Annotated[ToolFormat, Choice(*TOOL_FORMATS)]
    profile: Annotated[Profile, Choice(*PROFILES)] | None = None


class ToolsCallParams(Arguments):
    """One tool call. ``arguments`` and ``audience`` are raw: ``parse_arguments`` and ``parse_audience`` read them."""

    tool: _Word
    arguments: _Raw = None
    audience: _Raw = None
    deadline_ms: Annotated[int, Integer(1, DEADLINE_MAX_MS)] = DEADLINE_DEFAULT_MS
    flush_id: _Word | None = None


class CancelParams(Arguments):
    """Cancel the request of that id; a write after its journal commit still gives its normal answer."""

    id: _Raw = Field()


HostParams: TypeAlias = InitializeParams | ShutdownParams | ToolsListParams | ToolsCallParams | CancelParams

METHODS: Final[Mapping[str, type[HostParams]]] = MappingProxyType(
    {
        "initialize": InitializeParams,
        "shutdown": ShutdownParams,
        "tools.list": ToolsListParams,
        "tools.call": ToolsCallParams,
        "$/cancel": CancelParams,
    }
)


def parse_params(method: str, params: object) -> HostParams:
    """The validated parameters of one of :data:`METHODS`; absent ones count as none.

    Raises ``KeyError`` for another method (the peer answers -32601), :class:`InvalidArgument` and its like otherwise.
    """
    found = validate(METHODS[method], {} if params is None else params)
    if isinstance(found, CancelParams) and (isinstance(found.id, bool) or not isinstance(found.id, str | int)):
        form = "the id of an open request: a string or an integer"
        raise InvalidArgument(f"id must be {form}", field="id", reason="wrong_type", allowed=form)
    return found


def initialize_result(*, server_version: str) -> JsonObject:
    """What the peer learns first: versions, limits with their units in their names, and capabilities."""
    return {
        "protocol": PROTOCOL,
        "server": {"name": "knowledge-runtime", "version": server_version},
        "vaultFormat": VAULT_FORMAT,
        "limits": {
            "requestBytes": REQUEST_MAX_BYTES,
            "deadlineMs": DEADLINE_MAX_MS,
            "deadlineDefaultMs": DEADLINE_DEFAULT_MS,
            "rememberItems": REMEMBER_MAX_ITEMS,
        },
        "capabilities": {
            "recallTools": [name for name in RECALL_TOOLS if name in CATALOGUE],
            "sources": list(SOURCES),
        },
    }


def error_object(error: KnowledgeError) -> JsonObject:
    """The ``error`` member of a response: -32602 for an invalid argument, -32000 for every other refusal."""
    number = INVALID_PARAMS if isinstance(error, InvalidArgument) else KNOWLEDGE_ERROR
    return {"code": number, "message": error.message, "data": error.to_data()}


def method_not_found() -> JsonObject:
    """The one error object without ``data``: the method's name is not repeated, and no code of ours applies."""
    return {"code": METHOD_NOT_FOUND, "message": "no such method"}
