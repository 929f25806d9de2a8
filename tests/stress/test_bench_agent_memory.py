"""The bench of the small memory, without the package that it is measured beside."""

from __future__ import annotations

from pathlib import Path

from stress.bench.agent_memory import EACH, OURS, PROCESSES, crowd, measured


def test_every_row_of_the_small_memory_is_measured_and_says_that_it_stands_alone(tmp_path: Path) -> None:
    rows = list(measured([OURS], tmp_path, size=20, rounds=1))
    assert [row.name for row in rows] == [
        f"{what} ({kind})"
        for kind in ("files", "SQLite")
        for what in ("remember, passing", "remember, persistent", "build_context")
    ]
    assert all(row.ours.median > 0 and row.holds is None and "not at hand" in row.note for row in rows)


def test_four_processes_on_one_directory_keep_everything(tmp_path: Path) -> None:
    kept, row = crowd([OURS], tmp_path)
    assert (kept, row.holds) == (PROCESSES * EACH, True)
