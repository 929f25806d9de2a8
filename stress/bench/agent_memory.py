"""``python -m stress bench memory``: the small memory beside the released package that it grew from.

That package is installed into a folder of its own for the run; where it cannot be had, the rows stand alone and say so.
Both keep the same entries in the same formats, so that one filling serves both.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import math
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from rich.console import Console

from host_bridge import KnowledgeEntry, KnowledgeMemory, SQLiteKnowledgeStore
from storage.agent_memory.entry import to_json
from storage.agent_memory.file_store import ENTRIES_NAME
from stress.bench import report
from stress.bench.measure import Contender, Row, Sample, compared, interleave

RELEASED: Final = "selectools==1.3.0"
EVERYTHING: Final = 1_000_000
PROCESSES, EACH = 4, 50

_OURS, _THEIRS = "ours", "selectools 1.3.0"
_FASTER: Final = ("at least 10 times faster", 0.1)
_NOT_SLOWER: Final = ("not slower", 1.0)
_PROGRAM: Final = """
import sys
sys.path.append(sys.argv[3])
from {module} import KnowledgeMemory
memory = KnowledgeMemory(directory=sys.argv[1], max_entries=1000000)
for number in range(int(sys.argv[4])):
    memory.remember(f"{{sys.argv[2]}} {{number}}")
"""

Memory: TypeAlias = Any
"""A ``KnowledgeMemory`` of either package."""


@dataclass(frozen=True, slots=True)
class Library:
    """One of the two packages: its module's name and where it is found beside what this process finds."""

    name: str
    module: str
    folder: str = ""

    def made(self, path: Path, database: Path | None) -> Memory:
        found = importlib.import_module(self.module)
        store = None if database is None else found.SQLiteKnowledgeStore(str(database))
        return found.KnowledgeMemory(directory=str(path), store=store, max_entries=EVERYTHING)


OURS: Final = Library(_OURS, "host_bridge")


def main(arguments: Sequence[str]) -> int:
    """Measure and show; 1 where entries that ours acknowledged are missing."""
    parser = argparse.ArgumentParser(prog="python -m stress bench memory", description=__doc__)
    parser.add_argument("--size", type=int, default=2_000, help="entries that are there already (default 2000)")
    parser.add_argument("--rounds", type=int, default=40, help="turns of each contender (default 40)")
    parser.add_argument("--scratch", type=Path, help="where directories are made; the disk that is measured")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="knowledge-bench-", dir=options.scratch) as scratch:
        theirs = released(Path(scratch) / "released")
        if theirs is None:
            print(f"{RELEASED} cannot be installed here; ours is measured alone", file=sys.stderr)
        libraries = [OURS] if theirs is None else [OURS, theirs]
        rows = list(measured(libraries, Path(scratch), options.size, options.rounds))
        kept, together = crowd(libraries, Path(scratch))
    rows.append(together)
    output = Console()
    if output.is_terminal:
        output.print(report.table(rows))
    else:
        print(report.markdown(rows), end="")
    return 0 if kept == PROCESSES * EACH else 1


def released(folder: Path) -> Library | None:
    """The released package in ``folder``, ``None`` where no registry has it."""
    install = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(folder)]
    if subprocess.run([*install, RELEASED], capture_output=True, check=False).returncode:
        return None
    sys.path.append(str(folder))
    return Library(_THEIRS, "selectools.knowledge", str(folder))


def measured(libraries: Sequence[Library], scratch: Path, size: int, rounds: int) -> Iterator[Row]:
    """A remembered entry and a context, with files and with SQLite."""
    for kind, goal in (("files", _FASTER), ("SQLite", _NOT_SLOWER)):
        memories = {one.name: _filled(one, scratch, kind, size) for one in libraries}
        for persistent in (False, True):
            what = "persistent" if persistent else "passing"
            run = _remembering(memories, what, persistent)
            yield _row(f"remember, {what} ({kind})", size, interleave(run, rounds), goal)
        contexts = [Contender(name, _building(memory)) for name, memory in memories.items()]
        yield _row(f"build_context ({kind})", size, interleave(contexts, rounds), _NOT_SLOWER)
        for memory in memories.values():
            if isinstance(memory, KnowledgeMemory):
                memory.close()


def _remembering(memories: dict[str, Memory], what: str, persistent: bool) -> list[Contender]:
    def remembering(memory: Memory) -> Callable[[int], object]:
        return lambda turn: memory.remember(f"{what} {turn}", category="bench", persistent=persistent)

    return [Contender(name, remembering(memory)) for name, memory in memories.items()]


def _building(memory: Memory) -> Callable[[int], object]:
    return lambda _: memory.build_context()


def _row(name: str, size: int, taken: dict[str, list[float]], goal: tuple[str, float]) -> Row:
    if _THEIRS not in taken:
        return Row(name, size, Sample.of(taken[_OURS]), "-", None, goal[0], None, note=f"{RELEASED} is not at hand")
    return compared(name, size, taken, _OURS, _THEIRS, goal=goal[0], limit=goal[1])


def _filled(library: Library, scratch: Path, kind: str, size: int) -> Memory:
    """A memory with ``size`` entries, one in ten of them persistent."""
    place = scratch / f"{kind}-{library.name}"
    place.mkdir()
    entries = [
        KnowledgeEntry(content=f"fact {number} about topic {number % 97}", category=f"c{number % 9}",
                       persistent=number % 10 == 0)
        for number in range(size)
    ]  # fmt: skip
    if kind == "files":
        lines = (json.dumps(to_json(entry)) + "\n" for entry in entries)
        place.joinpath(ENTRIES_NAME).write_text("".join(lines), "utf-8")
        return library.made(place, None)
    database = place / "knowledge.db"
    SQLiteKnowledgeStore(database).close()
    with closing(sqlite3.connect(database)) as connection, connection:
        rows = [[*list(to_json(entry).values())[:-1], "{}"] for entry in entries]
        connection.executemany("INSERT INTO knowledge VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return library.made(place, database)


def crowd(libraries: Sequence[Library], scratch: Path) -> tuple[int, Row]:
    """Processes that remember in one directory at once: how many entries of ours are there, and the row."""
    notes: list[str] = []
    taken: dict[str, list[float]] = {}
    kept = 0
    for library in libraries:
        place = scratch / f"crowd-{library.name}"
        program = _PROGRAM.format(module=library.module)
        command = [sys.executable, "-c", program, str(place)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        began = time.perf_counter()
        running = [
            subprocess.Popen([*command, str(number), library.folder, str(EACH)], env=environment,
                             stderr=subprocess.DEVNULL)
            for number in range(PROCESSES)
        ]  # fmt: skip
        for process in running:
            process.wait()
        taken[library.name] = [time.perf_counter() - began]
        there = library.made(place, None)
        found = there.store.count()
        notes.append(f"{library.name} kept {found} of {PROCESSES * EACH}")
        if isinstance(there, KnowledgeMemory):
            there.close()
            kept = found
    baseline = Sample.of(taken[_THEIRS]) if _THEIRS in taken else None
    return kept, Row(
        f"{PROCESSES} processes remember {EACH} each", PROCESSES * EACH, Sample.of(taken[_OURS]), _THEIRS, baseline,
        "none is lost", math.inf if kept == PROCESSES * EACH else 0.0, absolute=True, note="; ".join(notes),
    )  # fmt: skip
