"""What an MCP server of ours offers, whichever transport carries it: tools, resources, prompts, and their calls.

The SDK frames and negotiates; the text of an answer never passes through it. A finished call is kept as :class:`Held`
and leaves a placeholder in the SDK's response; the transport puts the real result in its place under the read lease, in
the step that hands the bytes over.

Expected failures are results with ``isError`` and one text block; no exception's text ever reaches a client.

Source: HOSTS.md sections 0 and 1; decisions.md sections 6 and 7.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import mcp_types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

import host_bridge
from host_bridge import mcp_calls, mcp_extras
from host_bridge.dispatch import Service
from host_bridge.mcp_calls import failure, success
from host_bridge.mcp_greeting import SERVER_NAME, SERVER_TITLE, instructions
from host_bridge.transport import PendingAnswer
from messages.audience import Caller
from messages.envelope import Call, Deadline
from messages.errors import InternalError, InvalidArgument, KnowledgeError, NotFound
from messages.host import INVALID_PARAMS, error_object
from messages.json_types import JsonObject
from messages.provider import parse_provider_call
from messages.vocabulary import DEADLINE_DEFAULT_MS

Context: TypeAlias = ServerRequestContext[dict[str, object]]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """An answer that is there and not handed over yet, and how it is shown: as parts of a result, or as ``error``."""

    pending: PendingAnswer
    succeeded: Callable[[JsonObject], JsonObject]
    failed: Callable[[KnowledgeError], JsonObject]


class Around(Protocol):
    """What a transport decides about a request. The event loop's thread."""

    def caller(self, ctx: Context) -> Caller | None:
        """On whose behalf it calls."""

    def started_at(self, ctx: Context) -> str:
        """When the client's session began, RFC 3339."""

    def require_going(self) -> None:
        """Raise ``Stopping`` once calls are refused."""

    def submitted(self, ctx: Context, pending: PendingAnswer) -> None:
        """A call is on its way: a cancellation is passed on to it."""

    def keep(self, ctx: Context, held: Held) -> None:
        """The answer is there: it goes in the place of the response's placeholder as that is handed over."""


class ToolServer:
    """The handlers of one profile."""

    def __init__(self, service: Service, profile: str | None, around: Around) -> None:
        """``profile``: whose tools are offered, all without one."""
        self._service = service
        self._profile = profile
        self._around = around
        tools = service.tools("mcp", profile)
        self._tools = mcp_types.ListToolsResult(tools=[mcp_types.Tool.model_validate(tool) for tool in tools])
        self._names = frozenset(tool.name for tool in self._tools.tools)
        self._all_names = frozenset(str(tool.get("name")) for tool in service.tools("mcp"))

    def build(self) -> Server[dict[str, object]]:
        """A server of the SDK with these handlers."""
        return Server(
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

    def knows(self, tool: str) -> bool:
        """Whether there is such a tool, in the profile or not."""
        return tool in self._all_names

    def refusal(self, tool: str) -> KnowledgeError | None:
        """Why a tool that exists is not called now."""
        if tool not in self._names:
            return InvalidArgument(f"{tool} is not in this profile.", field="name", allowed=sorted(self._names))
        try:
            self._around.require_going()
        except KnowledgeError as error:
            return error
        return None

    async def _list_tools(
        self, ctx: Context, params: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListToolsResult:
        return self._tools

    async def _call_tool(
        self, ctx: Context, params: mcp_types.CallToolRequestParams
    ) -> mcp_types.CallToolResult:
        if not self.knows(params.name):
            raise MCPError(code=mcp_types.INVALID_PARAMS, message=f"No tool is called {_shown(params.name)}.")
        try:
            return await self._run_call(ctx, params)
        except KnowledgeError as error:
            return mcp_types.CallToolResult.model_validate(failure(error))
        except Exception:  # noqa: BLE001 - in the handshake era the SDK would send an exception's text to the client
            _log.exception("an MCP call failed")
            return mcp_types.CallToolResult.model_validate(
                failure(InternalError("The runtime failed on this call; its log has the details."))
            )

    async def _run_call(
        self, ctx: Context, params: mcp_types.CallToolRequestParams
    ) -> mcp_types.CallToolResult:
        refusal = self.refusal(params.name)
        if refusal is not None:
            raise refusal
        deadline = Deadline.after(DEADLINE_DEFAULT_MS / 1000)
        call = Call(params.name, dict(params.arguments or {}), self._around.caller(ctx), deadline)
        await self._answered(ctx, Held(self._service.submit(call), success, failure))
        return mcp_types.CallToolResult(content=[])

    async def _list_resources(
        self, ctx: Context, params: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListResourcesResult:
        return mcp_types.ListResourcesResult.model_validate({"resources": mcp_extras.RESOURCES})

    async def _list_resource_templates(
        self, ctx: Context, params: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListResourceTemplatesResult:
        return mcp_types.ListResourceTemplatesResult.model_validate(
            {"resourceTemplates": mcp_extras.RESOURCE_TEMPLATES}
        )

    async def _read_resource(
        self, ctx: Context, params: mcp_types.ReadResourceRequestParams
    ) -> mcp_types.ReadResourceResult:
        uri = str(params.uri)
        try:
            self._around.require_going()
            await self._answered(ctx, self._reading(ctx, uri))
        except KnowledgeError as error:
            raise MCPError(code=INVALID_PARAMS, message=error.message) from None
        except MCPError:
            raise
        except Exception:  # noqa: BLE001 - in the handshake era the SDK would send an exception's text to the client
            _log.exception("an MCP resource could not be read")
            message = "The runtime failed on this read; its log has the details."
            raise MCPError(code=mcp_types.INTERNAL_ERROR, message=message) from None
        return mcp_types.ReadResourceResult(contents=[])

    def _reading(self, ctx: Context, uri: str) -> Held:
        """What answers for a resource. Raises ``MCPError`` for a URI that is none of ours."""
        if uri == mcp_extras.INDEX_URI:
            call = parse_provider_call(
                "prompt.build", {"sessionStartedAt": self._around.started_at(ctx)}, caller=self._around.caller(ctx)
            )
            pending = self._service.provide(call)
            return Held(pending, lambda built: mcp_extras.contents(uri, mcp_extras.index_text(built)), _failed_read)
        record_id = mcp_extras.page_id(uri)
        if record_id is None:
            raise MCPError(code=INVALID_PARAMS, message=mcp_extras.NO_RESOURCE)
        deadline = Deadline.after(DEADLINE_DEFAULT_MS / 1000)
        arguments: JsonObject = {"id": record_id, "maxChars": mcp_extras.PAGE_CHARS}
        pending = self._service.submit(Call("knowledge_record", arguments, self._around.caller(ctx), deadline))

        def page(answer: JsonObject) -> JsonObject:
            text = mcp_extras.page_text(answer)
            if text is None:
                return _failed_read(NotFound("There is no page with this id here."))
            return mcp_extras.contents(uri, text)

        return Held(pending, page, _failed_read)

    async def _list_prompts(
        self, ctx: Context, params: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListPromptsResult:
        return mcp_types.ListPromptsResult.model_validate({"prompts": mcp_extras.prompts(self._names)})

    async def _get_prompt(
        self, ctx: Context, params: mcp_types.GetPromptRequestParams
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

    async def _answered(self, ctx: Context, held: Held) -> None:
        """Wait until there is an answer, and keep it for the step that hands its bytes to the transport."""
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._around.submitted(ctx, held.pending)
        held.pending.add_done_callback(lambda _: _set_from_thread(loop, done))
        try:
            await self._wait(ctx, done)
        except asyncio.CancelledError:
            held.pending.cancel()
            raise
        self._around.keep(ctx, held)

    async def _wait(self, ctx: Context, done: asyncio.Event) -> None:
        """Wait for the answer; a client that asked for progress hears every few seconds that we are alive."""
        beats = 0
        while True:
            try:
                await asyncio.wait_for(done.wait(), mcp_calls.PROGRESS_SECONDS)
                return
            except TimeoutError:
                beats += 1
                await ctx.session.report_progress(float(beats), None, None)


def _set_from_thread(loop: asyncio.AbstractEventLoop, done: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop has ended; nobody waits any more
        loop.call_soon_threadsafe(done.set)


def _failed_read(error: KnowledgeError) -> JsonObject:
    return {"error": error_object(error)}


def _shown(name: str) -> str:
    return name if name.isprintable() and len(name) <= 80 else "that"


__all__ = ["Around", "Context", "Held", "ToolServer"]
