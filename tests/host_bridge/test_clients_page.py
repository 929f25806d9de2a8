"""The configurations of docs/clients.md, tried as a host would: each starts a server that lists tools."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.host_bridge.processes import PATIENCE, Home
from tests.test_docs import Block, blocks
from tests.tree import CHECKOUT

PAGE = CHECKOUT / "docs" / "clients.md"
COMMAND = "/path/to/.venv/bin/knowledge"
READERS: dict[str, Callable[[str], Any]] = {"json": json.loads, "toml": tomllib.loads}
CONFIGURATIONS = [block for block in blocks(PAGE) if block.language in READERS]


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    made = Home(fake=False)
    yield made
    made.close()


@pytest.mark.parametrize("block", CONFIGURATIONS, ids=lambda block: block.where)
def test_each_configuration_starts_a_server_that_lists_tools(home: Home, block: Block) -> None:
    [servers] = READERS[block.language](block.body).values()
    server = servers["knowledge"]
    assert server["command"] == COMMAND
    greeting = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
    said = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "host_bridge", *server["args"]],
        env=home.env, cwd=home.base, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(b"".join(json.dumps(line).encode() + b"\n" for line in said))
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        listed = next(answer for answer in answers if answer["id"] == 2)
        assert "knowledge_remember" in {tool["name"] for tool in listed["result"]["tools"]}
    finally:
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
        process.stdout.close()


def test_the_shell_blocks_of_the_page_run_in_their_order(home: Home) -> None:
    folder = home.base / "bin"
    folder.mkdir()
    command = folder / "knowledge"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m host_bridge "$@"\n')
    command.chmod(0o755)
    script = "set -e\n" + "\n".join(block.body for block in blocks(PAGE) if block.language == "sh")
    ran = subprocess.run(
        ["sh", "-c", script],
        env={**home.env, "PATH": f"{folder}:{home.env['PATH']}"}, cwd=home.base, capture_output=True, timeout=PATIENCE,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr.decode()
    assert b"The team uses blue." in ran.stdout
