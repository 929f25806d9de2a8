"""The pump between a client and one owner after another, with both sides played by the test."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from host_bridge.cli import pump as pump_module
from host_bridge.cli.dialects import HostDialect, McpDialect
from host_bridge.cli.pump import Pump
from host_bridge.mcp_greeting import greeting
from host_bridge.owner.client import Connection, OwnerError
from host_bridge.transport import LineReader
from messages.json_types import JsonObject, JsonValue

PATIENCE = 20.0


class Owner:
    """The owner's end of one connection."""

    def __init__(self) -> None:
        self.end, theirs = socket.socketpair()
        self.connection = Connection(theirs)
        self._reader = LineReader(self.end.fileno())
        self._lines = iter(self._reader)

    def read(self) -> JsonObject:
        line = next(self._lines)
        assert isinstance(line, bytes)
        message: JsonObject = json.loads(line)
        return message

    def at_end(self) -> bool:
        return next(self._lines, None) is None

    def write(self, message: JsonObject) -> None:
        self.end.sendall(json.dumps(message).encode() + b"\n")

    def answer(self, request: JsonObject, result: JsonValue = None) -> None:
        self.write({"jsonrpc": "2.0", "id": request["id"], "result": result or {}})

    def announce_end(self) -> None:
        self.write({"jsonrpc": "2.0", "method": "owner.ending"})

    def die(self) -> None:
        self.end.close()
        self._reader.close()


class Client:
    """The pump's client, the pump in a thread, and the owners it may reach, in their order."""

    def __init__(self, dialect: McpDialect | HostDialect | None = None, *, cold: bool = False) -> None:
        self.owners: list[Owner | OwnerError] = []
        self.reached: list[Owner] = []
        self.first = Owner()
        pump_in, self._in = os.pipe()
        self._out, pump_out = os.pipe()
        self._pump_ends = [pump_in, pump_out]
        self._reader = LineReader(self._out)
        self._lines = iter(self._reader)
        self.status: list[int] = []
        self.may_start = threading.Event()
        connect = self._start if cold else self._connect
        first = None if cold else self.first.connection
        if first is None:
            self.first.connection.close()
        pump = Pump(connect, first, dialect or McpDialect("core"), pump_in, pump_out)
        self._thread = threading.Thread(target=lambda: self.status.append(pump.run()))
        self._thread.start()

    def _connect(self) -> Connection:
        if not self.owners:
            raise OwnerError("store_unavailable", "The test is over.")
        found = self.owners.pop(0)
        if isinstance(found, OwnerError):
            raise found
        self.reached.append(found)
        return found.connection

    def _start(self) -> Connection:
        """Somebody starts the owner that the pump asked for: not before the test says so."""
        assert self.may_start.wait(PATIENCE)
        return self._connect()

    def next_owner(self) -> Owner:
        owner = Owner()
        self.owners.append(owner)
        return owner

    def send(self, method: str, request_id: JsonValue = None, **params: JsonValue) -> None:
        message: JsonObject = {"jsonrpc": "2.0", "method": method, "params": params}
        if request_id is not None:
            message["id"] = request_id
        self.write(json.dumps(message).encode() + b"\n")

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._in, view) :]

    def read(self) -> JsonObject:
        line = next(self._lines)
        assert isinstance(line, bytes)
        message: JsonObject = json.loads(line)
        return message

    def handshake(self) -> None:
        self.send("initialize", 0, protocolVersion="2025-11-25")
        self.first.answer(self.first.read(), {"era": "first"})
        assert self.read()["result"] == {"era": "first"}
        self.send("notifications/initialized")
        assert self.first.read()["method"] == "notifications/initialized"

    def end_input(self) -> None:
        if self._in >= 0:
            os.close(self._in)
            self._in = -1

    def close_output(self) -> None:
        os.close(self._out)
        self._out = -1

    def join(self) -> int:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.status[0]

    def close(self) -> None:
        self.end_input()
        for owner in (self.first, *self.reached):
            owner.die()
        self.join()
        for never_reached in self.owners:
            if isinstance(never_reached, Owner):
                never_reached.die()
                never_reached.connection.close()
        self._reader.close()
        for descriptor in (*self._pump_ends, *([self._out] if self._out >= 0 else [])):
            os.close(descriptor)


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    yield made
    made.close()


def test_lines_pass_both_ways_unchanged(client: Client) -> None:
    line = '{"jsonrpc":"2.0",  "id":1,"method":"tools/list","note":"żółw 🐢"}\n'.encode()
    client.write(line[:10])
    client.write(line[10:])
    assert client.first.end.recv(1 << 16) == line
    client.first.answer({"id": 1}, {"tools": []})
    assert client.read() == {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}


def test_lines_that_are_not_json_pass_too(client: Client) -> None:
    client.write(b"junk\n\n[1]\n")
    received = b""
    while len(received) < 10:
        received += client.first.end.recv(100)
    assert received == b"junk\n\n[1]\n"


def test_a_line_beyond_every_limit_passes_without_being_kept(client: Client) -> None:
    received = bytearray()
    done = threading.Event()

    def read() -> None:
        while not received.endswith(b"\n"):
            received.extend(client.first.end.recv(1 << 16))
        done.set()

    threading.Thread(target=read, daemon=True).start()
    client.write(b'"' + b"x" * (20 << 20) + b'"\n')
    assert done.wait(PATIENCE)
    assert len(received) == (20 << 20) + 3


def test_a_client_that_writes_and_does_not_read_never_blocks_the_pump(client: Client) -> None:
    """Both directions are stuffed at once: a pump with blocking writes would stand still here."""
    big: JsonObject = {"jsonrpc": "2.0", "id": 5, "result": {"text": "x" * (2 << 20)}}
    writer = threading.Thread(target=lambda: client.first.write(big))
    writer.start()
    sender = threading.Thread(target=lambda: client.send("tools/call", 1, text="y" * (2 << 20)))
    sender.start()
    assert client.first.read()["id"] == 1
    assert client.read()["id"] == 5
    writer.join(PATIENCE)
    sender.join(PATIENCE)


def test_after_a_death_the_handshake_is_repeated_and_its_answer_swallowed(client: Client) -> None:
    client.handshake()
    second = client.next_owner()
    client.first.die()
    repeated = second.read()
    assert (repeated["method"], repeated["id"]) == ("initialize", 0)
    client.send("tools/list", 1)
    second.answer(repeated, {"era": "second"})
    assert second.read()["method"] == "notifications/initialized"
    request = second.read()
    assert request["method"] == "tools/list"
    second.answer(request, {"tools": []})
    assert client.read() == {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}


def test_open_tool_calls_get_a_retryable_error_and_are_not_run_again(client: Client) -> None:
    client.handshake()
    client.send("tools/call", "a", name="knowledge_remember", arguments={})
    client.first.read()
    second = client.next_owner()
    client.first.die()
    answer = client.read()
    assert answer["id"] == "a"
    result = answer["result"]
    assert isinstance(result, dict)
    assert result["isError"] is True
    assert "resultType" not in result
    facts = json.loads(result["content"][0]["text"])
    assert (facts["code"], facts["retry"]) == ("restarting", "unknown")
    second.answer(second.read())
    assert second.read()["method"] == "notifications/initialized"
    client.send("ping", 2)
    assert second.read()["id"] == 2


def test_in_the_era_without_handshake_the_error_is_complete_and_nothing_is_repeated(client: Client) -> None:
    client.send("tools/call", 1, name="knowledge_status")
    client.first.read()
    second = client.next_owner()
    client.first.die()
    result = client.read()["result"]
    assert isinstance(result, dict)
    assert (result["isError"], result["resultType"]) == (True, "complete")
    client.send("tools/list", 2)
    assert second.read()["id"] == 2


def test_what_is_harmless_to_ask_twice_is_asked_again(client: Client) -> None:
    client.handshake()
    client.send("tools/list", 1)
    client.first.read()
    second = client.next_owner()
    client.first.die()
    second.answer(second.read())
    assert second.read()["method"] == "notifications/initialized"
    again = second.read()
    assert (again["method"], again["id"]) == ("tools/list", 1)
    second.answer(again, {"tools": []})
    assert client.read()["id"] == 1


def test_a_request_that_ends_every_owner_is_answered_in_the_end(client: Client) -> None:
    client.send("tools/list", 1)
    client.first.read()
    for _ in range(2):
        owner = client.next_owner()
        (client.reached[-1] if client.reached else client.first).die()
        assert owner.read()["id"] == 1
    client.owners.append(Owner())
    client.reached[-1].die()
    error = client.read()["error"]
    assert isinstance(error, dict)
    assert error["data"]["code"] == "restarting"


def test_an_owner_that_died_during_the_handshake_is_replaced_and_the_client_gets_the_one_answer(
    client: Client,
) -> None:
    client.send("initialize", 0)
    client.first.read()
    second = client.next_owner()
    client.first.die()
    request = second.read()
    assert request["method"] == "initialize"
    second.answer(request, {"era": "second"})
    assert client.read() == {"jsonrpc": "2.0", "id": 0, "result": {"era": "second"}}


def test_an_end_that_was_meant_starts_another_owner_only_when_the_client_speaks(client: Client) -> None:
    client.handshake()
    client.first.announce_end()
    client.first.die()
    second = client.next_owner()
    client.send("tools/list", 3)
    second.answer(second.read())
    assert second.read()["method"] == "notifications/initialized"
    assert second.read()["id"] == 3
    assert client.reached == [second]


def test_when_no_owner_can_be_started_every_request_is_answered_and_the_client_stays(client: Client) -> None:
    client.handshake()
    client.owners.append(OwnerError("store_unavailable", "No owner could be started."))
    client.send("tools/list", 1)
    client.first.read()
    client.first.die()
    error = client.read()["error"]
    assert isinstance(error, dict)
    assert error["data"]["code"] == "store_unavailable"
    client.owners.append(OwnerError("storage_error", "The disk is full.", "safe"))
    client.send("tools/call", 2, name="knowledge_status")
    result = client.read()["result"]
    assert isinstance(result, dict)
    assert json.loads(result["content"][0]["text"])["code"] == "storage_error"
    third = client.next_owner()
    client.send("tools/list", 4)
    third.answer(third.read())
    assert third.read()["method"] == "notifications/initialized"
    assert third.read()["id"] == 4


def test_owners_that_die_at_once_are_not_replaced_for_ever(client: Client) -> None:
    client.handshake()
    owners = [client.next_owner() for _ in range(6)]
    client.first.die()
    for owner in owners[:5]:
        assert owner.read()["method"] == "initialize"
        owner.die()
    client.send("ping", 1)
    assert owners[5].read()["method"] == "initialize"
    assert client.reached == owners


def test_a_cancelled_call_is_not_answered_after_a_death(client: Client) -> None:
    client.handshake()
    client.send("tools/call", 1, name="knowledge_status")
    client.first.read()
    client.send("notifications/cancelled", requestId=1)
    client.first.read()
    second = client.next_owner()
    client.first.die()
    second.answer(second.read())
    assert second.read()["method"] == "notifications/initialized"
    client.send("ping", 2)
    second.answer(second.read())
    assert client.read()["id"] == 2


def test_half_a_line_of_a_dead_owner_never_reaches_the_client(client: Client) -> None:
    client.send("tools/list", 1)
    client.first.read()
    client.first.end.sendall(b'{"jsonrpc":"2.0","id":1,"res')
    second = client.next_owner()
    client.first.die()
    second.answer(second.read(), {"tools": []})
    assert client.read() == {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}


def test_the_end_of_input_is_passed_on_and_the_last_answers_still_arrive(client: Client) -> None:
    client.send("tools/call", 1, name="knowledge_status")
    request = client.first.read()
    client.end_input()
    assert client.first.at_end()
    client.first.answer(request, {"late": True})
    assert client.read()["result"] == {"late": True}
    client.first.die()
    assert client.join() == 0


def test_a_last_line_without_its_end_is_still_a_line(client: Client) -> None:
    client.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    client.end_input()
    assert client.first.read()["id"] == 1
    client.first.die()
    assert client.join() == 0


def test_a_client_that_closed_our_output_is_noticed_before_anything_is_written(client: Client) -> None:
    client.close_output()
    assert client.join() == 0
    assert client.first.at_end()


def test_a_client_that_died_while_its_pipes_live_on_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump_module, "_PARENT_CHECK_MS", 20)
    client = Client()
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert client.join() == 0
    client.close()


def test_over_the_host_protocol_open_calls_get_an_error_and_shutdown_ends_the_pump() -> None:
    client = Client(HostDialect())
    client.send("tools.call", 1, tool="knowledge_status")
    client.first.read()
    second = client.next_owner()
    client.first.die()
    error = client.read()["error"]
    assert isinstance(error, dict)
    assert (error["code"], error["data"]["code"], error["data"]["retry"]) == (-32000, "restarting", "unknown")
    client.send("shutdown", 2)
    second.answer(second.read())
    assert client.read()["id"] == 2
    second.die()
    assert client.join() == 0
    client.close()


def test_ids_one_and_the_text_one_are_two_requests(client: Client) -> None:
    client.send("tools/call", 1, name="a")
    client.send("tools/call", "1", name="b")
    client.first.read()
    client.first.answer(client.first.read(), {"which": "text"})
    assert client.read()["id"] == "1"
    client.next_owner()
    client.first.die()
    assert client.read()["id"] == 1


HANDSHAKE: JsonObject = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"roots": {"listChanged": True}},
    "clientInfo": {"name": "test", "version": "1"},
}


@pytest.fixture
def cold() -> Iterator[Client]:
    """A client whose owner is only being started."""
    made = Client(cold=True)
    yield made
    made.may_start.set()
    made.close()


def test_the_handshake_is_answered_before_there_is_an_owner_and_repeated_to_it(cold: Client) -> None:
    owner = cold.next_owner()
    cold.send("initialize", 1, **HANDSHAKE)
    assert cold.read() == {"jsonrpc": "2.0", "id": 1, "result": greeting(HANDSHAKE, "core")}
    cold.send("notifications/initialized")
    cold.send("tools/list", 2)
    cold.may_start.set()
    handshake = owner.read()
    assert (handshake["method"], handshake["params"]) == ("initialize", HANDSHAKE)
    owner.answer(handshake, {"era": "never seen"})
    assert owner.read()["method"] == "notifications/initialized"
    listing = owner.read()
    owner.answer(listing, {"tools": []})
    assert cold.read() == {"jsonrpc": "2.0", "id": 2, "result": {"tools": []}}
    cold.send("tools/list", 3)
    assert owner.read()["id"] == 3


@pytest.mark.parametrize(
    ("method", "params"),
    [("initialize", {}), ("initialize", {**HANDSHAKE, "capabilities": {"roots": 5}}), ("server/discover", {})],
)
def test_what_only_an_owner_can_answer_waits_for_it_in_its_order(cold: Client, method: str, params: JsonObject) -> None:
    owner = cold.next_owner()
    cold.send(method, 1, **params)
    cold.write(b"no json\n")
    cold.send("tools/call", 2)
    cold.may_start.set()
    opening = owner.read()
    assert (opening["method"], opening["params"]) == (method, params)
    assert next(owner._lines) == b"no json"
    assert owner.read()["id"] == 2
    owner.answer(opening, {"by": "the owner"})
    assert cold.read()["result"] == {"by": "the owner"}


def test_all_that_a_client_said_before_it_left_reaches_the_owner_that_came_later(cold: Client) -> None:
    owner = cold.next_owner()
    cold.send("initialize", 1, **HANDSHAKE)
    assert cold.read()["id"] == 1
    cold.send("notifications/initialized")
    cold.send("tools/list", 2)
    cold.end_input()
    cold.may_start.set()
    owner.answer(owner.read())
    assert [owner.read()["method"] for _ in range(2)] == ["notifications/initialized", "tools/list"]
    assert owner.at_end()
    owner.write({"jsonrpc": "2.0", "id": 2, "result": {}})
    assert cold.read()["id"] == 2
    owner.end.shutdown(socket.SHUT_RDWR)
    assert cold.join() == 0


def test_why_no_first_owner_started_answers_what_was_asked_and_ends_the_pump(
    cold: Client, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    cold.owners.append(OwnerError("open_elsewhere", "Held by process 7.", "safe"))
    cold.send("initialize", 1, **HANDSHAKE)
    assert cold.read()["id"] == 1
    cold.send("tools/list", 2)
    cold.may_start.set()
    assert cold.join() == 4
    assert b"Held by process 7." in capfdbinary.readouterr().err


def test_more_than_a_client_may_say_early_waits_in_its_pipe_and_is_not_lost(cold: Client) -> None:
    owner = cold.next_owner()
    big = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"a":"%s"}}' % (b"x" * (9 << 20))
    writer = threading.Thread(target=lambda: cold.write(big + b"\n"))
    writer.start()
    cold.may_start.set()
    owner._reader._limit = len(big)
    assert next(owner._lines) == big
    writer.join(PATIENCE)


@pytest.mark.parametrize("request_id", ["1.5", "null", "true", '"\\ud800"', "[]"])
def test_an_id_that_nobody_can_echo_is_not_kept_open(client: Client, request_id: str) -> None:
    line = f'{{"jsonrpc": "2.0", "id": {request_id}, "method": "tools/call"}}'.encode()
    client.write(line + b"\n")
    assert next(client.first._lines) == line
    client.first.write({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "No."}})
    assert client.read()["id"] is None
    following = client.next_owner()
    client.first.die()
    client.send("tools/list", 1)
    following.answer(following.read())
    assert client.read()["id"] == 1
