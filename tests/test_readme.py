"""The README's commands and lists name what is there."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from functools import cache

import pytest

from messages.tools import CATALOGUE
from storage.python_child import environment
from tests.test_docs import all_blocks, documents
from tests.tree import CHECKOUT, sources

README = (CHECKOUT / "README.md").read_text("utf-8")


def command(name: str) -> str:
    """The one command under its mark, as ``.ci/run`` takes it out."""
    found = re.findall(rf"^<!-- command: {name} -->\n```sh\n(.+)\n```$", README, re.MULTILINE)
    assert len(found) == 1
    return str(found[0])


def commands_of(text: str) -> list[list[str]]:
    return [shlex.split(line) for line in text.splitlines() if line.startswith("knowledge ")]


def commands() -> list[list[str]]:
    """Every ``knowledge ...`` line of every shell block."""
    lines = [line for block in all_blocks("sh") for line in block.body.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("knowledge ")]


@pytest.mark.parametrize("name", ["demo", "test"])
def test_the_first_commands_need_only_python_and_git(name: str) -> None:
    parts = [shlex.split(part) for part in command(name).split("&&")]
    assert parts[0] == ["python3", "-m", "venv", ".venv"]
    assert all(part[0].startswith(".venv/bin/") for part in parts[1:])


def test_the_first_command_shows_what_it_does_while_it_installs() -> None:
    assert "--quiet" not in command("demo")


def test_the_readme_names_what_an_operator_needs_when_something_breaks() -> None:
    named = {words[1] for words in commands_of(README)}
    assert {"doctor", "backup", "restore", "repair", "conversation", "audience"} <= named


def test_one_command_ends_with_the_demo_and_one_with_the_tests() -> None:
    assert command("demo").endswith("knowledge demo")
    assert command("test").endswith("-m pytest -n auto")


@pytest.mark.parametrize("words", commands(), ids=shlex.join)
def test_a_command_in_the_pages_exists(words: list[str]) -> None:
    help_text = run("--help")
    assert re.search(rf"^ +knowledge {words[1]}\b", help_text, re.MULTILINE), f"knowledge {words[1]} is not in the help"
    own = run(words[1], "--help")
    for option in [word for word in words[2:] if word.startswith("--")]:
        assert option in own


@cache
def run(*arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "host_bridge", *arguments],
        env=environment(), capture_output=True, text=True, timeout=30, check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_table_of_tools_is_the_catalogue_the_default_profile_first() -> None:
    rows = re.findall(r"^\| (`knowledge_.+?) \|", README, re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(knowledge_\w+)`", row)]
    core = {name for name, spec in CATALOGUE.items() if spec.core}
    assert sorted(listed) == sorted(CATALOGUE)
    assert set(listed[: len(core)]) == core
    assert len(core) == 7
    assert "get the first seven" in README


def test_the_changelog_names_every_tool() -> None:
    changelog = (CHECKOUT / "CHANGELOG.md").read_text("utf-8")
    assert [name for name in CATALOGUE if f"`{name}`" not in changelog] == []


def test_every_command_that_a_page_or_a_message_names_exists() -> None:
    there = set(re.findall(r"^ +knowledge ([a-z]+)\b", run("--help"), re.MULTILINE))
    texts = [(path.name, path.read_text("utf-8")) for path in documents()]
    texts += [
        (f"{source.name}:{node.lineno}", node.value)
        for source in sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    named = {(where, command) for where, text in texts for command in re.findall(r"`knowledge ([a-z]+)\b", text)}
    missing = {(where, command) for where, command in named if command not in there}
    assert missing == set()
