"""How each frontmatter key is read into its field and written back: one reader a key, tolerant by itself.

A reader answers the field's value; what it cannot take it names through :class:`Notes` and answers the empty value.
So one bad key never hides the rest of a record that a person edited by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import (
    ABOUT_MAX_CHARS,
    ALIAS_MAX_CHARS,
    ASSERTION_ORIGINS,
    ATTRIBUTION_MAX_CHARS,
    CLAIM_KINDS,
    FIELDS_MAX_BYTES,
    LIFECYCLES,
    LIST_ARGUMENT_MAX_ITEMS,
    REASON_MAX_CHARS,
    RECORD_ID,
    TAG_MAX_CHARS,
    TITLE_MAX_CHARS,
)
from storage.records import utf16
from storage.records.dates import Interval, format_instant, is_canonical, parse_date, parse_instant
from storage.records.findings import Finding, Severity
from storage.records.frontmatter import to_json
from storage.records.model import CONFIDENCES, EvidenceCitation, LifecycleChange, Recall, Scope
from storage.records.text import TextProblem, text_problem

SHA256: Final = re.compile(r"[0-9a-f]{64}")
_ARTIFACT: Final = re.compile(r"artifacts/[A-Za-z0-9._:-]{1,128}/[^/\x00-\x1f\x7f]{1,255}")
_CITATION_KEYS: Final = frozenset(
    ("path", "sha256", "attribution", "filename", "media_type", "size", "start_line", "end_line", "quote")
)
_RECALL_SUMMARY_MAX_CHARS: Final = 500
_DOTS: Final = (".", "..")


class Notes:
    """Collects the findings of one record; ``field`` paths are relative to the key being read."""

    __slots__ = ("findings",)

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def add(self, code: str, field: str, message: str, severity: Severity = "error") -> None:
        self.findings.append(Finding(code, field, message, severity))


T = TypeVar("T")
Reader: TypeAlias = Callable[[JsonValue, str, Notes], T]
FieldReaders: TypeAlias = Mapping[str, tuple[str, Reader[object]]]


def text(value: JsonValue, field: str, notes: Notes, max_chars: int = 0) -> str | None:
    """Non-blank text. A number or boolean that YAML saw in an unquoted word is not guessed back."""
    if not isinstance(value, str):
        if value is not None:
            notes.add("not_text", field, f"`{field}` must be text; put it in quotes.")
        return None
    problem = text_problem(value)
    if problem is not None:
        notes.add(problem, field, f"`{field}` holds a character that cannot be stored; remove it.")
        return None
    if not value or value.isspace():
        return None
    if max_chars and len(value) * 2 > max_chars and utf16.length(value) > max_chars:
        notes.add("too_long", field, f"`{field}` has more than {max_chars} characters.", "note")
    return value


def bounded(max_chars: int) -> Reader[str | None]:
    return lambda value, field, notes: text(value, field, notes, max_chars)


def identifier(value: JsonValue, field: str, notes: Notes) -> str | None:
    """An opaque record id. Digits alone are an id too, though YAML reads them as a number."""
    if type(value) is int and value >= 0:
        value = str(value)
    if isinstance(value, str) and RECORD_ID.fullmatch(value):
        return value
    if value is not None:
        notes.add("not_an_id", field, f"`{field}` must be a record id: 1 to 128 of letters, digits and . _ : -")
    return None


def list_of(reader: Reader[T | None]) -> Reader[tuple[T, ...]]:
    def read_all(value: JsonValue, field: str, notes: Notes) -> tuple[T, ...]:
        if value is None:
            return ()
        if not isinstance(value, list):
            notes.add("not_a_list", field, f"`{field}` must be a list.")
            return ()
        if len(value) > LIST_ARGUMENT_MAX_ITEMS:
            message = f"`{field}` has more than {LIST_ARGUMENT_MAX_ITEMS} entries."
            notes.add("too_many", field, message, "note")
        items: list[T] = []
        for index, item in enumerate(value):
            read = reader(item, f"{field}[{index}]", notes)
            if read is not None:
                items.append(read)
        return tuple(items)

    return read_all


def one_of(allowed: Sequence[str]) -> Reader[str | None]:
    def read(value: JsonValue, field: str, notes: Notes) -> str | None:
        if isinstance(value, str) and value in allowed:
            return value
        if value is not None:
            notes.add("not_allowed", field, f"`{field}` must be one of: {', '.join(allowed)}.")
        return None

    return read


def when(value: JsonValue, field: str, notes: Notes) -> Interval | None:
    """A date in any of the four forms; a bare year may have been read as a number."""
    if type(value) is int and 1000 <= value <= 9999:
        value = str(value)
    interval = parse_date(value) if isinstance(value, str) else None
    if interval is None and value is not None:
        notes.add("not_a_date", field, f"`{field}` must be YYYY, YYYY-MM, YYYY-MM-DD or an RFC 3339 time.")
    return interval


def instant(value: JsonValue, field: str, notes: Notes) -> str | None:
    """The canonical UTC text of an RFC 3339 time."""
    if isinstance(value, str) and is_canonical(value):
        return value
    ms = parse_instant(value) if isinstance(value, str) else None
    if ms is not None:
        return format_instant(ms)
    if value is not None:
        notes.add("not_a_time", field, f"`{field}` must be an RFC 3339 time such as 2026-09-21T10:00:00.000Z.")
    return None


def flag(value: JsonValue, field: str, notes: Notes) -> bool:
    if isinstance(value, bool):
        return value
    if value is not None:
        notes.add("not_boolean", field, f"`{field}` must be true or false.")
    return False


def whole_number(low: int, high: int) -> Reader[int | None]:
    def read(value: JsonValue, field: str, notes: Notes) -> int | None:
        if type(value) is int and low <= value <= high:
            return value
        if value is not None:
            notes.add("not_in_range", field, f"`{field}` must be a whole number from {low} to {high}.")
        return None

    return read


def domain_fields(value: JsonValue, field: str, notes: Notes) -> Mapping[str, JsonValue]:
    if not isinstance(value, dict):
        if value is not None:
            notes.add("not_a_mapping", field, f"`{field}` must be a mapping.")
        return {}
    problem = _problem_within(value)
    if problem is not None:
        notes.add(problem, field, f"`{field}` holds a character that cannot be stored; remove it.")
        return {}
    if len(to_json(value).encode("utf-8")) > FIELDS_MAX_BYTES:
        notes.add("too_long", field, f"`{field}` has more than {FIELDS_MAX_BYTES} bytes of JSON.", "note")
    return value


def _problem_within(value: JsonValue) -> TextProblem | None:
    """The first text problem in any key or value at any depth."""
    if isinstance(value, str):
        return text_problem(value)
    if isinstance(value, dict):
        found = (text_problem(key) or _problem_within(item) for key, item in value.items())
    elif isinstance(value, list):
        found = (_problem_within(item) for item in value)
    else:
        return None
    return next((problem for problem in found if problem is not None), None)


def scope(value: JsonValue, field: str, notes: Notes) -> Scope | None:
    if value is None:
        return None
    if isinstance(value, dict):
        visibility, session_id = value.get("visibility"), value.get("sessionId")
        if visibility == "private" and session_id is None:
            return Scope()
        if visibility == "conversation" and isinstance(session_id, str) and session_id:
            return Scope("conversation", session_id)
    message = '`scope` must be {"visibility": "private"}, or "conversation" with its sessionId.'
    notes.add("scope", field, message, "note")
    return None


_ATTRIBUTION: Final = bounded(ATTRIBUTION_MAX_CHARS)
_SIZE: Final = whole_number(0, 2**53)
_LINE: Final = whole_number(1, 2**31)


def citation(value: JsonValue, field: str, notes: Notes) -> EvidenceCitation | None:
    """One entry of ``evidence``; ``None`` when it does not even name its file and hash."""
    if not isinstance(value, dict):
        notes.add("evidence", field, f"`{field}` must be a mapping with path and sha256.")
        return None
    path, sha256 = value.get("path"), value.get("sha256")
    if not isinstance(path, str) or not is_artifact_path(path):
        notes.add("evidence", f"{field}.path", f"`{field}.path` must be artifacts/<requestId>/<file name>.")
        return None
    if not isinstance(sha256, str) or not SHA256.fullmatch(sha256):
        notes.add("evidence", f"{field}.sha256", f"`{field}.sha256` must be 64 lower-case hex characters.")
        return None
    start = _LINE(value.get("start_line"), f"{field}.start_line", notes)
    end = _LINE(value.get("end_line"), f"{field}.end_line", notes)
    if end is not None and (start is None or end < start):
        notes.add("evidence", f"{field}.end_line", f"`{field}.end_line` must not be before its start_line.")
    extra: JsonObject = {key: item for key, item in value.items() if key not in _CITATION_KEYS}
    return EvidenceCitation(
        path=path,
        sha256=sha256,
        attribution=_ATTRIBUTION(value.get("attribution"), f"{field}.attribution", notes),
        filename=text(value.get("filename"), f"{field}.filename", notes),
        media_type=text(value.get("media_type"), f"{field}.media_type", notes),
        size=_SIZE(value.get("size"), f"{field}.size", notes),
        start_line=start,
        end_line=end,
        quote=text(value.get("quote"), f"{field}.quote", notes),
        extra=extra,
    )


def is_artifact_path(path: str) -> bool:
    """``artifacts/<requestId>/<file name>``, nothing that could lead elsewhere."""
    return _ARTIFACT.fullmatch(path) is not None and path.split("/")[1] not in _DOTS and path.split("/")[2] not in _DOTS


def lifecycle_change(value: JsonValue, field: str, notes: Notes) -> LifecycleChange | None:
    if value is None:
        return None
    if isinstance(value, dict):
        parts = [value.get(key) for key in ("reason", "at", "actor", "request_id")]
        if all(isinstance(part, str) and part and text_problem(part) is None for part in parts):
            reason, at, actor, request_id = (str(part) for part in parts)
            if utf16.length(reason) > REASON_MAX_CHARS:
                message = f"`{field}.reason` has more than {REASON_MAX_CHARS} characters."
                notes.add("too_long", f"{field}.reason", message, "note")
            return LifecycleChange(reason, at, actor, request_id)
    notes.add("lifecycle_change", field, f"`{field}` must have reason, at, actor and request_id.")
    return None


_TEXTS: Final = list_of(text)
_IMPORTANCE: Final = whole_number(1, 10)


def recall(value: JsonValue, field: str, notes: Notes) -> Recall | None:
    """An approval, or nothing at all: half an approval approves nothing."""
    if value is None:
        return None
    inner = Notes()
    if isinstance(value, dict):
        summary = text(value.get("summary"), f"{field}.summary", inner, _RECALL_SUMMARY_MAX_CHARS)
        importance = _IMPORTANCE(value.get("importance", 5), f"{field}.importance", inner)
        read = Recall(
            summary=summary or "",
            triggers=_TEXTS(value.get("triggers"), f"{field}.triggers", inner),
            importance=importance or 0,
            projects=_TEXTS(value.get("projects"), f"{field}.projects", inner),
            approved_by=text(value.get("approved_by"), f"{field}.approved_by", inner),
            approved_at=instant(value.get("approved_at"), f"{field}.approved_at", inner),
        )
        if summary is not None and importance is not None and not inner.findings:
            return read
    notes.add("recall", field, f"`{field}` is not a complete approval; it is ignored.", "note")
    return None


ENVELOPE: Final[FieldReaders] = {
    "title": ("title", bounded(TITLE_MAX_CHARS)),
    "recorded_at": ("recorded_at", instant),
    "updated_at": ("updated_at", instant),
    "lifecycle": ("lifecycle", one_of(LIFECYCLES)),
    "scope": ("scope", scope),
}

COMMON: Final[FieldReaders] = {
    "aliases": ("aliases", list_of(bounded(ALIAS_MAX_CHARS))),
    "tags": ("tags", list_of(bounded(TAG_MAX_CHARS))),
    "dependencies": ("dependencies", list_of(identifier)),
    "evidence": ("evidence", list_of(citation)),
    "supersedes": ("supersedes", identifier),
    "superseded_by": ("superseded_by", identifier),
    "lifecycle_change": ("lifecycle_change", lifecycle_change),
    "identity_uncertainty": ("identity_uncertainty", bounded(REASON_MAX_CHARS)),
    "attribution_confidence": ("attribution_confidence", one_of(CONFIDENCES)),
    "continuity": ("continuity", list_of(identifier)),
    "fixture": ("fixture", flag),
    "recall": ("recall", recall),
}

_STATEMENT: Final[FieldReaders] = {
    "assertion_origin": ("assertion_origin", one_of(ASSERTION_ORIGINS)),
    "attribution": ("attribution", bounded(ATTRIBUTION_MAX_CHARS)),
    "subject_hint": ("subject_hint", bounded(ABOUT_MAX_CHARS)),
    "entities": ("entities", list_of(identifier)),
    "owner": ("owner", identifier),
    "occurred_at": ("occurred_at", when),
    "due_at": ("due_at", when),
    "expires_at": ("expires_at", when),
    "source_page": ("source_page", identifier),
}

OF_KIND: Final[Mapping[str, FieldReaders]] = {
    "page": {
        **COMMON,
        "type": ("type", bounded(TAG_MAX_CHARS)),
        "fields": ("fields", domain_fields),
        "merged_into": ("merged_into", identifier),
        "source_page": ("source_page", identifier),
    },
    "claim": {**COMMON, **_STATEMENT, "claim_kind": ("claim_kind", one_of(CLAIM_KINDS))},
    "relationship": {
        **COMMON,
        **_STATEMENT,
        "from": ("from_id", identifier),
        "to": ("to_id", identifier),
        "label": ("label", bounded(TAG_MAX_CHARS)),
        "fields": ("fields", domain_fields),
    },
}
"""Frontmatter key -> (field of :class:`Record`, reader), for each kind. Keys of another kind are unknown keys."""
