"""Request models, and the one way from raw JSON to a frozen model.

:func:`validate` guarantees a model whose every value lies within its documented bounds, or one typed error that
says which field, why, and what is allowed, with up to nine further problems of the same request beside it. No
error repeats a value and none carries a stack trace of the validator. Pure; any thread.

Source: decisions.md section 5 (limits, nulls and strings from models), HOSTS.md section 0.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from messages import coercion
from messages.errors import EvidenceInvalid, InvalidArgument, KnowledgeError, LimitExceeded, ShortHash
from messages.json_types import JsonObject, JsonValue
from messages.pieces import Items, Piece, RawJson, parsed, refused

PROBLEMS_SHOWN: Final = 10

_ERRORS: Final[Mapping[str, type[KnowledgeError]]] = {
    cls.code: cls for cls in (InvalidArgument, LimitExceeded, ShortHash, EvidenceInvalid)
}

M = TypeVar("M", bound="Arguments")


class Arguments(BaseModel):
    """Base of every model that is filled from outside: frozen, camelCase, unknown keys refused, nulls absent."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, hide_input_in_errors=True, validate_default=False
    )

    @model_validator(mode="before")
    @classmethod
    def _coerce(cls, value: object) -> object:
        found = parsed(value, "{")
        if not isinstance(found, dict):
            raise refused("wrong_type", "must be an object", "an object")
        return coercion.without_nulls(found)


def validate(model: type[M], value: object, *, under: str = "") -> M:
    """The frozen model that ``value`` stands for, or one typed error about it; fields are named below ``under``.

    Raises :class:`InvalidArgument`, :class:`LimitExceeded`, :class:`ShortHash` or :class:`EvidenceInvalid`, each
    with ``field``, ``reason`` and ``allowed``, and with ``problems`` when there are several.
    """
    coercion.check_json(_own_part(model, value), under)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
    # Raised outside the except block: the validator's own error must not hang on ours as its context.
    raise _as_error(model, details, under)


def required_names(model: type[Arguments]) -> tuple[str, ...]:
    """The argument names that must be there, in order."""
    return tuple(_alias(model, name) for name, field in model.model_fields.items() if field.is_required())


def argument_names(model: type[Arguments]) -> tuple[str, ...]:
    """All argument names as callers write them, in order."""
    return tuple(_alias(model, name) for name in model.model_fields)


def unwrap(annotation: object) -> tuple[object, Piece | None]:
    """A field's inner type and its piece: ``Annotated[str, Text()] | None`` gives ``(str, Text())``."""
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        found, piece = unwrap(inner)
        return found, next((item for item in metadata if isinstance(item, Piece)), piece)
    options = [option for option in get_args(annotation) if option is not type(None)]
    if len(options) == 1 and type(None) in get_args(annotation):
        return unwrap(options[0])
    return annotation, None


def field_type(model: type[Arguments], name: str) -> tuple[object, Piece | None]:
    """The inner type and the piece of one field (pydantic splits ``Annotated`` off a field that is not optional)."""
    info = model.model_fields[name]
    inner, piece = unwrap(info.annotation)
    return inner, next((item for item in info.metadata if isinstance(item, Piece)), piece)


def _own_part(model: type[Arguments], value: object) -> object:
    """``value`` without what another step validates, which then names its fields as at every other door."""
    raw = _raw_names(model)
    return {name: member for name, member in value.items() if name not in raw} if raw and type(value) is dict else value


@cache
def _raw_names(model: type[Arguments]) -> frozenset[str]:
    return frozenset(
        _alias(model, name) for name in model.model_fields if isinstance(field_type(model, name)[1], RawJson)
    )


def _alias(model: type[Arguments], name: str) -> str:
    return model.model_fields[name].alias or name


def _as_error(model: type[Arguments], details: list[ErrorDetails], under: str) -> KnowledgeError:
    found = [_problem(model, detail, under) for detail in details[:PROBLEMS_SHOWN]]
    said = [f"{problem['field'] or 'arguments'} {what}" for _, what, problem in found]
    if len(details) > len(found):
        said.append(f"and {len(details) - len(found)} more")
    code, _, first = found[0]
    fields: JsonObject = dict(first)
    if len(found) > 1:
        fields["problems"] = [{"code": other, **problem} for other, _, problem in found]
    return _ERRORS[code]("; ".join(said), retry=None, **fields)


def _problem(model: type[Arguments], detail: ErrorDetails, under: str) -> tuple[str, str, JsonObject]:
    """One problem as its code, what is wrong in words, and its fields."""
    kind, loc = detail["type"], detail["loc"]
    context: Mapping[str, Any] = detail.get("ctx", {})
    path = coercion.joined(under, coercion.shown_path(loc))
    if kind in _ERRORS and "reason" in context:
        path = coercion.joined(path, context["field"])
        return kind, context["what"], _described(path, context["reason"], context["allowed"])
    parent = _model_at(model, loc[:-1])
    if kind == "missing":
        return _lacking(parent, loc[-1]), "is required", _described(path, "missing", required_names(parent))
    if kind == "extra_forbidden":
        names = argument_names(parent)
        near = difflib.get_close_matches(coercion.shown_name(loc[-1]), names, 1)
        hint = f"did you mean {near[0]}?" if near else f"known are: {', '.join(names) or 'none'}"
        return "invalid_argument", f"is not a known argument ({hint})", _described(path, "unknown", names)
    return "invalid_argument", "has the wrong form", _described(path, "wrong_type", None)


def _lacking(model: type[Arguments], alias: str | int) -> str:
    """The code of a required argument that is left out."""
    name = next((name for name in model.model_fields if _alias(model, name) == alias), None)
    piece = None if name is None else field_type(model, name)[1]
    return piece.lacking if isinstance(piece, Items) else "invalid_argument"


def _described(field: str, reason: str, allowed: JsonValue) -> JsonObject:
    described: JsonObject = {"field": field, "reason": reason}
    if allowed is not None:
        described["allowed"] = list(allowed) if isinstance(allowed, tuple) else allowed
    return described


def _model_at(model: type[Arguments], loc: tuple[str | int, ...]) -> type[Arguments]:
    found: object = model
    for part in loc:
        if isinstance(part, int):
            found = unwrap(get_args(found)[0])[0]
        elif isinstance(found, type) and issubclass(found, Arguments):
            name = next(name for name in found.model_fields if _alias(found, name) == part)
            found = field_type(found, name)[0]
    return found if isinstance(found, type) and issubclass(found, Arguments) else model
