"""The application that an HTTP server runs: every route of the door, with every guard around them.

::

    application = build_application(bridge, places, explorer_routes=lambda console: explorer.routes(console))

``explorer_routes`` is called once with the :class:`~host_bridge.http.console.Console`; the routes come after the door's
own and are reached by a browser's session alone. A route gets the operator of its request's session with
``console.operator(request)``, asks with ``await console.ask(request, method, params)``, and streams with
``console.events(request)``; a POST reaches it only with the session's token (``console.csrf(request)``).

Source: decisions.md section 7.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp

from host_bridge import jsonrpc
from host_bridge.http.answers import Deliverer
from host_bridge.http.asking import HttpService, Stop
from host_bridge.http.bearers import Bearers, HostSpeaker, OperatorSpeaker
from host_bridge.http.connection import Connections
from host_bridge.http.console import Console
from host_bridge.http.console_bridge import ConsoleBridge
from host_bridge.http.door import Door, Limits, speaker_of
from host_bridge.http.eventing import EventsRoute
from host_bridge.http.heads import Places
from host_bridge.http.host_routes import RpcRoute
from host_bridge.http.mcp_route import McpRoute
from host_bridge.http.metrics import CONTENT_TYPE, Metrics
from host_bridge.http.openapi import document
from host_bridge.http.sessions import Sessions
from host_bridge.http.tools_route import ToolsRoute
from messages.errors import Denied

ExplorerRoutes = Callable[[Console], Sequence[BaseRoute]]


@dataclass(frozen=True, slots=True)
class Application:
    """What is served, and what its server needs of it."""

    asgi: ASGIApp
    sessions: Sessions
    stop: Stop
    deliverer: Deliverer
    connections: Connections
    door: Door


def build_application(
    service: HttpService,
    places: Places,
    *,
    secure: bool = False,
    host_key_file: Callable[[], Path | None] = lambda: None,
    explorer_routes: ExplorerRoutes | None = None,
    limits: Limits | None = None,
) -> Application:
    """The application; ``secure``: it is served over TLS. Each server needs one of its own."""
    stop = Stop()
    sessions = Sessions(secure=secure)
    bearers = Bearers(service, host_key_file)
    deliverer = Deliverer()
    connections = Connections()
    console = ConsoleBridge(service, sessions, stop)

    def opened() -> Mapping[str, int]:
        return {"calls": door.slots.calls, "streams": door.slots.streams, "connections": len(connections)}

    metrics = Metrics(service.health, opened)
    around = (service, bearers, deliverer, metrics, stop)

    async def healthz(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(request: Request) -> Response:
        ready = not stop.stopping and service.ready() and door.slots.room()
        return JSONResponse({"ready": ready}, status_code=200 if ready else 503)

    async def shown_metrics(request: Request) -> Response:
        speaker = speaker_of(request.scope)
        allowed = isinstance(speaker, HostSpeaker) or (
            isinstance(speaker, OperatorSpeaker) and speaker.operator.may("operator.read")
        )
        if not allowed:
            raise Denied("The metrics need the host's key, or an operator's with the scope operator.read.")
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    described = jsonrpc.dump(document(service.tools("mcp")))

    async def openapi(request: Request) -> Response:
        return Response(described, media_type="application/json")

    mcp = McpRoute(*around)
    routes: list[BaseRoute] = [
        Route("/healthz", healthz, methods=["GET"]),
        Route("/readyz", readyz, methods=["GET"]),
        Route("/metrics", shown_metrics, methods=["GET"]),
        Route("/openapi.json", openapi, methods=["GET"]),
        Route("/rpc", RpcRoute(*around)),
        Route("/events", EventsRoute(*around)),
        Route("/mcp", mcp),
        Route("/mcp/{profile}", mcp),
        Route("/v1/tools/{name}", ToolsRoute(*around)),
    ]
    pages = [*sessions.routes(), *(() if explorer_routes is None else explorer_routes(console))]

    @asynccontextmanager
    async def lifespan(app: object) -> AsyncIterator[None]:
        stop.event()
        async with mcp.running():
            yield

    # Not Starlette's own stack: it answers what a route raises before the door can.
    # Two routers: what a bearer opens cannot be reached as a page, however a path is spelt.
    protocol = ExceptionMiddleware(Router(routes, lifespan=lifespan))
    door = Door(protocol, ExceptionMiddleware(Router(pages)), bearers, sessions, places, metrics, deliverer, limits)
    return Application(door, sessions, stop, deliverer, connections, door)


__all__ = ["Application", "ExplorerRoutes", "build_application"]
