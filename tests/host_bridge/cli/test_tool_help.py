"""What the help says of the tools is what the catalogue says, and its examples are accepted."""

from __future__ import annotations

import pytest

from host_bridge.cli import main, tool_help
from messages.schemas import input_schema
from messages.tools import CATALOGUE, parse_arguments


def test_every_tool_has_an_example_that_is_accepted() -> None:
    assert set(tool_help.EXAMPLES) == set(CATALOGUE)
    for name, example in tool_help.EXAMPLES.items():
        parse_arguments(name, example)


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_a_tools_page_has_its_description_and_each_argument_with_whether_it_is_required(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    short = name.removeprefix("knowledge_")
    assert main(["help", name]) == 0
    page = capsys.readouterr().out
    assert main(["call", short, "--help"]) == 0
    assert capsys.readouterr().out == page
    flat = " ".join(page.split())
    assert " ".join(CATALOGUE[name].description.split()) in flat
    schema = input_schema(CATALOGUE[name].request)
    assert isinstance(schema["properties"], dict)
    assert isinstance(schema["required"], list)
    for argument in schema["properties"]:
        [line] = [line for line in page.splitlines() if line.startswith(f"  {argument}  ")]
        assert line.endswith("required" if argument in schema["required"] else "optional")
    assert f"knowledge call {short}" in page


def test_limits_and_words_stand_beside_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    main(["help", "grep"])
    page = capsys.readouterr().out
    assert "query  string, at most 500 characters, required" in page
    assert "one of all any phrase" in page
    assert "integer, 1 to " in page


def test_help_of_call_lists_every_tool(capsys: pytest.CaptureFixture[str]) -> None:
    main(["help", "call"])
    page = capsys.readouterr().out
    for name in CATALOGUE:
        assert f"  {name.removeprefix('knowledge_')} " in page


def test_a_tool_that_does_not_exist_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["call", "nothing", "--help"]) == 2
    assert "nothing" in capsys.readouterr().err
