"""``POST /v1/tools/{name}``: a tool with its arguments as the body, for function calling without JSON-RPC.

The audience is the bearer's; a host sends the one it minted in the header ``Knowledge-Audience``, as the JSON object of
``tools.call`` or the text of a token. ``Knowledge-Deadline-Ms`` and ``Knowledge-Flush-Id`` are those of ``tools.call``.
The answer is the tool's, a refusal ``{"error": {...}}`` with the status of its code.

Source: decisions.md section 7 (tools.call).
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from host_bridge import jsonrpc
from host_bridge.dispatch import PreparedCall, prepare
from host_bridge.http.answers import Deliverer, Reply, send_reply
from host_bridge.http.asking import DOOR, HttpService, Stop, guarded, parsed_json, require_json
from host_bridge.http.bearers import AudienceSpeaker, Bearers, HostSpeaker, OperatorSpeaker, Speaker
from host_bridge.http.connection import connection_of
from host_bridge.http.door import speaker_of
from host_bridge.http.metrics import Metrics
from host_bridge.http.refusals import error_json, headers_of, status_of
from host_bridge.jsonrpc import Malformed
from messages.audience import Caller, parse_caller
from messages.errors import Denied, InvalidArgument, KnowledgeError, LimitExceeded
from messages.json_types import JsonObject
from messages.tools import CATALOGUE

AUDIENCE_HEADER = "Knowledge-Audience"
DEADLINE_HEADER = "Knowledge-Deadline-Ms"
FLUSH_HEADER = "Knowledge-Flush-Id"


class ToolsRoute:
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
        if request.method != "POST":
            await send_reply(send, Reply(405, b"{}", {"allow": "POST"}))
            return
        name: str = request.path_params["name"]
        started = time.monotonic()

        async def settled(result: JsonObject) -> None:
            await send_reply(send, Reply(200, jsonrpc.dump(result)))

        async def refused(error: KnowledgeError) -> None:
            status = status_of(error)
            await send_reply(send, Reply(status, jsonrpc.dump(error_json(error)), headers_of(status)))

        try:
            call = await self._call(name, request, speaker_of(scope))
        except KnowledgeError as error:
            code = error.code
            await refused(error)
        else:
            code = await self._deliverer.run(call, receive, settled, refused, connection_of(scope))
        if name in CATALOGUE:
            self._metrics.answered(name, code, time.monotonic() - started)

    async def _call(self, name: str, request: Request, speaker: Speaker) -> PreparedCall:
        require_json(request)
        self._stop.require_going()
        caller = caller_of(request, speaker)
        try:
            arguments = jsonrpc.unwrapped(await parsed_json(await request.body()))
        except Malformed as malformed:
            raise refusal_of(malformed) from None
        if not isinstance(arguments, Mapping):
            raise InvalidArgument("The body must be the object of the tool's arguments.", field="", allowed="object")
        params: JsonObject = {"tool": name, "arguments": dict(arguments)}
        deadline, flush = request.headers.get(DEADLINE_HEADER), request.headers.get(FLUSH_HEADER)
        if deadline is not None:
            params["deadlineMs"] = deadline
        if flush is not None:
            params["flushId"] = flush
        call = prepare(self._service, "tools.call", params, caller=caller, operator=None, door=DOOR)
        assert call is not None
        return guarded(call, self._bearers, speaker)


def caller_of(request: Request, speaker: Speaker) -> Caller | None:
    """On whose behalf a tool is called. Raises ``Denied`` for an operator's key, ``InvalidArgument``."""
    match speaker:
        case OperatorSpeaker():
            raise Denied("An operator's key never calls tools: it has no audience.", reason="operator_key")
        case HostSpeaker():
            return audience_in_header(request)
        case AudienceSpeaker(token):
            if AUDIENCE_HEADER in request.headers:
                raise InvalidArgument(
                    f"The token says who calls; only the host may send {AUDIENCE_HEADER}.", field=AUDIENCE_HEADER
                )
            return token


def audience_in_header(request: Request) -> Caller | None:
    """The audience that the host names for this request; ``None`` where it names none."""
    given = request.headers.get(AUDIENCE_HEADER)
    if given is None:
        return None
    if not given.lstrip().startswith("{"):
        return parse_caller(given)
    try:
        return parse_caller(jsonrpc.parse_json(given.encode("latin-1")))
    except Malformed:
        raise InvalidArgument(
            f"{AUDIENCE_HEADER} is the JSON object of an audience, or a token.", field=AUDIENCE_HEADER
        ) from None


def refusal_of(malformed: Malformed) -> KnowledgeError:
    """A body that is no JSON of ours, as a typed refusal."""
    if malformed.data is not None and malformed.data.get("code") == "limit_exceeded":
        return LimitExceeded(malformed.message, limit=malformed.data.get("limit"))
    return InvalidArgument(malformed.message, field="", reason="malformed")


__all__ = ["AUDIENCE_HEADER", "DEADLINE_HEADER", "FLUSH_HEADER", "ToolsRoute", "audience_in_header", "caller_of"]
