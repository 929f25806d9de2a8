"""``/mcp``: MCP over streamable HTTP by the official SDK, both protocol eras, for whom the bearer stands for.

``/mcp`` offers the tools of the profile ``core`` as ``knowledge mcp`` does, ``/mcp/full``, ``/mcp/read`` and
``/mcp/simple`` those of another. Tools, resources, prompts and instructions are :mod:`host_bridge.mcp_server`'s. An
answer takes its placeholder's place under its read lease, in the step that hands the bytes to the transport. A session
belongs to the caller that opened it: another's request finds none. Nothing is sent that was not asked for, so there is
no stream to listen at (GET: 405), and nothing is kept to be sent again.

The event loop's thread. Source: HOSTS.md section 1; decisions.md sections 6 and 7.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Final, TypeAlias

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from host_bridge import jsonrpc
from host_bridge.http.answers import Deliverer, Reply, send_reply
from host_bridge.http.asking import HttpService, Stop, guarded_answer, parsed_json, require_json
from host_bridge.http.bearers import AudienceSpeaker, Bearers, HostSpeaker, Speaker
from host_bridge.http.connection import connection_of
from host_bridge.http.door import speaker_of
from host_bridge.http.metrics import Metrics
from host_bridge.http.tools_route import caller_of
from host_bridge.jsonrpc import Malformed
from host_bridge.mcp_server import Context, Held, ToolServer
from host_bridge.transport import PendingAnswer
from messages.audience import AudienceToken, Caller, audience_json
from messages.errors import AudienceMissing, KnowledgeError, NotFound
from messages.json_types import JsonObject, JsonValue
from messages.schemas import PROFILES
from messages.tools import CATALOGUE
from messages.vocabulary import REQUEST_MAX_BYTES

DEFAULT_PROFILE: Final = "core"
SESSIONS_MAX: Final = 256
CALLER_SESSIONS_MAX: Final = 32
SESSION_IDLE_SECONDS: Final = 30 * 60.0
_STARTS_KEPT: Final = 1_024
_COUNTED: Final = ("initialize", "server/discover", "tools/list", "resources/list", "resources/read", "prompts/get")
_Put: TypeAlias = Callable[[JsonObject], Awaitable[None]]
_SESSION_HEADER: Final = b"mcp-session-id"
_CALLER_KEY: Final = "knowledge.caller"
_HELD_KEY: Final = "knowledge.held"
_SPEAKER_KEY: Final = "knowledge.speaker"
_log = logging.getLogger(__name__)


class McpRoute:
    """The route as an application of its own; :meth:`running` is its part of the lifespan."""

    def __init__(
        self, service: HttpService, bearers: Bearers, deliverer: Deliverer, metrics: Metrics, stop: Stop
    ) -> None:
        self._service = service
        self._bearers = bearers
        self._deliverer = deliverer
        self._metrics = metrics
        self._stop = stop
        self._managers: dict[str, StreamableHTTPSessionManager] = {}
        self._starts: OrderedDict[str, str] = OrderedDict()
        self._opened_by: OrderedDict[str, deque[tuple[str, StreamableHTTPSessionManager]]] = OrderedDict()
        self._stack: AsyncExitStack | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Sessions live inside of it."""
        async with AsyncExitStack() as stack:
            self._stack = stack
            for profile in PROFILES:
                server = ToolServer(self._service, profile, self).build()
                manager = StreamableHTTPSessionManager(
                    server,
                    # The door has checked both, and the size and depth of the body, before this.
                    security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
                    max_sessions=SESSIONS_MAX,
                    session_idle_timeout=SESSION_IDLE_SECONDS,
                    max_request_body_size=REQUEST_MAX_BYTES,
                )
                await stack.enter_async_context(manager.run())
                self._managers[profile] = manager
            yield
            self._managers.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        profile = request.path_params.get("profile", DEFAULT_PROFILE)
        manager = self._managers.get(profile)
        if manager is None:
            raise NotFound("No profile of tools has this name.", field="profile", allowed=list(PROFILES))
        speaker = speaker_of(scope)
        caller = caller_of(request, speaker)
        if caller is None:
            raise AudienceMissing("The host sends the audience that it minted in the header Knowledge-Audience.")
        scope[_CALLER_KEY] = caller
        scope["user"] = _user(speaker, caller)
        match request.method:
            case "POST":
                await self._post(request, manager, scope, send)
            case "DELETE":
                await manager.handle_request(scope, receive, send)
            case _:
                await send_reply(send, Reply(405, b"{}", {"allow": "POST, DELETE"}))

    async def _post(
        self, request: Request, manager: StreamableHTTPSessionManager, scope: Scope, send: Send
    ) -> None:
        require_json(request)
        self._stop.require_going()
        try:
            body, method = await _checked(await request.body())
        except Malformed as malformed:
            self._metrics.refused("/mcp", "malformed")
            await send_reply(send, Reply(400, malformed.to_line()))
            return
        started = time.monotonic()
        sender = _Filling(send, scope, self._deliverer)
        if method == "mcp initialize":
            sender.opened = lambda session: self._opened(session, request.user, manager)
        await manager.handle_request(scope, _again(body, request.receive), sender)
        if method is not None:
            self._metrics.answered(method, sender.code, time.monotonic() - started)

    async def _opened(self, session: str, user: AuthenticatedUser, manager: StreamableHTTPSessionManager) -> None:
        """One caller has so many sessions at most: its oldest ends for a new one, and nobody else's."""
        own = self._opened_by.setdefault(user.username, deque())
        own.append((session, manager))
        if len(own) > CALLER_SESSIONS_MAX:
            await _end_session(*own.popleft(), user)
        self._opened_by.move_to_end(user.username)
        if len(self._opened_by) > _STARTS_KEPT:
            self._opened_by.popitem(last=False)

    # --- what a request's handlers ask ------------------------------------------------------------------

    def caller(self, ctx: Context) -> Caller | None:
        """See :class:`~host_bridge.mcp_server.Around`."""
        found: Caller = _request_of(ctx).scope[_CALLER_KEY]
        return found

    def started_at(self, ctx: Context) -> str:
        """The session's opening; without sessions, this caller's first request here."""
        request = _request_of(ctx)
        whose = f"{request.scope['user'].username} {request.headers.get('mcp-session-id', '')}"
        found = self._starts.setdefault(whose, datetime.now(UTC).isoformat(timespec="milliseconds"))
        self._starts.move_to_end(whose)
        if len(self._starts) > _STARTS_KEPT:
            self._starts.popitem(last=False)
        return found

    def require_going(self) -> None:
        """See :class:`~host_bridge.mcp_server.Around`."""
        self._stop.require_going()

    def submitted(self, ctx: Context, pending: PendingAnswer) -> None:
        """A call is cancelled by the SDK: in the stateless era as its client hangs up, else by its notification."""

    def keep(self, ctx: Context, held: Held) -> None:
        """In the scope of the request whose response it belongs to: one request, one response."""
        request = _request_of(ctx)
        speaker: Speaker = request.scope[_SPEAKER_KEY]
        request.scope[_HELD_KEY] = Held(
            guarded_answer(held.pending, self._bearers, speaker), held.succeeded, held.failed
        )


class _Filling:
    """``send`` for one request: the placeholder in its response becomes the answer, under the read lease."""

    def __init__(self, send: Send, scope: Scope, deliverer: Deliverer) -> None:
        self._send = send
        self._scope = scope
        self._deliverer = deliverer
        self._start: Message | None = None
        self._is_stream = False
        self._parts: list[bytes] = []
        self.code = "ok"
        self.opened: Callable[[str], Awaitable[None]] | None = None
        """Told the id of a session that this response opens."""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            session = next((value for name, value in message["headers"] if name.lower() == _SESSION_HEADER), None)
            if self.opened is not None and session is not None and message["status"] == 200:
                await self.opened(session.decode("ascii"))
            kind = next((value for name, value in message["headers"] if name.lower() == b"content-type"), b"")
            self._is_stream = kind.startswith(b"text/event-stream")
            if self._is_stream:
                await self._send(message)
            else:
                self._start = message  # its length is not known before its body is
            return
        if self._is_stream:
            await self._event(message)
        else:
            await self._whole(message)

    async def _event(self, message: Message) -> None:
        body: bytes = message.get("body", b"")
        frame = _frame_in(body)
        if frame is None or _HELD_KEY not in self._scope:
            await self._send(message)
            return

        async def put(shown: JsonObject) -> None:
            event = b"event: message\r\ndata: " + jsonrpc.dump(shown) + b"\r\n\r\n"
            await self._send({"type": "http.response.body", "body": event, "more_body": True})
            await self._send({"type": "http.response.body", "body": b"", "more_body": True})

        await self._fill(frame, put)
        if not message.get("more_body", False):
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _whole(self, message: Message) -> None:
        self._parts.append(message.get("body", b""))
        if message.get("more_body", False):
            return
        start, body = self._start, b"".join(self._parts)
        assert start is not None
        frame = _result_in(body) if _HELD_KEY in self._scope else None
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in start["headers"]
            if name.lower() not in (b"content-length", b"content-type")
        }
        if frame is None:
            kind = next((value.decode() for name, value in start["headers"] if name.lower() == b"content-type"), "")
            await send_reply(self._send, Reply(start["status"], body, headers, kind or "application/json"))
            return

        async def put(shown: JsonObject) -> None:
            await send_reply(self._send, Reply(start["status"], jsonrpc.dump(shown), headers))

        await self._fill(frame, put)

    async def _fill(self, frame: JsonObject, put: _Put) -> None:
        held: Held = self._scope.pop(_HELD_KEY)
        result = frame["result"]
        assert isinstance(result, Mapping)

        def filled(shown: JsonObject) -> JsonObject:
            if "error" in shown:
                return {"jsonrpc": "2.0", "id": frame.get("id"), **shown}
            return {**frame, "result": {**result, **shown}}

        async def succeeded(answer: JsonObject) -> None:
            await put(filled(held.succeeded(answer)))

        async def failed(error: KnowledgeError) -> None:
            await put(filled(held.failed(error)))

        self.code = await self._deliverer.hand_over(held.pending, succeeded, failed, connection_of(self._scope))


async def _checked(body: bytes) -> tuple[bytes, str | None]:
    """The body for the SDK, within the limits of a line, and how its method is counted. Raises ``Malformed``."""
    value = await parsed_json(body)
    if not isinstance(value, Mapping):
        return body, None
    method, params = value.get("method"), value.get("params")
    if method != "tools/call" or not isinstance(params, Mapping):
        return body, f"mcp {method}" if method in _COUNTED else None
    name = params.get("name")
    counted = name if isinstance(name, str) and name in CATALOGUE else None
    if isinstance(params.get("arguments"), str):
        body = jsonrpc.dump({**value, "params": {**params, "arguments": jsonrpc.unwrapped(params["arguments"])}})
    return body, counted


async def _end_session(session: str, manager: StreamableHTTPSessionManager, user: AuthenticatedUser) -> None:
    """As its client would; a session that has ended already stays so."""
    headers = [(_SESSION_HEADER, session.encode()), (b"mcp-protocol-version", b"2025-11-25")]
    scope: Scope = {
        "type": "http",
        "method": "DELETE",
        "path": "/mcp",
        "query_string": b"",
        "headers": headers,
        "user": user,
    }

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        """Nobody waits for it."""

    await manager.handle_request(scope, receive, send)


def _frame_in(event: bytes) -> JsonObject | None:
    """The response in a server-sent event; ``None`` for a notification, a ping, and anything else."""
    data = next((line[6:] for line in event.split(b"\n") if line.startswith(b"data: ")), None)
    return None if data is None else _result_in(data.rstrip(b"\r"))


def _result_in(body: bytes) -> JsonObject | None:
    try:
        found: JsonValue = json.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("result"), dict) else None


def _again(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _request_of(ctx: Context) -> Request:
    assert isinstance(ctx.request, Request)
    return ctx.request


def _user(speaker: Speaker, caller: Caller) -> AuthenticatedUser:
    """Who opened a session, so that nobody else goes on with it. Nothing secret: the SDK may log it."""
    kind = "host" if isinstance(speaker, HostSpeaker) else "token"
    if isinstance(speaker, AudienceSpeaker):
        whose = str(speaker.audience.token_id)
    elif isinstance(caller, AudienceToken):
        whose = caller.text
    else:
        whose = jsonrpc.dump(audience_json(caller)).decode()
    digest = hashlib.sha256(whose.encode()).hexdigest()[:32]
    return AuthenticatedUser(AccessToken(token="", client_id=f"{kind} {digest}", scopes=[]))


__all__ = ["McpRoute"]
