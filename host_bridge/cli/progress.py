"""A bar on a person's terminal; silence in a pipe, and with ``--json``. ``rich`` is imported for the bar alone."""

from __future__ import annotations

import sys
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from messages.json_types import JsonValue

_STEPS = {
    "looking": "taking edits over",
    "registry": "the registry",
    "waiting": "waiting for a save",
    "database": "copying the database",
    "checking": "checking the copy",
    "files": "writing files",
    "originals": "copying originals",
    "verifying": "verifying",
    "copying": "copying",
    "importing": "importing",
    "opening": "opening the stores",
    "placing": "putting it in place",
    "examining": "examining",
    "reading": "reading the files",
    "index": "building the index",
    "git": "building Git history",
    "done": "done",
}


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[Mapping[str, JsonValue]], None]]:
    """What shows a step ``{what, store, stores, done, of}``."""
    if quiet or not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[step]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, step="")

        def show(step: Mapping[str, JsonValue]) -> None:
            stores, store = _number(step, "stores"), _number(step, "store")
            where = f"store {min(store + 1, stores)} of {stores}" if stores else ""
            of = max(_number(step, "of"), 1)
            words = _STEPS.get(str(step.get("what")), "")
            bar.update(task, description=where, total=of, completed=_number(step, "done"), step=words)

        yield show


def _number(step: Mapping[str, JsonValue], name: str) -> int:
    found = step.get(name)
    return found if isinstance(found, int) else 0


def size(number: JsonValue) -> str:
    """Bytes as people read them."""
    value = float(number) if isinstance(number, int) else 0.0
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
