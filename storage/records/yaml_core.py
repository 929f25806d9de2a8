"""YAML 1.2 core values from libyaml's event stream, with the place of every key.

The C scanner gives events; this module composes them itself, because PyYAML's constructors follow YAML 1.1 (``yes``
is a boolean there, ``012`` is octal, a date becomes an object) and silently keep the last of two equal keys. Anchors,
aliases and tags end the reading at once, so an alias bomb is never expanded, and so does nesting beyond the limit.

Source: decisions.md section 2 (YAML 1.2 core rules).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

from messages.json_types import JsonValue
from messages.vocabulary import FRONTMATTER_MAX_DEPTH
from storage.records.findings import Finding

Path: TypeAlias = tuple[str | int, ...]

CORE_WORDS: Final[Mapping[str, bool | None]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip

INTEGER: Final = re.compile(r"[-+]?[0-9]+")
FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_OCTAL: Final = re.compile(r"0o[0-7]+")
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]+")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")

# YAML 1.1 breaks lines at these three, YAML 1.2 does not; libyaml only knows 1.1. They travel as private-use stand-ins.
_OLD_BREAKS: Final = "\x85\u2028\u2029"
_STAND_INS: Final = range(0xE000, 0xF8FF)

_INT64: Final = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Span:
    """Where one top-level entry lies, as character offsets: its key, its value, and the value's own style."""

    key_start: int
    value_start: int
    end: int
    block_scalar: bool


@dataclass(slots=True)
class Loaded:
    """The values of one document; ``value`` is meaningful only when ``broken`` is ``None``."""

    value: JsonValue = None
    broken: Finding | None = None
    findings: list[Finding] = field(default_factory=list)
    spans: dict[str, Span] = field(default_factory=dict)
    lines: dict[Path, int] = field(default_factory=dict)
    flow_root: tuple[int, int] | None = None
    """Start and end of a root written as ``{...}``; ``None`` for a block."""


class _Broken(Exception):
    def __init__(self, finding: Finding) -> None:
        self.finding = finding


def shown(path: Path) -> str:
    """``("evidence", 0, "path")`` as ``evidence[0].path``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text


def resolve_plain(text: str) -> tuple[JsonValue, bool]:
    """The value of a plain scalar under the core schema, and whether JSON can hold it as that.

    A number that JSON cannot hold (not finite, beyond 64 bits) stays its source text.
    """
    if text in CORE_WORDS:
        return CORE_WORDS[text], True
    if text[0] not in "+-.0123456789":
        return text, True
    if INTEGER.fullmatch(text):
        digits = text.lstrip("+-0")
        number = int(text) if len(digits) < 20 else None
    elif _OCTAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
        number = int(text, 0) if len(text) < 32 else None
    elif FLOAT.fullmatch(text):
        value = float(text)
        return (text, False) if value in (float("inf"), float("-inf")) else (value, True)
    else:
        return text, _NOT_FINITE.fullmatch(text) is None
    return (text, False) if number is None or number not in _INT64 else (number, True)


def load(text: str) -> Loaded:
    """The one document in ``text`` under YAML 1.2 core rules. Never raises: what is wrong is a finding.

    ``text`` may begin with its ``---`` line; offsets and lines then count from there.
    """
    loaded = Loaded()
    source, stand_ins = _without_old_breaks(text)
    reader = _Reader(source, stand_ins, loaded)
    try:
        loaded.value = reader.document()
    except _Broken as broken:
        loaded.broken = broken.finding
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else _reader_line(source, error)
        problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML")
        if "nesting" in problem:  # the scanner looks ahead, and has a limit of its own far beyond ours
            message = f"Values are nested deeper than {FRONTMATTER_MAX_DEPTH} levels."
            loaded.broken = Finding("yaml_depth", "", message, line=line)
            return loaded
        loaded.broken = Finding("yaml_syntax", "", f"The YAML cannot be read: {problem}.", line=line)
    return loaded


def _reader_line(source: str, error: yaml.YAMLError) -> int | None:
    position = getattr(error, "position", None)
    return source.count("\n", 0, position) + 1 if isinstance(position, int) else None


def _without_old_breaks(text: str) -> tuple[str, dict[int, str]]:
    """``text`` with stand-ins for what libyaml would read as line ends, and the table that undoes it."""
    if text.isascii() or not any(mark in text for mark in _OLD_BREAKS):
        return text, {}
    free = (code for code in _STAND_INS if chr(code) not in text)
    forth = {ord(mark): chr(code) for mark, code in zip(_OLD_BREAKS, free, strict=False)}
    return text.translate(forth), {ord(stand_in): chr(mark) for mark, stand_in in forth.items()}


class _Reader:
    """One pass over the events of one document."""

    def __init__(self, source: str, stand_ins: dict[int, str], loaded: Loaded) -> None:
        self._events = iter(yaml.parse(source, Loader=yaml.CSafeLoader))
        self._stand_ins = stand_ins
        self._loaded = loaded
        self._last = 0  # end of the last scalar or flow collection: collection ends themselves are marked past comments
        self._last_was_block_scalar = False

    def document(self) -> JsonValue:
        value: JsonValue = None
        for event in self._events:
            match event:
                case StreamStartEvent():
                    continue
                case StreamEndEvent():
                    return value
                case DocumentStartEvent():
                    if event.version is not None or event.tags:
                        raise _broken("yaml_directive", (), "YAML directives are not read; remove them.", event)
                    value = self._node(next(self._events), (), 0)
                    end = next(self._events)
                    assert isinstance(end, DocumentEndEvent)
                    after = next(self._events)
                    if not isinstance(after, StreamEndEvent):
                        raise _broken("yaml_documents", (), "There is more than one YAML document; keep one.", after)
                    return value
        return value

    def _node(self, event: Event, path: Path, depth: int) -> JsonValue:
        if isinstance(event, AliasEvent):
            raise _broken("yaml_alias", path, "Aliases (*name) are not read; write the value out.", event)
        assert isinstance(event, ScalarEvent | SequenceStartEvent | MappingStartEvent)
        if event.anchor is not None:
            raise _broken("yaml_anchor", path, "Anchors (&name) are not read; remove the anchor.", event)
        if event.tag is not None:
            raise _broken("yaml_tag", path, "Tags (!name) are not read; remove the tag.", event)
        if isinstance(event, ScalarEvent):
            return self._scalar(event, path)
        if depth >= FRONTMATTER_MAX_DEPTH:
            raise _broken("yaml_depth", path, f"Values are nested deeper than {FRONTMATTER_MAX_DEPTH} levels.", event)
        if isinstance(event, SequenceStartEvent):
            return self._sequence(event, path, depth)
        return self._mapping(event, path, depth)

    def _scalar(self, event: ScalarEvent, path: Path) -> JsonValue:
        text: str = event.value
        if self._stand_ins:
            text = text.translate(self._stand_ins)
        # An empty plain scalar is marked at the next token, past any comment: it has no extent of its own.
        if _end(event) > _start(event):
            self._last = _end(event)
            self._last_was_block_scalar = event.style in ("|", ">")
        if event.style is not None and event.style != "":
            return text
        value, exact = resolve_plain(text)
        if not exact:
            message = "A number that JSON cannot hold (not finite, or beyond 64 bits) is kept as text."
            self._loaded.findings.append(Finding("yaml_number", shown(path), message, "note", _line(event)))
        return value

    def _sequence(self, start: SequenceStartEvent, path: Path, depth: int) -> JsonValue:
        values: list[JsonValue] = []
        for event in self._events:
            if isinstance(event, SequenceEndEvent):
                self._close(start.flow_style, event)
                break
            here = (*path, len(values))
            self._loaded.lines[here] = _line(event)
            values.append(self._node(event, here, depth + 1))
        return values

    def _mapping(self, start: MappingStartEvent, path: Path, depth: int) -> JsonValue:
        values: dict[str, JsonValue] = {}
        root = not path
        for event in self._events:
            if isinstance(event, MappingEndEvent):
                self._close(start.flow_style, event)
                if root and start.flow_style:
                    self._loaded.flow_root = (_start(start), _end(event))
                break
            key = self._key(event, path)
            here = (*path, key)
            if key in values:
                raise _broken("yaml_duplicate_key", here, "The key occurs twice; keep one of the two.", event)
            self._loaded.lines[here] = _line(event)
            self._last = _end(event)
            self._last_was_block_scalar = False
            following = next(self._events)
            value_start = _start(following)
            values[key] = self._node(following, here, depth + 1)
            if root:
                span = Span(_start(event), value_start, self._last, self._last_was_block_scalar)
                self._loaded.spans[key] = span
        return values

    def _key(self, event: Event, path: Path) -> str:
        value = self._node(event, path, FRONTMATTER_MAX_DEPTH) if isinstance(event, AliasEvent | ScalarEvent) else None
        if not isinstance(event, ScalarEvent):
            raise _broken("yaml_key", path, "A key must be text, not a list or mapping.", event)
        if isinstance(value, str):
            return value
        text: str = event.value
        message = "A key that reads as a number, boolean or null is taken as the text that stands there; quote it."
        self._loaded.findings.append(Finding("yaml_key", shown((*path, text)), message, "note", _line(event)))
        return text

    def _close(self, flow_style: bool | None, end: Event) -> None:
        if flow_style:
            self._last = _end(end)
            self._last_was_block_scalar = False


def _start(event: Event) -> int:
    assert event.start_mark is not None
    return event.start_mark.index


def _end(event: Event) -> int:
    assert event.end_mark is not None
    return event.end_mark.index


def _line(event: Event) -> int:
    assert event.start_mark is not None
    return event.start_mark.line + 1


def _broken(code: str, path: Path, message: str, event: Event) -> _Broken:
    return _Broken(Finding(code, shown(path), message, line=_line(event)))
