"""A console on a real bridge, and an application around the explorer: what the HTTP door is to the pages."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from actors.events import PendingEvent
from host_bridge.bridge import KnowledgeBridge
from host_bridge.explorer import routes
from messages.envelope import Deadline
from messages.errors import Denied, InvalidArgument, KnowledgeError
from messages.json_types import JsonObject
from messages.operator import (
    LOCAL_OPERATOR,
    OPERATOR_METHODS,
    Operator,
    OperatorCall,
    SubscribeCall,
    Subscriber,
    parse_operator_call,
)

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


@dataclass
class BridgeConsole:
    """A :class:`host_bridge.http.console.Console` of one session. ``asked`` are the methods that pages asked for."""

    bridge: KnowledgeBridge
    session: Operator | None = LOCAL_OPERATOR
    token: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    asked: list[tuple[str, JsonObject]] = field(default_factory=list)

    def operator(self, request: Request) -> Operator | None:
        return self.session

    def csrf(self, request: Request) -> str:
        if self.session is None:
            raise Denied("There is no session.")
        return self.token

    async def ask(self, request: Request, method: str, params: JsonObject) -> JsonObject:
        if self.session is None:
            raise Denied("There is no session.")
        if method not in OPERATOR_METHODS:
            raise InvalidArgument("There is no such method.", field="method")
        self.asked.append((method, params))
        call = parse_operator_call(method, params, peer=self.session)
        return await asyncio.to_thread(_answer, self.bridge, call)

    async def events(self, request: Request, agent: str | None = None) -> AsyncIterator[JsonObject]:
        loop = asyncio.get_running_loop()
        told: asyncio.Queue[JsonObject | None] = asyncio.Queue()
        call = SubscribeCall(Subscriber(operator=self.session, agent=agent), Deadline.after(30))

        def ready(event: PendingEvent) -> None:
            try:
                event.deliver(lambda shown: _put(loop, told, shown))
            except KnowledgeError:
                _put(loop, told, None)

        subscription = self.bridge.subscribe(call, ready)
        try:
            while self.session is not None:
                try:
                    event = await asyncio.wait_for(told.get(), 0.25)
                except TimeoutError:
                    continue
                if event is None:
                    return
                yield event
        finally:
            subscription.end()


def _put(loop: asyncio.AbstractEventLoop, told: asyncio.Queue[JsonObject | None], shown: JsonObject | None) -> None:
    loop.call_soon_threadsafe(told.put_nowait, shown)


def _answer(bridge: KnowledgeBridge, call: OperatorCall) -> JsonObject:
    pending = bridge.operate(call)
    pending.wait()
    got: list[JsonObject] = []
    pending.deliver(got.append)
    return got[0]


def application(console: BridgeConsole) -> Starlette:
    """The explorer with the guards that it relies on: the token of forms and the policy of the browser."""
    made = Starlette(routes=routes(console))

    async def guard(request: Request, follow: Callable[[Request], Awaitable[Response]]) -> Response:
        if request.method == "POST":
            sent = parse_qs((await request.body()).decode()).get("csrf", [""])[-1]
            if not secrets.compare_digest(sent, console.token):
                return PlainTextResponse("denied", 403)
        answer = await follow(request)
        answer.headers["Content-Security-Policy"] = POLICY
        answer.headers["X-Content-Type-Options"] = "nosniff"
        return answer

    made.add_middleware(BaseHTTPMiddleware, dispatch=guard)
    return made
