"""Tool lists for hosts: flat JSON schemas, written from the request models in the dialect that every host accepts.

No ``$ref``, no union, no ``title``, ``format``, ``default`` or ``const`` at any depth; every node has a type, every
object lists its properties and refuses others. An optional argument is one that ``required`` does not name. The
``openai-strict`` form is the one exception that its rules force: everything required, optional as ``[T, "null"]``,
and the free map ``fields`` as JSON text (which requests accept anyway).

Bounds in a schema are hints for models; requests are checked again by our own code. Pure; the same bytes every run.
Source: HOSTS.md sections 0, 2 and 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

from messages.arguments import Arguments, field_type, required_names, unwrap
from messages.errors import InvalidArgument
from messages.json_types import JsonObject
from messages.pieces import FieldMap, Items, Piece
from messages.tools import CATALOGUE, ToolSpec

ToolFormat: TypeAlias = Literal["mcp", "openai", "openai-strict", "anthropic"]
Profile: TypeAlias = Literal["simple", "read", "core", "full"]

TOOL_FORMATS: Final = ("mcp", "openai", "openai-strict", "anthropic")
PROFILES: Final = ("simple", "read", "core", "full")
DEFAULT_PROFILE: Final = "core"

_SIMPLE: Final = frozenset({"knowledge_grep", "knowledge_remember"})
_FIELDS_AS_TEXT: Final = "A JSON object, written as text."


def input_schema(model: type[Arguments]) -> JsonObject:
    """The arguments of ``model`` as one flat object schema."""
    properties: JsonObject = {}
    for name, info in model.model_fields.items():
        properties[_alias(model, name)] = _described(_node(*field_type(model, name)), info.description)
    return _closed_object(properties, list(required_names(model)))


def strict_schema(model: type[Arguments]) -> JsonObject:
    """The same for OpenAI's strict mode: all properties required, optional ones nullable, no free map."""
    properties: JsonObject = {}
    for name, info in model.model_fields.items():
        inner, piece = field_type(model, name)
        node = _strict_node(inner, piece)
        if not info.is_required():
            node["type"] = [node["type"], "null"]
            if isinstance(words := node.get("enum"), list):
                node["enum"] = [*words, None]
        text = (
            f"{_FIELDS_AS_TEXT} {info.description or ''}".strip() if isinstance(piece, FieldMap) else info.description
        )
        properties[_alias(model, name)] = _described(node, text)
    return _closed_object(properties, list(properties))


def profile_tools(profile: str | None = None) -> tuple[ToolSpec, ...]:
    """The tools of a profile in catalogue order; all of them without one. Raises :class:`InvalidArgument`."""
    if profile is None or profile == "full":
        return tuple(CATALOGUE.values())
    chosen: Mapping[str, Callable[[ToolSpec], bool]] = {
        "simple": lambda spec: spec.name in _SIMPLE,
        "read": lambda spec: spec.annotations.read_only,
        "core": lambda spec: spec.core,
    }
    if profile not in chosen:
        raise _not_allowed("profile", PROFILES)
    return tuple(spec for spec in CATALOGUE.values() if chosen[profile](spec))


def export_tools(format: str, profile: str | None = None) -> list[JsonObject]:
    """The tools of ``profile`` in the shape that ``format`` expects. Raises :class:`InvalidArgument`."""
    if format not in _EXPORTERS:
        raise _not_allowed("format", TOOL_FORMATS)
    specs = profile_tools(profile)
    tools = [_EXPORTERS[format](spec) for spec in specs]
    if format == "anthropic" and any(not spec.core for spec in specs) and any(spec.core for spec in specs):
        for spec, tool in zip(specs, tools, strict=True):
            if not spec.core:
                tool["defer_loading"] = True
    return tools


def _mcp(spec: ToolSpec) -> JsonObject:
    hints = spec.annotations
    return {
        "name": spec.name,
        "description": spec.description,
        "inputSchema": input_schema(spec.request),
        "annotations": {
            "readOnlyHint": hints.read_only,
            "destructiveHint": hints.destructive,
            "idempotentHint": hints.idempotent,
            "openWorldHint": hints.open_world,
        },
    }


def _openai(spec: ToolSpec) -> JsonObject:
    return _openai_function(spec, input_schema(spec.request), strict=False)


def _openai_strict(spec: ToolSpec) -> JsonObject:
    return _openai_function(spec, strict_schema(spec.request), strict=True)


def _openai_function(spec: ToolSpec, parameters: JsonObject, *, strict: bool) -> JsonObject:
    return {
        "type": "function",
        "function": {
            "name": spec.name,
            "description": spec.description,
            "parameters": parameters,
            "strict": strict,
        },
    }


def _anthropic(spec: ToolSpec) -> JsonObject:
    return {"name": spec.name, "description": spec.description, "input_schema": input_schema(spec.request)}


_EXPORTERS: Final[Mapping[str, Callable[[ToolSpec], JsonObject]]] = MappingProxyType(
    {"mcp": _mcp, "openai": _openai, "openai-strict": _openai_strict, "anthropic": _anthropic}
)


def _node(inner: object, piece: Piece | None) -> JsonObject:
    if isinstance(piece, Items):
        return {**piece.schema(), "items": _node(*unwrap(get_args(inner)[0]))}
    return input_schema(_model(inner)) if piece is None else piece.schema()


def _strict_node(inner: object, piece: Piece | None) -> JsonObject:
    if isinstance(piece, Items):
        return {**piece.schema(), "items": _strict_node(*unwrap(get_args(inner)[0]))}
    if isinstance(piece, FieldMap):
        return {"type": "string"}
    if piece is None:
        return strict_schema(_model(inner))
    return {key: value for key, value in piece.schema().items() if key not in ("minLength", "maxLength")}


def _model(inner: object) -> type[Arguments]:
    if isinstance(inner, type) and issubclass(inner, Arguments):
        return inner
    raise TypeError(f"an argument of type {inner!r} has no piece that describes it")


def _alias(model: type[Arguments], name: str) -> str:
    return model.model_fields[name].alias or name


def _closed_object(properties: JsonObject, required: list[str]) -> JsonObject:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _described(node: JsonObject, description: str | None) -> JsonObject:
    if description is None:
        return node
    kind = node.pop("type")
    return {"type": kind, "description": description, **node}


def _not_allowed(field: str, allowed: tuple[str, ...]) -> InvalidArgument:
    return InvalidArgument(
        f"{field} must be one of: {', '.join(allowed)}", field=field, reason="not_allowed", allowed=list(allowed)
    )
