"""The gate's log lines read back, and the figures made of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_bridge.decisions.gate_log import GateLog, Label, LoggedDecision, read_labels, read_log, replay, tune

HEAD = "knowledge recall gate: mode=shadow outcome=shadow latencyMs=12 offered=50 shortlisted=2"
TEXT = f"{HEAD} decisions=p-1:0.9000:high,p-2:0.1000:none"


def line(turn: str, latency: int = 10, outcome: str = "shadow", **scores: float | None) -> str:
    """A line as the owner's log has it."""
    told = ",".join(f"{page}:{'-' if score is None else format(score, '.4f')}:none" for page, score in scores.items())
    event = (
        f"knowledge recall gate: mode=shadow outcome={outcome} latencyMs={latency} offered=5 "
        f"shortlisted={len(scores)} decisions={told or '-'}"
    )
    return json.dumps({"at": "2026-12-01T08:00:00.000", "level": "info", "event": event, "turn": turn})


def log(*lines: str) -> GateLog:
    found = read_log(lines)
    assert found.unreadable == ()
    return found


def figures(value: object) -> Any:
    return value


def test_a_text_line_is_read_wherever_the_prefix_stands() -> None:
    for text in (TEXT, f"Dec  1 08:00:00 host knowledge[12]: INFO {TEXT}\n"):
        [turn] = log("something else", text).turns
        assert (turn.mode, turn.outcome, turn.latency_ms, turn.offered, turn.shortlisted) == (
            "shadow", "shadow", 12, 50, 2,
        )  # fmt: skip
        assert turn.decisions == (LoggedDecision("p-1", 0.9, "high"), LoggedDecision("p-2", 0.1, "none"))
        assert (turn.turn, turn.stage, turn.reason) == (None, None, None)


def test_a_line_of_the_owners_log_has_its_turn() -> None:
    [turn] = log(line("t 1", p1=0.25, p2=None)).turns
    assert turn.turn == "t 1"
    assert turn.decisions == (LoggedDecision("p1", 0.25, "none"), LoggedDecision("p2", None, "none"))


def test_a_json_object_behind_the_prefix_is_read() -> None:
    told = {
        "mode": "live", "outcome": "injected", "latencyMs": 3, "offered": 4, "shortlisted": 1, "turn": "a%20b",
        "decisions": [{"id": "p-1", "score": 0.5, "tier": "high"}],
    }  # fmt: skip
    [turn] = log(f"knowledge recall gate: {json.dumps(told)}").turns
    assert (turn.turn, turn.decisions) == ("a%20b", (LoggedDecision("p-1", 0.5, "high"),))


def test_words_that_are_not_known_are_passed_over_and_a_turn_among_them_is_unquoted() -> None:
    [turn] = log(f"{TEXT} threshold=0.75 turn=a%20b new").turns
    assert turn.turn == "a b"


def test_a_turn_without_a_decision_has_its_stage_and_reason() -> None:
    [turn] = log(
        "knowledge recall gate: mode=live outcome=unavailable latencyMs=1500 offered=9 shortlisted=9 stage=score "
        "reason=deadline decisions=-"
    ).turns
    assert (turn.stage, turn.reason, turn.decisions) == ("score", "deadline", ())


@pytest.mark.parametrize(
    "text",
    [
        HEAD,
        f"{HEAD} decisions=",
        f"{HEAD} decisions=p-1",
        f"{HEAD} decisions=p-1:0.5",
        f"{HEAD} decisions=p-1:1.5:high",
        f"{HEAD} decisions=p-1:nan:high",
        f"{HEAD} decisions=p-1:x:high",
        "knowledge recall gate: mode=shadow outcome=none latencyMs=-1 offered=0 shortlisted=0 decisions=-",
        "knowledge recall gate: outcome=none latencyMs=1 offered=0 shortlisted=0 decisions=-",
        "knowledge recall gate:",
        'knowledge recall gate: {"mode": "shadow"',
        'knowledge recall gate: {"mode": "shadow", "decisions": [1]}',
        line("t", p=0.5)[:-8],
        json.dumps({"event": "something", "note": "knowledge recall gate: x"}),
    ],
)
def test_a_gate_line_that_is_cut_or_broken_is_named_by_its_number(text: str) -> None:
    found = read_log(["other", text, TEXT])
    assert len(found.turns) == 1
    [bad] = found.unreadable
    assert bad.line == 2
    assert bad.problem


# --- replay ---------------------------------------------------------------------------------------------------------


def test_replay_counts_outcomes_reasons_and_latencies() -> None:
    unavailable = (
        "knowledge recall gate: mode=live outcome=unavailable latencyMs=900 offered=1 shortlisted=1 stage=score "
        "reason=overloaded decisions=-"
    )
    lines = [line(f"t{number}", latency=number) for number in range(1, 20)]
    found = figures(replay(log(*lines, unavailable).turns))
    assert found["turns"] == 20
    assert found["modes"] == {"shadow": 19, "live": 1}
    assert found["outcomes"] == {"shadow": 19, "unavailable": 1}
    assert found["reasons"] == {"score: overloaded": 1}
    assert found["latencyMs"] == {"p50": 11, "p95": 900, "max": 900}
    assert (found["offered"], found["shortlisted"], found["scored"]) == (19 * 5 + 1, 1, 0)


def test_replay_shows_the_scores_and_what_other_thresholds_would_have_injected() -> None:
    found = figures(replay(log(line("a", x=1.0, y=0.75, z=0.05), line("b", x=0.05, y=None), line("c")).turns))
    assert found["scores"] == [2, 0, 0, 0, 0, 0, 0, 1, 0, 1]
    assert found["bestOfTurn"] == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    assert found["withoutScore"] == 1
    by_threshold = {row["threshold"]: (row["turns"], row["pages"]) for row in found["thresholds"]}
    assert by_threshold[0.05] == (2, 4)
    assert by_threshold[0.1] == (1, 2)
    assert by_threshold[0.75] == (1, 2)  # at or above
    assert by_threshold[0.8] == (1, 1)


def test_a_log_without_turns_can_be_replayed() -> None:
    assert figures(replay(()))["latencyMs"] == {"p50": None, "p95": None, "max": None}


# --- labels and tune ------------------------------------------------------------------------------------------------

LABELS = "turn\tpage\trelevant\n"


def test_labels_are_columns_in_any_order() -> None:
    labels, wrong = read_labels(["\n", "relevant\tturn\tpage\r\n", "1\tt 1\tp-1\r\n", "\n", "0\tt 1\tp-2\n"])
    assert wrong == []
    assert labels == [Label("t 1", "p-1", True, 3), Label("t 1", "p-2", False, 5)]


@pytest.mark.parametrize(
    ("lines", "at"),
    [
        ([], 1),
        (["turn\tpage\n"], 1),
        (["t\tp\t1\n"], 1),
        ([LABELS, "t\tp\n"], 2),
        ([LABELS, "t\tp\t1\t1\n"], 2),
        ([LABELS, "t\tp\tyes\n"], 2),
        ([LABELS, "\tp\t1\n"], 2),
        ([LABELS, "t\tp\t1\n", "t\tp\t0\n"], 3),
    ],
)
def test_a_wrong_label_is_named_by_its_line(lines: list[str], at: int) -> None:
    _, [wrong] = read_labels(lines)
    assert wrong.line == at


def labelled(**pages: int) -> list[Label]:
    """Labels by ``turn_page``."""
    parted = [(name.partition("_"), told) for name, told in pages.items()]
    return [Label(turn, page, told == 1, 1) for (turn, _, page), told in parted]


def test_tune_gives_precision_and_recall_at_each_threshold() -> None:
    turns = log(line("a", x=0.9, y=0.6, z=0.3), line("b", x=0.7, y=0.2)).turns
    found = figures(tune(turns, labelled(a_x=1, a_y=0, a_z=1, b_x=1, b_y=0, b_gone=1), precision=0.8))
    rows = {row["threshold"]: (row["pages"], row["precision"], row["recall"]) for row in found["thresholds"]}
    assert rows[0.95] == (0, None, 0.0)
    assert rows[0.7] == (2, 1.0, 0.5)
    assert rows[0.6] == (3, pytest.approx(2 / 3), 0.5)
    assert rows[0.3] == (4, 0.75, 0.75)
    assert (found["relevant"], found["relevantNotScored"], found["scored"]) == (4, 1, 5)
    assert found["suggested"] == {"threshold": 0.61, "pages": 2, "precision": 1.0, "recall": 0.5}


def test_tune_suggests_nothing_where_no_threshold_reaches_the_precision() -> None:
    found = figures(tune(log(line("a", x=0.9, y=0.95)).turns, labelled(a_x=1, a_y=0), precision=0.8))
    assert found["suggested"] is None


def test_tune_finds_the_cutoff_below_which_no_turn_misses_its_page() -> None:
    turns = log(line("a", x=0.456, y=0.1), line("b", x=0.2), line("c", x=0.9), line("d", x=0.459, y=0.3)).turns
    found = figures(tune(turns, labelled(a_x=1, b_x=0, c_x=1, d_gone=1), precision=0.8))
    assert found["skipHint"] == {"below": 0.45, "turns": 1}
    assert figures(tune(turns, labelled(b_x=0), precision=0.8))["skipHint"] is None


@given(st.text() | st.text(alphabet='=:,-.{}" 019ahkmodeutcn'))
def test_any_line_is_a_turn_or_named(text: str) -> None:
    found = read_log([f"{HEAD} decisions={text}", f"knowledge recall gate:{text}", text])
    assert 2 <= len(found.turns) + len(found.unreadable) <= 3
    figures(replay(found.turns))


@given(st.lists(st.text(alphabet="turnpagelv\t01 ")))
def test_any_labels_are_read_or_named(lines: list[str]) -> None:
    labels, wrong = read_labels(lines)
    assert wrong or labels or lines
    assert len({(label.turn, label.page) for label in labels}) == len(labels)


def test_tune_counts_what_has_no_turn_and_what_has_no_label() -> None:
    found = figures(tune(log(line("a", x=0.9, y=0.6, z=None)).turns, labelled(a_x=1, gone_x=1), precision=0.8))
    assert (found["labels"], found["labelsWithoutTurn"], found["scoredWithoutLabel"]) == (2, 1, 1)
    assert found["relevant"] == 1
