"""JSON-RPC 2.0 on one line: strict reading, compact writing, and how our errors look on the wire.

Reading never raises anything but :class:`Malformed`, whatever the bytes are: bad UTF-8, NaN, numbers no double can
hold, nesting without end. Lone surrogates pass, so that the tool can refuse them by their field.

Source: decisions.md section 7; HOSTS.md section 1.3.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

import orjson

from messages.errors import KnowledgeError
from messages.host import INVALID_PARAMS, INVALID_REQUEST, KNOWLEDGE_ERROR, PARSE_ERROR, error_object
from messages.json_types import JsonObject, JsonValue

MAX_DEPTH: Final = 64
ID_RULE: Final = '"id" must be an integer or a string of at most 256 characters that UTF-8 can carry.'
_ID_MAX_CHARS: Final = 256
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

RequestId: TypeAlias = str | int


class Malformed(Exception):
    """A line that is no request we can run; ``number`` and ``request_id`` say how to answer it."""

    def __init__(
        self, number: int, message: str, request_id: RequestId | None = None, data: JsonObject | None = None
    ) -> None:
        super().__init__(message)
        self.number = number
        self.message = message
        self.request_id = request_id
        self.data = data

    def to_line(self) -> bytes:
        return error_line(self.request_id, self.number, self.message, self.data)


@dataclass(frozen=True, slots=True)
class Request:
    id: RequestId
    method: str
    params: JsonObject


@dataclass(frozen=True, slots=True)
class Notification:
    method: str
    params: JsonObject


@dataclass(frozen=True, slots=True)
class Response:
    """An answer to something we never asked: it is ignored."""


Message: TypeAlias = Request | Notification | Response


def parse_json(line: bytes) -> JsonValue:
    """The JSON value of a line; :class:`Malformed` with -32700, or -32600 for nesting beyond ``MAX_DEPTH`` and for a
    name that stands twice in one object: which of the two was meant, nobody can say."""
    doubled = False

    def members(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
        nonlocal doubled
        found = dict(pairs)
        doubled = doubled or len(found) != len(pairs)
        return found

    try:
        value: JsonValue = json.loads(
            line.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=members
        )
    except UnicodeDecodeError as error:
        raise Malformed(PARSE_ERROR, f"The line is not UTF-8 (byte {error.start}).") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise Malformed(PARSE_ERROR, f"The line is not JSON ({_reason(error)}).") from None
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise _too_deep(id_of(value))
    _require_unique(doubled, value)
    return value


def _require_unique(doubled: bool, value: JsonValue) -> None:
    if doubled:
        raise Malformed(INVALID_REQUEST, "A name stands twice in one object of the JSON.", id_of(value))


def unwrapped(arguments: JsonValue) -> JsonValue:
    """The object inside arguments that came as a string holding one, as some hosts send them (HOSTS.md section 2,
    row 4); anything else as it is."""
    if not isinstance(arguments, str):
        return arguments
    try:
        inner = parse_json(arguments.encode("utf-8", "surrogatepass"))
    except Malformed:
        return arguments
    return inner if isinstance(inner, Mapping) else arguments


def parse_message(line: bytes) -> Message:
    """The request, notification or response on a line; raises :class:`Malformed`."""
    value = parse_json(line)
    if isinstance(value, list):
        raise Malformed(INVALID_REQUEST, "Batches are not supported: send one JSON object a line.")
    if not isinstance(value, Mapping):
        raise Malformed(INVALID_REQUEST, "A request is a JSON object.")
    request_id = id_of(value)
    if value.get("jsonrpc") != "2.0":
        raise Malformed(INVALID_REQUEST, '"jsonrpc" must be "2.0".', request_id)
    if "method" not in value and ("result" in value or "error" in value):
        return Response()
    method = value.get("method")
    if not isinstance(method, str):
        raise Malformed(INVALID_REQUEST, '"method" must be a string.', request_id)
    if "id" in value and request_id is None:
        raise Malformed(INVALID_REQUEST, ID_RULE)
    params = value.get("params", {})
    if not isinstance(params, Mapping):
        raise Malformed(INVALID_PARAMS, '"params" must be an object.', request_id, _invalid("params"))
    if request_id is None:
        return Notification(method, dict(params))
    return Request(request_id, method, dict(params))


def dump(value: JsonValue) -> bytes:
    """Compact UTF-8 JSON on one line. A lone surrogate, which no UTF-8 can carry, becomes a question mark."""
    try:
        return orjson.dumps(value)
    except TypeError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)
        return text.encode("utf-8", "replace")


def result_line(request_id: RequestId, result: JsonValue) -> bytes:
    return dump({"jsonrpc": "2.0", "id": request_id, "result": result})


def notification_line(method: str, params: JsonObject) -> bytes:
    """Something told that nobody asked for."""
    return dump({"jsonrpc": "2.0", "method": method, "params": params})


def error_line(request_id: RequestId | None, number: int, message: str, data: JsonObject | None = None) -> bytes:
    error: JsonObject = {"code": number, "message": message}
    if data is not None:
        error["data"] = data
    return dump({"jsonrpc": "2.0", "id": request_id, "error": error})


def refusal_line(request_id: RequestId | None, error: KnowledgeError) -> bytes:
    """A typed error on the wire."""
    return dump({"jsonrpc": "2.0", "id": request_id, "error": error_object(error)})


def id_of(value: JsonValue) -> RequestId | None:
    """The id, when it is one that we can echo exactly: JSON-RPC's fractions, nulls and lone surrogates are not."""
    found = value.get("id") if isinstance(value, Mapping) else None
    if isinstance(found, bool):
        return None
    if isinstance(found, int):
        return found
    if isinstance(found, str) and len(found) <= _ID_MAX_CHARS and not _SURROGATE.search(found):
        return found
    return None


def _invalid(field: str) -> JsonObject:
    return {"code": "invalid_argument", "retry": "never", "field": field}


def _too_deep(request_id: RequestId | None = None) -> Malformed:
    data: JsonObject = {"code": "limit_exceeded", "retry": "never", "limit": MAX_DEPTH}
    message = f"The JSON is nested deeper than {MAX_DEPTH} levels."
    return Malformed(INVALID_REQUEST if request_id is None else KNOWLEDGE_ERROR, message, request_id, data)


def _deeper_than(value: JsonValue, limit: int) -> bool:
    level: list[JsonValue] = [value]
    for _ in range(limit + 1):
        below: list[JsonValue] = []
        for item in level:
            if isinstance(item, Mapping):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return False
        level = below
    return any(isinstance(item, Mapping | list) for item in level)


def _reason(error: ValueError) -> str:
    """Where the reader stopped, and never what stood there."""
    if isinstance(error, json.JSONDecodeError):
        return f"character {error.pos}: {error.msg}"
    return "a number is out of range"


def _no_constant(name: str) -> NoReturn:
    raise json.JSONDecodeError(f"{name} is no JSON number", "", 0)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("out of range")
    return number


def _plain(value: object) -> JsonValue:
    raise TypeError(f"not JSON: {type(value).__name__}")
