"""The guards of the HTTP door: keys, names, origins, bearers and browsers' sessions.

Source: decisions.md section 7; docs/http.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from host_bridge.http.console import Console
from host_bridge.http.server import HttpServer, HttpSettings
from messages.json_types import JsonObject
from messages.operator import LOCAL_OPERATOR
from tests.host_bridge.guards.doors import minted
from tests.host_bridge.guards.kit import Attempt, Guard, Refused, World, patched
from tests.kit.store import GROUP, MAIN

SEARCH: Final[JsonObject] = {"tool": "knowledge_grep", "arguments": {"query": "zebrafish"}}


def pages(console: Console) -> Sequence[BaseRoute]:
    async def recent(request: Request) -> Response:
        return JSONResponse(await console.ask(request, "operator.recent", {"agent": "main"}))

    return [Route("/recent", recent, methods=["GET", "POST"])]


@contextmanager
def served(world: World) -> Iterator[HttpServer]:
    server = HttpServer(world.bridge, HttpSettings("127.0.0.1:0"), explorer_routes=pages)
    try:
        yield server
    finally:
        server.close()


def told_by(answer: httpx.Response) -> str:
    body = answer.json()
    error = body.get("error")
    if error is not None:
        raise Refused(str(error.get("data", error).get("code")), answer.text)
    return answer.text


def key_of_the_host(world: World) -> str:
    return str(world.bridge.ask("access.httpKeys.make", {"rotate": True})["key"])


def asks(world: World, bearer: str, params: JsonObject, **headers: str) -> str:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools.call", "params": params}
    with served(world) as server:
        head = {"Authorization": f"Bearer {bearer}", **headers}
        return told_by(httpx.post(f"{server.url}/rpc", json=body, headers=head, trust_env=False, timeout=20))


def with_no_key(world: World) -> str:
    key_of_the_host(world)
    return asks(world, "kr-host-" + "A" * 43, {**SEARCH, "audience": minted(MAIN)})


def from_a_name_that_points_here(world: World) -> str:
    return asks(world, key_of_the_host(world), {**SEARCH, "audience": minted(MAIN)}, Host="evil.example:80")


def from_another_origin(world: World) -> str:
    return asks(world, key_of_the_host(world), {**SEARCH, "audience": minted(MAIN)}, Origin="http://127.0.0.1:1")


def as_an_operator(world: World) -> str:
    key = str(world.bridge.ask("access.httpKeys.make", {"operatorId": "ana", "rotate": True})["key"])
    # What it names would be taken for what the host names, were it let through.
    return asks(world, key, {**SEARCH, "audience": minted(MAIN)})


def as_another_audience(world: World) -> str:
    token = str(world.bridge.ask("access.tokens.mint", {"audience": minted(GROUP)})["token"])
    return asks(world, token, {**SEARCH, "audience": minted(MAIN)})


@contextmanager
def browser(server: HttpServer) -> Iterator[httpx.Client]:
    """A browser with a session, which was opened at 127.0.0.1."""
    link = server.session_link(LOCAL_OPERATOR, plain_host=True)
    with httpx.Client(base_url=server.url, trust_env=False, timeout=20) as client:
        client.get(link).raise_for_status()
        client.headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        client.cookies.clear()
        yield client


def with_a_cookie_that_got_elsewhere(world: World) -> str:
    with served(world) as server, browser(server) as client:
        return told_by(client.get("/recent", headers={"Host": f"localhost:{server.port}"}))


def with_a_form_of_another_page(world: World) -> str:
    with served(world) as server, browser(server) as client:
        return told_by(client.post("/recent", data={"csrf": "guessed"}))


def let_in(*_: object) -> None:
    return None


GUARDS: Final = [
    Guard("key of the HTTP door", patched("actors.authority.view.matching", lambda keys, text: keys[0])),
    Guard("name of this server", patched("host_bridge.http.door.Door._require_place", let_in)),
    Guard("own pages", patched("host_bridge.http.door.require_own_page", let_in)),
    Guard("methods of a bearer", patched("host_bridge.http.host_routes.require_allowed", let_in)),
    Guard("bearer says who", patched("host_bridge.http.asking._require_unnamed", let_in)),
    Guard("session at its name", patched("host_bridge.http.sessions.Session.is_at", lambda self, host: True)),
    Guard("page of this session", patched("host_bridge.http.sessions.Session.proves", lambda *given: True)),
]
OPERATORS: Final = "agents: {list: [{id: main}, {id: research}]}\noperators: [{id: ana, scopes: [operator.admin]}]\n"
ATTEMPTS: Final = [
    Attempt(("key of the HTTP door",), "a key that was never made", with_no_key, "denied"),
    Attempt(("name of this server",), "another name that points here", from_a_name_that_points_here, "denied"),
    Attempt(("own pages",), "a page of another port", from_another_origin, "denied"),
    Attempt(("methods of a bearer",), "tools for an audience", as_an_operator, "denied", configuration=OPERATORS),
    Attempt(("bearer says who",), "the owner by a conversation's token", as_another_audience, "invalid_argument"),
    Attempt(("session at its name",), "the same cookie at another name", with_a_cookie_that_got_elsewhere, "denied"),
    Attempt(("page of this session",), "a form with the user's cookie", with_a_form_of_another_page, "denied"),
]
