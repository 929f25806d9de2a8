"""Hostile lines and honest ones: each becomes a message or one typed refusal."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_bridge import jsonrpc
from host_bridge.jsonrpc import Malformed, Notification, Request, Response
from messages.errors import InvalidArgument, StaleFence
from messages.json_types import JsonValue


def _refused(line: bytes) -> Malformed:
    with pytest.raises(Malformed) as refused:
        jsonrpc.parse_message(line)
    return refused.value


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"",
        b"nonsense",
        b"{} {}",
        b"\xff\xfe",
        b'{"a": "\xc3"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"n": NaN}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"n": -Infinity}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"n": 1e999}}',
        b'{"n": ' + b"9" * 5_000 + b"}",
        b"{'single': 'quotes'}",
    ],
)
def test_what_is_not_json_is_minus_32700_with_a_null_id(line: bytes) -> None:
    error = _refused(line)
    assert error.number == -32700
    assert json.loads(error.to_line())["id"] is None


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc": "2.0", "id": 7, "method": "x", "params": {"a": {"id": "one", "id": "two"}}}',
        b'{"jsonrpc": "2.0", "id": 7, "method": "x", "method": "y"}',
        b'{"jsonrpc": "2.0", "id": 7, "method": "x", "params": [{"n": 1, "\\u006e": 1}]}',
    ],
)
def test_a_name_that_stands_twice_in_one_object_is_refused_and_none_of_the_two_is_taken(line: bytes) -> None:
    error = _refused(line)
    assert (error.number, error.request_id) == (-32600, 7)


def test_arguments_in_a_string_that_hold_a_name_twice_stay_a_string() -> None:
    assert jsonrpc.unwrapped('{"id": "one", "id": "two"}') == '{"id": "one", "id": "two"}'
    assert jsonrpc.unwrapped('{"id": "one"}') == {"id": "one"}


@pytest.mark.parametrize("line", [b"[]", b'[{"jsonrpc": "2.0", "id": 1, "method": "x"}]', b"1", b"null", b'"text"'])
def test_batches_and_bare_values_are_minus_32600(line: bytes) -> None:
    assert _refused(line).number == -32600


@pytest.mark.parametrize(
    "line",
    [
        b'{"id": 1, "method": "x"}',
        b'{"jsonrpc": "1.0", "id": 1, "method": "x"}',
        b'{"jsonrpc": "2.0", "id": 1}',
        b'{"jsonrpc": "2.0", "id": 1, "method": 5}',
    ],
)
def test_an_invalid_request_is_answered_with_its_id(line: bytes) -> None:
    error = _refused(line)
    assert (error.number, error.request_id) == (-32600, 1)


@pytest.mark.parametrize("request_id", ["null", "true", "1.5", "[]", "{}", '"' + "x" * 257 + '"', '"a\\ud800b"', "1.0"])
def test_an_id_that_cannot_be_matched_is_minus_32600(request_id: str) -> None:
    error = _refused(f'{{"jsonrpc": "2.0", "id": {request_id}, "method": "x"}}'.encode())
    assert (error.number, error.request_id) == (-32600, None)


def test_params_that_are_no_object_are_minus_32602() -> None:
    error = _refused(b'{"jsonrpc": "2.0", "id": "a", "method": "x", "params": [1]}')
    assert (error.number, error.request_id) == (-32602, "a")
    assert json.loads(error.to_line())["error"]["data"]["code"] == "invalid_argument"


@pytest.mark.parametrize("depth", [jsonrpc.MAX_DEPTH + 1, 500, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_deep_nesting_is_refused_and_never_a_recursion_error(depth: int, opening: str, closing: str) -> None:
    inner = opening * depth + "0" + closing * depth
    error = _refused(f'{{"jsonrpc": "2.0", "id": 7, "method": "x", "params": {{"a": {inner}}}}}'.encode())
    assert error.number in (-32600, -32000)
    assert "nested deeper" in error.message


def test_many_brackets_side_by_side_or_in_text_are_not_deep() -> None:
    wide = ",".join(["[[0]]"] * 1_000)
    line = f'{{"jsonrpc": "2.0", "id": 7, "method": "x", "params": {{"a": [{wide}], "b": "{"[" * 1_000}"}}}}'
    assert isinstance(jsonrpc.parse_message(line.encode()), Request)


def test_nesting_at_the_limit_passes() -> None:
    depth = jsonrpc.MAX_DEPTH - 2
    line = f'{{"jsonrpc": "2.0", "id": 7, "method": "x", "params": {{"a": {"[" * depth}{"]" * depth}}}}}'
    assert isinstance(jsonrpc.parse_message(line.encode()), Request)


def test_a_lone_surrogate_passes_so_that_the_tool_can_name_its_field() -> None:
    message = jsonrpc.parse_message(b'{"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"t": "\\ud800"}}')
    assert message == Request(1, "x", {"t": "\ud800"})


def test_requests_notifications_and_answers_are_told_apart() -> None:
    assert jsonrpc.parse_message(b'{"jsonrpc": "2.0", "id": "1", "method": "x"}') == Request("1", "x", {})
    assert jsonrpc.parse_message(b'{"jsonrpc": "2.0", "method": "x", "params": {"a": 1}}') == Notification(
        "x", {"a": 1}
    )
    assert jsonrpc.parse_message(b'{"jsonrpc": "2.0", "id": 4, "result": {}}') == Response()


@given(st.binary(max_size=200))
def test_any_bytes_become_a_message_or_a_refusal(line: bytes) -> None:
    answer = b"{}"
    try:
        jsonrpc.parse_message(line)
    except Malformed as error:
        answer = error.to_line()
    assert isinstance(json.loads(answer), dict)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(_JSON)
def test_an_answer_is_one_line_that_reads_back(value: object) -> None:
    line = jsonrpc.result_line(1, value)  # type: ignore[arg-type]  # hypothesis makes JSON, which mypy cannot know
    assert b"\n" not in line
    assert json.loads(line)["result"] == value


def test_an_answer_with_a_lone_surrogate_is_still_valid_utf8() -> None:
    line = jsonrpc.result_line(1, {"text": "a\ud800b"})
    assert json.loads(line.decode("utf-8"))["result"] == {"text": "a?b"}


def test_an_invalid_argument_is_minus_32602_and_every_other_code_minus_32000() -> None:
    bad = json.loads(jsonrpc.refusal_line(1, InvalidArgument("No.", field="query")))["error"]
    assert (bad["code"], bad["data"]) == (-32602, {"code": "invalid_argument", "retry": "never", "field": "query"})
    stale = json.loads(jsonrpc.refusal_line(1, StaleFence("Stale.")))["error"]
    assert (stale["code"], stale["data"]) == (-32000, {"code": "stale_fence", "retry": "never"})


@given(st.integers() | st.text(max_size=256))
def test_an_id_is_echoed_exactly(request_id: jsonrpc.RequestId) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "x"}).encode()
    message = jsonrpc.parse_message(line)
    assert isinstance(message, Request)
    echoed = json.loads(jsonrpc.result_line(message.id, {}))["id"]
    assert (echoed, type(echoed)) == (request_id, type(request_id))


@pytest.mark.parametrize("text", ['{"a": 1}', ' {"a": {"b": [1]}} '])
def test_arguments_in_a_string_are_unwrapped_when_it_holds_an_object(text: str) -> None:
    assert jsonrpc.unwrapped(text) == json.loads(text)


@pytest.mark.parametrize("value", ["", "text", "[1]", "5", '"{}"', '{"a": NaN}', "\ud800", [1], None, {"a": "{}"}])
def test_arguments_that_hold_no_object_stay_what_they_are(value: JsonValue) -> None:
    assert jsonrpc.unwrapped(value) == value
