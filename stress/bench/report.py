"""How the rows are shown: a table on the terminal, the same in Markdown, and JSON for comparing runs."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence

import apsw
from rich.table import Table

from messages.json_types import JsonObject
from stress.bench.measure import Row, Sample

_HEADINGS = ("operation", "size", "ours", "baseline", "ratio", "goal", "holds", "note")


def table(rows: Sequence[Row]) -> Table:
    """For a terminal."""
    shown = Table()
    for heading in _HEADINGS:
        shown.add_column(heading, min_width=24 if heading == _HEADINGS[0] else None, overflow="fold")
    for row in rows:
        colour = {True: "green", False: "red", None: "dim"}[row.holds]
        cells = _cells(row)
        shown.add_row(*cells[:6], f"[{colour}]{cells[6]}[/]", cells[7])
    return shown


def markdown(rows: Sequence[Row]) -> str:
    """The same as a Markdown table."""
    lines = [f"| {' | '.join(_HEADINGS)} |", "|" + "---|" * len(_HEADINGS)]
    lines += [f"| {' | '.join(_cells(row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def document(rows: Sequence[Row], *, seed: int, seconds: float) -> JsonObject:
    """The whole run as data."""
    return {
        "format": "knowledge-bench-v1",
        "seed": seed,
        "seconds": round(seconds, 1),
        "machine": {
            "python": platform.python_version(),
            "sqlite": apsw.sqlitelibversion(),
            "system": f"{platform.system()} {platform.release()}",
            "processors": os.cpu_count() or 0,
            "load": [round(load, 2) for load in os.getloadavg()],
            "platform": sys.platform,
        },
        "rows": [row.to_json() for row in rows],
    }


def _cells(row: Row) -> tuple[str, ...]:
    baseline = "" if row.baseline is None else f"{row.baseline_name}: {_sample(row.baseline)}"
    ratio = "" if row.ratio is None else f"{row.ratio:.3g}"
    holds = {True: "yes", False: "NO", None: ""}[row.holds]
    return (row.name, f"{row.size:,}", _sample(row.ours), baseline, ratio, row.goal, holds, row.note)


def _sample(sample: Sample) -> str:
    """The median with the middle half around it."""
    if sample.unit == "MB":
        return f"{sample.median:.0f} MB"
    factor, unit = next(
        ((factor, unit) for factor, unit in ((1, "s"), (1e3, "ms")) if sample.median * factor >= 1), (1e6, "us")
    )
    low, median, high = (f"{value * factor:.3g}" for value in (sample.low, sample.median, sample.high))
    return f"{median} {unit}" if sample.count == 1 else f"{median} {unit} ({low}-{high})"
