"""``python -m stress``: agents, editors and operators at work on a real owner that is injured and killed under them.

Prints what happened and how each promise was judged; non-zero when one was broken. ``python -m stress bench`` measures
times instead, see :mod:`stress.bench`, and ``bench memory`` those of the small memory;
``python -m stress recall`` what a search finds, see :mod:`stress.recall`;
``python -m stress gate-fit`` fits the local decision model, see :mod:`stress.recall.gate_fit`;
``python -m stress processes`` tries who may own a directory, see :mod:`stress.processes`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from stress import mutants, report
from stress.aftermath import Unsettled
from stress.judges import JUDGES, Judge
from stress.mutants import MUTANTS, caught
from stress.ordeals import ORDEALS
from stress.soak import Settings, Soak

EXIT_BROKEN: Final = 1
EXIT_UNDETECTED: Final = 3
LINE_SECONDS: Final = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, judge, report; a failing run is shrunk when ``--shrink`` says so. 0: every promise was kept."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:2] == ["bench", "memory"]:
        from stress.bench.agent_memory import main as bench_memory

        return bench_memory(given[2:])
    if given[:1] == ["bench"]:
        from stress.bench.main import main as bench  # a run needs nothing of it

        return bench(given[1:])
    if given[:1] == ["recall"]:
        from stress.recall.main import main as recall

        return recall(given[1:])
    if given[:1] == ["gate-fit"]:
        from stress.recall.gate_fit import main as gate_fit

        return gate_fit(given[1:])
    if given[:1] == ["processes"]:
        from stress.processes import main as processes

        return processes(given[1:])
    options = _options(given)
    if options.list_mutants:
        for name, mutant in MUTANTS.items():
            print(f"{name:<28} {mutant.what}; caught by: {', '.join(mutant.judges)}")
        return 0
    settings = _settings(options)
    found = _run(settings, options.state_dir)
    if options.json:
        print(json.dumps(found))
    else:
        report.show(found)
    if settings.mutant is not None:
        return _judge_mutant(settings.mutant, found, quiet=options.json)
    if found["kept"]:
        return 0
    if options.shrink:
        _shrink(settings)
    return EXIT_BROKEN


def _settings(options: argparse.Namespace) -> Settings:
    """What the command says; beyond that a mutant has a run of its own, short, with clients that meet often."""
    settings = Settings(
        seed=random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed,
        seconds=60.0,
        agents=24,
        conversations=4,
        stores=6,
        spacing=3.0,
        calls=options.calls,
        mutant=None if options.mutant == mutants.NONE else options.mutant,
        damages=options.damages,
        ordeals=tuple(options.ordeal or ORDEALS),
    )
    if options.mutant is not None:
        mutant = MUTANTS.get(options.mutant)
        settings = dataclasses.replace(
            settings,
            seconds=mutants.SECONDS,
            agents=mutants.AGENTS,
            conversations=mutants.CONVERSATIONS,
            stores=mutants.STORES,
            spacing=mutants.SPACING,
            # Unbroken it meets what any mutant does, all the time.
            ordeals=tuple(options.ordeal or (mutants.ORDEALS if mutant is None else mutant.ordeals)),
            operations=None if options.seconds or mutant is None else mutant.operations,
        )
    given = {name: getattr(options, name) for name in ("seconds", "agents", "conversations", "stores", "spacing")}
    settings = dataclasses.replace(settings, **{name: value for name, value in given.items() if value is not None})
    return dataclasses.replace(settings, stores=min(settings.stores, settings.agents))


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m stress",
        description="Agents, editors, a Git user and operators at work on a real owner that is injured and killed.",
        epilog="exit status: 0 every promise was kept; 1 one was broken, or the mutant was caught; 2 bad arguments; "
        "3 the mutant was not caught",
    )
    parser.add_argument("--seed", type=int, default=None, help="decides calls, edits and injuries (default: a new one)")
    parser.add_argument("--seconds", type=float, help="how long everybody works (default 60)")
    parser.add_argument("--agents", type=int, help="agents, each a client of its own (default 24)")
    parser.add_argument("--conversations", type=int, help="conversations of each agent (default 4)")
    parser.add_argument("--stores", type=int, help="stores that the agents share (default 6)")
    parser.add_argument("--spacing", type=float, help="seconds between injuries; 0: none (default 3)")
    parser.add_argument("--calls", type=int, default=None, help="at most so many calls of each agent")
    parser.add_argument("--damages", action="store_true", help="damage files afterwards, look, and go on working")
    parser.add_argument(
        "--ordeal", action="append", choices=ORDEALS, metavar="NAME", help="while clients work, only this damage"
    )
    parser.add_argument(
        "--mutant",
        choices=[*sorted(MUTANTS), mutants.NONE],
        metavar="NAME",
        help="break a promise on purpose, in a short run of its own; it must be caught. none: that run, unbroken",
    )
    parser.add_argument("--list-mutants", action="store_true", help="name the mutants and who catches them")
    parser.add_argument("--shrink", action="store_true", help="after a failure, look for the shortest run that fails")
    parser.add_argument("--state-dir", type=Path, default=None, help="work in this new folder and keep it")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    return parser.parse_args(arguments)


def _run(settings: Settings, kept: Path | None = None) -> report.Report:
    with _folder(kept) as folder, _progress() as say:
        try:
            return report.of(Soak(folder, settings, say).run(_judges(settings)))
        except Unsettled as problem:
            return report.of_unsettled(settings, str(problem))


def _judges(settings: Settings) -> list[Judge]:
    """All of them; of a mutant those who must catch it."""
    mutant = MUTANTS.get(settings.mutant or "")
    return [judge for name, judge in JUDGES.items() if mutant is None or name in mutant.judges]


def _judge_mutant(name: str, found: report.Report, *, quiet: bool) -> int:
    by = caught(name, [verdict["judge"] for verdict in found["verdicts"] if not verdict["kept"]])
    if not quiet:
        print(f"mutant {name}: {'caught by ' + ', '.join(by) if by else 'NOT CAUGHT'}")
    return EXIT_BROKEN if by else EXIT_UNDETECTED


def _shrink(settings: Settings) -> None:
    """Halve the calls of each agent while the run still fails: threads are not replayed exactly, the calls are."""
    calls = settings.calls or 4_096
    shortest = None
    while calls > 1:
        calls //= 2
        if _run(dataclasses.replace(settings, calls=calls))["kept"]:
            break
        shortest = calls
    if shortest is None:
        print(f"It fails with all its calls only: --seed {settings.seed}")
    else:
        print(f"Shortest run that still fails: --seed {settings.seed} --calls {shortest}")


@contextlib.contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        yield kept
        return
    folder = Path(tempfile.mkdtemp(prefix="knowledge-stress-"))
    try:
        yield folder / "run"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Lines:
    """Progress where nobody looks at a terminal: a line once in a while."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._said = self._began

    def __call__(self, what: str) -> None:
        now = time.monotonic()
        if now - self._said >= LINE_SECONDS:
            self._said = now
            self._console.print(f"{now - self._began:.0f} s: {what}", highlight=False)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda what: progress.update(task, description=what)


if __name__ == "__main__":
    sys.exit(main())
