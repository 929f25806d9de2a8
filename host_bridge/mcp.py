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
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
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
from host_bridge import jsonrpc, mcp_extras
from host_bridge.dispatch import Service
from host_bridge.jsonrpc import Malformed, RequestId
from host_bridge.mcp_greeting import SERVER_NAME, SERVER_TITLE, instructions
from host_bridge.rpc import IdInUse, OpenCalls, read_line
from host_bridge.transport import Outbox, Oversize, PendingAnswer
from messages.audience import Audience
from messages.envelope import Call, Cancellation, Deadline
from messages.errors import Busy, InternalError, InvalidArgument, KnowledgeError, NotFound, Stopping
from messages.host import INVALID_PARAMS, INVALID_REQUEST, error_object
from messages.json_types import JsonObject
from messages.provider import parse_provider_call
from messages.vocabulary import DEADLINE_DEFAULT_MS

PROGRESS_SECONDS: Final = 5.0
_FROM_STORES: Final = ("tools/call", "resources/read")
"""What is answered from a store: its bytes leave under a read lease."""
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
        self._profile = profile
        tools = host.service.tools("mcp", profile)
        self._tools = mcp_types.ListToolsResult(tools=[mcp_types.Tool.model_validate(tool) for tool in tools])
        self._names = frozenset(tool.name for tool in self._tools.tools)
        self.calls = OpenCalls()
        self._held: dict[RequestId, _Held] = {}
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

    def _deliver_inward(self, message: SessionMessage) -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._inbox.send_nowait(message)

    async def _serve(self, receiver: MemoryObjectReceiveStream[SessionMessage | Exception]) -> None:
        server: Server[dict[str, object]] = Server(
            SERVER_NAME,
            version=host_bridge.__version__,
            title=SERVER_TITLE,
            instructions=instructions(self._profile),
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_resource_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
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
        await self._answered(ctx, _Held(self._host.service.submit(call), _success, _failure))
        return mcp_types.CallToolResult(content=[])

    async def _list_resources(
        self, ctx: ServerRequestContext[dict[str, object]], params: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListResourcesResult:
        return mcp_types.ListResourcesResult.model_validate({"resources": mcp_extras.RESOURCES})

    async def _list_resource_templates(
        self, ctx: ServerRequestContext[dict[str, object]], params: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListResourceTemplatesResult:
        return mcp_types.ListResourceTemplatesResult.model_validate(
            {"resourceTemplates": mcp_extras.RESOURCE_TEMPLATES}
        )

    async def _read_resource(
        self, ctx: ServerRequestContext[dict[str, object]], params: mcp_types.ReadResourceRequestParams
    ) -> mcp_types.ReadResourceResult:
        uri = str(params.uri)
        try:
            if self._stopping:
                raise Stopping("The runtime is shutting down; nothing was read.")
            await self._answered(ctx, self._reading(uri))
        except KnowledgeError as error:
            raise MCPError(code=INVALID_PARAMS, message=error.message) from None
        except MCPError:
            raise
        except Exception:  # noqa: BLE001 - in the handshake era the SDK would send an exception's text to the client
            _log.exception("an MCP resource could not be read")
            message = "The runtime failed on this read; its log has the details."
            raise MCPError(code=mcp_types.INTERNAL_ERROR, message=message) from None
        return mcp_types.ReadResourceResult(contents=[])

    def _reading(self, uri: str) -> _Held:
        """What answers for a resource. Raises ``MCPError`` for a URI that is none of ours."""
        if uri == mcp_extras.INDEX_URI:
            call = parse_provider_call(
                "prompt.build", {"sessionStartedAt": self._started_at}, caller=self._audience
            )
            pending = self._host.service.provide(call)
            return _Held(pending, lambda built: mcp_extras.contents(uri, mcp_extras.index_text(built)), _failed_read)
        record_id = mcp_extras.page_id(uri)
        if record_id is None:
            raise MCPError(code=INVALID_PARAMS, message=mcp_extras.NO_RESOURCE)
        deadline = Deadline.after(DEADLINE_DEFAULT_MS / 1000)
        arguments: JsonObject = {"id": record_id, "maxChars": mcp_extras.PAGE_CHARS}
        pending = self._host.service.submit(Call("knowledge_record", arguments, self._audience, deadline))

        def page(answer: JsonObject) -> JsonObject:
            text = mcp_extras.page_text(answer)
            if text is None:
                return _failed_read(NotFound("There is no page with this id here."))
            return mcp_extras.contents(uri, text)

        return _Held(pending, page, _failed_read)

    async def _list_prompts(
        self, ctx: ServerRequestContext[dict[str, object]], params: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListPromptsResult:
        return mcp_types.ListPromptsResult.model_validate({"prompts": mcp_extras.prompts(self._names)})

    async def _get_prompt(
        self, ctx: ServerRequestContext[dict[str, object]], params: mcp_types.GetPromptRequestParams
    ) -> mcp_types.GetPromptResult:
        try:
            if not any(prompt["name"] == params.name for prompt in mcp_extras.prompts(self._names)):
                raise ValueError("No prompt has this name.")
            text = mcp_extras.prompt_text(params.name, params.arguments or {})
        except ValueError as error:
            raise MCPError(code=INVALID_PARAMS, message=str(error)) from None
        return mcp_types.GetPromptResult.model_validate(
            {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
        )

    async def _answered(self, ctx: ServerRequestContext[dict[str, object]], held: _Held) -> None:
        """Wait until there is an answer, and keep it for the step that hands its bytes to the transport."""
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        if ctx.request_id is not None:
            self.calls.attach(ctx.request_id, held.pending)
        held.pending.add_done_callback(lambda _: _set_from_thread(loop, done))
        try:
            await self._wait(ctx, done)
        except asyncio.CancelledError:
            held.pending.cancel()
            raise
        if ctx.request_id is not None:
            self._held[ctx.request_id] = held

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
        held = self._held.pop(request_id, None) if is_answer and isinstance(request_id, str | int) else None
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


@dataclass(frozen=True, slots=True)
class _Held:
    """An answer that is there and not handed over yet, and how it is shown: as parts of a result, or as ``error``."""

    pending: PendingAnswer
    succeeded: Callable[[JsonObject], JsonObject]
    failed: Callable[[KnowledgeError], JsonObject]


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


def _failed_read(error: KnowledgeError) -> JsonObject:
    return {"error": error_object(error)}


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
