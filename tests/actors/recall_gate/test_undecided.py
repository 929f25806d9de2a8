"""Turns of the gate while nobody can decide about access: the authority is held up, or has no registry to decide by."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from actors.recall_gate import GateSettings
from messages.errors import AudienceStale, Cancelled
from tests.actors.recall_gate.test_turns import MESSAGE, garden, house, judge, lines
from tests.kit.recall import Judge, RecallHouse
from tests.kit.store import MAIN

__all__ = ["garden", "house", "judge"]


def undecided(house: RecallHouse) -> None:
    """Whoever decides about access is held up, and what it last said has lived out."""
    house.scheduler.suspend("root/authority")
    house.scheduler.advance(11)


def test_while_nobody_can_decide_about_access_a_turn_ends_with_its_budget_and_is_logged(
    house: RecallHouse, judge: Judge, garden: str, caplog: pytest.LogCaptureFixture
) -> None:
    undecided(house)
    caplog.set_level(logging.INFO)
    start = house.scheduler.clock.monotonic()
    answer = house.turn(MESSAGE)
    assert house.scheduler.clock.monotonic() == pytest.approx(start + 1.5)
    assert (answer["outcome"], answer["reason"], answer["block"]) == ("unavailable", "deadline", "")
    assert "outcome=unavailable latencyMs=1500 offered=0 shortlisted=0 stage=access reason=deadline" in lines(caplog)[0]
    house.scheduler.wake("root/authority")
    house.scheduler.settle()
    assert judge.requests == []
    assert len(lines(caplog)) == 1
    assert house.turn(MESSAGE)["outcome"] == "injected"


def test_a_turn_waits_within_its_budget_for_access_to_be_decided(
    house: RecallHouse, judge: Judge, garden: str, caplog: pytest.LogCaptureFixture
) -> None:
    undecided(house)
    caplog.set_level(logging.INFO)
    start = house.scheduler.clock.monotonic()
    served, stale = (
        house.begin(MESSAGE),
        house.begin(MESSAGE, replace(MAIN, expires_at=datetime(2020, 1, 1, tzinfo=UTC))),
    )
    house.scheduler.advance(1)
    house.scheduler.wake("root/authority")
    assert house.answer(served)["outcome"] == "injected"
    assert {deadline.at for deadline in judge.deadlines} == {start + 1.5}
    assert isinstance(house.refusal(stale), AudienceStale)
    house.scheduler.advance(2)
    assert len(lines(caplog)) == 1  # what was refused was no turn


def test_a_turn_that_is_skipped_for_everybody_waits_for_no_decision_about_access(
    house: RecallHouse, garden: str
) -> None:
    undecided(house)
    start = house.scheduler.clock.monotonic()
    assert house.turn(MESSAGE, trigger="timer")["reason"] == "not_user_turn"
    house.gate = GateSettings()
    assert house.turn(MESSAGE)["reason"] == "off"
    assert house.scheduler.clock.monotonic() == start
    house.scheduler.wake("root/authority")


def test_a_turn_that_is_cancelled_before_access_was_decided_sends_nothing(
    house: RecallHouse, judge: Judge, garden: str
) -> None:
    undecided(house)
    pending = house.begin(MESSAGE)
    pending.cancel()
    assert isinstance(house.refusal(pending), Cancelled)
    house.scheduler.wake("root/authority")
    house.scheduler.advance(2)
    assert judge.requests == []


def test_a_lost_registry_injects_nothing_is_logged_and_fails_no_turn(
    house: RecallHouse, judge: Judge, garden: str, caplog: pytest.LogCaptureFixture
) -> None:
    house.close()
    [registry] = house.folder.glob("knowledge/registry.sqlite")
    registry.rename(registry.with_suffix(".away"))
    caplog.set_level(logging.INFO)
    again = RecallHouse(house.folder, judge)
    answer = again.turn(MESSAGE)
    assert (answer["outcome"], answer["reason"], answer["block"]) == ("unavailable", "store_unavailable", "")
    assert "stage=access reason=store_unavailable" in lines(caplog)[0]
    again.close()
