"""Record files: bytes to record and back. Pure functions; no file is touched here.

:func:`parse_record` never raises: a file is a :class:`ParsedRecord` with its findings, or a :class:`BrokenRecord` that
stays in diagnostics. Broken means that the file has no identity: no envelope, no YAML, no format, id or kind.

Source: decisions.md section 2, knowledge-more-facts.md section 2.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from typing import Any, Final

from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import (
    CLAIM_TEXT_MAX_CHARS,
    RECORD_FORMAT,
    RECORD_ID,
    RECORD_KINDS,
    RECORD_MAX_BYTES,
)
from storage.records import _fields, frontmatter, utf16
from storage.records.dates import Interval
from storage.records.findings import Finding
from storage.records.frontmatter import ABSENT, Change, Frontmatter
from storage.records.model import (
    BrokenRecord,
    EvidenceCitation,
    LifecycleChange,
    ParsedRecord,
    Recall,
    Record,
    Scope,
)
from storage.records.text import text_problem

_FORMAT: Final = re.compile(r"knowledge-record-v([1-9][0-9]{0,5})")
_UNREADABLE_TIME: Final = "1970-01-01T00:00:00.000Z"
_IDENTITY: Final = ("format", "id", "kind")

# What a claim or relationship carries beside the envelope (knowledge-more-facts.md sections 2 and 4).
_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "page": (),
    "claim": ("claim_kind", "assertion_origin", "attribution", "evidence"),
    "relationship": ("from", "to", "label", "assertion_origin", "attribution", "evidence"),
}
_READERS: Final = {kind: {**_fields.ENVELOPE, **of_kind} for kind, of_kind in _fields.OF_KIND.items()}

_KEY_ORDER: Final = (
    "type", "fields", "from", "to", "label", "claim_kind", "assertion_origin", "attribution", "subject_hint",
    "entities", "owner", "occurred_at", "due_at", "expires_at", "source_page", "aliases", "tags", "dependencies",
    "merged_into", "supersedes", "superseded_by", "lifecycle_change", "identity_uncertainty", "attribution_confidence",
    "continuity", "fixture", "recall", "evidence",
)  # fmt: skip
_FIELD_OF_KEY: Final = {"from": "from_id", "to": "to_id"}


def content_hash(data: bytes) -> str:
    """The hash of a record: SHA-256 of the file's bytes, lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def parse_record(data: bytes, path: str) -> ParsedRecord | BrokenRecord:
    """What the file at ``path`` (relative to its partition) says. Never raises."""
    digest = content_hash(data)
    read = frontmatter.read(data)
    if isinstance(read, Finding):
        return BrokenRecord(path, digest, (read,), adoptable=read.code == "frontmatter_missing")
    values = read.values
    broken = _identity_findings(values)
    if broken:
        return BrokenRecord(path, digest, broken)
    notes = _fields.Notes()
    notes.findings.extend(read.findings)
    newer = values["format"] != RECORD_FORMAT
    if newer:
        notes.add("newer_format", "format", "The record has a newer format: it is shown, and never rewritten.", "note")
    if len(data) > RECORD_MAX_BYTES:
        notes.add("too_long", "", f"The file has more than {RECORD_MAX_BYTES} bytes.", "note")
    record = _record(read, path, notes)
    findings = _with_lines(read, notes.findings) if notes.findings else ()
    return ParsedRecord(record, path, digest, findings, read_only=newer)


def body_of(data: bytes) -> str:
    """The body of a file that is known to be a record: what :func:`parse_record` says of it, without the rest."""
    document = frontmatter.cut(data)
    if isinstance(document, Finding):
        raise ValueError(f"not a record: {document.code}")
    return document.body


def _with_lines(read: Frontmatter, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings with the line of their value, or of the nearest one around it that the file has."""
    lines = frontmatter.lines_of(read.document)
    placed: list[Finding] = []
    for finding in findings:
        field, line = finding.field, finding.line
        while field and line is None:
            line = lines.get(field)
            field = field[: max(field.rfind("."), field.rfind("["), 0)]
        placed.append(replace(finding, line=line))
    return tuple(placed)


def _identity_findings(values: Mapping[str, JsonValue]) -> tuple[Finding, ...]:
    """Why these values name no record; empty when they do."""
    found: list[Finding] = []
    format_name, kind, record_id = values.get("format"), values.get("kind"), values.get("id")
    if not isinstance(format_name, str) or _FORMAT.fullmatch(format_name) is None:
        found.append(Finding("format", "format", f"`format` must be {RECORD_FORMAT}."))
    if not isinstance(kind, str) or kind not in RECORD_KINDS:
        found.append(Finding("kind", "kind", f"`kind` must be one of: {', '.join(RECORD_KINDS)}."))
    digits = type(record_id) is int and record_id >= 0
    if not digits and not (isinstance(record_id, str) and RECORD_ID.fullmatch(record_id)):
        found.append(Finding("id", "id", "`id` must be 1 to 128 of letters, digits and . _ : -"))
    return tuple(found)


def _record(read: Frontmatter, path: str, notes: _fields.Notes) -> Record:
    values = read.values
    kind: Any = values["kind"]
    readers = _READERS[kind]
    known: dict[str, Any] = {}
    unknown: JsonObject = {}
    for key, value in values.items():
        entry = readers.get(key)
        if entry is not None:
            name, reader = entry
            taken = reader(value, key, notes)
            if taken is not None:
                known[name] = taken
        elif key not in ("format", "id", "kind", "revision"):
            unknown[key] = value
    revision = values.get("revision")
    if type(revision) is not int or revision < 1:
        message = "`revision` must be a positive whole number; the last known one counts."
        notes.add("revision", "revision", message, "note")
        revision = 0
    _fill_envelope(known, path, notes)
    body = read.document.body
    problem = text_problem(body)
    if problem is not None:
        notes.add(problem, "body", "The body holds a character that cannot be stored; remove it.")
    record = Record(id=str(values["id"]), kind=kind, revision=revision, body=body, unknown=unknown, **known)
    _judge(record, values, notes)
    return record


def _fill_envelope(known: dict[str, Any], path: str, notes: _fields.Notes) -> None:
    """Empty values for what the envelope must have and has not, each with its finding."""
    if "title" not in known:
        notes.add("missing", "title", "`title` is missing.")
        known["title"] = path.rpartition("/")[2].removesuffix(".md")
    for key in ("recorded_at", "updated_at"):
        if key not in known:
            notes.add("missing", key, f"`{key}` is missing or unreadable.")
            known[key] = _UNREADABLE_TIME
    for key in ("lifecycle", "scope"):
        if key not in known:
            notes.add("missing", key, f"`{key}` is missing or unreadable.", "error" if key == "lifecycle" else "note")


def _judge(record: Record, values: Mapping[str, JsonValue], notes: _fields.Notes) -> None:
    """What its kind and lifecycle ask of a record beyond each field by itself."""
    for key in _REQUIRED[record.kind]:
        if not getattr(record, _FIELD_OF_KEY.get(key, key)) and key in values:
            if not any(finding.field.startswith(key) for finding in notes.findings):
                notes.add("missing", key, f"`{key}` is empty.")
        elif key not in values:
            notes.add("missing", key, f"`{key}` is missing.")
    if record.kind == "claim":
        if not record.text:
            notes.add("missing", "body", "The claim has no text.")
        elif len(record.body) * 2 > CLAIM_TEXT_MAX_CHARS and utf16.length(record.text) > CLAIM_TEXT_MAX_CHARS:
            notes.add("too_long", "body", f"The claim has more than {CLAIM_TEXT_MAX_CHARS} characters.", "note")
    if record.lifecycle == "merged" and record.merged_into is None:
        notes.add("missing", "merged_into", "A merged page must name the page that it was merged into.")
    if record.lifecycle == "superseded" and record.superseded_by is None:
        notes.add("missing", "superseded_by", "A superseded record must name its replacement.")


def frontmatter_values(record: Record) -> JsonObject:
    """The record as its frontmatter's keys and values, in the order of a new file; empty fields are left out.

    Raises ``ValueError`` when a field is set that the record's kind does not have.
    """
    allowed = _fields.OF_KIND[record.kind]
    values: JsonObject = {
        "format": RECORD_FORMAT,
        "id": record.id,
        "revision": record.revision,
        "kind": record.kind,
        "title": record.title,
        "recorded_at": record.recorded_at,
        "updated_at": record.updated_at,
        "scope": _scope_value(record.scope),
        "lifecycle": record.lifecycle,
    }
    for key in _KEY_ORDER:
        value: object = getattr(record, _FIELD_OF_KEY.get(key, key))
        if not value:
            continue
        if key not in allowed:
            raise ValueError(f"a {record.kind} has no `{key}`")
        values[key] = _json_of(value)
    for key, kept in record.unknown.items():
        if key in values:
            raise ValueError(f"`{key}` is no unknown key")
        values[key] = kept
    return values


def _scope_value(scope: Scope) -> JsonObject:
    shown: JsonObject = {"visibility": scope.visibility}
    if scope.session_id is not None:
        shown["sessionId"] = scope.session_id
    return shown


def _json_of(value: object) -> JsonValue:
    match value:
        case Interval():
            return value.text
        case EvidenceCitation():
            return citation_value(value)
        case LifecycleChange() | Recall():
            parts = {part.name: getattr(value, part.name) for part in dataclass_fields(value)}
            return {name: _json_of(part) for name, part in parts.items() if part is not None and part != ()}
        case tuple():
            return [_json_of(item) for item in value]
        case str() | int() | dict():
            return value
        case Mapping():
            return dict(value)
        case _:
            raise TypeError(f"no frontmatter value: {type(value).__name__}")


def recall_value(recall: Recall) -> JsonObject:
    """An approval as frontmatter holds it; empty lists are left out."""
    value = _json_of(recall)
    assert isinstance(value, dict)
    return value


def citation_value(citation: EvidenceCitation) -> JsonObject:
    """A citation as frontmatter and agents see it: the keys that it has, then those that we do not know."""
    shown: JsonObject = {}
    for part in dataclass_fields(citation):
        value = getattr(citation, part.name)
        if part.name != "extra" and value is not None:
            shown[part.name] = value
    return {**shown, **citation.extra}


def render_new(record: Record) -> bytes:
    """The bytes of a new file: fences, one line a key, an empty line, the body with one line end at its end.

    Raises ``ValueError`` for text that cannot be stored: callers refuse it at the edge.
    """
    if text_problem(record.body) is not None:
        raise ValueError("the body holds a character that cannot be stored")
    head = f"---\n{frontmatter.emit(frontmatter_values(record))}---\n"
    if not record.body:
        return head.encode("utf-8")
    end = "" if record.body.endswith(("\n", "\r")) else "\n"
    return f"{head}\n{record.body}{end}".encode()


def changes_between(before: Record, after: Record) -> dict[str, Change]:
    """The keys whose values differ, for :func:`rewrite`. Raises ``ValueError`` when they are not one record."""
    if (before.id, before.kind) != (after.id, after.kind):
        raise ValueError("a record keeps its id and kind")
    old, new = frontmatter_values(before), frontmatter_values(after)
    gone: dict[str, Change] = {key: ABSENT for key in old if key not in new}
    return gone | {k: value for k, value in new.items() if k not in old or not frontmatter.same(old[k], value)}


def rewrite(original: bytes, changes: Mapping[str, Change], body: str | None = None) -> bytes:
    """``original`` with some keys changed (:data:`ABSENT` removes one) and, when given, another body.

    Only the lines of keys whose value changes are touched; everything else stays byte for byte, and a body that is not
    given stays too. A given body is written as it is, without adding a line end. Raises ``ValueError`` for a file that
    has no readable frontmatter, for one of a newer format, for a change of identity, and for text that cannot be
    stored: callers look first.
    """
    read = frontmatter.read(original)
    if isinstance(read, Finding):
        raise ValueError(f"a broken record is not rewritten: {read.code}")
    if read.values.get("format") != RECORD_FORMAT:
        raise ValueError("a record of another format is not rewritten")
    for key in _IDENTITY:
        if key in changes and changes[key] != read.values.get(key):
            raise ValueError(f"a record keeps its {key}")
    document = read.document
    text = frontmatter.replace_lines(document, changes)
    if body is None or body == document.body:
        return text.encode("utf-8")
    if text_problem(body) is not None:
        raise ValueError("the body holds a character that cannot be stored")
    head = text[: len(text) - len(document.body)]
    if body:
        newline = document.newline
        fence_end = len(head) - (document.body_start - document.fence_end)
        if not head.endswith(("\n", "\r")):
            head += newline
            fence_end = len(head)
        separated = len(head) > fence_end
        if not separated and (not document.body or body[0] in "\r\n"):
            head += newline
    return (head + body).encode("utf-8")
