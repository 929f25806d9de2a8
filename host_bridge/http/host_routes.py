"""``POST /rpc``: the host protocol, one JSON-RPC object a request.

Read, prepared and refused as on the owner's socket (:mod:`host_bridge.dispatch`); who may ask what is
:mod:`host_bridge.http.methods`'. A result and a typed refusal are 200, what is no request 400. A request whose client
hangs up is cancelled, unless it was accepted.

Source: decisions.md section 7.
"""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from host_bridge import jsonrpc
from host_bridge.dispatch import NoSuchMethod, answer_at_once, prepare
from host_bridge.http.answers import Deliverer, Reply, send_reply
from host_bridge.http.asking import DOOR, HttpService, Stop, guarded, parsed_message, require_json, standing_for
from host_bridge.http.bearers import Bearers, Speaker
from host_bridge.http.connection import connection_of
from host_bridge.http.door import speaker_of
from host_bridge.http.methods import EVERYBODY, require_allowed
from host_bridge.http.metrics import Metrics
from host_bridge.jsonrpc import Malformed, Notification, Response
from messages.errors import KnowledgeError
from messages.host import METHOD_NOT_FOUND, method_not_found
from messages.json_types import JsonObject


class RpcRoute:
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
        require_json(request)
        try:
            message = await parsed_message(await request.body())
        except Malformed as malformed:
            self._metrics.refused("/rpc", "malformed")
            await send_reply(send, Reply(400, malformed.to_line()))
            return
        if isinstance(message, Notification | Response):
            # Neither is answered, and nothing here is done without an answer: to cancel a call, hang up.
            await send_reply(send, Reply(202, b""))
            return
        await self._answer(message, speaker_of(scope), scope, receive, send)

    async def _answer(
        self, request: jsonrpc.Request, speaker: Speaker, scope: Scope, receive: Receive, send: Send
    ) -> None:
        started = time.monotonic()

        async def settled(result: JsonObject) -> None:
            await send_reply(send, Reply(200, jsonrpc.result_line(request.id, result)))

        async def refused(error: KnowledgeError) -> None:
            await send_reply(send, Reply(200, jsonrpc.refusal_line(request.id, error)))

        try:
            require_allowed(request.method, speaker)
            self._stop.require_going()
            if request.method in EVERYBODY:
                result = answer_at_once(self._service, request.method, request.params)
                await send_reply(send, Reply(200, jsonrpc.result_line(request.id, result)))
                code = "ok"
            else:
                caller, operator = standing_for(speaker, request.params)
                call = prepare(
                    self._service, request.method, request.params, caller=caller, operator=operator, door=DOOR
                )
                assert call is not None
                call = guarded(call, self._bearers, speaker)
                code = await self._deliverer.run(call, receive, settled, refused, connection_of(scope))
        except NoSuchMethod:
            line = jsonrpc.dump({"jsonrpc": "2.0", "id": request.id, "error": method_not_found()})
            self._metrics.refused("/rpc", str(METHOD_NOT_FOUND))
            await send_reply(send, Reply(200, line))
            return
        except KnowledgeError as error:
            code = error.code
            await refused(error)
        self._metrics.answered(request.method, code, time.monotonic() - started)
