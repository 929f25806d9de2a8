"""The pieces that request models are made of, and the one way from raw JSON to a frozen model.

:func:`validate` guarantees a model whose every value lies within its documented bounds, or one typed error that
says which field, why, and what is allowed, with up to nine further problems of the same request beside it. No
error repeats a value and none carries a stack trace of the validator.

Each piece (:class:`Text`, :class:`Integer`, ...) stands in an ``Annotated`` type and knows two things: how to check
a value and how to describe itself as a flat JSON schema (:mod:`messages.schemas` walks them). Pure; any thread.

Source: decisions.md section 5 (limits, nulls and strings from models), HOSTS.md section 0.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from messages import coercion, dates, text
from messages.errors import EvidenceInvalid, InvalidArgument, KnowledgeError, LimitExceeded, ShortHash
from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import (
    FIELDS_MAX_BYTES,
    FRONTMATTER_MAX_DEPTH,
    HASH_PREFIX_MIN_CHARS,
    LIST_ARGUMENT_MAX_ITEMS,
    RECORD_ID,
)

Code: TypeAlias = Literal["invalid_argument", "limit_exceeded", "short_hash", "evidence_invalid"]
PROBLEMS_SHOWN: Final = 10
FIELDS_MAX_DEPTH: Final = FRONTMATTER_MAX_DEPTH - 1

_ERRORS: Final[Mapping[str, type[KnowledgeError]]] = {
    cls.code: cls for cls in (InvalidArgument, LimitExceeded, ShortHash, EvidenceInvalid)
}
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_LOWER_HEX: Final = re.compile(r"[0-9a-f]+")

M = TypeVar("M", bound="Arguments")


def refused(
    reason: str, what: str, allowed: JsonValue = None, *, field: str = "", code: Code = "invalid_argument"
) -> PydanticCustomError:
    """A problem for pydantic to carry to :func:`validate`: ``what`` completes the sentence "<field> ..."."""
    return PydanticCustomError(code, "refused", {"reason": reason, "what": what, "allowed": allowed, "field": field})


class Piece:
    """What every piece does: check a value, and describe itself as a JSON schema node."""

    __slots__ = ()

    def check(self, value: object) -> object:
        """The exact value, or a problem made by :func:`refused`."""
        raise NotImplementedError

    def schema(self) -> JsonObject:
        """This piece as a schema node, without description."""
        raise NotImplementedError

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Piece):
    """Text without NUL and lone surrogates, by default not blank; sizes in UTF-16 units or UTF-8 bytes."""

    max_units: int | None = None
    max_bytes: int | None = None
    may_be_blank: bool = False
    one_line: bool = False

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            raise refused("wrong_type", "must be a string", "a string")
        fault = text.text_fault(value)
        if fault is not None:
            raise refused(fault, coercion.TEXT_FAULTS[fault], "Unicode text without NUL")
        if self.max_units is not None and text.utf16_length(value) > self.max_units:
            limit = f"at most {self.max_units} characters"
            raise refused("too_long", f"has more than {self.max_units} characters", limit, code="limit_exceeded")
        if self.max_bytes is not None and len(value.encode()) > self.max_bytes:
            limit = f"at most {self.max_bytes} UTF-8 bytes"
            raise refused("too_long", f"has more than {self.max_bytes} UTF-8 bytes", limit, code="limit_exceeded")
        if not self.may_be_blank and text.is_blank(value):
            raise refused("blank", "must not be blank", "text that can be seen")
        if self.one_line and not text.is_one_line(value):
            raise refused("control_character", "must be one line", "one line without control characters")
        return value

    def schema(self) -> JsonObject:
        node: JsonObject = {"type": "string"}
        if self.max_units is not None:
            node["maxLength"] = self.max_units
        return node


@dataclass(frozen=True, slots=True)
class Token(Piece):
    """Short text of one exact form: an id, a UUID, a hash, a date. ``accept`` returns it as it is kept, or ``None``."""

    accept: Callable[[str], str | None]
    form: str
    max_chars: int

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            raise refused("wrong_type", f"must be a string: {self.form}", self.form)
        kept = self.accept(value) if len(value) <= self.max_chars else None
        if kept is None:
            raise refused("malformed", f"must be {self.form}", self.form)
        return kept

    def schema(self) -> JsonObject:
        return {"type": "string"}


@dataclass(frozen=True, slots=True)
class HashFence(Piece):
    """A record hash or a lower-case beginning of it, of at least 16 characters (tools.md, Agent response shapes)."""

    FORM: ClassVar[str] = "the record's hash, or its first 16 or more characters, in lower case"

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            raise refused("wrong_type", f"must be a string: {self.FORM}", self.FORM)
        if len(value) > 64 or not _LOWER_HEX.fullmatch(value):
            raise refused("malformed", f"must be {self.FORM}", self.FORM)
        if len(value) < HASH_PREFIX_MIN_CHARS:
            raise refused("too_short", f"must be {self.FORM}", self.FORM, code="short_hash")
        return value

    def schema(self) -> JsonObject:
        return {"type": "string", "minLength": HASH_PREFIX_MIN_CHARS}


@dataclass(frozen=True, slots=True)
class Integer(Piece):
    """An integer within bounds; ``5.0`` and ``"5"`` count."""

    minimum: int
    maximum: int

    def check(self, value: object) -> int:
        allowed = f"an integer from {self.minimum} to {self.maximum}"
        found = coercion.as_integer(value)
        if found is None:
            raise refused("wrong_type", f"must be {allowed}", allowed)
        if not self.minimum <= found <= self.maximum:
            raise refused("out_of_range", f"must be {allowed}", allowed)
        return found

    def schema(self) -> JsonObject:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


@dataclass(frozen=True, slots=True)
class Boolean(Piece):
    """``true`` or ``false``; the same words as strings count."""

    def check(self, value: object) -> bool:
        found = coercion.as_boolean(value)
        if found is None:
            raise refused("wrong_type", "must be true or false", ["true", "false"])
        return found

    def schema(self) -> JsonObject:
        return {"type": "boolean"}


class Choice(Piece):
    """One of some words, exactly as written. ``hints`` explains words that callers try and may not use."""

    __slots__ = ("hints", "words")

    def __init__(self, *words: str, hints: Mapping[str, str] | None = None) -> None:
        self.words = words
        self.hints = hints or {}

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            raise refused("wrong_type", f"must be one of: {', '.join(self.words)}", self.words)
        if value not in self.words:
            hint = self.hints.get(value, "")
            raise refused("not_allowed", f"must be one of: {', '.join(self.words)}{hint and '; '}{hint}", self.words)
        return value

    def schema(self) -> JsonObject:
        return {"type": "string", "enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class Items(Piece):
    """A list with bounds, written as an array or as JSON text of one; nulls in it are left out."""

    minimum: int = 0
    maximum: int = LIST_ARGUMENT_MAX_ITEMS

    def check(self, value: object) -> list[object]:
        found = _parsed(value, "[")
        if not isinstance(found, list | tuple):
            raise refused("wrong_type", "must be an array", "an array")
        present = [item for item in found if item is not None]
        if len(present) > self.maximum:
            limit = f"at most {self.maximum} items"
            raise refused("too_many", f"has more than {self.maximum} items", limit, code="limit_exceeded")
        if len(present) < self.minimum:
            raise refused("too_few", f"must have at least {self.minimum} item(s)", f"at least {self.minimum} item(s)")
        return present

    def schema(self) -> JsonObject:
        return {"type": "array", **({"minItems": self.minimum} if self.minimum else {}), "maxItems": self.maximum}

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))


@dataclass(frozen=True, slots=True)
class FieldMap(Piece):
    """A page's or relationship's domain fields: any keys, a null clears its field, 16 KiB as compact JSON."""

    def check(self, value: object) -> dict[str, JsonValue]:
        found = _parsed(value, "{")
        if not isinstance(found, dict):
            raise refused("wrong_type", "must be an object of field names and values", "an object")
        if _depth(found) > FIELDS_MAX_DEPTH:
            raise refused("too_deep", f"is nested deeper than {FIELDS_MAX_DEPTH} levels", FIELDS_MAX_DEPTH)
        written = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
        if len(written.encode()) > FIELDS_MAX_BYTES:
            limit = f"at most {FIELDS_MAX_BYTES} bytes of JSON"
            raise refused("too_long", f"has more than {FIELDS_MAX_BYTES} bytes of JSON", limit, code="limit_exceeded")
        # A copy: a caller in this process may go on changing its own object after it was validated and hashed.
        kept: dict[str, JsonValue] = json.loads(written)
        return kept

    def schema(self) -> JsonObject:
        return {"type": "object", "properties": {}, "additionalProperties": True}


@dataclass(frozen=True, slots=True)
class RawJson(Piece):
    """JSON that another step validates: passed through as it came (host protocol only, never in a tool's schema)."""

    def check(self, value: object) -> object:
        return value

    def schema(self) -> JsonObject:
        return {"type": "object", "properties": {}, "additionalProperties": True}


class Arguments(BaseModel):
    """Base of every model that is filled from outside: frozen, camelCase, unknown keys refused, nulls absent."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, hide_input_in_errors=True, validate_default=False
    )

    @model_validator(mode="before")
    @classmethod
    def _coerce(cls, value: object) -> object:
        found = _parsed(value, "{")
        if not isinstance(found, dict):
            raise refused("wrong_type", "must be an object", "an object")
        return coercion.without_nulls(found)


def validate(model: type[M], value: object, *, under: str = "") -> M:
    """The frozen model that ``value`` stands for, or one typed error about it; fields are named below ``under``.

    Raises :class:`InvalidArgument`, :class:`LimitExceeded`, :class:`ShortHash` or :class:`EvidenceInvalid`, each
    with ``field``, ``reason`` and ``allowed``, and with ``problems`` when there are several.
    """
    coercion.check_json(value, under)
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


def _alias(model: type[Arguments], name: str) -> str:
    return model.model_fields[name].alias or name


def _parsed(value: object, opening: Literal["[", "{"]) -> object:
    try:
        return coercion.parsed_json(value, opening)
    except KnowledgeError as error:
        problem = error
    fields = problem.fields
    raise refused(
        str(fields["reason"]),
        problem.message.removeprefix(str(fields["field"]) or "arguments").strip(),
        fields["allowed"],
        field=str(fields["field"]),
    )


def _depth(value: JsonValue) -> int:
    deepest, stack = 0, [(value, 1)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, dict):
            stack.extend((child, depth + 1) for child in node.values())
        elif isinstance(node, list | tuple):
            stack.extend((child, depth + 1) for child in node)
        else:
            continue
        deepest = max(deepest, depth)
    return deepest


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
        return "invalid_argument", "is required", _described(path, "missing", required_names(parent))
    if kind == "extra_forbidden":
        names = argument_names(parent)
        near = difflib.get_close_matches(coercion.shown_name(loc[-1]), names, 1)
        hint = f"did you mean {near[0]}?" if near else f"known are: {', '.join(names) or 'none'}"
        return "invalid_argument", f"is not a known argument ({hint})", _described(path, "unknown", names)
    return "invalid_argument", "has the wrong form", _described(path, "wrong_type", None)


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


def _accept_id(value: str) -> str | None:
    return value if RECORD_ID.fullmatch(value) else None


def _accept_uuid(value: str) -> str | None:
    return value.lower() if _UUID.fullmatch(value) else None


def _accept_sha256(value: str) -> str | None:
    return value if len(value) == 64 and _LOWER_HEX.fullmatch(value) else None


def _accept_date(value: str) -> str | None:
    return value if dates.date_start(value) is not None else None


def _accept_instant(value: str) -> str | None:
    return value if dates.parse_instant(value) is not None else None


ID_FORM: Final = "a record id: 1-128 characters of A-Z a-z 0-9 . _ : -"
UUID_FORM: Final = "a UUID such as 00000000-0000-4000-8000-000000000020"

RecordId: TypeAlias = Annotated[str, Token(_accept_id, ID_FORM, 128)]
Uuid: TypeAlias = Annotated[str, Token(_accept_uuid, UUID_FORM, 36)]
Sha256: TypeAlias = Annotated[str, Token(_accept_sha256, "a SHA-256 of 64 lower-case hex characters", 64)]
DateText: TypeAlias = Annotated[str, Token(_accept_date, dates.DATE_FORMS, 40)]
InstantText: TypeAlias = Annotated[str, Token(_accept_instant, "RFC 3339 with a time zone", 40)]
Hash: TypeAlias = Annotated[str, HashFence()]
Bool: TypeAlias = Annotated[bool, Boolean()]
Fields: TypeAlias = Annotated[Mapping[str, Any], FieldMap()]
