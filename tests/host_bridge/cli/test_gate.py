"""``knowledge gate``: what is printed, which lines are named, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from host_bridge.cli import exits, main
from tests.host_bridge.decisions.test_gate_log import line


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "gate.log"
    path.write_text("\n".join([line("a", x=0.9, y=0.6), line("b", x=0.2), "noise"]), encoding="utf-8")
    return path


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.tsv"
    path.write_text("turn\tpage\trelevant\na\tx\t1\na\ty\t0\nb\tx\t0\n", encoding="utf-8")
    return path


def test_replay_prints_a_table_for_people_and_one_object_for_programs(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gate", "replay", str(log)]) == exits.OK
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "2 turns: shadow 2" in shown.out
    assert "0.75                     1            1            0.5" in shown.out
    assert main(["gate", "replay", str(log), "--json"]) == exits.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["turns"], found["scored"], found["unreadable"]) == (2, 3, 0)


def test_replay_reads_the_owners_log_unless_one_is_named(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "knowledge").mkdir()
    log.rename(tmp_path / "knowledge" / "owner.log")
    assert main(["gate", "replay", "--state-dir", str(tmp_path), "--json"]) == exits.OK
    assert json.loads(capsys.readouterr().out)["turns"] == 2


def test_without_a_log_replay_says_where_a_host_on_stdio_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gate", "replay", "--state-dir", str(tmp_path)]) == exits.REFUSED
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "owner.log: there is no log yet" in shown.err
    assert "standard error" in shown.err


def test_lines_that_are_cut_are_named_and_the_rest_is_counted(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text(log.read_text("utf-8") + "\nknowledge recall gate: mode=sha", encoding="utf-8")
    assert main(["gate", "replay", str(log)]) == exits.OK
    shown = capsys.readouterr()
    assert "2 turns" in shown.out
    assert shown.err.startswith(f"{log}:4: ")


def test_tune_suggests_a_threshold_and_says_when_labels_are_few(
    log: Path, labels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gate", "tune", str(labels), str(log)]) == exits.OK
    shown = capsys.readouterr().out
    assert "recallGate.highThreshold: 0.61 is the lowest that reaches precision 0.8: 1.00, recall 1.00" in shown
    assert "recallGate.skipHintBelow: at most 0.90, or" in shown
    assert "relevant labels are few (1)" in shown
    assert main(["gate", "tune", str(labels), str(log), "--json", "--precision", "0.5"]) == exits.OK
    assert json.loads(capsys.readouterr().out)["suggested"]["threshold"] == 0.21


def test_wrong_labels_are_all_named_by_line_and_nothing_is_counted(
    log: Path, labels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels.write_text("turn\tpage\trelevant\na\tx\tmaybe\na\ty\n", encoding="utf-8")
    assert main(["gate", "tune", str(labels), str(log)]) == exits.REFUSED
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"{labels}:2: relevant must be 0 or 1" in shown.err
    assert f"{labels}:3: three columns" in shown.err


@pytest.mark.parametrize("words", [["replay", "gone.log"], ["tune", "labels.tsv"]])
def test_a_file_that_is_not_there_is_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["gate", *words, "--state-dir", str(tmp_path)]) == exits.REFUSED
    assert "No such file" in capsys.readouterr().err


def test_a_log_without_a_gate_line_is_refused_and_says_how_to_get_one(
    log: Path, labels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text("noise\n", encoding="utf-8")
    assert main(["gate", "replay", str(log)]) == exits.REFUSED
    assert "recallGate.mode" in capsys.readouterr().err
    assert main(["gate", "tune", str(labels), str(log)]) == exits.REFUSED


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["show"],
        ["tune"],
        ["replay", "a", "b"],
        ["replay", "a", "--precision", "0.5"],
        ["tune", "a", "b", "--precision", "0"],
        ["tune", "a", "b", "--precision", "1.1"],
        ["tune", "a", "b", "--precision", "high"],
    ],
)
def test_a_command_line_that_cannot_be_understood_says_why(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gate", *words]) == exits.USAGE
    assert "knowledge gate: " in capsys.readouterr().err
