"""``python -m stress bench``: every row at every size, one table."""

from __future__ import annotations

import argparse
import cProfile
import json
import logging
import pstats
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from stress.bench import access, crashing, doors, many, opening, reading, recalling, report, writing
from stress.bench.measure import Row
from stress.bench.standing import standing
from stress.bench.store import BenchStore, Desk, make_store

SIZES: Final = (1_000, 10_000, 100_000)
_SWITCH_INTERVAL_SECONDS: Final = 0.0005
_GROWTH: Final = (
    ("durable write of one claim (session)", "<= 1.5x the smallest", 1.5),
    ("durable write of one claim (bridge)", "<= 1.5x the smallest", 1.5),
    ("one external edit, found by the next lookup", "<= 1.5x the smallest", 1.5),
    (f"recovery, {opening.UNPRUNED} unpruned publications", "grows with the entries, not the vault: <= 1.5x", 1.5),
    ("Git checkpoint of one file", "<= 2x the smallest", 2.0),
)
"""Rows whose cost must not follow the size of the vault."""


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for and show it; 0 unless something failed to run. A missed goal is no failure."""
    options = _options(arguments)
    interval, quiet = sys.getswitchinterval(), logging.root.manager.disable
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    logging.disable(logging.CRITICAL)
    try:
        return _run(options)
    finally:
        sys.setswitchinterval(interval)
        logging.disable(quiet)


def _run(options: argparse.Namespace) -> int:
    console = Console(stderr=True)
    began = time.monotonic()
    rows: list[Row] = []
    progress = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console, disable=not console.is_terminal,
    )  # fmt: skip
    failure: Exception | None = None
    with tempfile.TemporaryDirectory(prefix="knowledge-bench-", dir=options.scratch) as scratch, progress:
        try:
            for size in sorted(set(options.size)):
                Run(options, Path(scratch) / str(size), size, progress).collect(rows)
        except Exception as error:  # noqa: BLE001 - what was measured until then took an hour, and is shown first
            failure = error
    rows += _growth(rows)
    output = Console()
    if output.is_terminal:
        output.print(report.table(rows))
    else:
        print(report.markdown(rows), end="")
    if options.json is not None:
        shown = report.document(rows, seed=options.seed, seconds=time.monotonic() - began)
        options.json.write_text(json.dumps(shown, indent=2) + "\n", "utf-8")
    if options.markdown is not None:
        options.markdown.write_text(report.markdown(rows), "utf-8")
    if failure is not None:
        raise failure
    return 0


class Run:
    """All groups of rows at one size, on one store that they share."""

    def __init__(self, options: argparse.Namespace, folder: Path, size: int, progress: Progress) -> None:
        self._options = options
        self._folder = folder
        self._size = size
        self._progress = progress
        self._stores = 0
        self._rounds: int = options.rounds

    def collect(self, found: list[Row]) -> None:
        """Add the rows of every group that was asked for, in the order in which one store bears them."""
        task = self._progress.add_task(f"{self._size:,} records", total=len(GROUPS))
        store = self._open_cold(found)
        for name, group in GROUPS.items():
            self._progress.update(task, description=f"{self._size:,} records: {name}")
            if name != "cold" and self._wanted(name):
                with self._profiled(name):
                    found.extend(group(store, self._rounds))
            self._progress.advance(task)
        shutil.rmtree(self._folder)

    def _open_cold(self, found: list[Row]) -> BenchStore:
        """The store of the run, opened for the first time: which is a row of its own."""
        made: list[BenchStore] = []

        def make() -> BenchStore:
            if made:
                shutil.rmtree(made.pop().state_dir)
            made.append(self._make())
            return made[0]

        times = 1 if self._size > 10_000 or not self._wanted("cold") else 3
        with self._profiled("cold"):
            rows = list(opening.cold([make] * times, self._size))
        if self._wanted("cold"):
            found += rows
        return made[0]

    def _make(self) -> BenchStore:
        self._stores += 1
        task = self._progress.add_task(f"{self._size:,} records: files", total=self._size)
        try:
            return make_store(
                self._folder / str(self._stores),
                self._options.cache,
                seed=self._options.seed,
                size=self._size,
                progress=lambda done: self._progress.update(task, completed=done),
            )
        finally:
            self._progress.remove_task(task)

    def _wanted(self, name: str) -> bool:
        chosen: list[str] = self._options.rows
        return not chosen or name in chosen

    def _profiled(self, name: str) -> _Profiled:
        return _Profiled(name if self._options.profile == name else None)


class _Profiled:
    """``with`` a name: what this thread does inside the block is profiled and shown."""

    def __init__(self, name: str | None) -> None:
        self._profile = None if name is None else cProfile.Profile()

    def __enter__(self) -> None:
        if self._profile is not None:
            self._profile.enable()

    def __exit__(self, *_: object) -> None:
        if self._profile is not None:
            self._profile.disable()
            pstats.Stats(self._profile, stream=sys.stderr).sort_stats("tottime").print_stats(30)


Group = Callable[[BenchStore, int], Iterator[Row]]


def _at_desk(group: Callable[[Desk, int], Iterator[Row]]) -> Group:
    """A group that works on an open store without threads."""

    def run(store: BenchStore, rounds: int) -> Iterator[Row]:
        with Desk(store) as desk:
            desk.partition.refresh()
            desk.catch_up()
            desk.sync()
            yield from group(desk, rounds)

    return run


GROUPS: Final[dict[str, Group]] = {
    "cold": lambda store, rounds: iter(()),
    "warm": lambda store, rounds: opening.warm(store, max(3, rounds // 20)),
    "freshness": _at_desk(reading.freshness),
    "edit": _at_desk(reading.external_edit),
    "reads": _at_desk(reading.reads),
    "standing": _at_desk(standing),
    "frontmatter": _at_desk(reading.one_frontmatter),
    "search": _at_desk(reading.search),
    "write": _at_desk(writing.through_session),
    "bridge": writing.through_bridge,
    "access": access.cost,
    "candidates": _at_desk(recalling.candidates),
    "turns": lambda store, rounds: recalling.turns_at_once(store, max(2, rounds // 40)),
    "git": _at_desk(lambda desk, _: writing.git_checkpoint(desk)),
    "recovery": lambda store, rounds: opening.recovery(store, max(2, rounds // 40)),
    "crash": lambda store, rounds: crashing.crashed_lane(store, max(3, rounds // 20)),
    "rebuild": doors.beside_rebuild,
    "mcp": doors.mcp,
    "memory": lambda store, _: doors.memory(store),
    "stores": lambda store, rounds: many.starts(store, max(2, rounds // 20)),
}
"""Every group of rows by name; ``cold`` makes the store of the others."""


def _growth(rows: Sequence[Row]) -> list[Row]:
    """What the same operation costs at each further size, by its cost at the smallest."""
    found: list[Row] = []
    for name, goal, limit in _GROWTH:
        same = [row for row in rows if row.name == name]
        found += [
            Row(f"growth: {name}", row.size, row.ours, f"at {same[0].size:,}", same[0].ours, goal, limit)
            for row in same[1:]
        ]
    return found


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m stress bench", description=__doc__)
    parser.add_argument(
        "--size", type=int, action="append", help="records in the vault; may be repeated (default 1000 and 10000)"
    )
    parser.add_argument("--rows", action="append", choices=list(GROUPS), help="only these groups; may be repeated")
    parser.add_argument("--rounds", type=int, default=100, help="turns of each contender (default 100)")
    parser.add_argument("--seed", type=int, default=7, help="same seed, same vault (default 7)")
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "knowledge-bench-cache",
        help="where vaults are kept for the next run",
    )  # fmt: skip
    parser.add_argument("--scratch", type=Path, help="where stores are made; the disk that is measured")
    parser.add_argument("--json", type=Path, help="write the run to this file")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    parser.add_argument("--profile", choices=list(GROUPS), help="profile this group's thread, to stderr")
    options = parser.parse_args(arguments)
    options.size = options.size or list(SIZES[:2])
    options.rows = options.rows or []
    options.cache.mkdir(parents=True, exist_ok=True)
    return options
