"""Pieces and models: every kind of bad value gets a field, a reason and what is allowed, and never the value."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field

from messages.arguments import PROBLEMS_SHOWN, Arguments, argument_names, required_names, validate
from messages.errors import InvalidArgument, KnowledgeError, LimitExceeded, ShortHash
from messages.pieces import (
    FIELDS_MAX_DEPTH,
    Bool,
    Choice,
    DateText,
    Fields,
    Hash,
    Integer,
    Items,
    RecordId,
    Sha256,
    Text,
    Uuid,
)
from messages.vocabulary import FIELDS_MAX_BYTES

SECRET = "sk-do-not-repeat-me"


class Inner(Arguments):
    text: Annotated[str, Text(max_units=40)]
    due_at: DateText | None = Field(default=None, alias="due_at")


class Sample(Arguments):
    name: Annotated[str, Text(max_units=20, one_line=True)] | None = None
    blob: Annotated[str, Text(max_bytes=8, may_be_blank=True)] | None = None
    count: Annotated[int, Integer(1, 9)] = 3
    flag: Bool = False
    word: Annotated[str, Choice("red", "blue", hints={"Red": "write it in lower case"})] | None = None
    id: RecordId | None = None
    request_id: Uuid | None = None
    expected_hash: Hash | None = None
    sha256: Sha256 | None = None
    on: DateText | None = None
    fields: Fields | None = None
    items: Annotated[tuple[Inner, ...], Items(1, 3)] | None = None
    names: Annotated[tuple[Annotated[str, Text(max_units=5)], ...], Items(0, 2)] | None = None
    one: Inner | None = None


def refusal(value: object) -> KnowledgeError:
    with pytest.raises(KnowledgeError) as caught:
        validate(Sample, value)
    return caught.value


@pytest.mark.parametrize(
    ("value", "field", "reason"),
    [
        (5, "", "wrong_type"),
        ([], "", "wrong_type"),
        ("[]", "", "wrong_type"),
        ({"name": 5}, "name", "wrong_type"),
        ({"name": ["a"]}, "name", "wrong_type"),
        ({"name": ""}, "name", "blank"),
        ({"name": " \u200b"}, "name", "blank"),
        ({"name": "a\nb"}, "name", "control_character"),
        ({"name": "a\0"}, "name", "nul"),
        ({"count": 0}, "count", "out_of_range"),
        ({"count": 10}, "count", "out_of_range"),
        ({"count": "10"}, "count", "out_of_range"),
        ({"count": 5.5}, "count", "wrong_type"),
        ({"count": True}, "count", "wrong_type"),
        ({"count": "many"}, "count", "wrong_type"),
        ({"count": 10**400}, "count", "out_of_range"),
        ({"count": 1e300}, "count", "out_of_range"),
        ({"count": float("nan")}, "count", "not_a_number"),
        ({"flag": 1}, "flag", "wrong_type"),
        ({"flag": "yes"}, "flag", "wrong_type"),
        ({"word": "Red"}, "word", "not_allowed"),
        ({"word": "green"}, "word", "not_allowed"),
        ({"word": {"a": 1}}, "word", "wrong_type"),
        ({"id": "a b"}, "id", "malformed"),
        ({"id": "x" * 129}, "id", "malformed"),
        ({"id": "a\n"}, "id", "malformed"),
        ({"id": ""}, "id", "malformed"),
        ({"id": 7}, "id", "wrong_type"),
        ({"requestId": "x"}, "requestId", "malformed"),
        ({"requestId": "{00000000-0000-4000-8000-000000000020}"}, "requestId", "malformed"),
        ({"requestId": "00000000000040008000000000000020"}, "requestId", "malformed"),
        ({"requestId": "00000000-0000-4000-8000-00000000002g"}, "requestId", "malformed"),
        ({"requestId": "٠0000000-0000-4000-8000-000000000020"}, "requestId", "malformed"),
        ({"expectedHash": "A" * 16}, "expectedHash", "malformed"),
        ({"expectedHash": "a" * 65}, "expectedHash", "malformed"),
        ({"expectedHash": "g" * 16}, "expectedHash", "malformed"),
        ({"expectedHash": 1234567890123456}, "expectedHash", "wrong_type"),
        ({"sha256": "a" * 63}, "sha256", "malformed"),
        ({"sha256": "A" * 64}, "sha256", "malformed"),
        ({"on": "yesterday"}, "on", "malformed"),
        ({"on": 2026}, "on", "wrong_type"),
        ({"fields": []}, "fields", "wrong_type"),
        ({"fields": "x"}, "fields", "wrong_type"),
        ({"fields": {"a": ["\ud800"]}}, "fields.a[0]", "lone_surrogate"),
        ({"fields": '{"a": "\\u0000"}'}, "fields.a", "nul"),
        ({"items": []}, "items", "too_few"),
        ({"items": [None]}, "items", "too_few"),
        ({"items": {}}, "items", "wrong_type"),
        ({"items": "text"}, "items", "wrong_type"),
        ({"items": [{"text": "a"}, {"text": 5}]}, "items[1].text", "wrong_type"),
        ({"items": [{"text": "a"}, {}]}, "items[1].text", "missing"),
        ({"items": [{"text": "a"}, {"text": None}]}, "items[1].text", "missing"),
        ({"items": [{"text": "a", "due_at": "x"}]}, "items[0].due_at", "malformed"),
        ({"items": [{"text": "a", "dueAt": "2026"}]}, "items[0].dueAt", "unknown"),
        ({"items": '[{"text": "\\ud800"}]'}, "items[0].text", "lone_surrogate"),
        ({"items": ["a"]}, "items[0]", "wrong_type"),
        ({"names": ["a", 5]}, "names[1]", "wrong_type"),
        ({"one": {"text": "a", "extra": 1}}, "one.extra", "unknown"),
        ({"one": []}, "one", "wrong_type"),
        ({"expected_hash": "a" * 16}, "expected_hash", "unknown"),
        ({"a b c": 1}, "(unprintable name)", "unknown"),
    ],
)
def test_a_bad_argument_names_its_field_reason_and_what_is_allowed(value: object, field: str, reason: str) -> None:
    error = refusal(value)
    assert type(error) is InvalidArgument
    assert (error.fields["field"], error.fields["reason"]) == (field, reason)
    assert error.fields["allowed"]
    assert error.message.startswith(field or "arguments")


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"name": "x" * 21}, "name"),
        ({"name": "😀" * 11}, "name"),
        ({"blob": "é" * 5}, "blob"),
        ({"items": [{"text": "a"}] * 4}, "items"),
        ({"names": ["a", "b", "c"]}, "names"),
        ({"names": ["abcdef"]}, "names[0]"),
        ({"fields": {"a": "x" * FIELDS_MAX_BYTES}}, "fields"),
        ({"fields": {"a": "知" * (FIELDS_MAX_BYTES // 3)}}, "fields"),
    ],
)
def test_a_size_over_its_limit_is_limit_exceeded(value: object, field: str) -> None:
    error = refusal(value)
    assert type(error) is LimitExceeded
    assert error.fields["field"] == field
    assert str(error.fields["allowed"]).startswith("at most")


def test_a_hash_prefix_under_sixteen_characters_is_short() -> None:
    error = refusal({"expectedHash": "a" * 15})
    assert type(error) is ShortHash
    assert validate(Sample, {"expectedHash": "a" * 16}).expected_hash == "a" * 16


@pytest.mark.parametrize(
    ("value", "attribute", "kept"),
    [
        ({"name": "😀" * 10}, "name", "😀" * 10),
        ({"blob": ""}, "blob", ""),
        ({"blob": "é" * 4}, "blob", "é" * 4),
        ({"count": 5.0}, "count", 5),
        ({"count": "5"}, "count", 5),
        ({"flag": "true"}, "flag", True),
        ({"requestId": "00000000-0000-4000-8000-00000000002A"}, "request_id", "00000000-0000-4000-8000-00000000002a"),
        ({"names": '["a", null, "b"]'}, "names", ("a", "b")),
        ({"names": "[]"}, "names", ()),
        ({"names": [None, None, None]}, "names", ()),
        ({"one": '{"text": "[1]", "due_at": null}'}, "one", Inner(text="[1]")),
        ({"items": ['{"text": "a"}', None]}, "items", (Inner(text="a"),)),
        ({"fields": '{"a": null, "b": {"c": null}}'}, "fields", {"a": None, "b": {"c": None}}),
        ({"fields": {"a": '{"b": 1}'}}, "fields", {"a": '{"b": 1}'}),
        ({"fields": {}}, "fields", {}),
        ({"name": '["a"]'}, "name", '["a"]'),
        ('{"name": "a"}', "name", "a"),
        ({"nothing": None}, "name", None),
    ],
)
def test_what_models_write_is_taken_for_what_they_mean(value: object, attribute: str, kept: object) -> None:
    assert getattr(validate(Sample, value), attribute) == kept


def test_every_null_counts_as_absent() -> None:
    assert validate(Sample, dict.fromkeys(argument_names(Sample))) == Sample()


def test_fields_nested_beyond_the_frontmatter_limit_are_refused() -> None:
    def nest(levels: int) -> dict[str, Any]:
        value: Any = 1
        for _ in range(levels):
            value = {"a": value}
        found: dict[str, Any] = value
        return found

    assert validate(Sample, {"fields": nest(FIELDS_MAX_DEPTH)}).fields == nest(FIELDS_MAX_DEPTH)
    assert refusal({"fields": nest(FIELDS_MAX_DEPTH + 1)}).fields["reason"] == "too_deep"


def test_validated_fields_do_not_change_with_the_callers_object() -> None:
    mine: dict[str, Any] = {"a": ["b"]}
    sample = validate(Sample, {"fields": mine})
    mine["a"].append("c")
    assert sample.fields == {"a": ["b"]}


def test_a_validated_model_is_frozen() -> None:
    with pytest.raises(ValueError):
        validate(Sample, {}).count = 4


def test_several_problems_come_in_one_answer() -> None:
    error = refusal({"count": 0, "word": "green", "expectedHash": "abc", "naem": "x"})
    problems = error.fields["problems"]
    assert isinstance(problems, list)
    assert [(p["code"], p["field"], p["reason"]) for p in problems] == [
        ("invalid_argument", "count", "out_of_range"),
        ("invalid_argument", "word", "not_allowed"),
        ("short_hash", "expectedHash", "too_short"),
        ("invalid_argument", "naem", "unknown"),
    ]
    for field in ("count", "word", "expectedHash", "naem"):
        assert field in error.message


def test_a_flood_of_problems_is_cut_and_counted() -> None:
    error = refusal({f"unknown{number}": number for number in range(1_000)})
    problems = error.fields["problems"]
    assert isinstance(problems, list)
    assert len(problems) == PROBLEMS_SHOWN
    assert "and 990 more" in error.message
    assert len(error.message) < 5_000


def test_an_unknown_argument_is_named_with_the_one_that_was_meant() -> None:
    error = refusal({"expectedHahs": "x"})
    assert "did you mean expectedHash?" in error.message
    assert error.fields["allowed"] == list(argument_names(Sample))


def test_an_allowed_word_in_another_case_is_explained() -> None:
    assert "write it in lower case" in refusal({"word": "Red"}).message


def test_a_missing_argument_lists_all_that_are_required() -> None:
    assert refusal({"one": {}}).fields["allowed"] == list(required_names(Inner)) == ["text"]


@pytest.mark.parametrize("key", [*argument_names(Sample), "unknown", f"{SECRET} as a name"])
@pytest.mark.parametrize(
    "value", [SECRET, [SECRET], [{"text": 1, f"{SECRET} too": SECRET}], f"{SECRET}\0", SECRET * 999]
)
def test_no_error_repeats_a_value_or_hides_it_in_its_context(key: str, value: object) -> None:
    if (key, value) in (("name", SECRET), ("id", SECRET)):
        return
    error = refusal({key: value})
    assert SECRET not in error.message + repr(error.fields)
    assert error.__cause__ is None
    assert error.__context__ is None


def test_a_problem_inside_parsed_text_keeps_no_trace_of_it() -> None:
    error = refusal({"items": f'[{{"text": "{SECRET}\\u0000"}}]'})
    assert SECRET not in error.message + repr(error.fields)
    assert error.__context__ is None
