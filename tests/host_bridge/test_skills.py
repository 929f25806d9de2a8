"""The skills: procedures for agents, held against the tools that they name (knowledge-more-facts.md section 5)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

import pytest

from host_bridge.cli import skills
from messages.json_types import JsonObject
from messages.tools import CATALOGUE, parse_arguments
from storage.records import frontmatter
from storage.records.findings import Finding
from tests.kit.desk_fixtures import desk, made_store
from tests.kit.store import Desk

__all__ = ["desk", "made_store"]

NAMES: Final = [
    "knowledge-automation", "knowledge-capture", "knowledge-correct", "knowledge-entities", "knowledge-ingest",
    "knowledge-meeting-ingest", "knowledge-recall", "knowledge-source-ingest",
]  # fmt: skip

NOT_YET: Final = frozenset[str]()
"""Tools that a skill may name though the catalogue has none of that name. It only ever shrinks."""

_TOOL = re.compile(r"knowledge_[a-z_]+")
_FENCED = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read(name: str) -> str:
    return skills.text(name).decode("utf-8")


def examples(name: str) -> Iterator[tuple[str, JsonObject]]:
    """The tool and the arguments of each example."""
    for info, body in _FENCED.findall(read(name)):
        kind, _, tool = info.partition(" ")
        assert kind == "json", f"{name}: an example without its tool"
        yield tool, json.loads(body)


def test_the_eight_skills_ship() -> None:
    assert skills.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_skill_has_a_name_that_is_its_folder_and_a_description(name: str) -> None:
    found = frontmatter.read(skills.text(name))
    assert not isinstance(found, Finding)
    assert found.findings == ()
    assert found.values == {"name": name, "description": skills.description(name)}
    assert len(name) <= 64
    assert 80 <= len(skills.description(name)) <= 1_024
    assert "Use " in skills.description(name), "says when to use it"


@pytest.mark.parametrize("name", NAMES)
def test_every_tool_that_a_skill_names_is_a_tool_of_the_catalogue(name: str) -> None:
    named = set(_TOOL.findall(read(name)))
    assert named
    assert named - set(CATALOGUE) - NOT_YET == set()


def test_no_tool_of_those_that_are_not_there_yet_is_there() -> None:
    assert NOT_YET & set(CATALOGUE) == set(), "take these out of NOT_YET"


@pytest.mark.parametrize("name", NAMES)
def test_every_skill_that_a_skill_names_ships(name: str) -> None:
    assert set(re.findall(r"\bknowledge-[a-z-]+[a-z]", read(name))) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_a_call_that_its_tool_accepts(name: str) -> None:
    tried = 0
    for tool, arguments in examples(name):
        if tool in NOT_YET:
            continue
        parse_arguments(tool, arguments)
        tried += 1
    assert tried


@pytest.mark.parametrize("name", NAMES)
def test_the_reads_and_creates_of_a_skill_run_on_an_empty_store(desk: Desk, name: str) -> None:
    """What is fenced names ids and hashes of nothing here; every other example does what its skill says."""
    for tool, arguments in examples(name):
        if tool in NOT_YET or {"expectedHash", "expectedVaultId"} & arguments.keys():
            continue
        answer = desk.call(tool.removeprefix("knowledge_"), arguments)
        assert "state" not in answer or tool == "knowledge_lookup", answer


def test_the_recall_skill_names_no_tool_that_writes() -> None:
    named = set(_TOOL.findall(read("knowledge-recall"))) - NOT_YET
    assert {CATALOGUE[tool].action for tool in named} == {"read"}


@pytest.mark.parametrize("name", NAMES)
def test_a_skill_is_short_and_its_lines_can_be_read(name: str) -> None:
    text = read(name)
    assert len(text) <= 6_000
    for info, body in _FENCED.findall(text):
        text = text.replace(f"```{info}\n{body}```", "")
    assert [line for line in text.splitlines()[4:] if len(line) > 140] == []
