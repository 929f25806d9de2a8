"""Browsers' sessions, and the console that the pages ask: with real pages of this test's own."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from host_bridge.http import sessions
from host_bridge.http.console import Console
from host_bridge.http.methods import AT_THE_MACHINE, HOSTS
from host_bridge.http.peers import user_of
from host_bridge.http.sessions import COOKIE, LINKS_MAX, SESSIONS_MAX, Sessions
from messages.errors import Denied
from messages.json_types import JsonObject
from messages.operator import LOCAL_OPERATOR, Operator
from tests.host_bridge.http.world import World, code_of, reason_of, serving
from tests.kit.leaks import nothing_left

held = threading.Event()
released = threading.Event()


def pages(console: Console) -> Sequence[BaseRoute]:
    async def front(request: Request) -> Response:
        operator = console.operator(request)
        return JSONResponse({"operator": None if operator is None else operator.id})

    async def recent(request: Request) -> Response:
        return JSONResponse(await console.ask(request, "operator.recent", {"agent": "main"}))

    async def slow(request: Request) -> Response:
        shown = await console.ask(request, "operator.recent", {"agent": "main"})
        held.set()
        import asyncio

        await asyncio.to_thread(released.wait, 20)
        return JSONResponse(shown)

    async def grant(request: Request) -> Response:
        params: JsonObject = {"agent": "main", "sessionKey": "chat:group:1", "access": "read"}
        return JSONResponse(await console.ask(request, "access.grants.set", params))

    async def token(request: Request) -> Response:
        return JSONResponse({"csrf": console.csrf(request)})

    async def any_method(request: Request) -> Response:
        return JSONResponse(await console.ask(request, request.path_params["method"], {}))

    async def stream(request: Request) -> Response:
        async def told() -> Iterator[bytes]:  # type: ignore[misc]  # an async generator
            async for event in console.events(request, "main"):
                yield f"data: {event['type']}\n\n".encode()

        return StreamingResponse(told(), media_type="text/event-stream")

    return [
        Route("/", front),
        Route("/recent", recent),
        Route("/slow", slow),
        Route("/grant", grant, methods=["POST"]),
        Route("/csrf", token),
        Route("/ask/{method}", any_method),
        Route("/stream", stream),
    ]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with nothing_left(), serving(tmp_path / "state", explorer_routes=pages) as opened:
        opened.remember("The tower has nine bells.")
        yield opened


def browser_at(link: str) -> tuple[httpx.Client, str]:
    """A browser at the name of the link, which this machine's resolver need not know; the link's path."""
    parts = urlsplit(link)
    port = parts.port
    return (
        httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Host": f"{parts.hostname}:{port}"},
            timeout=20,
            trust_env=False,
        ),
        parts.path,
    )


@contextmanager
def opened(world: World, operator: Operator = LOCAL_OPERATOR) -> Iterator[httpx.Client]:
    browser, path = browser_at(world.server.session_link(operator))
    with browser:
        answer = browser.get(path)
        assert answer.status_code == 200
        cookie = rf"{COOKIE}=([A-Za-z0-9_-]{{43}}); HttpOnly; Max-Age=\d+; Path=/; SameSite=strict"
        value = re.fullmatch(cookie, answer.headers["set-cookie"])
        assert value is not None, answer.headers["set-cookie"]
        browser.cookies.clear()
        browser.headers["Cookie"] = f"{COOKIE}={value[1]}"
        yield browser


def test_a_link_becomes_a_session_of_its_operator_and_works_once(world: World) -> None:
    browser, path = browser_at(world.server.session_link(LOCAL_OPERATOR))
    with browser:
        assert browser.get("/").json() == {"operator": None}
        first = browser.get(path)
        assert first.status_code == 200
        stolen = browser.get(path)
        assert stolen.status_code == 410
        assert "set-cookie" not in stolen.headers
    with opened(world) as known:
        assert known.get("/").json() == {"operator": "local"}
        assert "nine bells" in known.get("/recent").text


@pytest.mark.parametrize("purpose", [{"Sec-Purpose": "prefetch;prerender"}, {"Purpose": "prefetch"}])
def test_a_link_that_is_only_looked_at_is_not_used_up(world: World, purpose: dict[str, str]) -> None:
    browser, path = browser_at(world.server.session_link(LOCAL_OPERATOR))
    with browser:
        assert browser.get(path, headers=purpose).status_code == 204
        assert browser.head(path).status_code == 204
        assert browser.get(path).status_code == 200


def test_a_link_that_another_user_follows_opens_nothing_and_stays_good(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever saw it on the command line of the browser."""
    browser, path = browser_at(world.server.session_link(LOCAL_OPERATOR))
    with browser:
        with monkeypatch.context() as patched:
            patched.setattr(sessions, "user_of", lambda client, server: os.getuid() + 1)
            refused = browser.get(path)
            assert refused.status_code == 403
            assert "set-cookie" not in refused.headers
        assert browser.get(path).status_code == 200


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel of Linux tells it")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_kernel_says_which_user_is_at_the_other_end(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        try:
            listener.bind((address, 0))
        except OSError:
            pytest.skip(f"this machine has no {address}")
        listener.listen()
        with socket.create_connection(listener.getsockname()[:2]) as client:
            assert user_of(client.getsockname()[:2], listener.getsockname()[:2]) == os.getuid()
            other = (address, client.getsockname()[1] ^ 1)
            assert user_of(other, listener.getsockname()[:2]) is None
    assert user_of(("nonsense", 1), ("127.0.0.1", 2)) is None


def test_pages_of_one_session_are_bounded_and_another_s_are_not_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.server.application.door.limits, "pages", 1)
    with opened(world) as known, opened(world) as other:
        with known.stream("GET", "/stream") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "data: heartbeat"
            with httpx.Client(base_url=known.base_url, headers=known.headers, trust_env=False) as second:
                full = second.get("/recent")
            assert (full.status_code, full.headers["retry-after"]) == (429, "1")
            assert other.get("/recent").status_code == 200
            lines.close()  # type: ignore[attr-defined]  # a generator


def test_a_link_ends_after_minutes_a_session_when_it_rests_and_in_all() -> None:
    now = [0.0]
    found = Sessions(secure=False, clock=lambda: now[0])
    scope = {"headers": [(b"host", b"h:1")]}
    late = found.make_link(LOCAL_OPERATOR).rpartition("/")[2]
    now[0] = sessions.LINK_SECONDS
    assert found._use(late, "h:1") is None
    value = found._use(found.make_link(LOCAL_OPERATOR).rpartition("/")[2], "h:1")
    assert value is not None
    scope["headers"].append((b"cookie", f"{COOKIE}={value}".encode()))
    for _ in range(5):
        now[0] += sessions.IDLE_SECONDS - 1
        assert found.of(scope) is not None
    now[0] += sessions.IDLE_SECONDS
    assert found.of(scope) is None
    value = found._use(found.make_link(LOCAL_OPERATOR).rpartition("/")[2], "h:1")
    scope["headers"][1] = (b"cookie", f"{COOKIE}={value}".encode())
    start = now[0]
    while now[0] < start + sessions.SESSION_SECONDS - 1:
        assert found.of(scope) is not None
        now[0] = min(now[0] + 3_600, start + sessions.SESSION_SECONDS)
    assert found.of(scope) is None


def test_links_and_sessions_are_bounded_and_the_oldest_goes() -> None:
    found = Sessions(secure=False)
    links = [found.make_link(LOCAL_OPERATOR).rpartition("/")[2] for _ in range(LINKS_MAX + 1)]
    assert found._use(links[0], "h") is None
    assert all(found._use(link, "h") for link in links[1:])
    for _ in range(SESSIONS_MAX):
        assert found._use(found.make_link(LOCAL_OPERATOR).rpartition("/")[2], "h")
    assert len(found._sessions) == SESSIONS_MAX


def test_a_session_s_cookie_counts_at_the_name_where_it_was_opened_alone(world: World) -> None:
    """Another server of this machine that is sent the cookie cannot use it: it does not know the name."""
    with opened(world) as known, world.client() as plain:
        assert plain.get("/", headers={"Cookie": known.headers["Cookie"]}).json() == {"operator": None}
        assert plain.get("/recent", headers={"Cookie": known.headers["Cookie"]}).status_code == 403


def test_a_cookie_that_another_server_set_beside_ours_changes_nothing(world: World) -> None:
    with opened(world) as known:
        mixed = f"{COOKIE}=planted; x=y; {known.headers['Cookie']}; {COOKIE}=planted"
        assert known.get("/", headers={"Cookie": mixed}).json() == {"operator": "local"}


def test_a_post_without_the_session_s_token_never_reaches_its_route(world: World) -> None:
    with opened(world) as known, opened(world) as other:
        theirs = other.get("/csrf").json()["csrf"]
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        for refused in (
            known.post("/grant"),
            known.post("/grant", data={"csrf": "x"}),
            known.post("/grant", data={"csrf": theirs}),
            known.post("/grant", headers={"X-CSRF-Token": theirs}),
            known.post("/grant", json={"csrf": known.get("/csrf").json()["csrf"]}),
            known.post("/grant", headers=form, content=b"csrf=a&csrf=b"),
            known.post("/grant", headers=form, content=b"csrf=" + b"&a" * 5_000),
            known.post("/grant", headers=form, content=b"csrf=\xff"),
        ):
            assert (refused.status_code, reason_of(refused.json())) == (403, "csrf")
        assert world.bridge.ask("access.grants.list", {"agent": "main"})["grants"] == []
        mine = known.get("/csrf").json()["csrf"]
        assert known.post("/grant", data={"csrf": mine}).status_code == 200
        assert known.post("/grant", headers={"X-CSRF-Token": mine}).status_code == 200
        grants = world.bridge.ask("access.grants.list", {"agent": "main"})["grants"]
        assert isinstance(grants, list)
        assert len(grants) == 1


def test_what_is_refused_of_a_browser_s_page_is_a_page_that_leads_on(world: World) -> None:
    asking = {"Accept": "text/html,application/xhtml+xml;q=0.9"}
    with world.client(**asking) as nobody, opened(world) as known:
        refusals = [
            (nobody.post("/grant"), 403, "open the pages with `knowledge ui`"),
            (known.post("/grant", headers=asking), 403, "load the page again"),
            (known.get("/recent%00", headers=asking), 400, "no route has"),
            (known.get("/recent?token=x%3Cb%3E", headers=asking), 400, ""),
        ]
        for refused, status, said in refusals:
            assert refused.status_code == status
            assert refused.headers["content-type"] == "text/html; charset=utf-8"
            assert said in refused.text
            assert '<a href="/">Back to Knowledge</a>' in refused.text
            assert "<b>" not in refused.text
            assert "<main" not in refused.text, "an open page would show it in place of what it shows"
        assert nobody.post("/rpc", json={}).headers["content-type"] == "application/json"
        assert nobody.get("/metrics").headers["content-type"] == "application/json"


def test_a_post_without_a_session_is_refused_unread(world: World) -> None:
    with world.client() as nobody:
        refused = nobody.post("/grant", content=b"x" * 100)
    assert (refused.status_code, reason_of(refused.json())) == (403, "no_session")


def test_a_bearer_opens_no_page_and_a_cookie_no_route_of_the_protocol(world: World) -> None:
    with world.client(world.host_key) as host:
        assert host.get("/recent").status_code == 403
    with opened(world) as known:
        for path in ("/rpc", "/mcp", "/metrics", "/events", "/v1/tools/knowledge_status"):
            assert known.post(path, json={}).status_code == 401


def test_a_session_has_the_scopes_of_its_operator_and_names_nobody_else(world: World) -> None:
    reader = Operator("local", frozenset(("operator.read",)))
    with opened(world, reader) as known:
        assert known.get("/recent").status_code == 200
        refused = known.post("/grant", headers={"X-CSRF-Token": known.get("/csrf").json()["csrf"]})
        assert (refused.status_code, code_of(refused.json())) == (403, "denied")
    with opened(world) as known:
        assert known.get("/ask/tools.call").status_code == 400
        for method in ("no.such", *AT_THE_MACHINE, *HOSTS):
            assert known.get(f"/ask/{method}").status_code == 400, method


def test_a_session_ends_when_its_page_says_so(world: World) -> None:
    with opened(world) as known:
        assert known.post("/session/end").status_code == 403
        mine = known.get("/csrf").json()["csrf"]
        ended = known.post("/session/end", data={"csrf": mine}, follow_redirects=False)
        assert ended.status_code == 303
        assert known.get("/").json() == {"operator": None}


def test_a_page_whose_answers_may_not_be_given_any_more_is_not_sent(world: World, tmp_path: Path) -> None:
    held.clear()
    released.clear()
    answers: list[httpx.Response] = []
    reader = Operator("local", frozenset(("operator.read",)))
    with opened(world, reader) as known:
        asking = threading.Thread(target=lambda: answers.append(known.get("/slow")))
        asking.start()
        assert held.wait(20)
        (tmp_path / "state" / "knowledge.yaml").write_text("operatorRead: false\n")
        end = time.monotonic() + 20
        while world.bridge.configuration.operator_read:
            assert time.monotonic() < end
            time.sleep(0.02)
        refused_now(world, reader)
        released.set()
        asking.join(20)
    assert answers[0].status_code == 403
    assert "bells" not in answers[0].text


def refused_now(world: World, reader: Operator) -> None:
    """Wait until what the configuration says is what decides."""
    end = time.monotonic() + 20
    while True:
        try:
            world.bridge.ask("operator.status", {}, operator=reader)
        except Denied:
            return
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_page_hears_of_changes_until_its_session_ends(world: World) -> None:
    with opened(world) as known:
        mine = known.get("/csrf").json()["csrf"]
        with known.stream("GET", "/stream") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "data: heartbeat"
            world.remember("Something new.")
            assert "data: changed" in [next(lines) for _ in range(4)]
            with httpx.Client(base_url=known.base_url, headers=known.headers, trust_env=False) as second:
                second.post("/session/end", data={"csrf": mine})
            world.remember("Nobody hears of this.")
            rest = list(lines)
    assert "data: changed" not in rest
