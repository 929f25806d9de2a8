"""``knowledge call``: one tool call through the owner. Standard library only, for a warm answer in 0.15 s."""

from __future__ import annotations

import json
import sys

from host_bridge.cli import exits, output
from host_bridge.cli.options import CALLER, STATE_DIR, UsageError, parse, state_dir
from host_bridge.owner.client import REQUEST_MAX_BYTES, Lost, OwnerError, reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from messages.json_types import JsonObject, JsonValue

_GRACE_SECONDS = 5.0  # the owner answers within the deadline and a quarter of a second; longer is silence
_OPTIONS = {**STATE_DIR, **CALLER, "--deadline-ms": True, "--json": False}


def run(arguments: Sequence[str]) -> int:
    options = parse(arguments, _OPTIONS, words=2)
    if not options.words:
        raise UsageError("name a tool, as in: knowledge call status")
    name = options.words[0]
    tool = name if name.startswith("knowledge_") else f"knowledge_{name}"
    deadline_ms = options.whole_number("--deadline-ms", 1, 600_000) or 30_000
    params: JsonObject = {
        "tool": tool,
        "arguments": _arguments(options.words[1] if len(options.words) > 1 else "{}"),
        "deadlineMs": deadline_ms,
    }
    compact = options.has("--json")
    try:
        result = _ask(state_dir(options), dict(options.caller()), params, deadline_ms)
    except OwnerError as error:
        return output.failure(error, compact=compact)
    output.emit(output.as_json(result, compact=compact))
    return exits.OK


def _ask(place: str, caller: JsonObject, params: JsonObject, deadline_ms: int) -> JsonValue:
    connection = reach(place, {"caller": caller})
    try:
        return connection.request("tools.call", params, deadline_ms / 1000 + _GRACE_SECONDS)
    except Lost:
        raise OwnerError(
            "restarting",
            "The owner ended before it answered. The call may have run; with the same requestId a repeat is harmless.",
            "unknown",
        ) from None
    except TimeoutError:
        raise OwnerError("deadline", "The owner did not answer by the deadline; the call may run.", "unknown") from None
    finally:
        connection.close()


def _arguments(text: str) -> JsonObject:
    if text == "-":
        given = sys.stdin.buffer.read(REQUEST_MAX_BYTES + 1)
        if len(given) > REQUEST_MAX_BYTES:
            raise UsageError(f"the arguments on stdin are longer than one request may be ({REQUEST_MAX_BYTES} bytes)")
        text = given.decode("utf-8", "surrogateescape")
    try:
        value = json.loads(text, parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_unique_members)
    except (ValueError, RecursionError) as error:
        where = f" at character {error.pos}: {error.msg}" if isinstance(error, json.JSONDecodeError) else ""
        raise UsageError(f"the arguments are not JSON{where or ': ' + _reason(error)}") from None
    if not isinstance(value, dict):
        raise UsageError('the arguments must be one JSON object, as in \'{"query": "budget"}\'')
    return value


def _no_number(name: str) -> float:
    raise _NoNumber(f"{name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise _NoNumber(f"{text[:40]} is beyond every number")
    return number


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deep"
    return str(error) if isinstance(error, _NoNumber | _DoubledName) else "a number has too many digits"


class _NoNumber(ValueError):
    """A constant of JavaScript, or a number that no double holds."""


class _DoubledName(ValueError):
    """One object holds a name twice, and nobody can say which of the two was meant."""


def _unique_members(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _DoubledName("a name stands twice in one object")
    return members
