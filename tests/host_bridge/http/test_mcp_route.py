"""MCP over streamable HTTP with the SDK's own client, in both eras, beside the same client over stdio."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal

import anyio
import httpx
import httpx2
import mcp_types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from messages.json_types import JsonObject
from messages.schemas import export_tools
from tests.host_bridge.http.world import OWNER, World, remembering
from tests.host_bridge.processes import Home

Mode = Literal["legacy", "auto", "2026-07-28"]
MODES: tuple[Mode, ...] = ("legacy", "auto", "2026-07-28")
HEAD = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@asynccontextmanager
async def connected(
    world: World, bearer: str, mode: Mode, path: str = "/mcp/full", **more: str
) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {bearer}", **more}
    async with httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http:
        async with Client(
            streamable_http_client(f"{world.server.url}{path}", http_client=http), mode=mode, read_timeout_seconds=30
        ) as client:
            yield client


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(60):
            await test()

    anyio.run(bounded)


async def call(client: Client, name: str, arguments: JsonObject) -> JsonObject:
    result = await client.call_tool(name, arguments)
    assert isinstance(result, mcp_types.CallToolResult)
    (block,) = result.content
    assert isinstance(block, mcp_types.TextContent)
    answer: JsonObject = json.loads(block.text)
    assert result.is_error == ("code" in answer and "message" in answer)
    return answer


@pytest.mark.parametrize("mode", MODES)
def test_the_sdks_client_has_the_same_tools_resources_and_prompts_as_over_stdio(world: World, mode: Mode) -> None:
    async def offered(client: Client) -> list[object]:
        return [
            (await client.list_tools()).tools,
            (await client.list_resources()).resources,
            (await client.list_resource_templates()).resource_templates,
            (await client.list_prompts()).prompts,
            client.instructions,
        ]

    async def test() -> None:
        async with connected(world, world.token(), mode) as client:
            over_http = await offered(client)
        home = Home(fake=False)
        try:
            command, *rest = home.command("mcp", "--profile", "full")
            server = StdioServerParameters(command=command, args=rest, env=home.env, cwd="/")
            async with Client(stdio_client(server), mode=mode, read_timeout_seconds=30) as client:
                assert await offered(client) == over_http
        finally:
            home.close()

    run(test)


@pytest.mark.parametrize("mode", MODES)
def test_the_sdks_client_saves_reads_and_is_refused_as_its_token_allows(world: World, mode: Mode) -> None:
    async def test() -> None:
        text = f"The tower of {mode} has nine bells."
        async with connected(world, world.token(), mode) as client:
            saved = await call(client, "knowledge_remember", remembering(text))
            assert "code" not in saved, saved
            assert text in json.dumps(await call(client, "knowledge_grep", {"query": f"tower {mode} bells"}))
            refused = await call(client, "knowledge_record", {"scope": "everything"})
            assert refused["code"] == "invalid_argument"
            index = await client.read_resource("knowledge://index")
            assert index.contents
            assert "Search with knowledge_grep" in str(await client.get_prompt("recall", {"topic": "bells"}))
            with pytest.raises(MCPError):
                await client.read_resource("knowledge://page/nothing-of-this-id")
            with pytest.raises(MCPError):
                await client.call_tool("knowledge_no_such_tool", {})
        other = world.token({"kind": "owner-private", "agent": "research"})
        async with connected(world, other, mode) as client:
            assert text not in json.dumps(await call(client, "knowledge_grep", {"query": "bells"}))

    run(test)


def test_a_profile_offers_its_tools_alone_and_core_is_the_default(world: World) -> None:
    async def test() -> None:
        for path, profile in (("/mcp", "core"), ("/mcp/read", "read"), ("/mcp/simple", "simple")):
            async with connected(world, world.token(), "auto", path) as client:
                names = [tool.name for tool in (await client.list_tools()).tools]
                assert names == [tool["name"] for tool in export_tools("mcp", profile)]
                if profile == "read":
                    refused = await call(client, "knowledge_remember", remembering("Never."))
                    assert refused["code"] == "invalid_argument"

    run(test)
    with world.client(world.token()) as client:
        assert client.post("/mcp/other", json={}).status_code == 404


@pytest.mark.parametrize("mode", MODES)
def test_the_host_sends_the_audience_that_it_minted_in_a_header(world: World, mode: Mode) -> None:
    async def test() -> None:
        audience = json.dumps(OWNER)
        async with connected(world, world.host_key, mode, **{"Knowledge-Audience": audience}) as client:
            assert "state" in json.dumps(await call(client, "knowledge_status", {}))

    run(test)


def test_an_operator_s_key_opens_no_mcp_session_and_a_host_without_an_audience_none(world: World) -> None:
    with world.client(world.operator_key("root", rotate=True)) as client:
        assert client.post("/mcp", json={}).status_code == 403
    with world.client(world.host_key) as client:
        assert client.post("/mcp", json={}).json()["error"]["data"]["code"] == "audience_missing"


def opened(client: httpx.Client) -> str:
    """A session of the handshake era; its id."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    answer = client.post("/mcp", json=body, headers=HEAD)
    assert answer.status_code == 200, answer.text
    session = answer.headers["mcp-session-id"]
    client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session_head(session))
    return session


def session_head(session: str) -> dict[str, str]:
    return {**HEAD, "Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-11-25"}


STATUS = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "knowledge_status", "arguments": {}}}


def test_a_session_is_found_by_the_caller_that_opened_it_alone(world: World) -> None:
    first, second = world.token(), world.token()
    with world.client(first) as mine, world.client(second) as theirs:
        session = opened(mine)
        assert mine.post("/mcp", json=STATUS, headers=session_head(session)).status_code == 200
        assert theirs.post("/mcp", json=STATUS, headers=session_head(session)).status_code == 404
        assert theirs.delete("/mcp", headers=session_head(session)).status_code == 404
    other = {"Knowledge-Audience": json.dumps({"kind": "owner-private", "agent": "research"})}
    with world.client(world.host_key) as host:
        assert host.post("/mcp", json=STATUS, headers={**session_head(session), **other}).status_code == 404


def test_one_caller_s_sessions_are_bounded_and_its_oldest_goes_for_a_new_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("host_bridge.http.mcp_route.CALLER_SESSIONS_MAX", 2)
    with world.client(world.token()) as mine, world.client(world.token()) as theirs:
        other = opened(theirs)
        sessions = [opened(mine) for _ in range(3)]
        answers = [mine.post("/mcp", json=STATUS, headers=session_head(session)).status_code for session in sessions]
        assert answers == [404, 200, 200]
        assert theirs.post("/mcp", json=STATUS, headers=session_head(other)).status_code == 200


def test_a_token_that_is_revoked_ends_its_session_s_use(world: World) -> None:
    token, token_id = world.token_and_id()
    with world.client(token) as client:
        session = opened(client)
        world.bridge.ask("access.tokens.revoke", {"id": token_id})
        assert client.post("/mcp", json=STATUS, headers=session_head(session)).status_code == 401


def test_there_is_no_stream_to_listen_at(world: World) -> None:
    with world.client(world.token()) as client:
        session = opened(client)
        answer = client.get("/mcp", headers={**session_head(session), "Accept": "text/event-stream"})
        assert answer.status_code == 405


@pytest.mark.parametrize("body", [b"{", b'{"a":1,"a":2}', b'{"a":' * 100 + b"1" + b"}" * 100, b"\xff"])
def test_what_is_no_json_or_too_deep_never_reaches_the_sdk(
    world: World, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("reached")

    monkeypatch.setattr("host_bridge.http.mcp_route.StreamableHTTPSessionManager.handle_request", never)
    with world.client(world.token()) as client:
        answer = client.post("/mcp", content=body, headers=HEAD)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] in (-32700, -32600)


def test_a_call_with_its_arguments_as_a_string_is_read(world: World) -> None:
    with world.client(world.token()) as client:
        session = opened(client)
        asked = {**STATUS, "params": {"name": "knowledge_status", "arguments": "{}"}}
        answer = client.post("/mcp", json=asked, headers=session_head(session))
    assert '"isError":false' in answer.text
