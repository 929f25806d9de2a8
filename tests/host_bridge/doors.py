"""The same calls through the Python door and through MCP, on one real runtime: a fixture for tests of tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from host_bridge.bridge import KnowledgeBridge
from host_bridge.mcp import McpHost
from messages.json_types import JsonObject, JsonValue
from tests.host_bridge.mcp_session import Served, only_text
from tests.kit.leaks import nothing_left
from tests.kit.store import MAIN, open_bridge


class Door(Protocol):
    """Calls a tool, named without ``knowledge_``, and gives its answer."""

    def __call__(self, tool: str, **arguments: JsonValue) -> JsonObject: ...


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[KnowledgeBridge]:
    with nothing_left(), open_bridge(tmp_path) as opened:
        yield opened


@pytest.fixture(params=["python", "mcp"])
def door(bridge: KnowledgeBridge, request: pytest.FixtureRequest) -> Iterator[Door]:
    """One way in; an MCP client's refusals fail the test."""
    if request.param == "python":
        yield lambda tool, **arguments: bridge.call(f"knowledge_{tool}", arguments, MAIN)
        return
    host = McpHost(bridge)
    served = Served(host)
    served.open()
    numbers = iter(range(100_000))

    def call(tool: str, **arguments: JsonValue) -> JsonObject:
        served.request(next(numbers), "tools/call", {"name": f"knowledge_{tool}", "arguments": arguments})
        result = served.result()
        assert not result.get("isError"), only_text(result)
        answer: JsonObject = json.loads(only_text(result))
        return answer

    try:
        yield call
    finally:
        served.close()
        host.close()
