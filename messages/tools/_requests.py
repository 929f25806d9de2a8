"""From a tool's name and raw arguments to a frozen request, and from a request to the hash of its payload."""

from __future__ import annotations

import difflib
import hashlib
import json
import uuid
from collections.abc import Mapping
from typing import Final

from messages.arguments import validate
from messages.coercion import parsed_json, shown_name
from messages.errors import InvalidArgument, UnknownTool
from messages.json_types import JsonValue
from messages.text import is_blank, text_fault
from messages.tools._base import ToolRequest, WriteRequest
from messages.tools.catalogue import CATALOGUE, ToolSpec

FLUSH_ID_MAX_CHARS: Final = 200

# The namespace of request ids that are derived during a flush; changing it would un-know every earlier flush.
_FLUSH_NAMESPACE: Final = uuid.UUID("8d7d2f3e-5b0c-4a53-9c7e-0f6f4a1f2b61")
_PLACEHOLDER: Final = str(uuid.UUID(int=0))


def tool_spec(name: str) -> ToolSpec:
    """The tool of that name; raises :class:`UnknownTool` with the nearest one."""
    spec = CATALOGUE.get(name) if isinstance(name, str) else None
    if spec is None:
        near = difflib.get_close_matches(shown_name(name), CATALOGUE, 1)
        hint = f"did you mean {near[0]}?" if near else "tools.list names all tools"
        raise UnknownTool(f"there is no tool of that name ({hint})", field="tool", allowed=list(CATALOGUE))
    return spec


def parse_arguments(tool: str, arguments: object, *, flush_id: str | None = None) -> ToolRequest:
    """The validated request of one call; ``arguments`` is raw JSON, and null counts as none.

    With ``flush_id`` the request id of a remember or a page save may be left out: it then follows from the flush
    and the claims' texts or the page's title, so that a repeat within the flush is the same request
    (memory-provider.md, Pre-compaction memory flush). Raises :class:`UnknownTool` and the errors of
    :func:`messages.arguments.validate`.
    """
    spec = tool_spec(tool)
    given = {} if arguments is None else parsed_json(arguments, "{")
    if flush_id is None or not isinstance(given, dict) or not _may_leave_out_id(spec, given):
        return validate(spec.request, given)
    _check_flush_id(flush_id)
    request = validate(spec.request, {**given, "requestId": _PLACEHOLDER})
    assert isinstance(request, WriteRequest)
    return request.model_copy(update={"request_id": flush_request_id(flush_id, request)})


def flush_request_id(flush_id: str, request: WriteRequest) -> str:
    """The stable UUID of a write within a flush: the same flush, tool and identifying texts give the same id."""
    name = json.dumps([flush_id, request.tool, request.flush_identity()], ensure_ascii=False, separators=(",", ":"))
    return str(uuid.uuid5(_FLUSH_NAMESPACE, name))


def canonical_payload(request: ToolRequest) -> bytes:
    """The request as sorted, compact JSON with its tool and schema version; members equal to their default dropped.

    The request id is the key under which the hash is kept and is left out. Equal numbers are written equally.
    """
    arguments = request.model_dump(by_alias=True, exclude_defaults=True, exclude={"request_id"})
    payload = {"arguments": _canonical(arguments), "schemaVersion": request.schema_version, "tool": request.tool}
    return json.dumps(payload, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def payload_hash(request: ToolRequest) -> str:
    """SHA-256 of :func:`canonical_payload`, lower-case hex (decisions.md section 4, Receipts)."""
    return hashlib.sha256(canonical_payload(request)).hexdigest()


def _may_leave_out_id(spec: ToolSpec, arguments: Mapping[str, object]) -> bool:
    if not issubclass(spec.request, WriteRequest) or spec.request.flush_identity is WriteRequest.flush_identity:
        return False
    return arguments.get("requestId") is None


def _check_flush_id(flush_id: str) -> None:
    too_long = len(flush_id) > FLUSH_ID_MAX_CHARS
    if too_long or text_fault(flush_id) is not None or is_blank(flush_id):
        form = f"visible text of at most {FLUSH_ID_MAX_CHARS} characters"
        raise InvalidArgument(f"flushId must be {form}", field="flushId", reason="malformed", allowed=form)


def _canonical(value: JsonValue) -> JsonValue:
    if isinstance(value, Mapping):
        return {key: _canonical(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(member) for member in value]
    # JSON knows one kind of number: a host that rewrites 5.0 as 5 repeats the same request.
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
