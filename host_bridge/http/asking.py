"""What the routes share: the runtime as HTTP sees it, its end, and the way from a speaker to a guarded call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from starlette.requests import Request

from host_bridge import jsonrpc
from host_bridge.dispatch import PreparedCall, Service
from host_bridge.http.bearers import AudienceSpeaker, Bearers, HostSpeaker, Keys, OperatorSpeaker, Speaker
from host_bridge.http.refusals import Refused, stopping
from host_bridge.transport import PendingAnswer
from messages.audience import Caller
from messages.errors import InvalidArgument
from messages.json_types import JsonObject, JsonValue
from messages.operator import Operator

DOOR: Final = "http"
_PARSED_ASIDE_BYTES: Final = 64 * 1024


class HttpService(Service, Keys, Protocol):
    """What the HTTP door needs of the bridge."""

    def ready(self) -> bool:
        """Whether a call would be taken now."""


class Stop:
    """The end of this server, as its routes see it. The event loop's thread, but for reading ``stopping``."""

    def __init__(self) -> None:
        self.stopping = False
        self._ended: asyncio.Event | None = None

    def require_going(self) -> None:
        """Raise ``Stopping`` once calls are refused."""
        if self.stopping:
            raise stopping()

    def event(self) -> asyncio.Event:
        """Set when streams are to end."""
        if self._ended is None:
            self._ended = asyncio.Event()
            if self.stopping:
                self._ended.set()
        return self._ended

    def set(self) -> None:
        self.stopping = True
        if self._ended is not None:
            self._ended.set()


@dataclass(frozen=True, slots=True)
class _Checked:
    """A pending answer that leaves only while its speaker's key still counts."""

    pending: PendingAnswer
    check: Callable[[], None]

    def add_done_callback(self, callback: Callable[[PendingAnswer], None], /) -> None:
        self.pending.add_done_callback(callback)

    def deliver(self, hand_over: Callable[[JsonObject], None]) -> None:
        def checked(result: JsonObject) -> None:
            self.check()
            hand_over(result)

        self.pending.deliver(checked)

    def cancel(self) -> None:
        self.pending.cancel()


def guarded(call: PreparedCall, bearers: Bearers, speaker: Speaker) -> PreparedCall:
    """The call, whose answer leaves only while the speaker's key still counts."""
    return replace(call, submit=lambda: guarded_answer(call.submit(), bearers, speaker))


def guarded_answer(pending: PendingAnswer, bearers: Bearers, speaker: Speaker) -> PendingAnswer:
    """The answer, which leaves only while the speaker's key still counts."""
    return _Checked(pending, lambda: bearers.require_still(speaker))


def standing_for(speaker: Speaker, params: JsonObject) -> tuple[Caller | None, Operator | None]:
    """Who calls and who asks where a request names nobody. Only the host may name somebody itself."""
    match speaker:
        case HostSpeaker():
            return None, None
        case OperatorSpeaker(operator):
            _require_unnamed("operator", params)
            return None, operator
        case AudienceSpeaker(token):
            _require_unnamed("audience", params)
            return token, None


def require_json(request: Request) -> None:
    """A form of another site can send other types without asking; this one it cannot."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        error = InvalidArgument(
            "The body must be JSON: Content-Type: application/json.", field="content-type", allowed="application/json"
        )
        raise Refused(error, 415)


async def parsed_json(body: bytes) -> JsonValue:
    """The JSON of a body, with the limits of a line. Raises :class:`~host_bridge.jsonrpc.Malformed`."""
    if len(body) <= _PARSED_ASIDE_BYTES:
        return jsonrpc.parse_json(body)
    return await asyncio.to_thread(jsonrpc.parse_json, body)


async def parsed_message(body: bytes) -> jsonrpc.Message:
    """The request in a body, as a line of the socket is read. Raises :class:`~host_bridge.jsonrpc.Malformed`."""
    if len(body) <= _PARSED_ASIDE_BYTES:
        return jsonrpc.parse_message(body)
    return await asyncio.to_thread(jsonrpc.parse_message, body)


def _require_unnamed(name: str, params: JsonObject) -> None:
    if params.get(name) is not None:
        raise InvalidArgument(f"The bearer says who this is; only the host may send `{name}`.", field=name)


__all__ = [
    "DOOR",
    "HttpService",
    "Stop",
    "guarded",
    "guarded_answer",
    "parsed_json",
    "parsed_message",
    "require_json",
    "standing_for",
]
