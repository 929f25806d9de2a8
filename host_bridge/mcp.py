"""MCP on the owner's socket: one event loop in one thread, any number of sessions.

Imported only when the first MCP client connects: the SDK takes longer to import than all the rest. What a session
offers is :mod:`host_bridge.mcp_server`'s, for both protocol eras (decided by the client's first request). The session's
outbox puts the real result in the place of the placeholder under the read lease, in the step that hands the bytes to
the transport. Once the SDK has answered a handshake, plain tool calls pass it by (:mod:`host_bridge.mcp_calls`).

Source: HOSTS.md sections 0 and 1; decisions.md sections 6 and 7.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Self

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from pydantic import ValidationError

from host_bridge import jsonrpc
from host_bridge.dispatch import Service
from host_bridge.jsonrpc import Malformed, RequestId
from host_bridge.mcp_calls import Heart, PlainCall, PlainCalls
from host_bridge.mcp_server import Context, Held, ToolServer
from host_bridge.rpc import IdInUse, OpenCalls, read_line
from host_bridge.transport import Outbox, Oversize, PendingAnswer
from messages.audience import Audience, Caller
from messages.envelope import Cancellation
from messages.errors import Busy, Stopping
from messages.host import INVALID_REQUEST
from messages.json_types import JsonObject

_FROM_STORES: Final = ("tools/call", "resources/read")
"""What is answered from a store: its bytes leave under a read lease."""
_log = logging.getLogger(__name__)


class McpHost:
    """All MCP sessions of one owner. ``open`` and ``close`` from any thread."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.loop = asyncio.new_event_loop()
        self.heart = Heart(self.loop)
        self._thread = threading.Thread(target=self._run, name="mcp", daemon=True)
        self._thread.start()

    def open(self, outbox: Outbox, audience: Audience, profile: str | None) -> McpSession:
        """A session whose calls act as ``audience``; it offers the tools of ``profile``, all without one."""
        return McpSession(self, outbox, audience, profile)

    def close(self) -> None:
        """End the event loop; every session was closed before."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5.0)
        if not self._thread.is_alive():
            self.loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


class McpSession:
    """One MCP connection. ``feed`` runs in the connection's reading thread and never blocks on a call."""

    def __init__(self, host: McpHost, outbox: Outbox, audience: Audience, profile: str | None) -> None:
        self._host = host
        self._outbox = outbox
        self._audience = audience
        self._tools = ToolServer(host.service, profile, self)
        self.calls = OpenCalls()
        self._plain = PlainCalls(host.service.submit, outbox, self.calls, audience, host.heart)
        self._handshake: RequestId | None = None
        self._greeted = False
        self._held: dict[RequestId, Held] = {}
        self._started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._stopping = False
        sender, receiver = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
        self._inbox: MemoryObjectSendStream[SessionMessage | Exception] = sender
        self._done = asyncio.run_coroutine_threadsafe(self._serve(receiver), host.loop)

    def feed(self, line: bytes | Oversize) -> None:
        """Take one line. What cannot become a request is answered, under a null id where its own cannot be echoed."""
        message = read_line(line, self._message, self._outbox)
        if message is None:
            return
        with suppress(RuntimeError):  # the loop has ended: so has this connection
            self._host.loop.call_soon_threadsafe(self._deliver_inward, message)

    def stop_accepting(self) -> None:
        """From now on calls are refused with ``stopping``; open ones go on."""
        self._stopping = True

    def close(self) -> None:
        """End the SDK's loop of this session; calls that still run are cancelled."""
        self.calls.cancel_all()
        with suppress(RuntimeError):
            self._host.loop.call_soon_threadsafe(self._inbox.close)
        try:
            self._done.result(5.0)
        except (TimeoutError, asyncio.CancelledError):
            _log.warning("an MCP session did not end in time")
        except Exception:  # noqa: BLE001 - the session is over either way; the log says why
            _log.exception("an MCP session failed")

    def _message(self, line: bytes) -> SessionMessage | None:
        """What the SDK gets; None for what was answered here already, or gets no answer in JSON-RPC at all."""
        value = jsonrpc.parse_json(line)
        if not isinstance(value, dict):
            raise Malformed(INVALID_REQUEST, "One JSON object a line.")
        request_id = jsonrpc.id_of(value)
        if "method" in value and "id" in value and request_id is None:
            raise Malformed(INVALID_REQUEST, jsonrpc.ID_RULE)
        value = _parse_stringified(value)
        if self._greeted and self._take_plain(request_id, value):
            return None
        if value.get("method") == "initialize":
            self._handshake = request_id
        try:
            message = mcp_types.jsonrpc_message_adapter.validate_python(value, by_name=False)
        except ValidationError:
            if _expects_no_answer(value):
                return None
            raise Malformed(INVALID_REQUEST, "This is no valid JSON-RPC message.", request_id) from None
        if request_id is None or value.get("method") not in _FROM_STORES:
            return SessionMessage(message)
        try:
            self.calls.open(request_id, Cancellation())
        except IdInUse:
            self._outbox.put(IdInUse.LINE)
            return None
        except Busy as error:
            self._outbox.put(jsonrpc.refusal_line(request_id, error))
            return None

        async def unanswered() -> None:
            self._settled(request_id)

        return SessionMessage(message, ServerMessageMetadata(on_request_unanswered=unanswered))

    def _take_plain(self, request_id: RequestId | None, value: JsonObject) -> bool:
        """Whether the message was a plain call, or the cancellation of one, and so nothing for the SDK."""
        if value.get("method") == "notifications/cancelled":
            params = value.get("params")
            return isinstance(params, Mapping) and self._plain.withdraw(params.get("requestId"))
        plain = None if request_id is None else PlainCall.of(request_id, value)
        if plain is None or not self._tools.knows(plain.tool):
            return False
        self._plain.run(plain, self._tools.refusal(plain.tool))
        return True

    def _deliver_inward(self, message: SessionMessage) -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._inbox.send_nowait(message)

    async def _serve(self, receiver: MemoryObjectReceiveStream[SessionMessage | Exception]) -> None:
        server = self._tools.build()
        await server.run(receiver, _Outward(self), server.create_initialization_options())

    def caller(self, ctx: Context) -> Caller:
        """See :class:`Around`."""
        return self._audience

    def started_at(self, ctx: Context) -> str:
        """See :class:`Around`."""
        return self._started_at

    def require_going(self) -> None:
        """See :class:`Around`."""
        if self._stopping:
            raise Stopping("The runtime is shutting down; the call did not run.")

    def submitted(self, ctx: Context, pending: PendingAnswer) -> None:
        """See :class:`Around`."""
        if ctx.request_id is not None:
            self.calls.attach(ctx.request_id, pending)

    def keep(self, ctx: Context, held: Held) -> None:
        """See :class:`Around`."""
        if ctx.request_id is not None:
            self._held[ctx.request_id] = held

    def _send(self, message: mcp_types.JSONRPCMessage) -> None:
        """Runs on the loop: everything the SDK says goes out here, answers to calls with their real content."""
        body: JsonObject = message.model_dump(mode="json", by_alias=True, exclude_unset=True)
        request_id = body.get("id")
        is_answer = "method" not in body and isinstance(request_id, str | int)
        held = self._held.pop(request_id, None) if is_answer and isinstance(request_id, str | int) else None
        if is_answer and request_id == self._handshake and "result" in body:
            self._greeted = True
        if held is None or not isinstance(request_id, str | int):
            self._outbox.put(jsonrpc.dump(body))
            if is_answer and isinstance(request_id, str | int):
                self._settled(request_id)
            return
        frame = body.get("result")
        assert isinstance(frame, Mapping)

        def fill(shown: JsonObject) -> bytes:
            self._settled(request_id)
            if "error" in shown:
                return jsonrpc.dump({"jsonrpc": "2.0", "id": request_id, **shown})
            return jsonrpc.dump({**body, "result": {**frame, **shown}})

        self._outbox.put_answer(
            held.pending, lambda result: fill(held.succeeded(result)), lambda error: fill(held.failed(error))
        )

    def _settled(self, request_id: RequestId) -> None:
        self._held.pop(request_id, None)
        self.calls.settle(request_id)


class _Outward:
    """The SDK's write stream: hands each message to the session instead of queueing it once more."""

    def __init__(self, session: McpSession) -> None:
        self._session = session

    async def send(self, item: SessionMessage, /) -> None:
        self._session._send(item.message)

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


def _parse_stringified(value: JsonObject) -> JsonObject:
    """A call with its arguments as an object, where a host sent a string that holds one."""
    params = value.get("params")
    if value.get("method") != "tools/call" or not isinstance(params, Mapping) or "arguments" not in params:
        return value
    return {**value, "params": {**params, "arguments": jsonrpc.unwrapped(params["arguments"])}}


def _expects_no_answer(value: JsonObject) -> bool:
    """A notification, or an answer to something that we asked: JSON-RPC answers neither, however broken it is."""
    if "method" in value:
        return isinstance(value["method"], str) and "id" not in value
    return "result" in value or "error" in value
