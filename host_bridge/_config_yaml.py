"""Reads one YAML 1.2 or JSON document into plain values, and remembers the line of every key.

Nothing here can run code or grow: anchors, aliases, tags and duplicate keys are refused, as is nesting beyond
20 levels, each with its line. Scalars follow the core schema: only ``true`` and ``false`` are booleans, ``no``
and ``03:30`` stay strings, ``010`` is ten.

Source: decisions.md section 1 (configuration) and section 2 (YAML rules).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import yaml

from messages.json_types import JsonValue

MAX_DEPTH: Final = 20

Location = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed document: its value, and the 1-based line of each key and list item by location."""

    value: JsonValue
    lines: Mapping[Location, int]

    def line_of(self, location: Location) -> int | None:
        """The line of ``location``, or of the nearest thing around it that the document holds."""
        for end in range(len(location), -1, -1):
            if location[:end] in self.lines:
                return self.lines[location[:end]]
        return None


class UnreadableDocument(Exception):
    """The text is not a document of the accepted subset; ``line`` is 1-based where it is known."""

    def __init__(self, message: str, line: int | None = None, location: Location = ()) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.location = location


class _CoreLoader(yaml.SafeLoader):
    """PyYAML's safe loader with the YAML 1.2 core schema in place of YAML 1.1."""


_SCALARS: Final[tuple[tuple[str, str, str, Callable[[str], JsonValue]], ...]] = (
    ("null", r"(?:~|null|Null|NULL|)", "~nN", lambda text: None),
    ("bool", r"(?:true|false)", "tf", lambda text: text == "true"),
    ("int", r"[-+]?[0-9]+", "-+0123456789", int),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+0123456789.", float),
)
_CoreLoader.yaml_implicit_resolvers = {}
for _name, _pattern, _first, _ in _SCALARS:
    first_characters = [*_first, ""] if _name == "null" else [*_first]
    _CoreLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), first_characters)

_BUILDERS: Final = {f"tag:yaml.org,2002:{name}": build for name, _, _, build in _SCALARS}
_TEXT: Final = "tag:yaml.org,2002:str"


def parse_document(text: str) -> Document:
    """The value and line numbers of one YAML or JSON document; an empty document is ``None``.

    Raises:
        UnreadableDocument: the first thing that is wrong, with its line.
    """
    exact: JsonValue = None
    is_json = False
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        try:
            exact, is_json = json.loads(text, object_pairs_hook=_unique_object), True
        except (json.JSONDecodeError, RecursionError):
            pass  # a flow mapping in YAML begins alike: the YAML parser has the last word
    if is_json:
        # JSON allows tabs between tokens, YAML does not; inside strings JSON allows none.
        text = text.replace("\t", " ")
    try:
        _check_events(text)
        node = _CoreLoader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise UnreadableDocument(str(error.problem or error.context), mark.line + 1 if mark else None) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UnreadableDocument(f"the character U+{int(error.character):04X} is not allowed", line) from None
    if node is None:
        return Document(None, {})
    lines: dict[Location, int] = {(): node.start_mark.line + 1}
    value = _build_value(node, (), lines)
    return Document(exact if is_json else value, lines)


def _unique_object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    # A duplicate is reported by the YAML walk, which knows its line.
    return dict(pairs)


def _check_events(text: str) -> None:
    """Refuse aliases, tags and depth on the flat event stream, before anything recursive sees the document."""
    depth = 0
    for event in yaml.parse(text, Loader=_CoreLoader):
        line = event.start_mark.line + 1 if event.start_mark else None
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise UnreadableDocument("anchors and aliases are not allowed", line)
        if getattr(event, "tag", None):
            raise UnreadableDocument("tags are not allowed", line)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise UnreadableDocument(f"nested deeper than {MAX_DEPTH} levels", line)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _build_value(node: yaml.Node, location: Location, lines: dict[Location, int]) -> JsonValue:
    if isinstance(node, yaml.ScalarNode):
        return node.value if node.tag == _TEXT else _BUILDERS[node.tag](node.value)
    if isinstance(node, yaml.SequenceNode):
        items: list[JsonValue] = []
        for index, child in enumerate(node.value):
            lines[(*location, index)] = child.start_mark.line + 1
            items.append(_build_value(child, (*location, index), lines))
        return items
    mapping: dict[str, JsonValue] = {}
    for key, child in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or key.tag != _TEXT:
            raise UnreadableDocument("a key must be a plain word or a quoted string", line, location)
        if key.value in mapping:
            raise UnreadableDocument(f"the key `{key.value}` stands twice", line, (*location, key.value))
        lines[(*location, key.value)] = line
        mapping[key.value] = _build_value(child, (*location, key.value), lines)
    return mapping
