"""From a call to its bytes: what holds, cancels, refuses and ends an answer, on a bridge with a mind of its own."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from host_bridge.http.server import HttpServer, HttpSettings
from messages.json_types import JsonObject
from tests.host_bridge.fake_bridge import HOST_KEY, FakePending
from tests.host_bridge.fake_bridge import KnowledgeBridge as Bridge
from tests.host_bridge.http.test_owner_http import line_of
from tests.host_bridge.http.world import OWNER, code_of
from tests.host_bridge.processes import PATIENCE, Home
from tests.kit.leaks import nothing_left

HEAD = {"Authorization": f"Bearer {HOST_KEY}"}


@pytest.fixture
def bridge() -> Bridge:
    return Bridge()


@pytest.fixture
def server(bridge: Bridge) -> Iterator[HttpServer]:
    with nothing_left():
        opened = HttpServer(bridge, HttpSettings("127.0.0.1:0"))
        yield opened
        bridge.close(drain_seconds=0)
        opened.close()


def asked(**arguments: object) -> JsonObject:
    params: JsonObject = {"tool": "knowledge_status", "arguments": arguments, "audience": OWNER}  # type: ignore[dict-item]
    return {"jsonrpc": "2.0", "id": "one", "method": "tools.call", "params": params}


def post(server: HttpServer, body: JsonObject) -> JsonObject:
    answer: JsonObject = httpx.post(f"{server.url}/rpc", json=body, headers=HEAD, timeout=20, trust_env=False).json()
    return answer


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("act", "code"), [("refuse", "stale_fence"), ("defect", "internal"), ("revoked", "denied"), ("broken", "internal")]
)
def test_what_goes_wrong_with_an_answer_is_its_typed_refusal(server: HttpServer, act: str, code: str) -> None:
    answer = post(server, asked(act=act))
    assert code_of(answer) == code
    assert answer["id"] == "one"
    assert "secret" not in json.dumps(answer)
    assert "result" in post(server, asked(act="echo")), "and costs no other"


def test_the_deadline_of_a_call_is_passed_on(server: HttpServer) -> None:
    body = asked(act="hold")
    params = body["params"]
    assert isinstance(params, dict)
    params["deadlineMs"] = 50
    assert code_of(post(server, body)) == "deadline"
    headers = {**HEAD, "Knowledge-Audience": json.dumps(OWNER), "Knowledge-Deadline-Ms": "50"}
    late = httpx.post(
        f"{server.url}/v1/tools/knowledge_status", json={"act": "hold"}, headers=headers, timeout=20, trust_env=False
    )
    assert (late.status_code, code_of(late.json())) == (504, "deadline")


@pytest.mark.parametrize("path", ["/rpc", "/v1/tools/knowledge_status"])
def test_a_client_that_hangs_up_cancels_a_call_that_was_not_accepted(
    server: HttpServer, bridge: Bridge, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled = threading.Event()
    monkeypatch.setattr("tests.host_bridge.fake_bridge.FakePending.cancel", lambda pending: cancelled.set())
    body = json.dumps(asked(act="hold") if path == "/rpc" else {"act": "hold"}).encode()
    named = json.dumps(OWNER)
    lines = (
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        f"Authorization: Bearer {HOST_KEY}",
        "Content-Type: application/json",
        f"Knowledge-Audience: {named}",
        f"Content-Length: {len(body)}",
        "",
        "",
    )
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall("\r\n".join(lines).encode() + body)
        until(bridge.busy)
    assert cancelled.wait(20)
    until(lambda: server.application.door.slots.calls == 0)


def test_a_large_answer_arrives_whole(server: HttpServer) -> None:
    answer = post(server, asked(act="large", size=8_000_000))
    result = answer["result"]
    assert isinstance(result, dict)
    assert result == {"text": "x" * 8_000_000}


def test_a_lease_is_held_until_the_kernel_has_the_bytes_and_no_longer_than_patience(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that stops in the middle of an answer is cut off: nobody else waits for its lease."""
    server.application.deliverer._seconds = 0.3
    inside, outside = threading.Event(), threading.Event()
    deliver = FakePending.deliver

    def watched(pending: FakePending, hand_over: Callable[[JsonObject], None]) -> None:
        inside.set()
        try:
            deliver(pending, hand_over)
        finally:
            outside.set()

    monkeypatch.setattr("tests.host_bridge.fake_bridge.FakePending.deliver", watched)
    body = json.dumps(asked(act="large", size=8_000_000)).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect(("127.0.0.1", server.port))
        head = (
            f"POST /rpc HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {HOST_KEY}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        assert inside.wait(20)
        assert outside.wait(20)
        until(lambda: len(server.application.connections) == 0)


def test_once_it_stops_calls_are_refused_and_open_ones_are_answered(server: HttpServer, bridge: Bridge) -> None:
    answers: list[JsonObject] = []
    waiting = threading.Thread(target=lambda: answers.append(post(server, asked(act="hold", name="a"))))
    waiting.start()
    until(bridge.busy)
    server.stop_accepting()
    assert code_of(post(server, asked())) == "stopping"
    ready = httpx.get(f"{server.url}/readyz", trust_env=False)
    assert (ready.status_code, ready.json()) == (503, {"ready": False})
    assert httpx.get(f"{server.url}/healthz", trust_env=False).status_code == 200
    bridge.close(drain_seconds=0)
    waiting.join(20)
    assert code_of(answers[0]) == "stopping"


def test_sigterm_lets_an_open_call_finish_over_http_and_exits_0(tmp_path: Path) -> None:
    home = Home(fake=True)
    try:
        process = home.start("serve", "--http", "127.0.0.1:0")
        assert process.stderr is not None
        url = line_of(process.stderr, r"serves HTTP at (http://\S+)\.")
        line_of(process.stderr, r"(owns)")
        started, release = home.pipe("started"), home.pipe("release")
        body = asked(act="hold", name="a", started=started, release=release)
        answers: list[JsonObject] = []

        def call() -> None:
            answers.append(httpx.post(f"{url}/rpc", json=body, headers=HEAD, timeout=PATIENCE, trust_env=False).json())

        waiting = threading.Thread(target=call)
        waiting.start()
        assert Path(started).read_text(encoding="utf-8") == "a\n"
        process.send_signal(signal.SIGTERM)
        until(lambda: not socket_answers(url))
        Path(release).write_text("", encoding="utf-8")
        waiting.join(PATIENCE)
        assert answers == [{"jsonrpc": "2.0", "id": "one", "result": {"held": "a"}}]
        assert process.wait(PATIENCE) == 0
    finally:
        home.close()


def socket_answers(url: str) -> bool:
    """Whether the server still takes calls."""
    answer = httpx.post(f"{url}/rpc", json=asked(), headers=HEAD, timeout=20, trust_env=False).json()
    return "result" in answer
