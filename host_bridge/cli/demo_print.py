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

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

T = TypeVar("T")

_WIDTH: Final = 100
_PATIENCE_SECONDS: Final = 1.0


class _Console(Console):
    """Leaves it to the command line what becomes of a reader that has gone."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Teller:
    """Prints the story, one line a fact, never wider than the terminal."""

    def __init__(
        self, *, silent: bool, plain: bool, console: Console | None = None, patience: float = _PATIENCE_SECONDS
    ) -> None:
        self._console = _Console(no_color=True, force_terminal=False) if plain else console or _Console()
        self._patience = patience
        self._silent = silent
        self._moving = self._console.is_terminal and not silent
        self._width = min(self._console.width, _WIDTH) if self._console.is_terminal else _WIDTH

    def title(self, text: str) -> None:
        self._line(text, "bold")

    def step(self, number: int, text: str) -> None:
        self._line(f"{number}. {text}", "bold cyan")

    def say(self, *parts: str) -> None:
        """Parts stay on one line while they fit, else each gets its own."""
        whole = " ".join(parts)
        for line in (whole,) if cell_len(whole) + 3 <= self._width else parts:
            self._line(f"   {line}", "")

    def done(self, seconds: float) -> None:
        self._line(f"Done in {seconds:.1f} s.", "bold green")

    def connect(self, state_dir: Path | None) -> None:
        """How to go on with a real client; ``None``: the demo's folder is gone."""
        command, *first = _command()
        option = ["--state-dir", str(state_dir)] if state_dir else []
        server = {"command": command, "args": [*first, "mcp", *option]}
        shell = shlex.join([command, *first, "call", "grep", '{"query": "demo day"}', *option])
        self._line("Connect a real client", "bold cyan")
        self._whole(f"   MCP:    {json.dumps({'mcpServers': {'knowledge': server}})}")
        self._whole(f"   shell:  {shell}")
        self._whole(f"   stdio:  {shlex.join([command, *first, 'serve', '--stdio', *option])}   # JSON-RPC")
        if state_dir is None:
            self._line("   The demo's folder is gone again; keep it with: knowledge demo --state-dir DIR", "dim")

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
        if cell_len(flat) > self._width:
            flat = set_cell_size(flat, self._width - 1) + "…"
        self._whole(flat, style)

    def _whole(self, text: str, style: str = "") -> None:
        """Something to copy: cut nowhere, wrapped by the terminal itself."""
        if not self._silent:
            self._console.print(Text(text, style=style), soft_wrap=True, highlight=False)


def _command() -> list[str]:
    """How another program starts this very installation, wherever its working directory and PATH are."""
    beside = Path(sys.executable).with_name("knowledge")
    return [str(beside)] if beside.exists() else [sys.executable, "-P", "-m", "host_bridge"]
