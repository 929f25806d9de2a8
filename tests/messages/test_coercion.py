"""Raw JSON made exact: what is refused before any model sees it, and what is parsed."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages.coercion import (
    ARGUMENT_MAX_DEPTH,
    ARGUMENT_MAX_VALUES,
    as_boolean,
    as_integer,
    check_json,
    parsed_json,
    shown_name,
    shown_path,
    without_nulls,
)
from messages.errors import InvalidArgument, KnowledgeError, LimitExceeded
from messages.vocabulary import REQUEST_MAX_BYTES


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


def refusal(value: object) -> KnowledgeError:
    with pytest.raises(KnowledgeError) as caught:
        check_json(value)
    return caught.value


@pytest.mark.parametrize(
    ("value", "field", "reason"),
    [
        ({"items": [{}, {}, {"text": "a\0b"}]}, "items[2].text", "nul"),
        ({"a": {"b": ["\ud83d"]}}, "a.b[0]", "lone_surrogate"),
        ({"bad\0key": 1}, "(unprintable name)", "nul"),
        ({"a": {"\udc00": 1}}, "a.(unprintable name)", "lone_surrogate"),
        ({"a": float("nan")}, "a", "not_a_number"),
        ({"a": [math.inf]}, "a[0]", "not_a_number"),
        ({"a": 2**63}, "a", "out_of_range"),
        ({"a": -(10**5000)}, "a", "out_of_range"),
        ({"a": b"bytes"}, "a", "wrong_type"),
        ({"a": {1: 2}}, "a", "wrong_type"),
        ({"a": {1, 2}}, "a", "wrong_type"),
        (nested(ARGUMENT_MAX_DEPTH + 1), "[0]" * ARGUMENT_MAX_DEPTH, "too_deep"),
        (nested(100_000), "[0]" * ARGUMENT_MAX_DEPTH, "too_deep"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_path(value: object, field: str, reason: str) -> None:
    error = refusal(value)
    assert type(error) is InvalidArgument
    assert (error.fields["field"], error.fields["reason"]) == (field, reason)
    assert error.fields["allowed"] is not None


def test_a_structure_that_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    assert refusal(loop).fields["reason"] == "too_deep"


@pytest.mark.parametrize("value", [["x" * (REQUEST_MAX_BYTES + 1)], [None] * (ARGUMENT_MAX_VALUES + 1)])
def test_what_is_too_large_as_a_whole_is_a_limit(value: object) -> None:
    error = refusal(value)
    assert type(error) is LimitExceeded
    assert error.fields["allowed"] == {"bytes": REQUEST_MAX_BYTES, "values": ARGUMENT_MAX_VALUES}


def test_what_may_stand_in_json_passes() -> None:
    check_json({"a": [None, True, 2**63 - 1, -(2**63), 0.5, "é😀\n", {}], "知": nested(ARGUMENT_MAX_DEPTH - 1)})


def test_nulls_are_absent() -> None:
    assert without_nulls({"a": None, "b": 0, "c": ""}) == {"b": 0, "c": ""}


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(alphabet="aé😀 \\\"["),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
                    max_leaves=8))  # fmt: skip
def test_json_text_of_an_array_or_object_is_parsed_and_nothing_else(value: Any) -> None:
    text = json.dumps(value)
    if "\\u0000" in text:
        return
    assert parsed_json(text, "[") == (value if isinstance(value, list) else text)
    assert parsed_json(text, "{") == (value if isinstance(value, dict) else text)


@pytest.mark.parametrize(
    "text",
    [
        "[1",
        "[NaN]",
        "[" * 100_000,
        "[" + "9" * 5000 + "]",
        "{'a': 1}",
        "[1] x",
        "[,]",
        '{"a": 1, "a": 2}',
        '[{"a": 1, "a": 2}]',
    ],
)
def test_text_that_is_no_json_stays_text(text: str) -> None:
    assert parsed_json(text, text[0]) is text


def test_text_hidden_behind_escapes_in_a_json_string_is_refused() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parsed_json('[{"text": "a\\u0000b"}]', "[")
    assert caught.value.fields["field"] == "[0].text"


@pytest.mark.parametrize(
    ("value", "integer"),
    [(5, 5), (5.0, 5), ("5", 5), (" 5 ", 5), ("5.0", 5), ("-5", -5), ("0", 0), (-0.0, 0)],
)
def test_an_integer_may_be_written_as_a_number_or_a_string(value: object, integer: int) -> None:
    found = as_integer(value)
    assert found == integer
    assert type(found) is int


@pytest.mark.parametrize(
    "value",
    [True, 5.5, "5.5", "05", "+5", "", "five", "1e3", "٥", "5_0", "0x5", "9" * 5000, math.nan, math.inf, None, [5]],
)
def test_nothing_else_is_an_integer(value: object) -> None:
    assert as_integer(value) is None


@pytest.mark.parametrize(("value", "boolean"), [(True, True), ("true", True), (False, False), (" false ", False)])
def test_a_boolean_may_be_written_as_a_string(value: object, boolean: bool) -> None:
    assert as_boolean(value) is boolean


@pytest.mark.parametrize("value", [1, 0, "True", "yes", "", None, []])
def test_nothing_else_is_a_boolean(value: object) -> None:
    assert as_boolean(value) is None


def test_a_path_is_written_as_callers_write_it() -> None:
    assert shown_path(("items", 2, "text")) == "items[2].text"
    assert shown_path(()) == ""
    assert shown_path((0, "a b", 1)) == "[0].(unprintable name)[1]"


@pytest.mark.parametrize("name", ["a b", "", "x" * 65, "naïve", "a\n", "<b>", None, 5])
def test_a_name_that_could_be_anybodys_text_is_not_repeated(name: object) -> None:
    assert shown_name(name) == "(unprintable name)"
