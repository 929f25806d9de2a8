"""The doors on the real runtime: what goes in through one is there for the next, whatever dies in between."""

from __future__ import annotations

import json
import random
import re
import shlex
import subprocess
import threading
import uuid
from collections.abc import Iterator

import anyio
import mcp_types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from host_bridge import KnowledgeBridge
from host_bridge.cli import help as pages
from messages.audience import OwnerPrivate
from messages.errors import OpenElsewhere
from messages.json_types import JsonObject, JsonValue
from tests.host_bridge.processes import PATIENCE, Home, kill_and_wait


@pytest.fixture
def real() -> Iterator[Home]:
    """A state directory whose owners run the real runtime."""
    place = Home(fake=False)
    yield place
    place.close()


def remember(text: str, request_id: str | None = None) -> JsonObject:
    return {
        "requestId": request_id or str(uuid.uuid4()),
        "attribution": "the test",
        "excerpt": f"It was said: {text}",
        "items": [{"text": text, "kind": "fact"}],
    }


def total(home: Home, query: str) -> JsonValue:
    return home.call("grep", json.dumps({"query": query}))["total"]


def test_a_section_moves_over_mcp(real: Home) -> None:
    async def over_mcp() -> None:
        command, *rest = real.command("mcp", "--profile", "full")
        server = StdioServerParameters(command=command, args=rest, env=real.env, cwd="/")
        async with Client(stdio_client(server), read_timeout_seconds=PATIENCE) as client:

            async def call(tool: str, arguments: JsonObject) -> JsonObject:
                result = await client.call_tool(f"knowledge_{tool}", arguments)
                assert isinstance(result, mcp_types.CallToolResult)
                (block,) = result.content
                assert isinstance(block, mcp_types.TextContent)
                answer: JsonObject = json.loads(block.text)
                assert result.is_error is ("code" in answer)
                return answer

            page: JsonObject = {"title": "Lighthouse", "type": "project", "body": "# Opening\n\n[plan][r]\n"}
            saved = await call("save_page", {**page, "requestId": str(uuid.uuid4())})
            status = await call("status", {})
            arguments: JsonObject = {
                "requestId": str(uuid.uuid4()),
                "expectedVaultId": status["vaultId"],
                "expectedOntologyFingerprint": status["ontologyFingerprint"],
                "source": {"id": saved["id"], "expectedRevision": 1, "expectedHash": saved["hash"]},
                "sectionStart": 0,
                "destination": json.dumps({"title": "The opening", "type": "event"}),
                "summary": "It has a page of its own.",
                "reason": "a test",
            }
            refused = await call("extract_section", {**arguments, "sectionStart": 3})
            assert (refused["code"], refused["reason"]) == ("invalid_argument", "no_section")
            receipt = await call("extract_section", arguments)
            assert (receipt["id"], receipt["revision"]) == (saved["id"], 2)
            assert await call("extract_section", arguments) == receipt

    anyio.run(over_mcp)
    assert total(real, "opening") == 2


def test_what_one_door_saves_every_other_door_finds(real: Home) -> None:
    receipt = real.call("remember", json.dumps(remember("The lighthouse opens in May. 漢字 🐢")))
    assert isinstance(receipt["items"], list)
    (item,) = receipt["items"]
    assert total(real, "lighthouse") == 1

    async def over_mcp() -> None:
        command, *rest = real.command("mcp", "--profile", "full")
        server = StdioServerParameters(command=command, args=rest, env=real.env, cwd="/")
        async with Client(stdio_client(server), read_timeout_seconds=PATIENCE) as client:
            result = await client.call_tool("knowledge_record", {"id": item["id"]})
            assert isinstance(result, mcp_types.CallToolResult)
            assert not result.is_error
            (block,) = result.content
            assert isinstance(block, mcp_types.TextContent)
            assert "漢字 🐢" in block.text
            surrogate = await client.call_tool("knowledge_grep", {"query": 7, "store": "other"})
            assert isinstance(surrogate, mcp_types.CallToolResult)
            assert surrogate.is_error
            assert isinstance(surrogate.content[0], mcp_types.TextContent)
            assert json.loads(surrogate.content[0].text)["code"] == "invalid_argument"

    anyio.run(over_mcp)
    assert json.loads(real.run("stop", "--json").stdout)["stopped"] is True
    host = real.start("serve", "--stdio")
    request: JsonObject = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools.call",
        "params": {
            "tool": "knowledge_grep",
            "arguments": {"query": "lighthouse"},
            "audience": {"kind": "owner-private", "agent": "main"},
        },
    }
    assert host.stdin is not None
    assert host.stdout is not None
    host.stdin.write(json.dumps(request).encode() + b"\n")
    host.stdin.flush()
    assert json.loads(host.stdout.readline())["result"]["total"] == 1
    host.stdin.close()
    assert host.wait(PATIENCE) == 0
    with KnowledgeBridge(real.state_dir) as bridge:
        assert bridge.call("knowledge_grep", {"query": "lighthouse"}, OwnerPrivate("main"))["total"] == 1
        with pytest.raises(OpenElsewhere):
            KnowledgeBridge(real.state_dir)
        refused = real.run("call", "status", "--json")
        assert json.loads(refused.stderr)["error"]["code"] == "open_elsewhere"


def test_a_lone_surrogate_is_refused_by_its_field_through_every_layer(real: Home) -> None:
    done = real.run("call", "grep", '{"query": "a\\ud800"}', "--json")
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["code"]) == (3, "invalid_argument")
    assert error["field"] == "query"


@pytest.mark.slow
def test_calls_that_wait_for_a_store_to_open_are_answered_after_the_end_of_input(real: Home) -> None:
    """All arrive before anything is open; the host closes its end at once, and would kill after four seconds."""
    host = real.start("serve", "--stdio")
    assert host.stdin is not None
    assert host.stdout is not None
    audience: JsonObject = {"kind": "owner-private", "agent": "main"}
    for number in range(30):  # as many as one audience may have waiting
        call: JsonObject = {
            "tool": "knowledge_remember",
            "arguments": remember(f"Queued {number}."),
            "audience": audience,
        }
        line = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools.call", "params": call})
        host.stdin.write(line.encode() + b"\n")
    host.stdin.close()
    answers = [json.loads(line) for line in host.stdout]
    assert host.wait(PATIENCE) == 0
    assert sorted(answer["id"] for answer in answers) == list(range(30))
    saved = sum("result" in answer for answer in answers)
    left = {answer["error"]["data"]["code"] for answer in answers if "error" in answer}
    assert left <= {"stopping"}
    assert saved > 0
    found = total(real, "queued")
    assert isinstance(found, int)
    assert saved <= found <= 30


@pytest.mark.slow
def test_every_example_of_the_help_does_on_the_real_runtime_what_it_says(real: Home) -> None:
    command = shlex.join(real.command())
    overview = re.findall(r"^ {2}(knowledge call .*(?:\n {6}.*)?)", pages.OVERVIEW, re.MULTILINE)
    examples = [example for example in overview if "TOOL" not in example]
    assert len(examples) == 3
    answers: list[JsonObject] = []
    for example in examples:
        line = f"{command} {example.removeprefix('knowledge ')} --json"
        done = subprocess.run(["sh", "-c", line], capture_output=True, env=real.env, timeout=PATIENCE, check=False)
        assert done.returncode == 0, (example, done.stderr.decode())
        answers.append(json.loads(done.stdout))
    assert answers[-1]["total"] == 1


@pytest.mark.slow
def test_eight_mcp_clients_write_at_once_and_every_receipt_is_true(real: Home) -> None:
    async def one(number: int) -> None:
        command, *rest = real.command("mcp")
        server = StdioServerParameters(command=command, args=rest, env=real.env, cwd="/")
        mode = "legacy" if number % 2 else "2026-07-28"
        async with Client(stdio_client(server), mode=mode, read_timeout_seconds=PATIENCE) as client:
            for step in range(5):
                arguments = remember(f"Client {number} took step {step} towards zanzibar.")
                result = await client.call_tool("knowledge_remember", dict(arguments))
                assert isinstance(result, mcp_types.CallToolResult)
                assert not result.is_error, result.content

    async def all_of_them() -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(one, number)

    anyio.run(all_of_them)
    assert total(real, "zanzibar") == 40


@pytest.mark.slow
def test_writes_cut_off_by_kill_9_are_there_exactly_once_after_a_repeat_with_the_same_request_id(real: Home) -> None:
    moments = random.Random(20)
    requests = [remember(f"Cut off number {number} mentions quokka.") for number in range(12)]
    real.call("status")
    # Whatever moment is hit, before, in or after the call: the named points inside a write have tests of their own.
    for request in requests:
        pid = real.holder_pid()
        assert pid is not None
        writing = real.start("call", "remember", json.dumps(request), "--json")
        threading.Event().wait(moments.uniform(0.0, 0.4))
        kill_and_wait(pid)
        writing.communicate(timeout=PATIENCE)
        # 0: it was answered first. 4, 5: it was cut off before or while it ran.
        assert writing.returncode in (0, 4, 5)
        receipt = real.call("remember", json.dumps(request))
        assert isinstance(receipt["items"], list)
    assert total(real, "quokka") == len(requests)
