"""Timing: contenders take turns, so that whatever else the machine does falls on all of them alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from messages.json_types import JsonObject

Unit: TypeAlias = Literal["s", "MB"]


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured, in seconds (or megabytes): the median, the middle half around it, and how many."""

    median: float
    low: float
    high: float
    count: int
    unit: Unit = "s"

    @classmethod
    def of(cls, values: Sequence[float], unit: Unit = "s") -> Sample:
        """The sample of at least one value."""
        if len(values) < 2:
            return cls(values[0], values[0], values[0], 1, unit)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, len(values), unit)

    def to_json(self) -> JsonObject:
        return {"median": self.median, "low": self.low, "high": self.high, "count": self.count, "unit": self.unit}


@dataclass(frozen=True, slots=True)
class Contender:
    """One thing to time. ``run`` gets the number of its turn; ``prepare`` runs before it, untimed, ``tidy`` after."""

    name: str
    run: Callable[[int], object]
    prepare: Callable[[int], object] | None = None
    tidy: Callable[[int], object] | None = None


def interleave(contenders: Sequence[Contender], rounds: int, *, warm: int = 2) -> dict[str, list[float]]:
    """Seconds of each contender, by name; each round gives every contender one turn, in rotating order.

    ``warm`` further rounds come first and are thrown away.
    """
    taken: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    gc.collect()
    for turn in range(warm + rounds):
        first = turn % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            if contender.prepare is not None:
                contender.prepare(turn)
            began = time.perf_counter()
            contender.run(turn)
            seconds = time.perf_counter() - began
            if contender.tidy is not None:
                contender.tidy(turn)
            if turn >= warm:
                taken[contender.name].append(seconds)
    return taken


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. ``ratio`` is ours by the baseline (or ours itself where the goal is a limit of its own)."""

    name: str
    size: int
    ours: Sample
    baseline_name: str
    baseline: Sample | None
    goal: str
    limit: float | None
    absolute: bool = False
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours by the baseline, of medians; ``None`` without a baseline."""
        if self.baseline is None or not self.baseline.median:
            return None
        return self.ours.median / self.baseline.median

    @property
    def holds(self) -> bool | None:
        """Whether the goal is reached; ``None`` where the row has none at this size."""
        measured = self.ours.median if self.absolute else self.ratio
        return None if self.limit is None or measured is None else measured <= self.limit

    def to_json(self) -> JsonObject:
        return {
            "row": self.name,
            "size": self.size,
            "ours": self.ours.to_json(),
            "baseline": self.baseline_name,
            "baselineSample": None if self.baseline is None else self.baseline.to_json(),
            "ratio": self.ratio,
            "goal": self.goal,
            "limit": self.limit,
            "holds": self.holds,
            "note": self.note,
        }


def compared(
    name: str,
    size: int,
    taken: dict[str, list[float]],
    ours: str,
    baseline: str,
    *,
    goal: str = "",
    limit: float | None = None,
    note: str = "",
) -> Row:
    """The row of two contenders of one :func:`interleave`."""
    return Row(name, size, Sample.of(taken[ours]), baseline, Sample.of(taken[baseline]), goal, limit, note=note)
