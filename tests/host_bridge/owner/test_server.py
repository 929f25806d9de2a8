"""The owner's connections in this process: greetings, limits, idleness and the end."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import host_bridge
from host_bridge.owner import endpoint, server
from host_bridge.owner.client import OWNER_PROTOCOL, Connection, Lost, OwnerError
from host_bridge.owner.server import OwnerServer, refuse_everybody
from host_bridge.owner.session import mint_audience
from messages.audience import Conversation, OwnerPrivate
from messages.errors import InvalidArgument, KnowledgeError, StorageError
from messages.json_types import JsonObject, JsonValue
from tests.host_bridge.fake_bridge import FakePending, KnowledgeBridge
from tests.kit.actors import eventually

PATIENCE = 20.0
SESSION = "3f0c6a5e-8c1d-4d4a-9a53-1f0f3a2b4c5d"


class Bridge(KnowledgeBridge):
    """The fake bridge; what ``hold`` holds is released by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[FakePending] = []
        self.arrived = threading.Semaphore(0)

    def hold(self, pending: FakePending) -> None:
        self.held.append(pending)
        self.arrived.release()


class Running:
    """An owner's server in a thread, on a socket of its own."""

    def __init__(self, folder: Path, *, detached: bool = True, idle_seconds: float = 3_600.0) -> None:
        folder.chmod(0o700)
        self.path = str(folder / "s.sock")
        self._ahead = 0.0
        self.bridge = Bridge()
        self.server = OwnerServer(
            endpoint.listen(self.path),
            self.path,
            self.bridge,
            lambda: "ana",
            detached=detached,
            idle_seconds=idle_seconds,
            clock=lambda: time.monotonic() + self._ahead,
        )
        self.reason: list[str] = []
        self._thread = threading.Thread(target=lambda: self.reason.append(self.server.run()))
        self._thread.start()
        self._clients: list[Connection] = []

    def connect(self) -> Connection:
        connection = Connection(endpoint.connect(self.path, PATIENCE))
        self._clients.append(connection)
        return connection

    def greet(self, **params: JsonValue) -> Connection:
        connection = self.connect()
        connection.hello = dict(self._object(connection.request("owner.hello", {"door": "rpc", **params}, PATIENCE)))
        return connection

    def ask(self, connection: Connection, method: str, **params: JsonValue) -> Mapping[str, JsonValue]:
        return self._object(connection.request(method, dict(params), PATIENCE))

    def let_pass(self, seconds: float) -> None:
        """Move the server's clock on; it looks at it again at its next check."""
        self._ahead += seconds

    def wait_end(self) -> str:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.reason[0]

    def close(self) -> None:
        self.server.request_stop("the test is over")
        self.wait_end()
        self.server.refuse_new()
        self.bridge.close(drain_seconds=0)
        self.server.close()
        for client in self._clients:
            client.close()

    @staticmethod
    def _object(value: JsonValue) -> Mapping[str, JsonValue]:
        assert isinstance(value, Mapping)
        return value


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Running] = []

    def begin(**options: object) -> Running:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Running(folder, **options))  # type: ignore[arg-type]  # passed through as they came
        return started[-1]

    yield begin
    for running in started:
        running.close()


def test_the_welcome_names_protocol_process_version_and_kind(start: Start) -> None:
    assert start().greet().hello == {
        "protocol": OWNER_PROTOCOL,
        "pid": os.getpid(),
        "version": host_bridge.__version__,
        "detached": True,
    }


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"door": "ftp"}, "door"),
        ({"door": None}, "door"),
        ({"door": "rpc", "caller": "ana"}, "caller"),
        ({"door": "rpc", "caller": {"store": "x"}}, "caller"),
        ({"door": "rpc", "caller": {"agent": 5}}, "audience.agent"),
        ({"door": "rpc", "caller": {"session": SESSION}}, "audience.sessionKey"),
        ({"door": "rpc", "caller": {"conversation": "g", "session": "x"}}, "audience.sessionId"),
        ({"door": "mcp", "profile": 5}, "profile"),
        ({"door": "mcp", "profile": "everything"}, "profile"),
    ],
)
def test_a_greeting_that_makes_no_sense_is_refused_by_field(start: Start, params: JsonObject, field: str) -> None:
    running = start()
    with pytest.raises(OwnerError) as refused:
        running.greet(**params)
    assert (refused.value.code, refused.value.fields["field"]) == ("invalid_argument", field)


def test_a_host_may_speak_without_any_greeting(start: Start) -> None:
    running = start()
    answer = running.ask(running.connect(), "tools.list", format="mcp")
    assert answer["tools"]


def test_a_greeted_caller_is_the_audience_of_calls_that_carry_none(start: Start) -> None:
    running = start()
    assert running.ask(running.greet(caller={}), "tools.call", tool="knowledge_status")["agent"] == "ana"
    other = running.greet(caller={"agent": "ben", "conversation": "g", "session": SESSION})
    answer = running.ask(other, "tools.call", tool="knowledge_status")
    assert (answer["agent"], answer["session"]) == ("ben", SESSION)


def test_the_audience_of_a_thin_client_is_its_users_or_a_conversations() -> None:
    assert mint_audience({}, "ana") == OwnerPrivate("ana")
    assert mint_audience({"agent": "ben"}, "ana") == OwnerPrivate("ben")
    caller: JsonObject = {"conversation": "group:1", "session": SESSION}
    assert mint_audience(caller, "ana") == Conversation("ana", "group:1", SESSION)
    with pytest.raises(InvalidArgument):
        mint_audience({"conversation": "group:1"}, "ana")


def test_an_idle_detached_owner_hands_over_to_a_foreground_owner(start: Start) -> None:
    running = start()
    assert running.ask(running.greet(), "owner.handOver", version="0", mode="foreground") == {"accepted": True}
    assert running.wait_end() == "hand-over"


@pytest.mark.parametrize(
    ("detached", "version", "mode", "others", "reason"),
    [
        (False, "99.0", "foreground", 0, "foreground"),
        (True, "99.0", "foreground", 1, "busy"),
        (True, "99.0", "detached", 2, "busy"),
        (True, host_bridge.__version__, "detached", 0, "not_newer"),
        (True, "0.0.1", "detached", 0, "not_newer"),
    ],
)
def test_an_owner_that_is_needed_or_not_outdated_stays(
    start: Start, detached: bool, version: str, mode: str, others: int, reason: str
) -> None:
    running = start(detached=detached)
    for _ in range(others):
        running.greet()
    answer = running.ask(running.greet(), "owner.handOver", version=version, mode=mode)
    assert answer == {"accepted": False, "reason": reason, "connectedClients": others}
    assert running.server.stop_reason is None


def test_a_newer_version_gets_an_idle_detached_owner_to_hand_over(start: Start) -> None:
    running = start()
    assert running.ask(running.greet(), "owner.handOver", version="99.0", mode="detached") == {"accepted": True}


def test_no_clients_for_long_enough_end_a_detached_owner_and_only_that(start: Start) -> None:
    assert start(idle_seconds=0.05).wait_end() == "idle"
    foreground = start(idle_seconds=0.0, detached=False)
    assert running_status(foreground)["detached"] is False
    assert foreground.server.stop_reason is None


def test_an_accepted_call_whose_client_left_keeps_the_owner_until_it_is_done(start: Start) -> None:
    running = start()
    client = running.connect()
    request: JsonObject = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools.call",
        "params": {
            "tool": "knowledge_status",
            "arguments": {"act": "hold"},
            "audience": {"kind": "owner-private", "agent": "ana"},
        },
    }
    client.sock.sendall(json.dumps(request).encode() + b"\n")
    assert running.bridge.arrived.acquire(timeout=PATIENCE)
    pending = running.bridge.held[0]
    pending.cancel_refused = True
    client.close()
    running.let_pass(3_600)
    eventually(lambda: not running.server.status()["connections"])
    running.let_pass(3_600)
    assert running.reason == []
    pending.settle({})
    running.let_pass(3_600)
    assert running.wait_end() == "idle"


def test_connections_beyond_the_limit_are_refused_as_busy_and_room_is_made_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 2)
    running = start()
    first, _ = running.greet(), running.greet()
    with pytest.raises(OwnerError) as refused:
        running.greet()
    assert refused.value.code == "busy"
    running.ask(first, "shutdown")
    while first.sock.recv(100):
        pass

    def has_room() -> bool:
        # The end is seen before the server has forgotten the connection.
        try:
            return running.greet().hello["pid"] == os.getpid()
        except OwnerError as error:
            return error.code != "busy"

    eventually(has_room)


def test_shutdown_over_the_socket_ends_that_connection_and_no_other(start: Start) -> None:
    running = start()
    leaving, staying = running.greet(), running.greet()
    assert running.ask(leaving, "shutdown") == {}
    with pytest.raises(Lost):
        running.ask(leaving, "owner.status")
    assert running.ask(staying, "owner.status")["pid"] == os.getpid()


def test_a_client_that_vanished_has_its_calls_cancelled(start: Start) -> None:
    running = start()
    client = running.greet(caller={})
    client.sock.sendall(
        b'{"jsonrpc":"2.0","id":9,"method":"tools.call","params":{"tool":"knowledge_status","arguments":{"act":"hold"}}}\n'
    )
    assert running.bridge.arrived.acquire(timeout=PATIENCE)
    cancelled = threading.Event()
    running.bridge.held[0].add_done_callback(lambda _: cancelled.set())
    client.close()
    assert cancelled.wait(PATIENCE)
    assert running.bridge.held[0].call.cancellation.requested


def test_a_client_that_only_stopped_writing_still_gets_its_answer(start: Start) -> None:
    running = start()
    client = running.greet(caller={})
    client.sock.sendall(
        b'{"jsonrpc":"2.0","id":9,"method":"tools.call","params":{"tool":"knowledge_status","arguments":{"act":"hold"}}}\n'
    )
    assert running.bridge.arrived.acquire(timeout=PATIENCE)
    client.sock.shutdown(socket.SHUT_WR)
    running.bridge.held[0].settle({"held": True})
    assert json.loads(client.sock.makefile("rb").readline())["result"] == {"held": True}


def test_the_end_is_announced_to_clients_that_greeted_and_new_calls_are_refused(start: Start) -> None:
    running = start()
    client = running.greet(caller={})
    running.server.request_stop("test")
    running.wait_end()
    running.server.refuse_new()
    assert not os.path.exists(running.path)
    lines = client.sock.makefile("rb")
    assert json.loads(lines.readline())["method"] == "owner.ending"
    client.sock.sendall(
        b'{"jsonrpc":"2.0","id":9,"method":"tools.call","params":{"tool":"knowledge_status","arguments":{}}}\n'
    )
    assert json.loads(lines.readline())["error"]["data"]["code"] == "stopping"


def test_a_greeting_after_the_end_began_asks_the_client_to_come_again(start: Start) -> None:
    running = start()
    client = running.connect()
    running.ask(client, "tools.list", format="mcp")
    running.server.request_stop("test")
    running.wait_end()
    with pytest.raises(OwnerError) as refused:
        client.request("owner.hello", {"door": "rpc"}, PATIENCE)
    assert (refused.value.code, refused.value.retry) == ("stopping", "safe")


def test_a_socket_file_that_vanished_is_made_again_and_its_clients_stay(start: Start) -> None:
    running = start()
    client = running.greet()
    os.unlink(running.path)
    running.server._keep_socket()
    running.server._wake.wake()  # it still waits at the old socket; in an owner this runs in the waiting thread
    assert running.greet().hello["pid"] == os.getpid()
    assert running.ask(client, "owner.status")["connections"] == 2


def test_a_socket_folder_that_others_can_enter_is_never_used_again(start: Start) -> None:
    running = start()
    os.unlink(running.path)
    os.chmod(os.path.dirname(running.path), 0o777)
    running.server._keep_socket()
    assert not os.path.exists(running.path)


@pytest.mark.parametrize("sent", [b'{"jsonrpc":"2.0","id":"a","method":"owner.hello"}\n', b"junk\n", b""])
def test_clients_of_an_owner_that_cannot_start_all_hear_why(tmp_path: Path, sent: bytes) -> None:
    listener = endpoint.listen(str(tmp_path / "s.sock"))
    error: KnowledgeError = StorageError("The disk is full.")
    clients = [endpoint.connect(str(tmp_path / "s.sock"), PATIENCE) for _ in range(3)]
    for client in clients:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
    refuse_everybody(listener, error, 5.0)
    listener.close()
    for client in clients:
        with client:
            answer = json.loads(client.makefile("rb").readline())
        assert answer["error"]["data"]["code"] == "storage_error"
        assert answer["id"] == ("a" if b'"a"' in sent else None)


def running_status(running: Running) -> Mapping[str, JsonValue]:
    return running.ask(running.greet(), "owner.status")
