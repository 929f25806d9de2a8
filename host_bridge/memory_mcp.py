"""``remember`` and ``recall`` over MCP on stdio, for a client that needs no more: no owner, no vault, one directory.

The SDK frames and negotiates. An expected failure is a result with ``isError`` and one sentence; no exception's text
ever reaches a client. Any number of these servers may share a directory.

Source: agent-memory.md (Auto-Registered Tools), agent-memory-contract.md section 8.
"""

from __future__ import annotations

import logging
from typing import Final

import anyio
import anyio.to_thread
import mcp_types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

import host_bridge
from host_bridge.knowledge_memory import KnowledgeMemory
from host_bridge.memory_tools import MemoryTool, add_memory_tools
from messages.errors import KnowledgeError
from storage.agent_memory import defang_delimiters, strip_surrogates

INSTRUCTIONS: Final = (
    "Long-term memory across conversations. Call recall before you answer anything that may depend on earlier ones, "
    "and remember when you learn something that later ones need."
)
REJECTED: Final = "Nothing was remembered: the text is empty."
_Context = ServerRequestContext[dict[str, object]]
_log = logging.getLogger(__name__)


def serve(directory: str) -> None:
    """Serve the memory of a directory until stdin ends. What is remembered is defanged first: it goes into prompts."""
    with KnowledgeMemory(directory, pre_save=[strip_surrogates, defang_delimiters, _worth_keeping]) as memory:
        anyio.run(_serve, memory)


def _worth_keeping(text: str) -> str | None:
    return text if text.strip() else None


async def _serve(memory: KnowledgeMemory) -> None:
    tools = {tool.name: tool for tool in add_memory_tools([], memory) if isinstance(tool, MemoryTool)}
    listed = mcp_types.ListToolsResult(
        tools=[mcp_types.Tool.model_validate(tool.to_mcp()) for tool in tools.values()]
    )

    async def list_tools(ctx: _Context, params: mcp_types.PaginatedRequestParams | None) -> mcp_types.ListToolsResult:
        return listed

    async def call_tool(ctx: _Context, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        tool = tools.get(params.name)
        if tool is None:
            raise MCPError(code=mcp_types.INVALID_PARAMS, message=f"The tools are {' and '.join(tools)}.")
        text, failed = await anyio.to_thread.run_sync(_answer, tool, dict(params.arguments or {}))
        return mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text=text)], is_error=failed)

    server: Server[dict[str, object]] = Server(
        "knowledge-memory",
        version=host_bridge.__version__,
        title="Knowledge memory",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    async with stdio_server() as (inward, outward):
        await server.run(inward, outward, server.create_initialization_options())


def _answer(tool: MemoryTool, arguments: dict[str, object]) -> tuple[str, bool]:
    """What a call says, and whether it failed. Any thread."""
    complaint = _complaint(tool, arguments)
    if complaint is not None:
        return complaint, True
    try:
        text = tool.function(**arguments)
    except KnowledgeError as error:
        return f"{error.message} ({error.code})", True
    except Exception:  # noqa: BLE001 - its text may hold what was remembered; the log has it
        _log.exception("a memory tool failed")
        return "The memory failed on this call; its log has the details. (internal)", True
    return (text, False) if text else (REJECTED, True)


def _complaint(tool: MemoryTool, arguments: dict[str, object]) -> str | None:
    """What is wrong with the arguments, if anything is: all are text, numbers or truth values."""
    known = {one.name: one for one in tool.parameters}
    unknown = sorted(set(arguments) - set(known))
    if unknown:
        return f"{tool.name} takes {', '.join(known)} and nothing else. (invalid_argument)"
    for name, one in known.items():
        value = arguments.get(name)
        if value is None and not one.required:
            arguments.pop(name, None)
        elif one.schema["type"] == "string" and not isinstance(value, str):
            return f"{tool.name} needs {name} as text. (invalid_argument)"
    return None
