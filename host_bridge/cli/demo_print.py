"""How the demo speaks: colours and progress on a terminal, plain lines in a pipe, nothing at all for ``--json``."""

from __future__ import annotations

import json
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

T = TypeVar("T")

_WIDTH: Final = 100
"""How long a line of several facts may become; one fact is never cut."""
_INDENT: Final = "   "
_PATIENCE_SECONDS: Final = 1.0


class _Console(Console):
    """Leaves it to the command line what becomes of a reader that has gone."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Teller:
    """Prints the story, one line a fact: wrapped at the terminal's width, whole in a pipe."""

    def __init__(
        self, *, silent: bool, plain: bool, console: Console | None = None, patience: float = _PATIENCE_SECONDS
    ) -> None:
        self._console = _Console(no_color=True, force_terminal=False) if plain else console or _Console()
        self._patience = patience
        self._silent = silent
        self._moving = self._console.is_terminal and not silent
        self._width = self._console.width if self._console.is_terminal else None

    def title(self, text: str) -> None:
        self._line(text, "bold")

    def step(self, number: int, text: str) -> None:
        self._line(f"{number}. {text}", "bold cyan")

    def say(self, *parts: str) -> None:
        """Parts stay on one line while they fit, else each gets its own."""
        whole = " ".join(parts)
        fits = cell_len(whole) + len(_INDENT) <= min(self._width or _WIDTH, _WIDTH)
        for line in (whole,) if fits else parts:
            self._line(f"{_INDENT}{line}", "")

    def done(self, seconds: float) -> None:
        self._line(f"Done in {seconds:.1f} s.", "bold green")

    def connect(self, state_dir: Path | None) -> None:
        """How to go on with a real client; ``None``: the demo's folder is gone, and what is named works without it."""
        command, *first = _command()
        option = ["--state-dir", str(state_dir)] if state_dir else []
        server = {"command": command, "args": [*first, "mcp", *option]}
        ask = ["call", "grep", '{"query": "demo day"}'] if state_dir else ["call", "status"]
        self._line("Connect a real client", "bold cyan")
        self._whole(f"   MCP:    {json.dumps({'mcpServers': {'knowledge': server}})}")
        self._whole(f"   shell:  {shlex.join([command, *first, *ask, *option])}")
        self._whole(f"   stdio:  {shlex.join([command, *first, 'serve', '--stdio', *option])}   # JSON-RPC")
        if state_dir is None:
            again = shlex.join([command, *first, "demo", "--state-dir"])
            self._whole("   They use your own state directory; the demo's folder is gone. To keep one:", "dim")
            self._whole(f"           {again} DIR", "dim")

    def each(self, text: str, things: Sequence[T]) -> Iterator[T]:
        """The things, with a bar once this has taken longer than a second."""
        with self._progress(text, len(things)) as advance:
            for thing in things:
                yield thing
                advance()

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """A spinner once the block has taken longer than a second."""
        with self._progress(text, None):
            yield

    @contextmanager
    def _progress(self, text: str, total: int | None) -> Iterator[Callable[[], None]]:
        if not self._moving:
            yield lambda: None
            return
        counted = (BarColumn(), MofNCompleteColumn()) if total is not None else ()
        bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            *counted,
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        task = bar.add_task(text, total=total)
        timer = threading.Timer(self._patience, bar.start)
        timer.daemon = True
        timer.start()
        try:
            yield lambda: bar.advance(task)
        finally:
            timer.cancel()
            timer.join()
            bar.stop()

    def _line(self, text: str, style: str) -> None:
        flat = text.replace("\n", " ")
        for line in (flat,) if self._width is None else wrapped(flat, self._width):
            self._whole(line, style)

    def _whole(self, text: str, style: str = "") -> None:
        """Something to copy: cut nowhere, wrapped by the terminal itself."""
        if not self._silent:
            self._console.print(Text(text, style=style), soft_wrap=True, highlight=False)


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most ``width`` cells, later ones below the first one's words; a longer word is broken."""
    indent = text[: len(text) - len(text.lstrip())]
    room = max(width - cell_len(indent), 2)  # the widest character takes two
    lines = [""]
    for word in text.split():
        if lines[-1] and cell_len(lines[-1]) + 1 + cell_len(word) > room:
            lines.append("")
        elif lines[-1]:
            lines[-1] += " "
        for character in word if cell_len(word) > room else (word,):
            if cell_len(lines[-1]) + cell_len(character) > room:
                lines.append("")
            lines[-1] += character
    return [indent + line.rstrip() for line in lines]


def _command() -> list[str]:
    """How another program starts this very installation, wherever its working directory and PATH are."""
    beside = Path(sys.executable).with_name("knowledge")
    return [str(beside)] if beside.exists() else [sys.executable, "-P", "-m", "host_bridge"]
