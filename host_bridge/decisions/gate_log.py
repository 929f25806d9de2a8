"""The recall gate's log lines, read back: what the gate did, and what other thresholds would have done.

A line is found wherever :data:`LOG_PREFIX` stands in it: in a text log, or as the ``event`` of a JSON line,
whose ``turn`` is then the turn's id. Behind it come ``name=value`` words, or one JSON object with the same names.

Source: memory-provider.md (Recall gate, Details).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from messages.json_types import JsonObject, JsonValue
from messages.provider.decision import is_probability
from messages.provider.gate import LOG_PREFIX

THRESHOLDS: Final = tuple(round(step * 0.05, 2) for step in range(1, 20))
_FINE: Final = tuple(round(step * 0.01, 2) for step in range(1, 101))
_BUCKETS: Final = 10


@dataclass(frozen=True, slots=True)
class LoggedDecision:
    """One page of a turn; without a score where the model gave only a label."""

    page: str
    score: float | None
    tier: str


@dataclass(frozen=True, slots=True)
class LoggedTurn:
    """One user turn as its log line tells it."""

    turn: str | None
    mode: str
    outcome: str
    latency_ms: int
    offered: int
    shortlisted: int
    stage: str | None
    reason: str | None
    decisions: tuple[LoggedDecision, ...]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that should have been understood: its number from 1, and what is wrong with it."""

    line: int
    problem: str


@dataclass(frozen=True, slots=True)
class GateLog:
    """The turns in their order, and the gate lines that are none."""

    turns: tuple[LoggedTurn, ...]
    unreadable: tuple[Unreadable, ...]


@dataclass(frozen=True, slots=True)
class Label:
    """A person's word on one page of one turn."""

    turn: str
    page: str
    relevant: bool
    line: int


def read_log(lines: Iterable[str]) -> GateLog:
    """Every gate line; lines of others are passed over, cut ones are named."""
    turns: list[LoggedTurn] = []
    unreadable: list[Unreadable] = []
    for number, line in enumerate(lines, 1):
        if LOG_PREFIX not in line:
            continue
        try:
            turns.append(_turn(line))
        except ValueError as error:
            unreadable.append(Unreadable(number, str(error)))
    return GateLog(tuple(turns), tuple(unreadable))


def read_labels(lines: Iterable[str]) -> tuple[list[Label], list[Unreadable]]:
    """Tab-separated labels; the first line names the columns ``turn``, ``page`` and ``relevant``, in any order."""
    labels: dict[tuple[str, str], Label] = {}
    unreadable: list[Unreadable] = []
    columns: list[str] | None = None
    for number, line in enumerate(lines, 1):
        cells = [cell.strip() for cell in line.rstrip("\r\n").split("\t")]
        if not any(cells):
            continue
        if columns is None:
            if sorted(cells) != ["page", "relevant", "turn"]:
                return [], [Unreadable(number, "the first line must name the columns turn, page and relevant")]
            columns = cells
            continue
        try:
            label = _label(dict(zip(columns, cells, strict=True)), number)
        except ValueError as error:
            unreadable.append(Unreadable(number, _short(error, "three columns apart by tabs are needed")))
            continue
        earlier = labels.setdefault((label.turn, label.page), label)
        if earlier.relevant != label.relevant:
            unreadable.append(Unreadable(number, f"line {earlier.line} says the opposite of this page in this turn"))
    if columns is None:
        unreadable.append(Unreadable(1, "the file is empty"))
    return list(labels.values()), unreadable


def replay(turns: Sequence[LoggedTurn]) -> JsonObject:
    """Counts, latencies and scores of the turns, and what each threshold would have injected."""
    latencies = sorted(turn.latency_ms for turn in turns)
    scores = [score for turn in turns for score in _scores(turn)]
    best = [max(found) for turn in turns if (found := _scores(turn))]
    without: Counter[str] = Counter(f"{turn.stage or '-'}: {turn.reason}" for turn in turns if turn.reason is not None)
    return {
        "turns": len(turns),
        "modes": _counted(turn.mode for turn in turns),
        "outcomes": _counted(turn.outcome for turn in turns),
        "reasons": dict(without.most_common()),
        "latencyMs": {
            "p50": _percentile(latencies, 0.5),
            "p95": _percentile(latencies, 0.95),
            "max": latencies[-1] if latencies else None,
        },
        "offered": sum(turn.offered for turn in turns),
        "shortlisted": sum(turn.shortlisted for turn in turns),
        "scored": len(scores),
        "withoutScore": sum(one.score is None for turn in turns for one in turn.decisions),
        "scores": _histogram(scores),
        "bestOfTurn": _histogram(best),
        "thresholds": [
            {
                "threshold": threshold,
                "turns": sum(score >= threshold for score in best),
                "pages": sum(score >= threshold for score in scores),
            }
            for threshold in THRESHOLDS
        ],
    }


def tune(turns: Sequence[LoggedTurn], labels: Sequence[Label], *, precision: float) -> JsonObject:
    """Precision and recall of the labelled pages at each threshold, and the threshold to take.

    A relevant page that was never scored counts as missed at every threshold. Suggested is the lowest threshold that
    reaches ``precision``, the one with the most recall then; ``None`` where none does. ``skipHint`` is the highest
    cutoff below which no labelled turn lies that a page would have helped, and how many turns would get the hint then.
    """
    logged = {turn.turn: {one.page: one.score for one in turn.decisions} for turn in turns if turn.turn is not None}
    known = [label for label in labels if label.turn in logged]
    scored = [(score, label.relevant) for label in known if (score := logged[label.turn].get(label.page)) is not None]
    relevant = sum(label.relevant for label in known)
    rows = {threshold: _row(threshold, scored, relevant) for threshold in (*THRESHOLDS, *_FINE)}
    good = [
        threshold
        for threshold in _FINE
        if isinstance(reached := rows[threshold]["precision"], float) and reached >= precision
    ]
    suggested = min(good, default=None)
    labelled = {(label.turn, label.page) for label in known}
    return {
        "labels": len(labels),
        "labelsWithoutTurn": len(labels) - len(known),
        "relevant": relevant,
        "relevantNotScored": relevant - sum(is_relevant for _, is_relevant in scored),
        "scored": len(scored),
        "scoredWithoutLabel": sum(
            score is not None and (turn, page) not in labelled
            for turn, pages in logged.items()
            for page, score in pages.items()
        ),
        "thresholds": [rows[threshold] for threshold in THRESHOLDS],
        "wantedPrecision": precision,
        "suggested": None if suggested is None else rows[suggested],
        "skipHint": _skip_hint(turns, known),
    }


# --- reading --------------------------------------------------------------------------------------------------------


def _turn(line: str) -> LoggedTurn:
    outer = _object(line)
    text = line if outer is None else str(outer.get("event", outer.get("message", "")))
    _, found, rest = text.partition(LOG_PREFIX)
    if not found:
        raise ValueError("the line is no event of the gate")
    inner = _object(rest)
    told: Mapping[str, object] = _words(rest) if inner is None else inner
    turn = told.get("turn", None if outer is None else outer.get("turn"))
    return LoggedTurn(
        turn=None if turn is None else unquote(str(turn)) if inner is None and "turn" in told else str(turn),
        mode=_text(told, "mode"),
        outcome=_text(told, "outcome"),
        latency_ms=_number(told, "latencyMs"),
        offered=_number(told, "offered"),
        shortlisted=_number(told, "shortlisted"),
        stage=None if told.get("stage") is None else _text(told, "stage"),
        reason=None if told.get("reason") is None else _text(told, "reason"),
        decisions=tuple(_decisions(told.get("decisions"))),
    )


def _object(text: str) -> Mapping[str, object] | None:
    """The JSON object that ``text`` is; ``None`` where it does not begin like one."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("the JSON is cut or broken") from None
    if not isinstance(found, dict):
        raise ValueError("the JSON is no object")
    return found


def _words(text: str) -> Mapping[str, object]:
    return {name: value for name, found, value in (word.partition("=") for word in text.split()) if found}


def _text(told: Mapping[str, object], name: str) -> str:
    value = told.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is missing")
    return value


def _number(told: Mapping[str, object], name: str) -> int:
    text = str(told.get(name, ""))
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name} is missing or no whole number")
    return int(text)


def _decisions(value: object) -> Iterable[LoggedDecision]:
    match value:
        case "-":
            return
        case str():
            for item in value.split(","):
                page, score, tier = _three(item)
                yield LoggedDecision(page, _score(None if score == "-" else score), tier)
        case list():
            for item in value:
                if not isinstance(item, dict):
                    raise ValueError("a decision is no object")
                yield LoggedDecision(_text(item, "id"), _score(item.get("score")), _text(item, "tier"))
        case _:
            raise ValueError("decisions is missing")


def _three(item: str) -> tuple[str, str, str]:
    parts = item.rsplit(":", 2)
    if len(parts) != 3 or not all(parts):
        raise ValueError("a decision is not ID:SCORE:TIER")
    return parts[0], parts[1], parts[2]


def _score(value: object) -> float | None:
    if value is None:
        return None
    try:
        score = float(str(value))
    except ValueError:
        raise ValueError("a score is no number") from None
    if not is_probability(score):
        raise ValueError("a score is not from 0 to 1")
    return score


def _label(cells: Mapping[str, str], line: int) -> Label:
    if not cells["turn"] or not cells["page"]:
        raise _Said("turn and page must not be empty")
    if cells["relevant"] not in ("0", "1"):
        raise _Said("relevant must be 0 or 1")
    return Label(cells["turn"], cells["page"], cells["relevant"] == "1", line)


class _Said(ValueError):
    """A problem in our own words."""


def _short(error: ValueError, otherwise: str) -> str:
    return str(error) if isinstance(error, _Said) else otherwise


# --- counting -------------------------------------------------------------------------------------------------------


def _scores(turn: LoggedTurn) -> list[float]:
    return [one.score for one in turn.decisions if one.score is not None]


def _counted(names: Iterable[str]) -> dict[str, JsonValue]:
    return dict(Counter(names).most_common())


def _percentile(ordered: Sequence[int], share: float) -> int | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def _histogram(scores: Sequence[float]) -> list[JsonValue]:
    """How many scores lie in each tenth; 1.0 belongs to the last."""
    counts = Counter(min(_BUCKETS - 1, int(score * _BUCKETS)) for score in scores)
    return [counts[bucket] for bucket in range(_BUCKETS)]


def _skip_hint(turns: Sequence[LoggedTurn], labels: Sequence[Label]) -> JsonObject | None:
    """``None`` where no labelled turn has a relevant page and a score: nothing speaks against any cutoff then."""
    best = {turn.turn: max(found) for turn in turns if turn.turn is not None and (found := _scores(turn))}
    helped = {label.turn for label in labels if label.relevant} & best.keys()
    if not helped:
        return None
    below = math.floor(min(best[turn] for turn in helped) * 100) / 100
    return {"below": below, "turns": sum(score < below for score in best.values())}


def _row(threshold: float, scored: Sequence[tuple[float, bool]], relevant: int) -> JsonObject:
    injected = [is_relevant for score, is_relevant in scored if score >= threshold]
    right = sum(injected)
    return {
        "threshold": threshold,
        "pages": len(injected),
        "precision": right / len(injected) if injected else None,
        "recall": right / relevant if relevant else None,
    }
