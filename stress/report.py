"""A run's public report: what was done, what struck, what was answered, how it was judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypedDict

from rich.console import Console
from rich.table import Table

from stress.damages import Finding
from stress.judges import Success
from stress.soak import Result, Settings


class Judged(TypedDict):
    name: str
    kept: bool
    detail: str
    judge: str


class Times(TypedDict):
    calls: int
    p50Ms: float
    p99Ms: float


class Succeeded(TypedDict):
    """``calls`` without a fault of their own and the ``share`` of them that succeeded, 0 to 1; ``ownFaults`` and
    ``injured`` are the others."""

    calls: int
    share: float
    ownFaults: int
    injured: int


class Report(TypedDict):
    """``kept``: every promise was. Times in milliseconds, as the clients saw them."""

    seed: int
    kept: bool
    seconds: float
    operations: int
    operationsPerSecond: float
    success: Succeeded
    doors: dict[str, Times]
    answers: dict[str, int]
    tools: dict[str, int]
    injuries: dict[str, int]
    outages: int
    restarts: dict[str, int]
    crashedLaneAnswersAgain: Times
    ordeals: dict[str, int]
    notHere: dict[str, str]
    damages: dict[str, str]
    edits: dict[str, int]
    accessChanges: int
    residentMiB: list[int]
    verdicts: list[Judged]


def of(result: Result) -> Report:
    """The report of a run that was judged."""
    ledger = result.ledger
    operations = ledger.operations
    return {
        "seed": result.settings.seed,
        "kept": all(verdict.kept for verdict in result.verdicts),
        "seconds": round(result.seconds, 1),
        "operations": len(operations),
        "operationsPerSecond": round(len(operations) / result.seconds, 1),
        "success": _succeeded(result.success),
        "doors": {
            door: _times([operation.ended - operation.began for operation in operations if operation.door == door])
            for door in sorted({operation.door for operation in operations})
        },
        "answers": dict(Counter(operation.code for operation in operations).most_common()),
        "tools": dict(Counter(operation.tool for operation in operations).most_common()),
        "injuries": dict(Counter(struck.kind for struck in ledger.struck).most_common()),
        "outages": result.outages,
        "restarts": dict(result.restarts),
        "crashedLaneAnswersAgain": _times(result.again),
        "ordeals": dict(Counter(ordeal.name for ordeal in ledger.ordeals).most_common()),
        "notHere": dict(result.skipped),
        "damages": {finding.name: _found(finding) for finding in result.findings},
        "edits": dict(Counter(edit.deed for edit in ledger.edits).most_common()),
        "accessChanges": len(ledger.access),
        "residentMiB": [usage.resident >> 20 for usage in result.usages],
        "verdicts": [{"name": v.name, "kept": v.kept, "detail": v.detail, "judge": v.judge} for v in result.verdicts],
    }


def of_unsettled(settings: Settings, problem: str) -> Report:
    """The report of a run after which the store was not there for the judges: itself a broken promise."""
    return {
        "seed": settings.seed,
        "kept": False,
        "seconds": settings.seconds,
        "operations": 0,
        "operationsPerSecond": 0.0,
        "success": _succeeded(None),
        "doors": {},
        "answers": {},
        "tools": {},
        "injuries": {},
        "outages": 0,
        "restarts": {},
        "crashedLaneAnswersAgain": _times([]),
        "ordeals": {},
        "notHere": {},
        "damages": {},
        "edits": {},
        "accessChanges": 0,
        "residentMiB": [],
        "verdicts": [
            {"name": "the store answers when all is over", "kept": False, "detail": problem, "judge": "settled"}
        ],
    }


def show(found: Report) -> None:
    """Print it for people."""
    console = Console()
    console.print(
        f"seed {found['seed']}: {found['operations']} operations in {found['seconds']} s "
        f"({found['operationsPerSecond']}/s), {found['outages']} outages"
    )
    good = found["success"]
    console.print(
        f"  without a fault of their own: {good['calls']} calls, {good['share']:.2%} of them succeeded "
        f"(enough_succeed); {good['ownFaults']} had a fault of their own, {good['injured']} met an injury"
    )
    for door, times in found["doors"].items():
        console.print(f"  {door}: {times['calls']} calls, p50 {times['p50Ms']} ms, p99 {times['p99Ms']} ms")
    for name, counts in (
        ("answers", found["answers"]),
        ("injuries", found["injuries"]),
        ("restarts", found["restarts"]),
        ("damages while clients worked", found["ordeals"]),
        ("edits", found["edits"]),
    ):
        console.print(f"  {name}: {_listed(counts)}")
    again = found["crashedLaneAnswersAgain"]
    if again["calls"]:
        taken = f"p50 {again['p50Ms']} ms, p99 {again['p99Ms']} ms"
        console.print(f"  a crashed lane answers again: {again['calls']} crashes, {taken}")
    for name, why in found["notHere"].items():
        console.print(f"  {name}: skipped: {why}")
    for name, what in found["damages"].items():
        console.print(f"  {name}: {what}")
    table = Table("promise", "kept", "detail")
    for verdict in found["verdicts"]:
        table.add_row(verdict["name"], "yes" if verdict["kept"] else "NO", verdict["detail"])
    console.print(table)


def _succeeded(found: Success | None) -> Succeeded:
    found = found or Success(0, 0, 0, 0)
    return {
        "calls": found.calls,
        "share": round(found.share, 4),
        "ownFaults": found.own_faults,
        "injured": found.injured,
    }


def _times(seconds: Sequence[float]) -> Times:
    taken = sorted(seconds)
    if not taken:
        return {"calls": 0, "p50Ms": 0.0, "p99Ms": 0.0}
    return {
        "calls": len(taken),
        "p50Ms": round(taken[len(taken) // 2] * 1000, 2),
        "p99Ms": round(taken[int(len(taken) * 0.99)] * 1000, 2),
    }


def _found(finding: Finding) -> str:
    if finding.skipped is not None:
        return f"skipped: {finding.skipped}"
    return "; ".join([_listed(finding.answers), *finding.wrong])


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
