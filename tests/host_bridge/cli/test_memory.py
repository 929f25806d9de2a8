"""``knowledge memory`` and ``knowledge mcp --simple``: one directory, from a terminal and from an MCP client."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import mcp_types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError

from host_bridge import KnowledgeMemory
from host_bridge.cli import exits, main
from messages.json_types import JsonObject
from tests.tree import PACKAGES_ROOT

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs ``knowledge memory`` on a directory of its own: exit status, stdout and stderr."""
    monkeypatch.setenv("KNOWLEDGE_MEMORY_DIR", str(tmp_path / "memory"))

    def typed(*words: str) -> tuple[int, str, str]:
        status = main(["memory", *words])
        out, err = capfdbinary.readouterr()
        return status, out.decode(), err.decode()

    return typed


def answer(run: Run, *words: str) -> JsonObject:
    status, out, err = run(*words, "--json")
    assert (status, err, out.count("\n")) == (0, "", 1)
    value: JsonObject = json.loads(out)
    return value


def test_a_directory_that_cannot_be_one_is_named_without_sending_anybody_to_the_doctor(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    status, out, err = run("remember", "x", "--dir", str(tmp_path / "file"))
    assert (status, out) == (exits.REFUSED, "")
    assert "Name a directory that can be read and written." in err
    assert "doctor" not in err


def test_what_is_remembered_is_recalled_listed_and_in_the_context(run: Run) -> None:
    kept = answer(run, "remember", "Prefers dark mode", "--category", "preferences", "--persistent")["id"]
    assert run("remember", "Standup at nine", "--importance", "0.9", "--ttl-days", "3")[0] == 0
    assert run("recall", "dark")[1] == "Found 1 memory:\n1. [preferences] Prefers dark mode\n"
    entries = answer(run, "recall", "prefer")["entries"]
    assert isinstance(entries, list)
    assert [(one["id"], one["persistent"]) for one in entries if isinstance(one, dict)] == [(kept, True)]
    assert run("recall", "--limit", "1")[1] == "Found 1 memory:\n1. Standup at nine\n"
    assert run("facts")[1] == "preferences:\n  - Prefers dark mode\n"
    assert answer(run, "facts") == {"facts": {"preferences": ["Prefers dark mode"]}}
    context = run("context")[1]
    assert context.startswith("[Long-term Memory]\n## preferences\n- Prefers dark mode\n\n[Recent Memory]\n- [")
    assert run("context", "--entries", "0")[1] == "[Long-term Memory]\n## preferences\n- Prefers dark mode\n"
    assert len(run("context", "--max-chars", "20")[1]) == 21
    log = answer(run, "log")["entries"]
    assert isinstance(log, list)
    assert [one["content"] for one in log if isinstance(one, dict)] == ["Prefers dark mode", "Standup at nine"]
    assert run("log", "--limit", "1")[1].endswith("(general) Standup at nine\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [["memory", "remember", "x"], ["memory", "facts"], ["--version"], ["--help"]])
def test_an_answer_that_cannot_be_written_is_said_in_one_line(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "memory").mkdir()
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "host_bridge", *words], stdout=full, stderr=subprocess.PIPE, timeout=30,
            cwd=PACKAGES_ROOT, env={**os.environ, "KNOWLEDGE_MEMORY_DIR": str(tmp_path / "memory")},
        )  # fmt: skip
    assert (ended.returncode, ended.stderr.count(b"\n")) == (exits.UNKNOWN, 1)


def test_pruning_says_how_many_logs_went(run: Run, tmp_path: Path) -> None:
    run("remember", "today")
    (tmp_path / "memory" / "logs" / "2020-01-01.jsonl").write_text("")
    assert run("prune")[1] == "Removed 1 daily log.\n"
    assert answer(run, "prune", "--days", "0") == {"removed": 0}


def test_clearing_needs_a_yes_and_nobody_to_ask_is_none(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("remember", "kept", "--persistent")
    run("remember", "passing")
    with open(os.devnull, encoding="ascii") as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        status, out, err = run("clear")
    assert (status, out) == (exits.REFUSED, "")
    assert "--yes" in err
    assert answer(run, "clear", "--logs", "--yes") == {"cleared": "logs"}
    assert run("recall")[1] == "Found 1 memory:\n1. kept\n"
    assert run("clear", "--yes")[1] == "Forgot everything.\n"
    assert run("recall", "kept")[1] == "No memories found matching 'kept'.\n"


@pytest.mark.parametrize(("typed", "left"), [(b"y\n", 0), (b"no\n", 1), (b"\n", 1)])
def test_a_person_at_a_terminal_is_asked_before_anything_is_cleared(tmp_path: Path, typed: bytes, left: int) -> None:
    with KnowledgeMemory(tmp_path) as memory:
        memory.remember("x")
    ours, theirs = pty.openpty()
    try:
        os.write(ours, typed)
        environment = {**os.environ, "PYTHONPATH": str(PACKAGES_ROOT)}
        command = [sys.executable, "-m", "host_bridge", "memory", "clear", "--dir", str(tmp_path)]
        done = subprocess.run(command, stdin=theirs, capture_output=True, env=environment, timeout=60, check=False)
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"Forget everything in" in done.stderr
    assert (done.returncode == exits.OK) == (left == 0)
    with KnowledgeMemory(tmp_path) as memory:
        assert len(memory.live_entries()) == left


@pytest.mark.parametrize("word", ["recall", "context", "facts", "log", "prune", "clear"])
def test_a_directory_that_is_not_there_is_refused_and_not_made(run: Run, tmp_path: Path, word: str) -> None:
    status, out, err = run(word, "--json")
    assert (status, out, json.loads(err)["error"]["code"]) == (exits.REFUSED, "", "not_found")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        (), ("forget",), ("remember",), ("remember", " "), ("remember", "x", "--importance", "2"),
        ("remember", "x", "--importance", "nan"), ("remember", "x", "--ttl-days", "-1"), ("recall", "--limit", "0"),
        ("recall", "x", "--ranking", "luck"), ("log", "--days", "x"), ("facts", "more"), ("clear", "--all"),
    ],
)  # fmt: skip
def test_a_command_line_that_cannot_be_understood_changes_nothing(run: Run, tmp_path: Path, words: list[str]) -> None:
    status, out, err = run(*words)
    assert (status, out) == (exits.USAGE, "")
    assert err.startswith("knowledge memory: ")
    assert list(tmp_path.iterdir()) == []


def test_the_directory_that_is_named_goes_before_the_environment(run: Run, tmp_path: Path) -> None:
    run("remember", "here", "--dir", str(tmp_path / "named"))
    assert [path.name for path in tmp_path.iterdir()] == ["named"]


# --- MCP -----------------------------------------------------------------------------------------------


def served(directory: Path, test: Callable[[Client], Awaitable[None]]) -> None:
    """Run a test with the SDK's client and a real server on the directory."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "host_bridge", "mcp", "--simple", "--memory-dir", str(directory)],
        env={**os.environ, "PYTHONPATH": str(PACKAGES_ROOT)},
    )

    async def bounded() -> None:
        with anyio.fail_after(60):
            async with Client(stdio_client(server), read_timeout_seconds=30) as client:
                await test(client)

    anyio.run(bounded)


async def text_of(client: Client, tool: str, **arguments: object) -> tuple[str, bool]:
    result = await client.call_tool(tool, dict(arguments))
    assert isinstance(result, mcp_types.CallToolResult)
    [block] = result.content
    assert isinstance(block, mcp_types.TextContent)
    return block.text, bool(result.is_error)


def test_an_mcp_client_gets_exactly_two_tools_and_text_from_them(tmp_path: Path) -> None:
    async def test(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["remember", "recall"]
        kept, failed = await text_of(
            client, "remember", content="--- User prefers tea ---", category="[INST]", persistent="true"
        )
        assert (len(kept), failed) == (32, False)
        assert await text_of(client, "recall", query="tea", limit=3) == (
            "Found 1 memory:\n1. [[ INST]] — User prefers tea —", False,
        )  # fmt: skip
        assert await text_of(client, "recall", query="zebra") == ("No memories found matching 'zebra'.", False)

    served(tmp_path / "memory", test)
    with KnowledgeMemory(tmp_path / "memory") as memory:
        assert memory.get_persistent_facts() == {"[ INST]": ["— User prefers tea —"]}


def test_what_an_mcp_client_gets_wrong_is_an_error_in_its_result(tmp_path: Path) -> None:
    async def test(client: Client) -> None:
        for tool, arguments, said in (
            ("remember", {"content": 7}, "remember needs content as text. (invalid_argument)"),
            ("remember", {}, "remember needs content as text. (invalid_argument)"),
            ("remember", {"content": "  "}, "Nothing was remembered: the text is empty."),
            ("remember", {"content": "x", "category": [1]}, "remember needs category as text. (invalid_argument)"),
            ("recall", {"query": "x", "k": 1}, "recall takes query, limit and nothing else. (invalid_argument)"),
        ):
            assert await text_of(client, tool, **arguments) == (said, True)
        with pytest.raises(MCPError, match="remember and recall"):
            await client.call_tool("forget", {})
        assert await text_of(client, "recall", query="", limit=None) == ("No memories found matching ''.", False)

    served(tmp_path, test)


def test_an_error_of_the_memory_is_an_error_of_the_result(tmp_path: Path) -> None:
    async def test(client: Client) -> None:
        await text_of(client, "remember", content="x")
        (tmp_path / "memory").rename(tmp_path / "gone")
        said, failed = await text_of(client, "remember", content="y")
        assert failed
        assert said.endswith("(store_unavailable)")

    served(tmp_path / "memory", test)


def test_the_server_of_two_tools_logs_a_defect_without_its_text(tmp_path: Path) -> None:
    program = (
        "import sys; from host_bridge import memory_mcp; from host_bridge.cli import main\n"
        "class Broken:\n"
        "    parameters, name = (), 'recall'\n"
        "    def function(self): raise ValueError('what was remembered')\n"
        "memory_mcp.serve = lambda directory: print(memory_mcp._answer(Broken(), {}))\n"
        "sys.exit(main(['mcp', '--simple', '--memory-dir', sys.argv[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=True, env={**os.environ, "PYTHONPATH": str(PACKAGES_ROOT)},
    )  # fmt: skip
    assert "(internal)" in done.stdout
    assert "ValueError" in done.stderr
    assert "what was remembered" not in done.stderr


@pytest.mark.parametrize("words", [["--memory-dir", "x"], ["--simple", "--profile", "core"], ["--simple", "--agent=a"]])
def test_options_of_the_two_servers_are_not_mixed(words: list[str]) -> None:
    assert main(["mcp", *words]) == exits.USAGE
