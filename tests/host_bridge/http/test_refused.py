"""What the HTTP door refuses before a route sees it: each rule is a test that its sentence names.

Over raw sockets, since no client library would send these bytes.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from host_bridge.http.connection import GuardedConnection
from host_bridge.http.door import Limits
from host_bridge.http.heads import CONTENT_SECURITY_POLICY, SECURITY_HEADERS
from messages.json_types import JsonObject
from tests.host_bridge.http.world import OWNER, World, code_of, read_all, reason_of, serving
from tests.kit.leaks import nothing_left

STATUS: JsonObject = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools.call",
    "params": {"tool": "knowledge_status", "arguments": {}, "audience": OWNER},
}
BODY = json.dumps(STATUS).encode()


def head(world: World, *lines: str, method: str = "POST", path: str = "/rpc", host: str | None = None) -> bytes:
    named = f"127.0.0.1:{world.server.port}" if host is None else host
    all_lines = (f"{method} {path} HTTP/1.1", f"Host: {named}", *lines, "", "")
    return "\r\n".join(all_lines).encode()


def bearer(world: World) -> str:
    return f"Authorization: Bearer {world.host_key}"


def status_in(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def body_in(answer: bytes) -> JsonObject:
    found: JsonObject = json.loads(answer.partition(b"\r\n\r\n")[2])
    return found


JSON = "Content-Type: application/json"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.nip.io:{port}", "", "localhost."],
)
def test_a_host_that_is_not_ours_is_refused_whoever_asks(world: World, host: str) -> None:
    for path in ("/rpc", "/healthz", "/", "/session/x"):
        named = host.format(port=world.server.port)
        answer = world.exchange(head(world, bearer(world), path=path, method="GET", host=named))
        assert status_in(answer) == 421
        assert reason_of(body_in(answer)) == "host"


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_the_names_of_this_machine_are_ours(world: World, name: str) -> None:
    answer = world.exchange(
        head(world, "Connection: close", path="/healthz", method="GET", host=f"{name}:{world.server.port}")
    )
    assert status_in(answer) == 200


@pytest.mark.parametrize("repeated", ["Host: evil.example", "Host: 127.0.0.1:1"])
def test_two_hosts_are_refused(world: World, repeated: str) -> None:
    assert status_in(world.exchange(head(world, repeated, method="GET", path="/healthz"))) == 400


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost", "file://"])
def test_a_page_of_another_origin_is_refused_even_with_the_host_s_key(world: World, origin: str) -> None:
    with world.client(world.host_key, Origin=origin) as client:
        answer = client.post("/rpc", json=STATUS)
        assert answer.status_code == 403
        assert reason_of(answer.json()) == "origin"
        preflight = client.options("/rpc", headers={"Access-Control-Request-Method": "POST"})
    assert preflight.status_code == 403
    for answered in (answer, preflight):
        assert not [name for name in answered.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_script_or_image_of_another_site_or_port_is_refused_and_a_navigation_is_not(world: World, site: str) -> None:
    with world.client() as client:
        assert client.get("/healthz", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}).status_code == 403
        framed = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
        assert client.get("/healthz", headers=framed).status_code == 403
        followed = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        assert client.get("/healthz", headers=followed).status_code == 200
        assert client.post("/rpc", headers=followed).status_code == 403


@pytest.mark.parametrize("spelt", ["/metrics%0a", "/openapi.json%0A", "/rpc%0d", "/events%00", "/rpc%7f", "/%0a/rpc"])
def test_a_path_with_what_cannot_be_seen_is_nobody_s_route(world: World, spelt: str) -> None:
    for lines in ((), (bearer(world),)):
        answer = world.exchange(head(world, *lines, "Connection: close", method="GET", path=spelt))
        assert status_in(answer) == 400


@pytest.mark.parametrize("path", ["/%72pc", "//rpc", "/./rpc", "/healthz/../rpc", "/rpc;x", "/RPC", "/rpc/", "/rpc/x"])
def test_however_a_path_is_spelt_no_protocol_route_is_reached_without_a_bearer(world: World, path: str) -> None:
    for method in ("GET", "POST"):
        lines = (JSON, f"Content-Length: {len(BODY)}", "Connection: close")
        answer = world.exchange(head(world, *lines, method=method, path=path) + BODY)
        assert status_in(answer) in (401, 403, 404, 421), answer


def test_a_form_of_a_page_without_referrers_comes_from_null_and_is_known_by_the_browser_s_word(world: World) -> None:
    with world.client(Origin="null") as client:
        ours = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        assert reason_of(client.post("/session/end", headers=ours).json()) == "no_session"
        for site in ("cross-site", "same-site", "none", ""):
            theirs = {**ours, "Sec-Fetch-Site": site}
            assert reason_of(client.post("/session/end", headers=theirs).json()) == "origin", site
        assert reason_of(client.post("/session/end").json()) == "origin"


def test_our_own_origin_may_call(world: World) -> None:
    with world.client(world.host_key, Origin=world.server.url) as client:
        assert client.post("/rpc", json=STATUS).status_code == 200


@pytest.mark.parametrize("name", ["token", "access_token", "key", "API_KEY", "Authorization"])
def test_a_token_in_the_query_is_refused_even_beside_a_good_one(world: World, name: str) -> None:
    with world.client(world.host_key) as client:
        answer = client.post(f"/rpc?{name}={world.host_key}", json=STATUS)
    assert answer.status_code == 400
    assert reason_of(answer.json()) == "secret_in_query"
    with world.client() as client:
        assert client.get(f"/healthz?{name}=x").status_code == 400


@pytest.mark.parametrize(
    "lines",
    [
        (f"Content-Length: {len(BODY)}", "Transfer-Encoding: chunked"),
        ("Content-Length: 5", f"Content-Length: {len(BODY)}"),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: identity",),
        ("Content-Length: +5",),
        ("Content-Length: 5, 6",),
        ("Content-Encoding: gzip", f"Content-Length: {len(BODY)}"),
        ("Authorization: Bearer other", f"Content-Length: {len(BODY)}"),
        ("Content-Type: text/plain", f"Content-Length: {len(BODY)}"),
        ("Bad Header: 1", f"Content-Length: {len(BODY)}"),
        ("X-Fold: a\r\n b: c", "Content-Length : 5"),
        ("Upgrade: websocket", "Connection: Upgrade", f"Content-Length: {len(BODY)}"),
    ],
)
def test_smuggled_headers_are_refused_and_the_connection_is_closed(world: World, lines: tuple[str, ...]) -> None:
    hidden = head(world, bearer(world), method="GET", path="/healthz")
    answer = world.exchange(head(world, bearer(world), JSON, *lines) + BODY + hidden)
    assert status_in(answer) in (400, 501)
    assert answer.count(b"HTTP/1.1 ") == 1, "what came after was not taken for a request"


def test_a_header_of_line_feeds_alone_or_of_nul_is_refused(world: World) -> None:
    host = f"127.0.0.1:{world.server.port}".encode()
    for raw in (
        b"GET /healthz HTTP/1.1\r\nHost: " + host + b"\r\nX: a\0b\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"\x16\x03\x01\x02\x00" + b"\0" * 64,
        b"GET /healthz HTTP/1.1\r\nHost: " + host + b"\r\nX-Big: " + b"a" * 70_000,
    ):
        answer = world.exchange(raw)
        assert answer == b"" or status_in(answer) == 400


def test_a_body_that_says_it_is_larger_than_a_request_may_be_is_refused_unread(world: World) -> None:
    answer = world.exchange(head(world, bearer(world), JSON, f"Content-Length: {(8 << 20) + 1}"))
    assert status_in(answer) == 413
    assert code_of(body_in(answer)) == "limit_exceeded"


def test_a_body_that_does_not_say_how_large_it_is_is_cut_off_at_the_limit(tmp_path: Path) -> None:
    with serving(tmp_path / "state", limits=Limits(body_bytes=100_000)) as world, world.raw() as connection:
        connection.sendall(head(world, bearer(world), JSON, "Transfer-Encoding: chunked"))
        chunk = b"2710\r\n" + b"a" * 10_000 + b"\r\n"
        try:
            for _ in range(11):
                connection.sendall(chunk)
        except (ConnectionResetError, BrokenPipeError):
            pass
        answer = read_all(connection)
    assert answer == b"" or status_in(answer) == 413


def test_a_body_at_the_limit_is_read_and_one_byte_more_is_not(tmp_path: Path) -> None:
    with serving(tmp_path / "state", limits=Limits(body_bytes=1_000)) as world, world.client(world.host_key) as client:
        for size, status in ((1_000, 200), (1_001, 413)):
            body = BODY + b" " * (size - len(BODY))
            assert client.post("/rpc", content=body, headers={"Content-Type": "application/json"}).status_code == status


def test_json_that_is_nested_too_deep_is_refused_at_every_route(world: World) -> None:
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    with world.client(world.token()) as client:
        for path in ("/rpc", "/mcp", "/v1/tools/knowledge_status"):
            answer = client.post(path, content=deep, headers={"Content-Type": "application/json"})
            assert answer.status_code in (400, 413)
            assert "nested deeper" in answer.text
    assert_alive(world)


@pytest.fixture
def impatient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(GuardedConnection, "head_seconds", 0.3)
    limits = Limits(calls=4, speaker_calls=3, streams=2, body_seconds=0.3, send_seconds=0.5)
    with nothing_left(), serving(tmp_path / "state", limits=limits) as opened:
        yield opened


def test_a_head_that_comes_in_drops_is_cut_off(impatient: World) -> None:
    for first in (b"", b"POST /rpc HT", head(impatient, bearer(impatient), JSON)[:-2]):
        with impatient.raw() as connection:
            connection.sendall(first)
            assert read_all(connection) == b""


def test_drops_after_a_first_request_are_cut_off_too(impatient: World) -> None:
    with impatient.raw() as connection:
        connection.sendall(head(impatient, path="/healthz", method="GET"))
        time.sleep(0.05)
        connection.sendall(b"GET /hea")
        answer = read_all(connection)
    assert answer.count(b"HTTP/1.1 200") == 1


def test_a_body_that_comes_in_drops_is_answered_408_and_closed(impatient: World) -> None:
    with impatient.raw() as connection:
        connection.sendall(head(impatient, bearer(impatient), JSON, "Content-Length: 100") + b"{")
        answer = read_all(connection)
    assert status_in(answer) == 408
    assert code_of(body_in(answer)) == "deadline"


def test_nobody_s_body_is_read_before_it_is_known_who_speaks(impatient: World) -> None:
    with impatient.raw() as connection:
        connection.sendall(head(impatient, JSON, "Content-Length: 8000000"))
        answer = read_all(connection)
    assert status_in(answer) == 401


def test_beyond_its_calls_the_server_answers_429_with_retry_after_and_serves_again(impatient: World) -> None:
    held: list[socket.socket] = []
    try:
        for _ in range(3):
            connection = impatient.raw()
            connection.sendall(head(impatient, bearer(impatient), JSON, "Content-Length: 100") + b"{")
            held.append(connection)
        until(lambda: impatient.server.application.door.slots.calls == 3)
        with impatient.client(impatient.host_key) as client:
            answer = client.post("/rpc", json=STATUS)
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "1"
        assert code_of(answer.json()) == "busy"
        other = impatient.token()
        with impatient.client(other) as client:
            assert client.post("/v1/tools/knowledge_status", json={}).status_code == 200, "another speaker has its own"
    finally:
        for connection in held:
            connection.close()
    until(lambda: impatient.server.application.door.slots.calls == 0)
    with impatient.client(impatient.host_key) as client:
        assert client.post("/rpc", json=STATUS).status_code == 200


def test_strangers_connections_give_way_to_new_ones_and_known_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nothing_left(), serving(tmp_path / "state") as world:
        monkeypatch.setattr(world.server.application.connections, "_limit", 4)
        with world.client(world.host_key) as known:
            assert known.post("/rpc", json=STATUS).status_code == 200
            strangers = [world.raw() for _ in range(10)]
            until(lambda: len(world.server.application.connections) == 4)
            assert known.post("/rpc", json=STATUS).status_code == 200
            with world.client(world.host_key) as new:
                assert new.post("/rpc", json=STATUS).status_code == 200
            for stranger in strangers:
                stranger.close()


def test_a_client_that_does_not_read_its_answer_is_cut_off_and_holds_no_place(
    impatient: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off = threading.Event()
    abort = GuardedConnection.abort

    def seen(connection: GuardedConnection) -> None:
        cut_off.set()
        abort(connection)

    monkeypatch.setattr(GuardedConnection, "abort", seen)
    impatient.server.application.deliverer._seconds = 0.3
    text = "The tower has nine bells. " * 100
    for number in range(12):
        assert "result" in impatient.remember(f"{number}: {text}")
    arguments: JsonObject = {"limit": 100}
    asked = json.dumps(
        {**STATUS, "params": {"tool": "knowledge_records", "arguments": arguments, "audience": OWNER}}
    ).encode()
    one = head(impatient, bearer(impatient), JSON, f"Content-Length: {len(asked)}") + asked
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect(("127.0.0.1", impatient.server.port))
        connection.sendall(one * 200)
        assert cut_off.wait(20)
        until(lambda: len(impatient.server.application.connections) == 0)
    until(lambda: impatient.server.application.door.slots.calls == 0)
    assert_alive(impatient)


def test_every_answer_carries_the_security_headers_and_none_names_the_server(world: World) -> None:
    with world.client(world.host_key) as client:
        answers = [
            client.get("/healthz"),
            client.get("/"),
            client.get("/nothing"),
            client.post("/rpc", json=STATUS),
            client.post("/rpc", content=b"{"),
            client.get("/metrics"),
            client.get("/session/none"),
            client.post("/mcp", json={}),
            httpx.get(f"{world.server.url}/rpc", trust_env=False),
        ]
    for answer in answers:
        for name, value in SECURITY_HEADERS.items():
            assert answer.headers.get_list(name) == [value], (answer.request.url, name)
        assert "server" not in answer.headers
        assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert "frame-ancestors 'none'" in CONTENT_SECURITY_POLICY


def test_a_form_or_plain_text_of_a_page_is_no_request_of_the_protocol(world: World) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        with world.client(world.host_key, **{"Knowledge-Audience": json.dumps(OWNER)}) as client:
            for path in ("/rpc", "/mcp", "/v1/tools/knowledge_status"):
                answer = client.post(path, content=BODY, headers={"Content-Type": kind})
                assert answer.status_code == 415, (path, kind)


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "TRACE", "OPTIONS", "CONNECT"])
def test_other_methods_than_those_of_a_route_are_refused(world: World, method: str) -> None:
    answer = world.exchange(head(world, bearer(world), "Connection: close", method=method))
    assert status_in(answer) in (400, 405)


def test_health_and_readiness_say_nothing_else_and_the_rest_needs_a_bearer(world: World) -> None:
    with world.client() as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/readyz").json() == {"ready": True}
        named = ("/metrics", "/openapi.json", "/events", "/rpc", "/mcp", "/mcp/full", "/v1/tools/knowledge_status")
        for path in named:
            assert client.get(path).status_code == 401, path
            assert client.post(path).status_code == 401, path


def test_a_defect_of_a_route_tells_nobody_its_text(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a secret text")

    monkeypatch.setattr("host_bridge.http.host_routes.require_allowed", broken)
    with world.client(world.host_key) as client:
        answer = client.post("/rpc", json=STATUS)
    assert answer.status_code == 500
    assert code_of(answer.json()) == "internal"
    assert "secret" not in answer.text


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def assert_alive(world: World) -> None:
    with world.client(world.host_key) as client:
        assert client.post("/rpc", json=STATUS).status_code == 200
    assert threading.active_count() > 1
