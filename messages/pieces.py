"""The pieces that request models are made of: how one value is checked, and how it describes itself to a model.

Each piece stands in an ``Annotated`` type and knows two things: the exact value or a problem that says why not, and
its node in a flat JSON schema (:mod:`messages.schemas` walks them). A problem never repeats the value. Pure; any
thread.

Source: decisions.md section 5 (limits, nulls and strings from models), HOSTS.md sections 0 and 2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from messages import coercion, dates, text
from messages.errors import KnowledgeError
from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import (
    FIELDS_MAX_BYTES,
    FRONTMATTER_MAX_DEPTH,
    HASH_PREFIX_MIN_CHARS,
    LIST_ARGUMENT_MAX_ITEMS,
    RECORD_ID,
)

Code: TypeAlias = Literal["invalid_argument", "limit_exceeded", "short_hash", "evidence_invalid"]
# In a file the fields stand one level below the top of the frontmatter.
FIELDS_MAX_DEPTH: Final = FRONTMATTER_MAX_DEPTH - 1

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_LOWER_HEX: Final = re.compile(r"[0-9a-f]+")


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
class Share(Piece):
    """A number from 0 to 1; ``"0.5"`` counts."""

    ALLOWED: ClassVar[str] = "a number from 0 to 1"

    def check(self, value: object) -> float:
        found = coercion.as_number(value)
        if found is None:
            raise refused("wrong_type", f"must be {self.ALLOWED}", self.ALLOWED)
        if not 0 <= found <= 1:
            raise refused("out_of_range", f"must be {self.ALLOWED}", self.ALLOWED)
        return found

    def schema(self) -> JsonObject:
        return {"type": "number", "minimum": 0, "maximum": 1}


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
    """A list with bounds, written as an array or as JSON text of one; nulls in it are left out.

    ``lacking`` is the code of a list that is left out or too short.
    """

    minimum: int = 0
    maximum: int = LIST_ARGUMENT_MAX_ITEMS
    lacking: Code = "invalid_argument"

    def check(self, value: object) -> list[object]:
        found = parsed(value, "[")
        if not isinstance(found, list | tuple):
            raise refused("wrong_type", "must be an array", "an array")
        present = [item for item in found if item is not None]
        if len(present) > self.maximum:
            limit = f"at most {self.maximum} items"
            raise refused("too_many", f"has more than {self.maximum} items", limit, code="limit_exceeded")
        if len(present) < self.minimum:
            limit = f"at least {self.minimum} item(s)"
            raise refused("too_few", f"must have {limit}", limit, code=self.lacking)
        return present

    def schema(self) -> JsonObject:
        return {"type": "array", **({"minItems": self.minimum} if self.minimum else {}), "maxItems": self.maximum}

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))


@dataclass(frozen=True, slots=True)
class FieldMap(Piece):
    """A page's or relationship's domain fields: any keys, a null clears its field, 16 KiB as compact JSON."""

    def check(self, value: object) -> dict[str, JsonValue]:
        found = parsed(value, "{")
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


def parsed(value: object, opening: Literal["[", "{"]) -> object:
    """The array or object that a string holds, else ``value``; unstorable text inside is a problem of the field."""
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


def _accept_id(value: str) -> str | None:
    return value if RECORD_ID.fullmatch(value) else None


def _accept_uuid(value: str) -> str | None:
    return value.lower() if _UUID.fullmatch(value) else None


def _accept_sha256(value: str) -> str | None:
    return value if len(value) == 64 and _LOWER_HEX.fullmatch(value) else None


def _accept_date(value: str) -> str | None:
    return value if dates.date_start(value) is not None else None


def _accept_instant(value: str) -> str | None:
    return value if dates.instant_ms(value) is not None else None


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
