"""Changing who uses which named store in a configuration's text, and nothing else of it.

Guarantees: the new text reads as the old configuration with exactly the wanted membership, or there is none; every
byte outside the lists of agents that change, and outside a store that is added, stays: comments, order, quotes, line
ends. A text in a form that cannot be edited so is refused with what to write by hand.

Source: stores-and-access.md (Stores, Manage stores): moves edit the ``stores`` section.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from host_bridge._config_model import NamedStore
from host_bridge.config import Configuration, parse_configuration
from messages.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class _Splice:
    """``text`` in the place of the characters from ``start`` to ``end``."""

    start: int
    end: int
    text: str


def with_stores(text: str, wanted: Mapping[str, NamedStore]) -> str:
    """``text`` with these named stores. Stores are added and lists of agents replaced; none is taken out.

    Raises ``InvalidArgument``: the text is no valid configuration now, or cannot be edited.
    """
    current = parse_configuration(text)
    if dict(current.stores) == dict(wanted):
        return text
    try:
        edited = _edited(text, current, wanted)
        meant = current.model_copy(update={"stores": dict(wanted)})
        if parse_configuration(edited) == meant:
            return edited
    except (InvalidArgument, _Unable, yaml.YAMLError):
        pass
    raise InvalidArgument(
        "The `stores` section of knowledge.yaml is written in a form that is not edited for you. Nothing was changed; "
        f"write this membership there yourself: stores: {_shown(wanted)}",
        field="stores",
        reason="not_editable",
    )


class _Unable(Exception):
    """The text has a form that is not edited."""


def _edited(text: str, current: Configuration, wanted: Mapping[str, NamedStore]) -> str:
    lead = "\ufeff" if text.startswith("\ufeff") else ""
    body = text.removeprefix("\ufeff")
    # JSON allows tabs between tokens, YAML does not; only the places of the nodes are taken from here.
    root = yaml.compose(body.replace("\t", " "), Loader=yaml.SafeLoader)
    if root is None:
        return lead + _appended(body, f"stores:{_block(wanted, 2)}")
    if not isinstance(root, yaml.MappingNode):
        raise _Unable
    stores = _value(root, "stores")
    added = {name: store for name, store in wanted.items() if name not in current.stores}
    changed = {
        name: store
        for name, store in wanted.items()
        if name in current.stores and store.agents != current.stores[name].agents
    }
    splices: list[_Splice] = []
    if stores is None:
        splices.append(_new_member(body, root, "stores", added))
    elif not isinstance(stores[1], yaml.MappingNode) or not stores[1].value:
        # An empty section, or one without a value.
        splices.append(_Splice(stores[0].end_mark.index, _end(body, stores), f": {_shown(added)}"))
    else:
        splices += [_agents(body, stores[1], name, store) for name, store in changed.items()]
        splices += [_new_store(body, stores[1], added)] if added else []
    for splice in sorted(splices, key=lambda one: one.start, reverse=True):
        body = body[: splice.start] + splice.text + body[splice.end :]
    return lead + body


def _value(node: yaml.MappingNode, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value == name:
            return key, value
    return None


def _agents(text: str, stores: yaml.MappingNode, name: str, store: NamedStore) -> _Splice:
    """The list of one store's agents, in flow style."""
    found = _value(stores, name)
    if found is None or not isinstance(found[1], yaml.MappingNode):
        raise _Unable
    member = _value(found[1], "agents")
    if member is None:
        if not found[1].value:
            return _Splice(found[0].end_mark.index, _end(text, found), f": {_members(store)}")
        return _new_member(text, found[1], "agents", store)
    return _Splice(member[0].end_mark.index, _end(text, member), f": {json.dumps(list(store.agents))}")


def _end(text: str, pair: tuple[yaml.Node, yaml.Node]) -> int:
    """Where the value of a member really ends: a block's own mark stands after what follows it."""
    key, node = pair
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    if isinstance(node, yaml.ScalarNode) and node.start_mark.index == node.end_mark.index:
        # No value at all: its mark may stand anywhere after the colon.
        after = key.end_mark.index
        return text.index(":", after) + 1
    return int(node.end_mark.index)


def _new_store(text: str, stores: yaml.MappingNode, added: Mapping[str, NamedStore]) -> _Splice:
    if stores.flow_style:
        members = ", ".join(f"{json.dumps(name, ensure_ascii=False)}: {_members(s)}" for name, s in added.items())
        return _before_brace(text, stores, members)
    first = stores.value[0][0]
    return _after_last(text, stores, _lines(added, first.start_mark.column, _line_end(text)))


def _new_member(
    text: str, node: yaml.MappingNode, name: str, content: Mapping[str, NamedStore] | NamedStore
) -> _Splice:
    shown = json.dumps(list(content.agents)) if isinstance(content, NamedStore) else _shown(content)
    if node.flow_style:
        return _before_brace(text, node, f'"{name}": {shown}')
    end = _line_end(text)
    indent = node.value[0][0].start_mark.column
    if isinstance(content, NamedStore):
        line = " " * indent + f"{name}: {shown}" + end
    else:
        line = " " * indent + f"{name}:" + end + _lines(content, indent + 2, end)
    return _after_last(text, node, line)


def _before_brace(text: str, node: yaml.MappingNode, member: str) -> _Splice:
    """After the last member of a mapping in braces."""
    if not node.value:
        at = node.start_mark.index + 1
        return _Splice(at, at, member)
    at = _end(text, node.value[-1])
    return _Splice(at, at, f", {member}")


def _after_last(text: str, node: yaml.MappingNode, lines: str) -> _Splice:
    """On lines of their own below the last member of a block."""
    at = _end(text, node.value[-1])
    newline = text.find("\n", at)
    if newline < 0:
        return _Splice(len(text), len(text), _line_end(text) + lines)
    return _Splice(newline + 1, newline + 1, lines)


def _appended(text: str, lines: str) -> str:
    end = _line_end(text)
    gap = "" if not text or text.endswith("\n") else end
    return text + gap + lines.replace("\n", end) + end


def _block(stores: Mapping[str, NamedStore], indent: int) -> str:
    return "\n" + _lines(stores, indent, "\n").rstrip("\n")


def _lines(stores: Mapping[str, NamedStore], indent: int, end: str) -> str:
    names = ((json.dumps(name, ensure_ascii=False), store) for name, store in stores.items())
    return "".join(f"{' ' * indent}{name}: {_members(store)}{end}" for name, store in names)


def _shown(stores: Mapping[str, NamedStore]) -> str:
    return "{" + ", ".join(f"{json.dumps(n, ensure_ascii=False)}: {_members(s)}" for n, s in stores.items()) + "}"


def _members(store: NamedStore) -> str:
    label = "" if store.label is None else f'"label": {json.dumps(store.label, ensure_ascii=False)}, '
    return "{" + f'{label}"agents": {json.dumps(list(store.agents))}' + "}"


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


__all__ = ["with_stores"]
