"""What models send, made exact: nulls are absent, JSON in strings is parsed, unstorable text is refused.

Models and their hosts send ``null`` for "leave it out", arrays and objects as JSON text, and ``"5"`` for 5
(decisions.md section 5, "Nulls and strings from models"). All of it is undone here, before a payload is hashed.
Everything raised is a typed error that names the path and never repeats a value. Pure functions; any thread.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn, TypeAlias

from messages.errors import InvalidArgument, LimitExceeded
from messages.json_types import JsonObject, JsonValue
from messages.text import text_fault
from messages.vocabulary import REQUEST_MAX_BYTES

ARGUMENT_MAX_DEPTH: Final = 32
ARGUMENT_MAX_VALUES: Final = 200_000
INTEGER_MAX: Final = 2**63 - 1

TEXT_FAULTS: Final = {
    "nul": "contains a NUL character",
    "lone_surrogate": "contains half of a surrogate pair, which is not valid Unicode text",
}

# One step of the path that leads to a value, linked to its parent: pushing a child costs no copy.
_Step: TypeAlias = "tuple[_Step, str | int] | None"

_NAME: Final = re.compile(r"[A-Za-z0-9_$.-]{1,64}")
_JSON_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_JSON_INTEGER: Final = re.compile(r"(-?(?:0|[1-9][0-9]{0,18}))(?:\.0{1,18})?")


def shown_name(name: object) -> str:
    """``name`` where it is a plain identifier; a placeholder otherwise, since a key may hold anybody's text."""
    return name if isinstance(name, str) and _NAME.fullmatch(name) else "(unprintable name)"


def shown_path(path: Sequence[str | int]) -> str:
    """``("items", 2, "text")`` as ``items[2].text``."""
    shown = ""
    for part in path:
        if isinstance(part, int):
            shown += f"[{part}]"
        else:
            shown += f".{shown_name(part)}" if shown else shown_name(part)
    return shown


def joined(path: str, below: str) -> str:
    """``items`` and ``[2].text`` as ``items[2].text``, ``one`` and ``two`` as ``one.two``; either may be empty."""
    return f"{path}.{below}" if path and below and not below.startswith("[") else path + below


def check_json(value: object, under: str = "") -> None:
    """Prove that ``value`` is JSON that can be stored and bounded work for everything after it.

    Refuses NUL and lone surrogates (in keys too), NaN and infinities, integers beyond 64 bits, nesting beyond
    32, more than 200,000 values, more than 8 MiB, and anything that is no JSON value. Raises
    :class:`InvalidArgument` or :class:`LimitExceeded` with the path below ``under``. Never recurses.
    """
    size = count = 0
    stack: list[tuple[object, int, _Step]] = [(value, 1, None)]
    while stack:
        node, depth, step = stack.pop()
        if isinstance(node, str):
            _check_text(node, under, step)
            size += len(node) if node.isascii() else len(node.encode())
        elif node is None or isinstance(node, bool):
            pass
        elif isinstance(node, int):
            if not -INTEGER_MAX - 1 <= node <= INTEGER_MAX:
                _refuse(under, step, "out_of_range", "is beyond 64 bits", "a 64-bit integer")
        elif isinstance(node, float):
            if node - node != 0:
                _refuse(under, step, "not_a_number", "is not a finite number", "a finite number")
        elif isinstance(node, dict | list | tuple):
            if depth > ARGUMENT_MAX_DEPTH:
                _refuse(
                    under, step, "too_deep", f"is nested deeper than {ARGUMENT_MAX_DEPTH} levels", ARGUMENT_MAX_DEPTH
                )
            count += len(node)
            if count > ARGUMENT_MAX_VALUES:
                _too_large()
            if isinstance(node, dict):
                for key, child in node.items():
                    if not isinstance(key, str):
                        _refuse(under, step, "wrong_type", "has a key that is not a string", "string keys")
                    _check_text(key, under, (step, key))
                    size += len(key)
                    stack.append((child, depth + 1, (step, key)))
            else:
                stack.extend((child, depth + 1, (step, index)) for index, child in enumerate(node))
        else:
            _refuse(under, step, "wrong_type", "is not a JSON value", "a JSON value")
        if size > REQUEST_MAX_BYTES:
            _too_large()


def without_nulls(value: Mapping[str, JsonValue]) -> JsonObject:
    """The members of ``value`` that are not null."""
    return {key: member for key, member in value.items() if member is not None}


class DoubledName(ValueError):
    """An object of a JSON text holds one name twice; readers differ in which of the two they take."""


def unique_members(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    """The members of one object of a JSON text; :class:`DoubledName` when a name stands in it twice."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise DoubledName("a name stands twice in one object")
    return members


def parsed_json(value: object, opening: str) -> object:
    """The array or object that a string holds, or ``value`` itself when it holds neither.

    ``opening`` is ``[`` or ``{``. What was parsed is checked like every other argument, so text hidden behind
    escapes inside the string is refused too.
    """
    if not isinstance(value, str) or not value.lstrip().startswith(opening):
        return value
    try:
        found = json.loads(value, parse_constant=_refuse_constant, object_pairs_hook=unique_members)
    except (ValueError, RecursionError):
        return value
    check_json(found)
    return found


def as_integer(value: object) -> int | None:
    """The integer that ``5``, ``5.0``, ``"5"`` or ``"5.0"`` stands for; ``None`` for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str) and len(value) <= 64:
        match = _JSON_INTEGER.fullmatch(value.strip())
        return None if match is None else int(match[1])
    return None


def as_number(value: object) -> float | None:
    """The finite number that ``0.5`` or ``"0.5"`` stands for, as JSON writes numbers; ``None`` for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        if len(value) > 64 or _JSON_NUMBER.fullmatch(value.strip()) is None:
            return None
        value = float(value)
    if not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def as_boolean(value: object) -> bool | None:
    """The boolean that ``true`` or ``"true"`` stands for; ``None`` for anything else."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip())
    return None


def _check_text(text: str, under: str, step: _Step) -> None:
    fault = text_fault(text)
    if fault is not None:
        _refuse(under, step, fault, TEXT_FAULTS[fault], "Unicode text without NUL")


def _refuse(under: str, step: _Step, reason: str, what: str, allowed: JsonValue) -> NoReturn:
    tail: list[str | int] = []
    while step is not None:
        step, part = step
        tail.append(part)
    field = joined(under, shown_path(tail[::-1]))
    raise InvalidArgument(f"{field or 'arguments'} {what}", field=field, reason=reason, allowed=allowed)


def _too_large() -> NoReturn:
    raise LimitExceeded(
        f"the arguments exceed {REQUEST_MAX_BYTES} bytes or {ARGUMENT_MAX_VALUES} values; send less in one call",
        field="",
        reason="too_large",
        allowed={"bytes": REQUEST_MAX_BYTES, "values": ARGUMENT_MAX_VALUES},
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError("NaN and infinities are not JSON")
