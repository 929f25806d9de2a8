"""``knowledge mcp`` with the SDK's own client at its other end: real processes, both protocol eras."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import anyio
import mcp_types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError

from messages.schemas import export_tools
from tests.host_bridge.processes import Home, kill_and_wait

Mode = Literal["legacy", "auto", "2026-07-28"]
MODES: tuple[Mode, ...] = ("legacy", "auto", "2026-07-28")


@asynccontextmanager
async def connected(home: Home, mode: Mode, *arguments: str) -> AsyncIterator[Client]:
    command, *rest = home.command("mcp", *arguments)
    server = StdioServerParameters(command=command, args=rest, env=home.env, cwd="/")
    async with Client(stdio_client(server), mode=mode, read_timeout_seconds=30) as client:
        yield client


async def call(client: Client, **arguments: object) -> dict[str, object]:
    result = await client.call_tool("knowledge_status", dict(arguments))
    assert isinstance(result, mcp_types.CallToolResult)
    assert not result.is_error
    assert result.structured_content is None
    (block,) = result.content
    assert isinstance(block, mcp_types.TextContent)
    answer: dict[str, object] = json.loads(block.text)
    return answer


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(60):
            await test()

    anyio.run(bounded)


@pytest.mark.parametrize(
    "mode", ["auto", pytest.param("legacy", marks=pytest.mark.slow), pytest.param("2026-07-28", marks=pytest.mark.slow)]
)
def test_the_sdks_client_lists_and_calls_in_every_mode(home: Home, mode: Mode) -> None:
    async def test() -> None:
        async with connected(home, mode, "--profile", "full") as client:
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == [tool["name"] for tool in export_tools("mcp")]
            for tool in tools:
                assert tool.annotations is not None
                hints = tool.annotations
                assert None not in (
                    hints.read_only_hint,
                    hints.destructive_hint,
                    hints.idempotent_hint,
                    hints.open_world_hint,
                )
            # A client that pins the newer era asks for nothing first, so it has no instructions to show.
            assert (client.instructions is None) == (mode == "2026-07-28")
            answer = await call(client, note="żółw 漢字 🐢")
            assert answer["arguments"] == {"note": "żółw 漢字 🐢"}
            refused = await client.call_tool("knowledge_status", {"act": "refuse"})
            assert isinstance(refused, mcp_types.CallToolResult)
            assert refused.is_error
            assert len(refused.content) == 1
            with pytest.raises(MCPError) as unknown:
                await client.call_tool("knowledge_nothing", {})
            assert unknown.value.code == -32602

    run(test)


@pytest.mark.slow
def test_eight_clients_at_once_in_both_eras_share_one_owner(home: Home) -> None:
    pids: list[object] = []

    async def one(number: int) -> None:
        async with connected(home, MODES[number % 3]) as client:
            for round_number in range(3):
                answer = await call(client, number=number, round=round_number)
                assert answer["arguments"] == {"number": number, "round": round_number}
                pids.append(answer["pid"])

    async def test() -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(one, number)

    run(test)
    assert len(pids) == 24
    assert set(pids) == {home.holder_pid()}


@pytest.mark.parametrize("mode", ["legacy", pytest.param("2026-07-28", marks=pytest.mark.slow)])
def test_an_owner_killed_under_a_client_is_replaced_and_the_open_call_gets_a_retryable_error(
    home: Home, mode: Mode
) -> None:
    started = home.pipe("started")

    async def test() -> None:
        async with connected(home, mode) as client:
            first = (await call(client))["pid"]
            assert isinstance(first, int)
            results: list[object] = []

            async def hold() -> None:
                results.append(
                    await client.call_tool(
                        "knowledge_status",
                        {"act": "hold", "name": "a", "started": started, "release": home.pipe("never")},
                    )
                )

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hold)
                text = await anyio.to_thread.run_sync(lambda: Path(started).read_text(encoding="utf-8"))
                assert text == "a\n"
                await anyio.to_thread.run_sync(kill_and_wait, first)
            (result,) = results
            assert isinstance(result, mcp_types.CallToolResult)
            assert result.is_error
            (block,) = result.content
            assert isinstance(block, mcp_types.TextContent)
            assert json.loads(block.text)["retry"] == "unknown"
            assert (await call(client))["pid"] != first
            assert (await client.list_tools()).tools

    run(test)


@pytest.mark.slow
def test_a_conversation_is_the_audience_of_its_whole_session(home: Home) -> None:
    session = "3f0c6a5e-8c1d-4d4a-9a53-1f0f3a2b4c5d"

    async def test() -> None:
        async with connected(home, "auto", "--agent", "ben", "--conversation", "g", "--session", session) as client:
            answer = await call(client)
            assert (answer["agent"], answer["session"]) == ("ben", session)

    run(test)


@pytest.mark.parametrize(
    "way", ["stdin", pytest.param("stdout", marks=pytest.mark.slow), pytest.param("SIGTERM", marks=pytest.mark.slow)]
)
def test_it_ends_when_its_client_does_and_the_owner_lives_on(home: Home, way: str) -> None:
    process = home.start("mcp")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",')
    process.stdin.write(b'"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}\n')
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == 1
    process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    process.stdin.write(b'{"jsonrpc":"2.0","id":2,"method":"tools/list"}\n')
    process.stdin.flush()
    listing = json.loads(process.stdout.readline())
    assert (listing["id"], "tools" in listing["result"]) == (2, True)
    owner = home.holder_pid()
    assert owner is not None
    if way == "stdin":
        process.stdin.close()
    elif way == "stdout":
        process.stdout.close()
    else:
        process.send_signal(signal.SIGTERM)
    assert process.wait(20) in (0, -signal.SIGTERM)
    assert process.stderr is not None
    assert process.stderr.read() == b""
    os.kill(owner, 0)


@pytest.mark.slow
def test_stop_is_not_undone_by_a_client_that_is_silent(home: Home) -> None:
    async def test() -> None:
        async with connected(home, "legacy") as client:
            first = (await call(client))["pid"]
            stopped = await anyio.to_thread.run_sync(lambda: home.run("stop", "--json"))
            assert json.loads(stopped.stdout)["stopped"] is True
            assert home.holder_pid() is None
            assert (await call(client))["pid"] not in (None, first)

    run(test)


@pytest.mark.slow
def test_what_prevents_a_start_is_said_on_stderr_and_nothing_on_stdout(home: Home) -> None:
    (home.state_dir / "no-start").write_text("", encoding="utf-8")
    done = home.run("mcp")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"told not to start" in done.stderr
