"""Verdicts on a run. Each checker knows only calls, answers and what the store says afterwards, not the code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from host_bridge.bridge import KnowledgeBridge
from messages.audience import OwnerPrivate
from messages.json_types import JsonObject
from stress.workload import Answer, settled

SUCCESS_SHARE: Final = 0.90
THROUGHPUT_SHARE: Final = 0.50
OWN_FAULTS: Final = ("internal",)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One promise, and whether the run kept it."""

    name: str
    kept: bool
    detail: str


def one_answer_each(answers: Sequence[Answer]) -> Verdict:
    """Every call got exactly one answer, and it was typed."""
    wrong = [a for a in answers if a.answers != 1 or a.code == "no_answer"]
    return Verdict("every call is answered exactly once", not wrong, f"{len(answers)} calls, {len(wrong)} wrong")


def none_late(answers: Sequence[Answer]) -> Verdict:
    """No answer came after its deadline plus the grace."""
    late = [a for a in answers if a.late]
    return Verdict("no answer is later than its deadline", not late, f"{len(late)} late")


def enough_succeed(answers: Sequence[Answer], crashes: int) -> Verdict:
    """Of the calls that no injected fault hit themselves, at least 90 % succeeded."""
    hit = sum(a.code in OWN_FAULTS for a in answers)
    others = len(answers) - min(hit, crashes)
    good = sum(a.code == "ok" for a in answers)
    share = good / others if others else 1.0
    return Verdict("at least 90 % of the others succeed", share >= SUCCESS_SHARE, f"{share:.2%} of {others}")


def throughput_holds(faulty: float, clean: float) -> Verdict:
    """Calls a second under faults are at least half of those without."""
    share = faulty / clean if clean else 1.0
    return Verdict(
        "throughput is at least half", share >= THROUGHPUT_SHARE, f"{faulty:.0f} of {clean:.0f} calls/s ({share:.0%})"
    )


def acknowledged_writes_stay(knowledge: KnowledgeBridge, answers: Iterable[Answer]) -> Verdict:
    """Every acknowledged write gives the same receipt again, and each of its records can be read."""
    checked, wrong = 0, list[str]()
    audience = OwnerPrivate("main")
    for answer in answers:
        if answer.code != "ok" or answer.result is None or "requestId" not in answer.arguments:
            continue
        checked += 1
        again = settled(knowledge, answer.tool, answer.arguments, audience)
        if _receipt(again) != _receipt(answer):
            wrong.append(f"{answer.tool}: {again.code}")
            continue
        for record_id in _ids(answer):
            read = settled(knowledge, "knowledge_record", {"id": record_id}, audience)
            if read.result is None or read.result.get("record") is None:
                wrong.append(f"knowledge_record: {read.code}")
    return _judged("no acknowledged write is missing or changed", f"{checked} receipts", wrong)


def uncertain_writes_settle(knowledge: KnowledgeBridge, answers: Iterable[Answer]) -> Verdict:
    """A write that may have run gives one receipt when it is repeated, and the same one once more."""
    checked, wrong = 0, list[str]()
    audience = OwnerPrivate("main")
    for answer in answers:
        if answer.code == "ok" or "requestId" not in answer.arguments or answer.retry == "never":
            continue
        checked += 1
        first = settled(knowledge, answer.tool, answer.arguments, audience)
        second = settled(knowledge, answer.tool, answer.arguments, audience)
        if first.code == "poison" and second.code == "poison":
            continue
        if first.code != "ok" or _receipt(first) != _receipt(second):
            wrong.append(f"{answer.tool} after {answer.code}: {first.code}, then {second.code}")
    return _judged("an uncertain write settles when it is repeated", f"{checked} repeated", wrong)


def _judged(name: str, what: str, wrong: Sequence[str]) -> Verdict:
    shown = "".join(f"; {case}" for case in wrong[:3])
    return Verdict(name, not wrong, f"{what}, {len(wrong)} wrong{shown}")


def _receipt(answer: Answer) -> JsonObject | None:
    """What stays the same for ever: the Git commit of a write is made later, and the receipt then names it."""
    if answer.result is None:
        return None
    return {key: value for key, value in answer.result.items() if key != "git"}


def _ids(answer: Answer) -> list[str]:
    result = answer.result or {}
    if isinstance(result.get("id"), str) and result["id"]:
        return [str(result["id"])]
    items = result.get("items")
    return [str(item["id"]) for item in items if isinstance(item, dict)] if isinstance(items, list) else []
