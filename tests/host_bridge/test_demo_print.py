"""How the demo speaks: on a terminal, in a pipe, and not at all."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from host_bridge.cli.demo_print import Teller


def terminal(width: int = 80) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, color_system="standard")


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("text", ["ダッシュボードに赤と緑は使わない。" * 5, "many short words " * 20, "w" * 100])
def test_a_line_is_wrapped_at_the_terminals_width_and_nothing_of_it_is_lost(text: str) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=40, no_color=True, color_system=None)
    Teller(silent=False, plain=False, console=console).say(text)
    lines = written(console).splitlines()
    assert len(lines) > 1
    assert all(cell_len(line) <= 40 and line.startswith("   ") for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_a_line_is_whole_in_a_pipe() -> None:
    console = Console(file=io.StringIO(), force_terminal=False, width=40)
    Teller(silent=False, plain=False, console=console).say("many short words " * 20)
    assert len(written(console).splitlines()) == 1


def test_what_is_named_at_the_end_works_when_the_demos_folder_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    Teller(silent=False, plain=True).connect(None)
    gone = capsys.readouterr().out
    assert "demo day" not in gone
    assert "call status" in gone
    Teller(silent=False, plain=True).connect(Path("/kept"))
    assert "demo day" in capsys.readouterr().out


def test_parts_share_a_line_while_they_fit() -> None:
    console = terminal(60)
    teller = Teller(silent=False, plain=False, console=console)
    teller.say("short", "and short")
    teller.say("a" * 40, "b" * 40)
    assert written(console).splitlines() == ["   short and short", "   " + "a" * 40, "   " + "b" * 40]


def test_a_step_that_takes_long_shows_how_far_it_is() -> None:
    console = terminal()
    shown = threading.Event()
    teller = Teller(silent=False, plain=False, console=console, patience=0.0)
    write = console.file.write

    def watch(text: str) -> int:
        if "0/3" in text:
            shown.set()
        return write(text)

    console.file.write = watch  # type: ignore[method-assign]
    for _ in teller.each("Remembering", ["a", "b", "c"]):
        assert shown.wait(10)
    assert "Remembering" in written(console)


def test_a_step_that_is_quick_shows_no_bar() -> None:
    console = terminal()
    assert list(Teller(silent=False, plain=False, console=console).each("Remembering", [1, 2])) == [1, 2]
    assert written(console) == ""


def test_nothing_moves_in_a_pipe() -> None:
    console = Console(file=io.StringIO(), force_terminal=False)
    teller = Teller(silent=False, plain=False, console=console, patience=0.0)
    with teller.waiting("Waiting"):
        teller.step(1, "Something")
    assert written(console) == "1. Something\n"


def test_a_silent_teller_says_nothing() -> None:
    console = terminal()
    teller = Teller(silent=True, plain=False, console=console)
    teller.title("a")
    teller.say("b")
    teller.connect(None)
    assert written(console) == ""


@pytest.mark.parametrize("state_dir", [None, Path("/somewhere/with a space")])
def test_the_configuration_to_copy_is_whole_and_is_json(state_dir: Path | None) -> None:
    console = Console(file=io.StringIO(), force_terminal=False, width=30)
    Teller(silent=False, plain=False, console=console).connect(state_dir)
    (line,) = [line for line in written(console).splitlines() if "mcpServers" in line]
    server = json.loads(line.partition("MCP:")[2])["mcpServers"]["knowledge"]
    assert Path(server["command"]).is_absolute()
    expected = ["mcp"] if state_dir is None else ["mcp", "--state-dir", str(state_dir)]
    assert server["args"][-len(expected) :] == expected
