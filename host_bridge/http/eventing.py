"""``GET /events``: what ``events.subscribe`` tells, as server-sent events.

Guarantees: an event holds its kind and the kind of its partition, never what changed; each is authorised again as it is
handed over, under its read lease; a stream ends within a second of the end of the right to hear it (revocation, expiry,
the end of a run, a key that was replaced); a client that does not read is cut off, and holds at most one event of each
kind meanwhile. A comment every 15 seconds tells silence from a lost connection.

Source: tools.md (Live state); decisions.md section 7 (events.subscribe).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Final

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from host_bridge import jsonrpc
from host_bridge.http.answers import ClientGone, Deliverer, Reply, answered, send_reply
from host_bridge.http.asking import HttpService, Stop, standing_for
from host_bridge.http.bearers import AudienceSpeaker, Bearers, HostSpeaker, OperatorSpeaker, Speaker
from host_bridge.http.connection import connection_of
from host_bridge.http.door import speaker_of
from host_bridge.http.metrics import Metrics
from host_bridge.http.tools_route import audience_in_header
from host_bridge.transport import PendingAnswer
from messages.audience import Caller
from messages.errors import KnowledgeError
from messages.json_types import JsonObject
from messages.operator import SUBSCRIBE, SubscribeCall, parse_subscription

HEARTBEAT_SECONDS: Final = 15.0
LOOK_SECONDS: Final = 0.5
_HEAD: Final = {"content-type": "text/event-stream", "x-accel-buffering": "no"}


class Heartbeat:
    """Nothing happened, and the stream lives."""


HEARTBEAT: Final = Heartbeat()


class EventsRoute:
    """The route as an application of its own. The event loop's thread."""

    def __init__(
        self, service: HttpService, bearers: Bearers, deliverer: Deliverer, metrics: Metrics, stop: Stop
    ) -> None:
        self._service = service
        self._bearers = bearers
        self._deliverer = deliverer
        self._metrics = metrics
        self._stop = stop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method != "GET":
            await send_reply(send, Reply(405, b"{}", {"allow": "GET"}))
            return
        speaker = speaker_of(scope)
        self._stop.require_going()
        call = _subscription_of(request, speaker)
        started = time.monotonic()
        stream = heard(self._service, call, self._stop, receive, lambda: self._still(speaker))
        begun = False
        async with aclosing(stream):
            async for event in stream:
                if not begun:
                    begun = True
                    headers = [(name.encode(), value.encode()) for name, value in _HEAD.items()]
                    await send({"type": "http.response.start", "status": 200, "headers": headers})
                if isinstance(event, Heartbeat):
                    await _put(send, b": heartbeat\n\n")
                else:
                    await self._tell(event, send, scope)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        self._metrics.answered(SUBSCRIBE, "ok", time.monotonic() - started)

    async def _tell(self, event: PendingAnswer, send: Send, scope: Scope) -> None:
        async def told(shown: JsonObject) -> None:
            await _put(send, b"event: " + str(shown["type"]).encode() + b"\ndata: " + jsonrpc.dump(shown) + b"\n\n")

        async def unheard(error: KnowledgeError) -> None:
            """An event that could not be told is not answered for: nobody asked for it."""

        await self._deliverer.hand_over(event, told, unheard, connection_of(scope))

    def _still(self, speaker: Speaker) -> bool:
        try:
            self._bearers.require_still(speaker)
        except KnowledgeError:
            return False
        return True


async def heard(
    service: HttpService, call: SubscribeCall, stop: Stop, receive: Receive, still: Callable[[], bool]
) -> AsyncGenerator[PendingAnswer | Heartbeat]:
    """What a subscriber hears; a heartbeat first, once the subscription stands. Raises its refusal otherwise.

    Ends with the right to hear, with whoever ``still`` says is there no more, the client, or this server.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[PendingAnswer] = asyncio.Queue()  # the hub offers one of each kind until it was delivered

    def ready(event: PendingAnswer) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(queue.put_nowait, event)

    subscription = service.subscribe(call, ready)
    gone: asyncio.Future[None] | None = None
    following: asyncio.Future[PendingAnswer] | None = None
    try:
        if not await answered(subscription, receive):
            raise ClientGone
        await asyncio.to_thread(subscription.deliver, lambda _: None)
        yield HEARTBEAT
        gone = asyncio.ensure_future(_ended(receive, stop))
        silent_since = time.monotonic()
        while not gone.done() and subscription.stands() and still():
            following = asyncio.ensure_future(queue.get())
            await asyncio.wait((following, gone), timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if following.done() and still():
                yield following.result()
                silent_since = time.monotonic()
                continue
            following.cancel()
            if time.monotonic() - silent_since >= HEARTBEAT_SECONDS:
                yield HEARTBEAT
                silent_since = time.monotonic()
    finally:
        subscription.end()
        for waiting in (gone, following):
            if waiting is not None:
                waiting.cancel()


def _subscription_of(request: Request, speaker: Speaker) -> SubscribeCall:
    """Whose events: a token's audience, an operator's ``?agent=``, or whom the host names in its header."""
    params: JsonObject = {}
    agent = request.query_params.get("agent")
    if agent is not None:
        params["agent"] = agent
    caller: Caller | None
    match speaker:
        case HostSpeaker():
            caller = audience_in_header(request)
            return parse_subscription(params, caller=caller, peer=None)
        case OperatorSpeaker() | AudienceSpeaker():
            caller, operator = standing_for(speaker, params)
            return parse_subscription(params, caller=caller, peer=operator)


async def _ended(receive: Receive, stop: Stop) -> None:
    async def left() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    both = (asyncio.ensure_future(left()), asyncio.ensure_future(stop.event().wait()))
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in both:
            one.cancel()


async def _put(send: Send, chunk: bytes) -> None:
    """One piece, into the kernel before this returns."""
    await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": True})


__all__ = ["HEARTBEAT", "EventsRoute", "Heartbeat", "heard"]
