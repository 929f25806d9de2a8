"""Whether domain data fits the ontology."""

from __future__ import annotations

import pytest

from messages.json_types import JsonValue
from storage.ontology import Ontology, activate, core_activation, validate_page, validate_relationship

PAGES = {"p": "person", "c": "company", "m": "meeting", "n": "note", "a": "contact", "x": "gone_type", "42": "person"}

THING = activate(b"""\
format: knowledge-ontology-v1
extends: core
pages:
  thing:
    fields:
      a_string: {type: string}
      a_text: {type: text}
      a_integer: {type: integer}
      a_number: {type: number}
      a_boolean: {type: boolean}
      a_date: {type: date}
      a_datetime: {type: datetime}
      a_url: {type: url}
      a_enum: {type: enum, values: [one, two]}
      a_page: {type: page, of: [person, event]}
      a_any: {type: page}
      a_list: {type: list, of: {type: page, of: [person]}}
      a_words: {type: list, of: string}
""").ontology

CORE = core_activation().ontology


def resolve(page_id: str) -> str | None:
    return PAGES.get(page_id)


def found(ontology: Ontology, page_type: str | None, fields: dict[str, JsonValue]) -> list[tuple[str, str]]:
    return [(finding.code, finding.field) for finding in validate_page(ontology, page_type, fields, resolve)]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("string", ["x", "", "😀"], [1, True, ["x"], "a\nb", "a\u2028b", "a\x85b"]),
        ("text", ["a\nb", ""], [1, {}, None if False else 1.5]),
        ("integer", [0, -5, 2**60], [1.0, True, "1"]),
        ("number", [0, 1.5, -2], [True, "1", []]),
        ("boolean", [True, False], [0, 1, "true"]),
        ("date", ["2026", 2026, "2026-09", "2026-09-20", "2026-09-20T10:00:00Z"],
         ["2026-13", 26, True, "today", 1.5, ""]),
        ("datetime", ["2026-09-20T10:00:00Z", "2026-09-20T10:00:00.5+02:00"], ["2026-09-20", 2026, "x"]),
        ("url", ["https://x.y/z?q#f", "http://localhost:80"],
         ["x.y", "ftp://x", "https://", "https://a b", "javascript:x",
          "http://[::1", "http://x:99999", "https://a\nb", 5]),
        ("enum", ["one", "two"], ["three", 1, "One", ["one"], {}]),
        ("page", ["p", "m", "a", 42], ["c", "nobody", "x", ["p"], 7]),
        ("any", ["p", "c", "n"], ["nobody"]),
        ("list", [[], ["p", "a"]], ["p", {"p": 1}]),
        ("words", [[], ["x", "y"]], ["x", 1]),
    ],
)  # fmt: skip
def test_each_field_type_accepts_what_it_holds_and_nothing_else(
    kind: str, good: list[JsonValue], bad: list[JsonValue]
) -> None:
    field = f"a_{kind}"
    for value in good:
        assert found(THING, "thing", {field: value}) == [], value
    for value in bad:
        assert [path for _, path in found(THING, "thing", {field: value})] == [f"fields.{field}"], value


def test_items_of_a_list_are_named_one_by_one() -> None:
    assert found(THING, "thing", {"a_list": ["p", "c", "nobody", 1.5]}) == [
        ("reference_type", "fields.a_list[1]"),
        ("reference_missing", "fields.a_list[2]"),
        ("field_type", "fields.a_list[3]"),
    ]


def test_a_null_field_counts_as_absent() -> None:
    assert found(THING, "thing", {"a_integer": None}) == []
    assert found(CORE, "source", {"key": None}) == [("field_required", "fields.key")]


def test_a_required_field_must_be_there() -> None:
    assert found(CORE, "source", {}) == [("field_required", "fields.key")]
    assert found(CORE, "source", {"key": "k"}) == []


def test_unknown_fields_are_refused_with_those_that_there_are() -> None:
    (finding,) = validate_page(CORE, "project", {"colour": "blue"}, resolve)
    assert (finding.code, finding.field) == ("field_unknown", "fields.colour")
    assert "status" in finding.message
    assert "website" in finding.message


def test_a_project_status_is_one_of_four() -> None:
    (finding,) = validate_page(CORE, "project", {"status": "done"}, resolve)
    assert finding.message == "`fields.status` must be one of: active, paused, completed, cancelled."


def test_types_are_found_by_alias_and_refused_by_name() -> None:
    assert found(CORE, "organization", {"industry": "x"}) == []
    assert found(CORE, "Call", {}) == []
    assert found(CORE, "dragon", {}) == [("type_unknown", "type")]
    assert found(CORE, None, {}) == [("type_missing", "type")]
    assert "person" in validate_page(CORE, "dragon", {}, resolve)[0].message


def test_an_abstract_type_is_refused_with_what_to_choose() -> None:
    (finding,) = validate_page(CORE, "entity", {}, resolve)
    assert finding.code == "type_abstract"
    assert "person" in finding.message


def related(label: str | None, source: str | None, target: str | None, **fields: JsonValue) -> list[tuple[str, str]]:
    return [
        (finding.code, finding.field) for finding in validate_relationship(CORE, label, source, target, fields, resolve)
    ]


def test_endpoints_must_exist_and_be_of_an_allowed_type_or_below_it() -> None:
    assert related("works_at", "p", "c") == []
    assert related("works_at", "a", "c") == []
    assert related("attended", "p", "m") == []  # a meeting is an event
    assert related("works_at", "c", "p") == [("reference_type", "from"), ("reference_type", "to")]
    assert related("works_at", "p", "nobody") == [("reference_missing", "to")]
    assert related("works_at", None, None) == [("missing", "from"), ("missing", "to")]
    assert related("about", "n", "p") == []
    assert related("related_to", "n", "x") == []


def test_labels_and_their_fields_are_checked() -> None:
    assert related("works_at", "p", "c", since="2020-03", role="CTO") == []
    assert related("works_at", "p", "c", since="soon") == [("field_type", "fields.since")]
    assert related("works_at", "p", "c", pay=1) == [("field_unknown", "fields.pay")]
    assert related("loves", "p", "c") == [("label_unknown", "label")]
    assert related(None, "p", "c") == [("label_unknown", "label")]


def test_no_message_repeats_the_value() -> None:
    fields: dict[str, JsonValue] = {"a_url": "secret", "a_enum": "secret", "a_page": "secret", "a_date": "secret"}
    findings = validate_page(THING, "thing", fields, resolve)
    assert len(findings) == 4
    assert all("secret" not in finding.message for finding in findings)
