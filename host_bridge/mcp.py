"""MCP inside the owner: the SDK's low-level server, one event loop in one thread, any number of sessions.

Imported only when the first MCP client connects: the SDK takes longer to import than all the rest. The SDK frames
and negotiates (both protocol eras, decided by the client's first request); the text of an answer never passes
through it. A finished call leaves a placeholder in the SDK's response, and the session's outbox puts the real result
in its place under the read lease, in the step that hands the bytes to the transport.

Expected failures are results with ``isError`` and one text block; no exception's text ever reaches a client.

Source: HOSTS.md sections 0 and 1; decisions.md sections 6 and 7.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from pydantic import ValidationError

import host_bridge
from host_bridge import jsonrpc
from host_bridge.jsonrpc import Malformed, RequestId
from host_bridge.mcp_greeting import INSTRUCTIONS, SERVER_NAME, SERVER_TITLE
from host_bridge.rpc import IdInUse, OpenCalls, Service, read_line
from host_bridge.transport import Outbox, Oversize, PendingAnswer
from messages.audience import Audience
from messages.envelope import Call, Cancellation, Deadline
from messages.errors import Busy, InternalError, InvalidArgument, KnowledgeError, Stopping
from messages.host import INVALID_REQUEST
from messages.json_types import JsonObject
from messages.vocabulary import DEADLINE_DEFAULT_MS

PROGRESS_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


class McpHost:
    """All MCP sessions of one owner. ``open`` and ``close`` from any thread."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.all_tools: frozenset[str] = frozenset(str(tool.get("name")) for tool in service.tools("mcp"))
        self.loop = asyncio.new_event_loop()
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
        tools = host.service.tools("mcp", profile)
        self._tools = mcp_types.ListToolsResult(tools=[mcp_types.Tool.model_validate(tool) for tool in tools])
        self._names = frozenset(tool.name for tool in self._tools.tools)
        self.calls = OpenCalls()
        self._held: dict[RequestId, PendingAnswer] = {}
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
        """End the SDK's loop of this session; calls that still run are cancelled by it."""
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
        try:
            message = mcp_types.jsonrpc_message_adapter.validate_python(_parse_stringified(value), by_name=False)
        except ValidationError:
            if _expects_no_answer(value):
                return None
            raise Malformed(INVALID_REQUEST, "This is no valid JSON-RPC message.", request_id) from None
        if request_id is None or value.get("method") != "tools/call":
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

    def _deliver_inward(self, message: SessionMessage) -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._inbox.send_nowait(message)

    async def _serve(self, receiver: MemoryObjectReceiveStream[SessionMessage | Exception]) -> None:
        server: Server[dict[str, object]] = Server(
            SERVER_NAME,
            version=host_bridge.__version__,
            title=SERVER_TITLE,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        await server.run(receiver, _Outward(self), server.create_initialization_options())

    async def _list_tools(
        self, ctx: ServerRequestContext[dict[str, object]], params: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListToolsResult:
        return self._tools

    async def _call_tool(
        self, ctx: ServerRequestContext[dict[str, object]], params: mcp_types.CallToolRequestParams
    ) -> mcp_types.CallToolResult:
        if params.name not in self._host.all_tools:
            raise MCPError(code=mcp_types.INVALID_PARAMS, message=f"No tool is called {_shown(params.name)}.")
        try:
            return await self._run_call(ctx, params)
        except KnowledgeError as error:
            return mcp_types.CallToolResult.model_validate(_failure(error))
        except Exception:  # noqa: BLE001 - in the handshake era the SDK would send an exception's text to the client
            _log.exception("an MCP call failed")
            return mcp_types.CallToolResult.model_validate(
                _failure(InternalError("The runtime failed on this call; its log has the details."))
            )

    async def _run_call(
        self, ctx: ServerRequestContext[dict[str, object]], params: mcp_types.CallToolRequestParams
    ) -> mcp_types.CallToolResult:
        if not self._offers(params.name):
            raise InvalidArgument(f"{params.name} is not in this profile.", field="name", allowed=sorted(self._names))
        if self._stopping:
            raise Stopping("The runtime is shutting down; the call did not run.")
        call = Call(
            params.name, dict(params.arguments or {}), self._audience, Deadline.after(DEADLINE_DEFAULT_MS / 1000)
        )
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        pending = self._host.service.submit(call)
        if ctx.request_id is not None:
            self.calls.attach(ctx.request_id, pending)
        pending.add_done_callback(lambda _: _set_from_thread(loop, done))
        try:
            await self._wait(ctx, done)
        except asyncio.CancelledError:
            pending.cancel()
            raise
        if ctx.request_id is not None:
            self._held[ctx.request_id] = pending
        return mcp_types.CallToolResult(content=[])

    def _offers(self, tool: str) -> bool:
        """Whether the tool is in the session's profile."""
        return tool in self._names

    async def _wait(self, ctx: ServerRequestContext[dict[str, object]], done: asyncio.Event) -> None:
        """Wait for the answer; a client that asked for progress hears every few seconds that we are alive."""
        beats = 0
        while True:
            try:
                await asyncio.wait_for(done.wait(), PROGRESS_SECONDS)
                return
            except TimeoutError:
                beats += 1
                await ctx.session.report_progress(float(beats), None, None)

    def _send(self, message: mcp_types.JSONRPCMessage) -> None:
        """Runs on the loop: everything the SDK says goes out here, answers to calls with their real content."""
        body: JsonObject = message.model_dump(mode="json", by_alias=True, exclude_unset=True)
        request_id = body.get("id")
        is_answer = "method" not in body and isinstance(request_id, str | int)
        pending = self._held.pop(request_id, None) if is_answer and isinstance(request_id, str | int) else None
        if pending is None or not isinstance(request_id, str | int):
            self._outbox.put(jsonrpc.dump(body))
            if is_answer and isinstance(request_id, str | int):
                self._settled(request_id)
            return
        frame = body.get("result")
        assert isinstance(frame, Mapping)

        def fill(content: JsonObject) -> bytes:
            self._settled(request_id)
            return jsonrpc.dump({**body, "result": {**frame, **content}})

        self._outbox.put_answer(pending, lambda result: fill(_success(result)), lambda error: fill(_failure(error)))

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


def _set_from_thread(loop: asyncio.AbstractEventLoop, done: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop has ended; nobody waits any more
        loop.call_soon_threadsafe(done.set)


def _success(result: JsonObject) -> JsonObject:
    return {"content": [_text(result)], "isError": False}


def _failure(error: KnowledgeError) -> JsonObject:
    facts = error.to_data()
    return {"content": [_text({"code": facts.pop("code"), "message": error.message, **facts})], "isError": True}


def _text(value: JsonObject) -> JsonObject:
    return {"type": "text", "text": jsonrpc.dump(value).decode()}


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


def _shown(name: str) -> str:
    return name if name.isprintable() and len(name) <= 80 else "that"
