"""The host protocol's peer: one answer each, in the order in which calls finish."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping

import pytest

from host_bridge.rpc import OPEN_CALLS_MAX, SUBSCRIPTIONS_MAX, RpcPeer
from host_bridge.transport import LineReader, Outbox, Oversize
from messages.audience import OwnerPrivate
from messages.json_types import JsonObject, JsonValue
from messages.operator import LOCAL_OPERATOR, Operator
from tests.host_bridge.fake_bridge import FakePending, KnowledgeBridge

OWNER: JsonObject = {"kind": "owner-private", "agent": "main"}


class Bridge(KnowledgeBridge):
    """The fake bridge; calls that ``hold`` wait here until the test releases them by name."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, FakePending] = {}

    def hold(self, pending: FakePending) -> None:
        self.held[str(pending.call.arguments["name"])] = pending

    def release(self, name: str) -> None:
        self.held[name].settle({"held": name})


class Wire:
    """A peer and the lines it wrote."""

    def __init__(self, *, caller: OwnerPrivate | None = None, operator: Operator | None = None) -> None:
        self.bridge = Bridge()
        self._reader_end, self._writer_end = os.pipe()
        self.outbox = Outbox(self._writer_end, name="test")
        self.drained = threading.Event()
        self.peer = RpcPeer(self.bridge, self.outbox, caller=caller, operator=operator, on_shutdown=self._drain)
        self._lines = LineReader(self._reader_end)
        self._answers = iter(self._lines)

    def _drain(self) -> None:
        assert self.drained.wait(10)

    def send(self, method: str, params: JsonObject | None = None, request_id: JsonValue = 1) -> None:
        message: JsonObject = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}
        self.peer.receive(json.dumps(message).encode())

    def call(self, request_id: JsonValue, arguments: Mapping[str, JsonValue] | None = None, **more: JsonValue) -> None:
        params: JsonObject = {"tool": "knowledge_status", "arguments": dict(arguments or {}), "audience": OWNER, **more}
        self.send("tools.call", params, request_id)

    def hold(self, name: str) -> None:
        self.call(name, {"act": "hold", "name": name})

    def answer(self) -> JsonObject:
        line = next(self._answers)
        assert isinstance(line, bytes)
        message: JsonObject = json.loads(line)
        return message

    def error(self) -> JsonObject:
        error = self.answer()["error"]
        assert isinstance(error, dict)
        return error

    def close(self) -> None:
        self.drained.set()
        self.bridge.close(drain_seconds=0)
        self.outbox.close()
        os.close(self._writer_end)
        os.close(self._reader_end)
        self._lines.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Wire()
    yield made
    made.close()


def test_initialize_names_protocol_server_vault_format_limits_and_capabilities(wire: Wire) -> None:
    wire.send("initialize", {"protocol": "knowledge-host/1", "host": {"name": "test", "version": "1"}})
    result = wire.answer()["result"]
    assert isinstance(result, dict)
    assert set(result) == {"protocol", "server", "vaultFormat", "limits", "capabilities"}
    assert result["protocol"] == "knowledge-host/1"


def test_another_protocol_is_refused_with_the_one_that_is_spoken(wire: Wire) -> None:
    wire.send("initialize", {"protocol": "knowledge-host/2", "host": {"name": "test", "version": "1"}})
    error = wire.error()
    assert error["code"] == -32602
    assert isinstance(error["data"], dict)
    assert error["data"]["field"] == "protocol"


def test_answers_come_as_calls_finish_not_as_they_came(wire: Wire) -> None:
    wire.hold("first")
    wire.hold("second")
    wire.call("third")
    assert wire.answer()["id"] == "third"
    wire.bridge.release("second")
    assert wire.answer() == {"jsonrpc": "2.0", "id": "second", "result": {"held": "second"}}
    wire.bridge.release("first")
    assert wire.answer()["id"] == "first"


def test_a_cancelled_call_gets_its_one_answer(wire: Wire) -> None:
    wire.hold("a")
    wire.peer.receive(b'{"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": "a"}}')
    answer = wire.answer()
    assert answer["id"] == "a"
    assert isinstance(answer["error"], dict)
    assert isinstance(answer["error"]["data"], dict)
    assert answer["error"]["data"]["code"] == "cancelled"
    wire.bridge.release("a")
    wire.call("b")
    assert wire.answer()["id"] == "b"


def test_cancelling_what_is_not_open_is_no_error(wire: Wire) -> None:
    wire.send("$/cancel", {"id": "unknown"}, 5)
    assert wire.answer() == {"jsonrpc": "2.0", "id": 5, "result": {}}


@pytest.mark.parametrize("bad", [True, 1.5, None, [], {}])
def test_a_cancel_without_an_id_that_could_be_one_is_refused(wire: Wire, bad: JsonValue) -> None:
    wire.send("$/cancel", {"id": bad})
    assert wire.error()["code"] == -32602


def test_the_deadline_is_30_seconds_unless_one_is_given(wire: Wire) -> None:
    wire.call(1)
    wire.call(2, deadlineMs=600_000)
    by_id = {answer["id"]: answer["result"] for answer in (wire.answer(), wire.answer())}
    for request_id, expected in ((1, 30_000), (2, 600_000)):
        result = by_id[request_id]
        assert isinstance(result, dict)
        assert isinstance(result["deadlineMs"], int)
        assert expected - 5_000 < result["deadlineMs"] <= expected


@pytest.mark.parametrize("bad", [0, -1, 600_001, 1.5, True, "soon", [], {}])
def test_a_deadline_outside_its_bounds_is_an_invalid_argument(wire: Wire, bad: JsonValue) -> None:
    wire.call(1, deadlineMs=bad)
    error = wire.error()
    assert error["code"] == -32602
    assert isinstance(error["data"], dict)
    assert error["data"]["field"] == "deadlineMs"


def test_a_call_without_audience_is_refused_unless_the_connection_has_one(wire: Wire) -> None:
    wire.send("tools.call", {"tool": "knowledge_status", "arguments": {}})
    error = wire.error()
    assert error["code"] == -32000
    assert isinstance(error["data"], dict)
    assert error["data"]["code"] == "audience_missing"
    own = Wire(caller=OwnerPrivate("ana"))
    own.send("tools.call", {"tool": "knowledge_status"})
    result = own.answer()["result"]
    assert isinstance(result, dict)
    assert result["agent"] == "ana"
    own.close()


def test_a_malformed_audience_is_refused_by_field(wire: Wire) -> None:
    wire.send("tools.call", {"tool": "knowledge_status", "audience": {"kind": "owner-private", "agent": 5}})
    error = wire.error()
    assert isinstance(error["data"], dict)
    assert str(error["data"]["field"]).startswith("audience")


def test_an_unknown_method_is_minus_32601_without_a_code_of_ours(wire: Wire) -> None:
    wire.send("knowledge.everything")
    error = wire.error()
    assert error["code"] == -32601
    assert "data" not in error


def test_an_unknown_tool_is_typed(wire: Wire) -> None:
    wire.send("tools.call", {"tool": "knowledge_nothing", "audience": OWNER})
    error = wire.error()
    assert error["code"] == -32000
    assert isinstance(error["data"], dict)
    assert error["data"]["code"] == "unknown_tool"


@pytest.mark.parametrize("bad", ["text", [1], 5, True])
def test_arguments_that_are_no_object_are_refused(wire: Wire, bad: JsonValue) -> None:
    wire.send("tools.call", {"tool": "knowledge_status", "arguments": bad, "audience": OWNER})
    error = wire.error()
    assert error["code"] == -32602
    assert isinstance(error["data"], dict)
    assert error["data"]["field"] == "arguments"


def test_an_unknown_parameter_is_refused_by_name(wire: Wire) -> None:
    wire.call(1, store="other")
    error = wire.error()
    assert error["code"] == -32602
    assert isinstance(error["data"], dict)
    assert error["data"]["field"] == "store"


def test_a_refusal_carries_code_retry_and_fields(wire: Wire) -> None:
    wire.call(1, {"act": "refuse"})
    data = wire.error()["data"]
    assert data == {"code": "stale_fence", "retry": "never", "field": "expectedRevision", "current": 4}


@pytest.mark.parametrize("act", ["defect", "broken"])
def test_no_exception_text_ever_leaves(wire: Wire, act: str) -> None:
    wire.call(1, {"act": act})
    answer = wire.answer()
    assert "secret" not in json.dumps(answer)
    assert isinstance(answer["error"], dict)
    assert isinstance(answer["error"]["data"], dict)
    assert answer["error"]["data"]["code"] == "internal"


def test_a_permit_revoked_before_the_bytes_left_gives_the_refusal(wire: Wire) -> None:
    wire.call(1, {"act": "revoked"})
    data = wire.error()["data"]
    assert isinstance(data, dict)
    assert data["code"] == "denied"


def test_an_id_that_is_still_open_is_not_answered_twice(wire: Wire) -> None:
    wire.hold("a")
    wire.call("a")
    error = wire.answer()
    assert error["id"] is None
    wire.bridge.release("a")
    assert wire.answer()["result"] == {"held": "a"}
    wire.call("a")
    assert wire.answer()["id"] == "a"


def test_one_and_the_text_one_are_two_ids(wire: Wire) -> None:
    wire.hold("1")
    wire.call(1)
    assert wire.answer()["id"] == 1
    wire.bridge.release("1")
    assert wire.answer()["id"] == "1"


def test_calls_beyond_the_limit_are_refused_at_once(wire: Wire) -> None:
    for number in range(OPEN_CALLS_MAX):
        wire.call(number, {"act": "hold", "name": str(number)})
    wire.call("one more")
    error = wire.answer()
    assert error["id"] == "one more"
    assert isinstance(error["error"], dict)
    assert isinstance(error["error"]["data"], dict)
    assert error["error"]["data"]["code"] == "busy"


def test_an_oversized_line_is_refused_as_a_limit_and_the_connection_goes_on(wire: Wire) -> None:
    wire.peer.receive(Oversize(8 << 20))
    error = wire.error()
    assert isinstance(error["data"], dict)
    assert error["data"]["code"] == "limit_exceeded"
    wire.call(1)
    assert wire.answer()["id"] == 1


def test_blank_lines_answers_and_unknown_notifications_are_ignored(wire: Wire) -> None:
    for line in (b"", b"  ", b'{"jsonrpc": "2.0", "id": 1, "result": 5}', b'{"jsonrpc": "2.0", "method": "hello"}'):
        wire.peer.receive(line)
    wire.call(1)
    assert wire.answer()["id"] == 1


def test_shutdown_is_answered_after_the_drain_and_refuses_new_calls_meanwhile(wire: Wire) -> None:
    wire.hold("a")
    wire.send("shutdown", {}, "end")
    wire.call("late")
    late = wire.answer()
    assert late["id"] == "late"
    assert isinstance(late["error"], dict)
    assert isinstance(late["error"]["data"], dict)
    assert late["error"]["data"]["code"] == "stopping"
    wire.bridge.release("a")
    assert wire.answer()["id"] == "a"
    wire.drained.set()
    assert wire.answer() == {"jsonrpc": "2.0", "id": "end", "result": {}}


@pytest.mark.parametrize("format_name", ["mcp", "openai", "anthropic"])
def test_tools_are_listed_in_each_shape_and_the_same_every_time(wire: Wire, format_name: str) -> None:
    wire.send("tools.list", {"format": format_name}, 1)
    wire.send("tools.list", {"format": format_name}, 1)
    first, second = wire.answer(), wire.answer()
    assert first == second
    assert isinstance(first["result"], dict)
    assert isinstance(first["result"]["tools"], list)
    assert first["result"]["tools"]


def test_an_unknown_format_is_refused_with_the_allowed_ones(wire: Wire) -> None:
    wire.send("tools.list", {"format": "xml"})
    error = wire.error()
    assert error["code"] == -32602
    assert isinstance(error["data"], dict)
    assert error["data"]["field"] == "format"


def test_every_one_of_many_concurrent_calls_gets_exactly_one_answer(wire: Wire) -> None:
    acts = ["echo", "refuse", "defect", "revoked", "broken", "large"]
    answers: list[JsonObject] = []
    collector = threading.Thread(target=lambda: answers.extend(wire.answer() for _ in range(1_200)))
    collector.start()
    for number in range(1_200):
        wire.call(number, {"act": acts[number % len(acts)], "size": 5_000})
    collector.join(30)
    seen = [answer["id"] for answer in answers if answer["id"] is not None]
    refused_ids = [answer for answer in answers if answer["id"] is None]
    assert len(seen) == len(set(seen)) == 1_200
    assert not refused_ids


# --- operators and events --------------------------------------------------------------------------------------


@pytest.fixture
def socket_wire() -> Iterator[Wire]:
    """A peer that is an operator by itself, as one over the owner's socket is."""
    made = Wire(operator=LOCAL_OPERATOR)
    yield made
    made.close()


def test_an_operators_request_is_answered_like_a_call_and_names_who_asked(socket_wire: Wire) -> None:
    socket_wire.send("operator.status", {"agent": "ben"})
    assert socket_wire.answer()["result"] == {
        "operator": "local", "agent": "ben", "method": "operator.status", "request": {},
    }  # fmt: skip
    socket_wire.send("operator.status", {"operator": {"id": "ana", "scopes": ["operator.read"]}})
    result = socket_wire.answer()["result"]
    assert isinstance(result, dict)
    assert result["operator"] == "ana"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "operator"),
        ({"operator": {"id": "ana", "scopes": ["root"]}}, "operator.scopes[0]"),
        ({"operator": {"id": "ana"}}, "operator.scopes"),
        ({"operator": {"id": "ana", "scopes": [], "admin": True}}, "operator.admin"),
        ({"operator": {"id": "ana", "scopes": []}, "store": "x"}, "store"),
        ({"operator": {"id": "ana", "scopes": []}, "deadlineMs": 0}, "deadlineMs"),
    ],
)
def test_an_operators_request_is_refused_by_field(wire: Wire, params: JsonObject, field: str) -> None:
    wire.send("operator.status", params)
    error = wire.error()
    assert error["code"] == -32602
    assert isinstance(error["data"], dict)
    assert error["data"]["field"] == field


def test_events_leave_between_the_answers_of_who_subscribed_and_end_with_the_connection(socket_wire: Wire) -> None:
    socket_wire.send("events.subscribe", {"audience": OWNER}, 7)
    assert socket_wire.answer() == {"jsonrpc": "2.0", "id": 7, "result": {}}
    (subscription,) = socket_wire.bridge.subscriptions
    assert subscription.subscriber.audience == OwnerPrivate("main")
    subscription.tell({"type": "changed", "partition": "private"})
    assert socket_wire.answer() == {
        "jsonrpc": "2.0", "method": "event", "params": {"type": "changed", "partition": "private"},
    }  # fmt: skip
    socket_wire.peer.end_subscriptions()
    assert socket_wire.bridge.subscriptions == []


def test_a_subscription_without_an_audience_is_the_peers_own_or_refused(wire: Wire, socket_wire: Wire) -> None:
    socket_wire.send("events.subscribe", {"agent": "ben"})
    socket_wire.answer()
    (subscription,) = socket_wire.bridge.subscriptions
    assert (subscription.subscriber.operator, subscription.subscriber.agent) == (LOCAL_OPERATOR, "ben")
    wire.send("events.subscribe", {})
    assert wire.error()["code"] == -32602
    wire.send("events.subscribe", {"audience": OWNER, "operator": {"id": "a", "scopes": []}})
    assert wire.error()["code"] == -32602


def test_one_connection_has_a_bounded_number_of_subscriptions(socket_wire: Wire) -> None:
    for number in range(SUBSCRIPTIONS_MAX):
        socket_wire.send("events.subscribe", {}, number)
        assert socket_wire.answer()["result"] == {}
    socket_wire.send("events.subscribe", {}, "more")
    data = socket_wire.error()["data"]
    assert isinstance(data, dict)
    assert data["code"] == "busy"


def test_arguments_sent_as_text_are_parsed(wire: Wire) -> None:
    wire.send("tools.call", {"tool": "knowledge_status", "arguments": '{"note": "from a string"}', "audience": OWNER})
    result = wire.answer()["result"]
    assert isinstance(result, Mapping)
    assert result["arguments"] == {"note": "from a string"}
