"""What every request passes before a route sees it: where it came from, who speaks, how large, how long, how many.

In this order, the cheap and the revealing last: Host, Origin and fetch metadata (a hostile page in the user's browser),
headers that two readers may read differently, keys in the address, who speaks, a place among the calls, then the body.
Nobody's body is read before it is known who speaks. The body is read whole, bounded in size and time, before the route.

Source: decisions.md section 7; the security rules are in docs/http.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from host_bridge.http.answers import ClientGone, Deliverer, Reply, send_reply
from host_bridge.http.bearers import AudienceSpeaker, Bearers, HostSpeaker, OperatorSpeaker, Speaker, Unauthorized
from host_bridge.http.connection import connection_of
from host_bridge.http.heads import (
    Headers,
    Places,
    require_no_secret_in_query,
    require_one_reading,
    require_own_page,
    require_plain_path,
    secured,
)
from host_bridge.http.metrics import Metrics
from host_bridge.http.refusals import Refused, body_of, headers_of, page_of, status_of
from host_bridge.http.sessions import Session, Sessions
from host_bridge.transport import PendingAnswer
from messages.errors import (
    AudienceStale,
    Busy,
    DeadlineExceeded,
    Denied,
    InternalError,
    InvalidArgument,
    KnowledgeError,
    LimitExceeded,
    Sandboxed,
)
from messages.vocabulary import REQUEST_MAX_BYTES

CALLS_MAX: Final = 64
SPEAKER_CALLS_MAX: Final = 32
STREAMS_MAX: Final = 64
PAGES_MAX: Final = 32
BODY_SECONDS: Final = 30.0
SEND_SECONDS: Final = 30.0
SPEAKER_KEY: Final = "knowledge.speaker"
ASKED_KEY: Final = "knowledge.asked"
"""Where a page's scope holds the answers that it was made of."""

OPEN_PATHS: Final = frozenset(("/healthz", "/readyz"))
"""Answered to anybody, with nothing but their state."""
_BEARER_PATHS: Final = ("/rpc", "/mcp", "/events", "/metrics", "/openapi.json", "/v1")
_RPC_PATHS: Final = ("/rpc", "/mcp")


_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Limits:
    """What a test narrows. Seconds and counts."""

    calls: int = CALLS_MAX
    speaker_calls: int = SPEAKER_CALLS_MAX
    streams: int = STREAMS_MAX
    pages: int = PAGES_MAX
    body_seconds: float = BODY_SECONDS
    send_seconds: float = SEND_SECONDS
    body_bytes: int = REQUEST_MAX_BYTES


@dataclass(slots=True)
class Slots:
    """How many calls and streams are open, and whose. The event loop's thread."""

    limits: Limits
    calls: int = 0
    streams: int = 0
    of: Counter[object] = field(default_factory=Counter)

    def room(self) -> bool:
        return self.calls < self.limits.calls

    def take(self, speaker: Speaker, *, stream: bool) -> None:
        """Raises ``Busy`` where all places are taken, or too many of them by this speaker."""
        if stream:
            if self.streams >= self.limits.streams or self.of[speaker, True] >= self.limits.speaker_calls:
                raise Busy("There are as many open streams as this server holds; close one, or try again.")
            self.streams += 1
        else:
            if not self.room() or self.of[speaker, False] >= self.limits.speaker_calls:
                raise Busy("As many calls are open as this server takes at once; try again shortly.")
            self.calls += 1
        self.of[speaker, stream] += 1

    def free(self, speaker: Speaker, *, stream: bool) -> None:
        if stream:
            self.streams -= 1
        else:
            self.calls -= 1
        self.of[speaker, stream] -= 1
        if not self.of[speaker, stream]:
            del self.of[speaker, stream]


class Door:
    """The outermost application."""

    def __init__(
        self,
        protocol: ASGIApp,
        pages: ASGIApp,
        bearers: Bearers,
        sessions: Sessions,
        places: Places,
        metrics: Metrics,
        deliverer: Deliverer,
        limits: Limits | None = None,
    ) -> None:
        self._protocol = protocol
        self._pages = pages
        self._bearers = bearers
        self._sessions = sessions
        self._places = places
        self._metrics = metrics
        self._deliverer = deliverer
        self.limits = limits or Limits()
        self.slots = Slots(self.limits)
        self._open_pages: Counter[int] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._protocol(scope, receive, send)
            return
        path: str = scope["path"]
        guarded = _Sender(send, scope, self.limits.send_seconds)
        try:
            await self._let_in(path, scope, receive, guarded)
        except ClientGone:
            pass
        except Unauthorized as error:
            await self._refuse(error.refusal, 401, scope, guarded)
        except KnowledgeError as error:
            await self._refuse(error, status_of(error), scope, guarded)
        except Refused as refused:
            await self._refuse(refused.error, refused.status, scope, guarded)
        except Exception as error:  # noqa: BLE001 - whatever a route does, its text neither leaves nor is logged
            _log.error("a route failed", extra={"path": _family(path), "error_type": type(error).__name__})
            await self._refuse(
                InternalError("The runtime failed on this request; its log has the details."), 500, scope, guarded
            )

    async def _let_in(self, path: str, scope: Scope, receive: Receive, send: _Sender) -> None:
        headers = Headers(scope["headers"])
        require_one_reading(headers)
        self._require_place(headers)
        require_own_page(headers, scope, self._places)
        require_plain_path(path)
        require_no_secret_in_query(scope)
        if path in OPEN_PATHS:
            await self._protocol(scope, _empty(receive), send)
            return
        if _is_below(path, _BEARER_PATHS):
            await self._with_bearer(path, headers, scope, receive, send)
        else:
            await self._for_a_page(headers, scope, receive, send)

    async def _with_bearer(self, path: str, headers: Headers, scope: Scope, receive: Receive, send: _Sender) -> None:
        try:
            speaker = self._bearers.speaker(headers.one("authorization"))
        except (Denied, AudienceStale, Sandboxed, InvalidArgument, LimitExceeded) as error:
            raise Refused(error, 401) from None
        _trust(scope)
        stream = path == "/events"
        self.slots.take(speaker, stream=stream)
        try:
            scope[SPEAKER_KEY] = speaker
            await self._protocol(scope, await self._body(headers, scope, receive), send)
        finally:
            self.slots.free(speaker, stream=stream)

    async def _for_a_page(self, headers: Headers, scope: Scope, receive: Receive, send: _Sender) -> None:
        """A route of the explorer: a session's cookie says who, and a POST proves that our own page sent it."""
        session = self._sessions.of(scope)
        if session is not None:
            _trust(scope)
        page = _Page(send, scope, self._deliverer)
        if scope["method"] in ("GET", "HEAD"):
            with self._page_of(session):
                await self._pages(scope, _empty(receive), page)
            return
        if session is None:
            raise Denied("This needs a session; open the pages with `knowledge ui`.", reason="no_session")
        body = await self._body(headers, scope, receive)
        message = await body()
        if not session.proves(headers.one("x-csrf-token"), headers.one("content-type"), message["body"]):
            raise Denied("This form was not sent by a page of this session; load the page again.", reason="csrf")
        with self._page_of(session):
            await self._pages(scope, _replayed(message["body"], receive), page)

    @contextmanager
    def _page_of(self, session: Session | None) -> Iterator[None]:
        """A place among the session's pages. Raises ``Busy`` where it has too many open.

        Strangers are bounded by their connections alone: a place that they shared, one of them could take from all.
        """
        if session is None:
            yield
            return
        whose = id(session)
        if self._open_pages[whose] >= self.limits.pages:
            raise Busy("As many pages of this session are open as the server holds; close one.")
        self._open_pages[whose] += 1
        try:
            yield
        finally:
            self._open_pages[whose] -= 1
            if not self._open_pages[whose]:
                del self._open_pages[whose]

    def _require_place(self, headers: Headers) -> None:
        """A name that is not ours is somebody else's page that had its name point here (DNS rebinding)."""
        host = headers.one("host")
        if host is None or not self._places.has_host(host):
            raise Refused(Denied("This server is not addressed by that name.", reason="host"), 421)

    async def _body(self, headers: Headers, scope: Scope, receive: Receive) -> Receive:
        if scope["method"] in ("GET", "HEAD"):
            return _empty(receive)
        return _replayed(await self._read(headers, receive), receive)

    async def _read(self, headers: Headers, receive: Receive) -> bytes:
        limit = self.limits.body_bytes
        length = headers.one("content-length")
        if length is not None and (not length.isdigit() or int(length) > limit):
            raise _too_large(limit)
        parts: list[bytes] = []
        held = 0
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    parts.append(message.get("body", b""))
                    held += len(parts[-1])
                    if held > limit:
                        raise _too_large(limit)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            late = DeadlineExceeded("The request's body did not come in time; the call did not run.")
            raise Refused(late, 408) from None

    async def _refuse(self, error: KnowledgeError, status: int, scope: Scope, send: _Sender) -> None:
        path: str = scope["path"]
        self._metrics.refused(_family(path), error.code)
        if send.started:
            send.abort()
            return
        # What is left of a body that was not read must not be taken for the next request.
        headers = {**headers_of(status), "connection": "close"}
        if _asks_for_a_page(path, scope):
            reply = Reply(status, page_of(error), headers, "text/html; charset=utf-8")
        else:
            reply = Reply(status, body_of(error, rpc=_is_below(path, _RPC_PATHS)), headers)
        try:
            await send_reply(send, reply)
        except ClientGone:
            pass


class _Sender:
    """``send`` with the security headers, and an end for a client that does not read."""

    def __init__(self, send: Send, scope: Scope, seconds: float) -> None:
        self._send = send
        self._scope = scope
        self._seconds = seconds
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            message = {**message, "headers": secured(message.get("headers", ()))}
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(message)
        except TimeoutError:
            self.abort()
            raise ClientGone from None

    def abort(self) -> None:
        connection = connection_of(self._scope)
        if connection is not None:
            connection.abort()


class _Page:
    """``send`` of a page: each piece leaves while everything that the page asked for may still be given."""

    def __init__(self, send: _Sender, scope: Scope, deliverer: Deliverer) -> None:
        self._send = send
        self._scope = scope
        self._deliverer = deliverer
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message  # a page whose answers may not be given any more is no page at all
            return
        asked: Sequence[PendingAnswer] = self._scope.get(ASKED_KEY, ())
        if not asked:
            await self._write(message)
        else:
            connection = connection_of(self._scope)
            await self._deliverer.under_leases(asked, lambda: self._write(message), connection)

    async def _write(self, message: Message) -> None:
        if self._start is not None:
            start, self._start = self._start, None
            await self._send(start)
        await self._send({**message, "more_body": True})
        await self._send({"type": message["type"], "body": b"", "more_body": message.get("more_body", False)})


def _empty(receive: Receive) -> Receive:
    return _replayed(b"", receive)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives a body that was read already, then whatever comes: the client's end."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return message

    return replay


def _trust(scope: Scope) -> None:
    connection = connection_of(scope)
    if connection is not None:
        connection.trusted = True


def _is_below(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)


def _asks_for_a_page(path: str, scope: Scope) -> bool:
    """Whether a browser asked that shows a person what it gets."""
    if path in OPEN_PATHS or _is_below(path, _BEARER_PATHS):
        return False
    return any(name == b"accept" and b"text/html" in value.lower() for name, value in scope["headers"])


def _family(path: str) -> str:
    """A path as logs and metrics may name it: never a part that a caller chose."""
    if path in OPEN_PATHS:
        return path
    return next((root for root in _BEARER_PATHS if _is_below(path, (root,))), "/")


def _too_large(limit: int) -> LimitExceeded:
    return LimitExceeded(f"A request is at most {limit} bytes.", limit=limit)


def speaker_of(scope: Scope) -> Speaker:
    """Who speaks, at a route below which a bearer is needed."""
    found = scope[SPEAKER_KEY]
    assert isinstance(found, HostSpeaker | OperatorSpeaker | AudienceSpeaker)
    return found


__all__ = ["ASKED_KEY", "Door", "Limits", "Slots", "speaker_of"]
