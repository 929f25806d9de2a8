"""``python -m stress``: agents at work while the lane is crashed under them; non-zero on any broken promise.

``python -m stress bench`` measures times instead, see :mod:`stress.bench`; ``python -m stress recall`` what a search
finds, see :mod:`stress.recall`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from host_bridge.bridge import KnowledgeBridge
from messages.json_types import JsonObject
from storage import faults
from stress import checkers
from stress.checkers import Verdict
from stress.crashes import CrashInjector
from stress.workload import Agent, Answer, run_agents

SPACING_SECONDS: Final = 7.0
"""Below five restarts in thirty seconds, whatever the seed."""
SWITCH_INTERVAL_SECONDS: Final = 0.0005


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the workload twice, without and with crashes, and judge the second run. 0: every promise kept."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["bench"]:
        from stress.bench.main import main as bench  # the crash run needs nothing of it

        return bench(given[1:])
    if given[:1] == ["recall"]:
        from stress.recall.main import main as recall

        return recall(given[1:])
    options = _options(given)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    logging.disable(logging.CRITICAL)
    with _state_dir(options.state_dir) as folder:
        clean_agents, clean_seconds = _run(folder / "clean", options, None)
        injector = CrashInjector(options.seed, options.spacing)
        verdicts, agents, seconds = _judged(folder / "crashed", options, injector, _rate(clean_agents, clean_seconds))
    report = _report(options.seed, agents, seconds, injector, verdicts)
    if options.json:
        print(json.dumps(report))
    else:
        _print(report)
    return 0 if all(verdict.kept for verdict in verdicts) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m stress", description=__doc__)
    parser.add_argument("--seed", type=int, default=7, help="same seed, same calls and crash times (default 7)")
    parser.add_argument("--agents", type=int, default=8, help="concurrent agents (default 8)")
    parser.add_argument("--calls", type=int, default=3_000, help="calls of each agent (default 3000)")
    parser.add_argument("--seconds", type=float, default=None, help="stop each run after this many seconds")
    parser.add_argument("--spacing", type=float, default=SPACING_SECONDS, help="seconds between crashes (default 7)")
    parser.add_argument("--state-dir", type=Path, default=None, help="keep the stores in this folder")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    return parser.parse_args(arguments)


@contextlib.contextmanager
def _state_dir(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="knowledge-stress-") as folder:
        yield Path(folder)


def _judged(
    folder: Path, options: argparse.Namespace, injector: CrashInjector, clean_rate: float
) -> tuple[list[Verdict], list[Agent], float]:
    before = threading.active_count()
    with KnowledgeBridge(folder) as knowledge:
        with faults.installed(injector):
            agents, seconds = _drive(knowledge, options, "with crashes")
        answers = _answers(agents)
        verdicts = [
            checkers.one_answer_each(answers),
            checkers.none_late(answers),
            checkers.enough_succeed(answers, injector.count),
            checkers.throughput_holds(len(answers) / seconds, clean_rate),
            checkers.uncertain_writes_settle(knowledge, answers),
            checkers.acknowledged_writes_stay(knowledge, answers),
        ]
    after = threading.active_count()
    verdicts.append(Verdict("no thread is left", after <= before, f"{before} before, {after} after"))
    return verdicts, agents, seconds


def _run(folder: Path, options: argparse.Namespace, handler: Callable[[str], None] | None) -> tuple[list[Agent], float]:
    with KnowledgeBridge(folder) as knowledge:
        return _drive(knowledge, options, "without faults")


def _drive(knowledge: KnowledgeBridge, options: argparse.Namespace, what: str) -> tuple[list[Agent], float]:
    stop = threading.Event()
    timer = None if options.seconds is None else threading.Timer(options.seconds, stop.set)
    if timer is not None:
        timer.start()
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=options.agents * options.calls)
        try:
            return run_agents(
                knowledge,
                seed=options.seed,
                agents=options.agents,
                calls=options.calls,
                stop=stop,
                progress=lambda done: progress.update(task, completed=done),
            )
        finally:
            if timer is not None:
                timer.cancel()


def _answers(agents: Sequence[Agent]) -> list[Answer]:
    return [answer for agent in agents for answer in agent.answers]


def _rate(agents: Sequence[Agent], seconds: float) -> float:
    return len(_answers(agents)) / seconds


def _report(
    seed: int, agents: Sequence[Agent], seconds: float, injector: CrashInjector, verdicts: Sequence[Verdict]
) -> JsonObject:
    answers = _answers(agents)
    times = sorted(answer.seconds for answer in answers) or [0.0]
    return {
        "seed": seed,
        "calls": len(answers),
        "seconds": round(seconds, 1),
        "callsPerSecond": round(len(answers) / seconds, 1),
        "p50Ms": round(times[len(times) // 2] * 1000, 2),
        "p99Ms": round(times[int(len(times) * 0.99)] * 1000, 2),
        "crashes": dict(injector.by_point),
        "answers": dict(Counter(answer.code for answer in answers).most_common()),
        "tools": dict(Counter(answer.tool for answer in answers).most_common()),
        "verdicts": [{"name": v.name, "kept": v.kept, "detail": v.detail} for v in verdicts],
    }


def _print(report: JsonObject) -> None:
    console = Console()
    console.print(
        f"seed {report['seed']}: {report['calls']} calls in {report['seconds']} s ({report['callsPerSecond']}/s), "
        f"p50 {report['p50Ms']} ms, p99 {report['p99Ms']} ms"
    )
    console.print(f"crashes {report['crashes']}")
    console.print(f"answers {report['answers']}")
    table = Table("promise", "kept", "detail")
    verdicts = report["verdicts"]
    assert isinstance(verdicts, list)
    for verdict in verdicts:
        assert isinstance(verdict, dict)
        table.add_row(str(verdict["name"]), "yes" if verdict["kept"] else "NO", str(verdict["detail"]))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
