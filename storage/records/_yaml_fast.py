"""A strict parser of the frontmatter that we emit: one ``key: <json>`` a line, ``  - <json>`` for list items.

It answers exactly what :mod:`storage.records.yaml_core` answers, or ``None`` when the text is outside the subset; a
differential test holds the two together. Everything below is about refusing: each test names a way in which JSON and
YAML part, and on any doubt the C loader decides.

Source: PERFORMANCE.md (frontmatter).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import orjson

from messages.json_types import JsonValue
from storage.records.yaml_core import CORE_WORDS, FLOAT, INTEGER

_PLAIN_ASCII: Final = bytes([0x0A, *range(0x20, 0x7F)])
# Raw C1 controls, old line breaks, byte order marks and non-characters: YAML refuses or folds them, JSON takes them.
_ODD: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_NUMBER_LIKE: Final = re.compile(r"0[xo][0-9a-fA-F]+|[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_MAX_KEY_CHARS: Final = 128  # libyaml gives up on a key of 1,024 source characters; six of them may make one
_MAX_BRACKETS: Final = 16  # below the nesting limit even if each of them were nested
_EXACT: Final = 10**15
_SPECIAL: Final = frozenset(CORE_WORDS)

_loads = orjson.loads


class _Outside(Exception):
    """The text is not in the subset."""


def parse(text: str) -> dict[str, JsonValue] | None:
    """The values of the lines between the fences, or ``None`` when the C loader must decide.

    ``text`` holds no fence, and its lines may end in LF or CRLF.
    """
    if not _is_tame(text):
        if "\r" not in text:
            return None
        text = text.replace("\r\n", "\n")
        if not _is_tame(text):
            return None
    try:
        return _lines(text)
    except (_Outside, orjson.JSONDecodeError):
        return None


def _is_tame(text: str) -> bool:
    if text.isascii():
        tame = not text.encode().translate(None, _PLAIN_ASCII)
    else:
        tame = text.replace("\n", "").isprintable() or _ODD.search(text) is None
    return tame and ("\\u" not in text or _SURROGATE_ESCAPE.search(text) is None)


def _lines(text: str) -> dict[str, JsonValue]:
    values: dict[str, JsonValue] = {}
    items: list[JsonValue] | None = None
    key_of_items = ""
    keys = 0
    for line in text.split("\n"):
        key, colon, value = line.partition(": ")
        if colon and key.isidentifier():
            first = value[:1]
            if first == '"':
                values[key] = _loads(value)
            else:
                values[key] = _value(first, value)
            items = None
        elif line.startswith("  - "):
            if items is None:
                raise _Outside
            value = line[4:]
            items.append(_value(value[:1], value))
            if len(items) == 1:
                values[key_of_items] = items
            continue
        elif line.endswith(":") and (key := line[:-1]).isidentifier():
            key_of_items = key
            values[key] = None
            items = []
        elif not line or line[0] == "#":
            continue
        else:
            raise _Outside
        keys += 1
        if key in _SPECIAL or len(key) > _MAX_KEY_CHARS or not key.isascii():
            raise _Outside
    if keys != len(values) or not keys:
        raise _Outside  # the same key twice, or nothing at all
    return values


def _value(first: str, text: str) -> JsonValue:
    """One value as it stands after ``key: `` or ``- ``."""
    if first == '"':
        return _string(text)
    if first == "[" or first == "{":
        return _collection(text)
    if not first.isalnum() or text[-1] == " " or ": " in text or text[-1] == ":" or " #" in text:
        raise _Outside
    if text in CORE_WORDS:
        return CORE_WORDS[text]
    if first.isdigit() and first.isascii() and _NUMBER_LIKE.fullmatch(text):
        return _number(text)
    return text


def _string(text: str) -> JsonValue:
    value: JsonValue = _loads(text)
    return value


def _number(text: str) -> JsonValue:
    if len(text) > 16:
        raise _Outside
    if INTEGER.fullmatch(text):
        return int(text)
    if FLOAT.fullmatch(text):
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise _Outside
        return number
    raise _Outside


def _collection(text: str) -> JsonValue:
    mappings = text.count("{")
    if mappings + text.count("[") > _MAX_BRACKETS:
        raise _Outside
    value: JsonValue = _loads(text)
    entries = _entries(value)
    # Equal keys leave fewer entries than there are `":` in the text; blanks before a colon would hide one.
    if mappings and (" :" in text or text.count('":') != entries):
        raise _Outside
    return value


def _entries(value: JsonValue) -> int:
    """How many entries the mappings in ``value`` have; refuses keys and numbers on which the two readers part."""
    count = 0
    inner: Iterable[JsonValue]
    if isinstance(value, dict):
        count = len(value)
        for key in value:
            if len(key) > _MAX_KEY_CHARS:
                raise _Outside
        inner = value.values()
    else:
        assert isinstance(value, list)
        inner = value
    for item in inner:
        kind = type(item)
        if kind is str:
            continue
        if kind is dict or kind is list:
            count += _entries(item)
        elif isinstance(item, (int, float)) and not -_EXACT < item < _EXACT:
            raise _Outside  # orjson rounds an integer beyond 64 bits
    return count
