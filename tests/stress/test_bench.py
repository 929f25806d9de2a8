"""The bench itself: contenders take turns, the same seed gives the same vault, and a run ends with its table."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from storage import files
from storage.records import ParsedRecord, parse_record
from storage.state.connection import Database
from stress.__main__ import main
from stress.bench import report
from stress.bench.measure import Contender, Row, Sample, interleave
from stress.bench.notes import cached_notes, generate
from stress.bench.reading import bare_scan
from stress.bench.store import Desk, make_store, remember
from stress.bench.synced import everything_synced


def test_contenders_take_turns_in_rotating_order_and_warm_rounds_are_thrown_away() -> None:
    order: list[str] = []

    def contender(name: str) -> Contender:
        return Contender(name, lambda _: order.append(name))

    taken = interleave([contender(name) for name in "abc"], 2, warm=1)
    assert "".join(order) == "abc" + "bca" + "cab"
    assert {name: len(values) for name, values in taken.items()} == {"a": 2, "b": 2, "c": 2}


def test_what_prepares_a_turn_and_tidies_up_is_not_timed() -> None:
    seen: list[str] = []
    contender = Contender(
        "one", lambda n: seen.append(f"run {n}"), lambda n: seen.append(f"before {n}"), lambda n: seen.append("after")
    )
    interleave([contender], 1, warm=0)
    assert seen == ["before 0", "run 0", "after"]


def test_a_sample_is_the_median_with_the_middle_half_around_it() -> None:
    sample = Sample.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (sample.low, sample.median, sample.high, sample.count) == (2.0, 3.0, 4.0, 5)


@pytest.mark.parametrize(("ours", "holds"), [(1.0, True), (1.5, True), (1.6, False)])
def test_a_goal_holds_up_to_its_limit(ours: float, holds: bool) -> None:
    row = Row("it", 10, Sample.of([ours]), "base", Sample.of([1.0]), "<= 1.5x base", 1.5)
    assert row.holds is holds
    assert ("| yes |" in report.markdown([row])) is holds
    assert ("| NO |" in report.markdown([row])) is not holds


def test_a_row_without_a_goal_neither_holds_nor_fails() -> None:
    assert Row("it", 10, Sample.of([1.0]), "base", Sample.of([1.0]), "", None).holds is None


def test_the_same_seed_and_size_give_the_same_vault() -> None:
    assert list(generate(3, 40)) == list(generate(3, 40))
    assert list(generate(3, 40)) != list(generate(4, 40))


def test_every_note_of_a_vault_is_a_valid_record_and_there_are_as_many_as_asked_for(tmp_path: Path) -> None:
    notes = [note for note in generate(3, 60) if note.path.endswith(".md")]
    assert len({note.path for note in notes}) == 60
    for note in notes:
        parsed = parse_record(note.data, note.path)
        assert isinstance(parsed, ParsedRecord)
        assert parsed.findings == ()
    assert bare_scan(str(cached_notes(tmp_path, 3, 60))) == 60


def test_a_cached_vault_is_not_made_again(tmp_path: Path) -> None:
    made = cached_notes(tmp_path, 3, 20)
    (made / "mark").touch()
    assert cached_notes(tmp_path, 3, 20) == made
    assert (made / "mark").exists()
    assert os.listdir(tmp_path) == [made.name]


def test_the_build_that_syncs_everything_does_the_same_with_more_syncs_and_leaves_no_trace(tmp_path: Path) -> None:
    before = (files.create_file, files.move, files.exchange, Database.transaction)
    store = make_store(tmp_path / "state", tmp_path, seed=3, size=20, progress=lambda _: None)
    with Desk(store) as desk, everything_synced() as switch:
        desk.run(remember(1))
        assert switch.syncs == 1, "ours: the accepting commit and nothing else"
        switch.on = True
        desk.run(remember(2))
        switch.on = False
        # Two texts and the manifest, the folders that got a name, and both commits.
        assert switch.syncs - 1 >= 3 + 2 + 2
        desk.run(remember(3))
        entries = desk.partition.catalogue.counts()["claim"]["active"]
        assert entries == 15 + 3
    assert (files.create_file, files.move, files.exchange, Database.transaction) == before


def test_a_run_writes_its_table_and_its_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "--size", "30", "--rounds", "2", "--cache", str(tmp_path), "--scratch", str(tmp_path)]
    for rows in ("frontmatter", "edit", "search", "access", "crash", "candidates"):
        arguments += ["--rows", rows]
    assert main([*arguments, "--json", str(tmp_path / "run.json"), "--markdown", str(tmp_path / "run.md")]) == 0
    run = json.loads((tmp_path / "run.json").read_text("utf-8"))
    names = {row["row"] for row in run["rows"]}
    assert {"frontmatter of one record", "one external edit, found by the next lookup", "3-word OR search"} <= names
    assert {f"permit and re-checks of a save, {grants}" for grants in ("1 grant", "1,000 grants")} <= names
    assert "recall gate: candidates inside the lane (p95)" in names
    assert all(row["ours"]["median"] > 0 and row["size"] == 30 for row in run["rows"])
    shown = (tmp_path / "run.md").read_text("utf-8")
    assert all(f"| {name} | 30 |" in shown for name in names)
    assert capsys.readouterr().out == shown, "what is no terminal gets the Markdown table"
    assert sorted(os.listdir(tmp_path)) == ["notes-1-7-30", "run.json", "run.md"], "no store is left behind"


@pytest.mark.exhaustive
def test_a_store_answers_again_after_its_lane_crashed(tmp_path: Path) -> None:
    arguments = ["bench", "--size", "30", "--rounds", "2", "--rows", "crash", "--cache", str(tmp_path)]
    assert main([*arguments, "--json", str(tmp_path / "run.json")]) == 0
    [row] = json.loads((tmp_path / "run.json").read_text("utf-8"))["rows"]
    assert row["row"] == "a crashed lane answers again"
    assert row["ours"]["median"] > row["baselineSample"]["median"]


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_every_row_runs(tmp_path: Path) -> None:
    assert (
        main(["bench", "--size", "60", "--rounds", "4", "--cache", str(tmp_path), "--json", str(tmp_path / "r")]) == 0
    )
    rows = json.loads((tmp_path / "r").read_text("utf-8"))["rows"]
    assert len({row["row"] for row in rows}) >= 20
