"""Whether a page's or relationship's domain data fits the ontology. Findings only; nothing is changed or raised.

Source: decisions.md section 3, knowledge-more-facts.md section 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from messages.json_types import JsonValue
from storage.ontology._field_types import field_json
from storage.ontology.model import FieldType, Ontology
from storage.records.dates import parse_date, parse_instant
from storage.records.findings import Finding

Resolve: TypeAlias = Callable[[str], str | None]
"""The type of the current page with this id, merge redirects followed; ``None`` when there is no such page."""

_LINE_BREAK: Final = re.compile(r"[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_BLANK_OR_CONTROL: Final = re.compile(r"[\s\x00-\x1f\x7f]")


def validate_page(
    ontology: Ontology, page_type: str | None, fields: Mapping[str, JsonValue], resolve: Resolve
) -> list[Finding]:
    """What is wrong with a page of this type and these fields; ``field`` paths are ``type`` and ``fields.<name>``.

    ``page_type`` may be an alias; ``None`` is an untyped page that no prefix classifies.
    """
    if page_type is None:
        return [Finding("type_missing", "type", f"The page has no type. Types: {_types(ontology)}.")]
    found = ontology.page_type(page_type)
    if found is None:
        return [Finding("type_unknown", "type", f"The ontology has no such page type. Types: {_types(ontology)}.")]
    if found.abstract:
        below = ", ".join(sorted(ontology.types_within(found.name) - {found.name}))
        return [Finding("type_abstract", "type", f"`{found.name}` is abstract; choose one of: {below}.")]
    return _validate_fields(ontology, f"`{found.name}`", found.fields, fields, resolve)


def validate_relationship(
    ontology: Ontology,
    label: str | None,
    from_id: str | None,
    to_id: str | None,
    fields: Mapping[str, JsonValue],
    resolve: Resolve,
) -> list[Finding]:
    """What is wrong with a relationship: its label, whether both ends exist and fit, and its fields."""
    found = ontology.relationship_type(label) if label is not None else None
    if found is None:
        labels = ", ".join(sorted(ontology.relationships))
        return [Finding("label_unknown", "label", f"The ontology has no such label. Labels: {labels}.")]
    findings: list[Finding] = []
    for key, page_id, allowed in (("from", from_id, found.from_types), ("to", to_id, found.to_types)):
        if page_id is None:
            findings.append(Finding("missing", key, f"`{key}` must name a page."))
        else:
            findings += _validate_reference(ontology, key, page_id, allowed, resolve)
    return findings + _validate_fields(ontology, f"`{found.name}`", found.fields, fields, resolve)


def _types(ontology: Ontology) -> str:
    return ", ".join(sorted(name for name, page in ontology.pages.items() if not page.abstract))


def _validate_fields(
    ontology: Ontology,
    owner: str,
    declared: Mapping[str, FieldType],
    fields: Mapping[str, JsonValue],
    resolve: Resolve,
) -> list[Finding]:
    findings: list[Finding] = []
    for name, value in fields.items():
        field = declared.get(name)
        if field is None:
            known = ", ".join(sorted(declared)) or "none"
            findings.append(Finding("field_unknown", f"fields.{name}", f"{owner} has no such field. Fields: {known}."))
        elif value is not None:
            findings += _validate_value(ontology, f"fields.{name}", field, value, resolve)
    for name, field in declared.items():
        if field.required and fields.get(name) is None:
            findings.append(Finding("field_required", f"fields.{name}", f"{owner} needs `{name}`."))
    return findings


def _validate_value(
    ontology: Ontology, path: str, field: FieldType, value: JsonValue, resolve: Resolve
) -> list[Finding]:
    if field.type == "list":
        assert field.element is not None
        if not isinstance(value, (list, tuple)):
            return [Finding("field_type", path, f"`{path}` must be a list.")]
        found: list[Finding] = []
        for index, item in enumerate(value):
            found += _validate_value(ontology, f"{path}[{index}]", field.element, item, resolve)
        return found
    if field.type == "page":
        if type(value) is int:  # an id of digits alone, which YAML reads as a number
            value = str(value)
        if not isinstance(value, str):
            return [Finding("field_type", path, f"`{path}` must be a page id.")]
        return _validate_reference(ontology, path, value, field.of, resolve)
    expected = _expected(field, value)
    return [] if expected is None else [Finding("field_type", path, f"`{path}` must be {expected}.")]


def _expected(field: FieldType, value: JsonValue) -> str | None:
    """What the value should have been, or ``None`` when it is that."""
    text = value if isinstance(value, str) else None
    match field.type:
        case "string":
            fits, expected = text is not None and _LINE_BREAK.search(text) is None, "one line of text"
        case "text":
            fits, expected = text is not None, "text"
        case "integer":
            fits, expected = type(value) is int, "a whole number"
        case "number":
            fits, expected = type(value) in (int, float), "a number"
        case "boolean":
            fits, expected = isinstance(value, bool), "true or false"
        case "date":
            year = str(value) if type(value) is int else None  # YAML reads a bare year as a number
            fits, expected = parse_date(text or year or "") is not None, "a date: YYYY, YYYY-MM, YYYY-MM-DD or RFC 3339"
        case "datetime":
            fits = text is not None and parse_instant(text) is not None
            expected = "an RFC 3339 time such as 2026-09-20T10:00:00Z"
        case "url":
            fits, expected = text is not None and _is_url(text), "an http or https URL"
        case "enum":
            fits, expected = value in field.values, f"one of: {', '.join(field.values)}"
        case _:
            raise AssertionError(field_json(field))
    return None if fits else expected


def _is_url(text: str) -> bool:
    if _BLANK_OR_CONTROL.search(text):
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def _validate_reference(
    ontology: Ontology, path: str, page_id: str, allowed: tuple[str, ...], resolve: Resolve
) -> list[Finding]:
    page_type = resolve(page_id)
    if page_type is None:
        return [Finding("reference_missing", path, f"`{path}` must be the id of an existing page.")]
    if allowed and not any(ontology.is_a(page_type, name) for name in allowed):
        return [Finding("reference_type", path, f"`{path}` must be a page of type: {', '.join(allowed)}.")]
    return []
