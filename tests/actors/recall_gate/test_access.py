"""Access lost in the middle of a turn: nothing more is sent to the model, and nothing is injected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from actors.authority import Policy
from actors.store.operations import table
from actors.store.operations.context import OperationContext
from actors.store.operations.gate_candidates import gate_pages
from messages.audience import AudienceToken, Caller, Conversation, OwnerPrivate
from messages.envelope import Deadline
from messages.errors import AudienceStale, Denied, KnowledgeError
from messages.json_types import JsonObject, JsonValue
from messages.operator import LOCAL_OPERATOR, parse_operator_call
from messages.provider.decision import Decision, DecisionRequest, DecisionUnavailable
from messages.provider.gate import GatePagesRequest
from tests.kit.recall import LIVE, Judge, RecallHouse
from tests.kit.store import GROUP, MAIN, NOON

MESSAGE = "When does the garden pilot ship?"
TODAY = datetime.fromtimestamp(NOON / 1000, UTC)
NOTHING: JsonObject = {"block": "", "latencyMs": 0, "offered": 0, "shortlisted": 0, "decisions": []}


class World(RecallHouse):
    """A house with a page that a granted conversation may read."""

    def administer(self, method: str, **params: JsonValue) -> JsonObject:
        call = parse_operator_call(method, {**params}, peer=LOCAL_OPERATOR)
        pending = self.runtime.operate(replace(call, deadline=self.scheduler.deadline(30)))
        self.scheduler.run_until(pending.done)
        answers: list[JsonObject] = []
        pending.deliver(answers.append)
        return answers[0]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.time_passes(timedelta(hours=1))

    def grant(self) -> None:
        self.administer("access.grants.set", agent="main", sessionKey=GROUP.session_key, access="read")

    def revoke(self) -> None:
        self.administer("access.grants.remove", agent="main", sessionKey=GROUP.session_key)

    def end(self, run: str) -> None:
        ended = self.runtime.end_run(run, self.scheduler.deadline(30))
        self.scheduler.run_until(ended.done)

    def time_passes(self, delta: timedelta) -> None:
        self.runtime.gate._now = lambda: TODAY + delta


@pytest.fixture
def judge() -> Judge:
    return Judge(default=0.9, dispatches=2)


@pytest.fixture
def world(tmp_path: Path, judge: Judge) -> Iterator[World]:
    opened = World(tmp_path, judge, policy=Policy(agents=("main", "helper")))
    opened.page("Garden Pilot", "It ships on Friday.")
    opened.page("Pilot school", "For pilots.")
    opened.grant()
    yield opened
    opened.close()


@dataclass(frozen=True)
class Loss:
    """How a caller loses access, and what the answer says of it."""

    caller: Callable[[World], Caller]
    lose: Callable[[World], object]
    reason: str


def token(world: World) -> AudienceToken:
    minted = world.administer(
        "access.tokens.mint",
        audience={"kind": "owner-private", "agent": "main"},
        seconds=3_600,
    )
    return AudienceToken(str(minted["token"]))


def revoke_token(world: World) -> None:
    [row] = rows(world.administer("access.tokens.list"))
    world.administer("access.tokens.revoke", id=row["id"])


def rows(answer: JsonObject) -> list[JsonObject]:
    found = answer["tokens"]
    assert isinstance(found, list)
    return [row for row in found if isinstance(row, dict)]


LOSSES = {
    "grant removed": Loss(lambda world: GROUP, World.revoke, "denied"),
    "run ended": Loss(lambda world: replace(MAIN, run_id="run-1"), lambda world: world.end("run-1"), "audience_stale"),
    "expired": Loss(
        lambda world: replace(MAIN, expires_at=TODAY + timedelta(hours=2)),
        lambda world: world.time_passes(timedelta(hours=3)),
        "audience_stale",
    ),
    "the grant of who delegated removed": Loss(
        lambda world: OwnerPrivate("helper", root=GROUP), World.revoke, "denied"
    ),
    "the run of who delegated ended": Loss(
        lambda world: OwnerPrivate("helper", root=replace(MAIN, run_id="run-1")),
        lambda world: world.end("run-1"),
        "audience_stale",
    ),
    "token revoked": Loss(token, revoke_token, "audience_stale"),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_everybody_who_reads_the_private_partition_is_served_before(world: World, judge: Judge, loss: Loss) -> None:
    assert world.turn(MESSAGE, loss.caller(world))["outcome"] == "injected"
    assert len(judge.sent) == 2


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_access_lost_while_a_response_is_under_way_sends_and_injects_nothing_more(
    world: World, judge: Judge, loss: Loss
) -> None:
    caller = loss.caller(world)
    judge.during = lambda: loss.lose(world)
    answer = world.turn(MESSAGE, caller)
    assert len(judge.sent) == 1
    assert answer == {"outcome": "unavailable", "reason": loss.reason, **NOTHING}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_access_lost_with_the_last_response_injects_nothing(world: World, judge: Judge, loss: Loss) -> None:
    caller = loss.caller(world)
    judge.dispatches = 1
    judge.during = lambda: loss.lose(world)
    answer = world.turn(MESSAGE, caller)
    assert answer == {"outcome": "unavailable", "reason": loss.reason, **NOTHING}


def test_an_agent_that_is_removed_in_the_middle_of_a_turn_gets_nothing(world: World, judge: Judge) -> None:
    judge.dispatches = 1

    def remove() -> None:
        world.policy = Policy(agents=("helper",))
        world.scheduler.advance(1.2)  # by an edit of the file it takes effect within a second

    judge.during = remove
    answer = world.turn(MESSAGE, MAIN)
    assert answer == {"outcome": "unavailable", "reason": "denied", **NOTHING, "latencyMs": 1_200}


def test_access_is_checked_before_each_decision_request(world: World, judge: Judge) -> None:
    """Lost after the shortlist was drawn: the second request is never made."""
    world.gate = replace(LIVE, candidates="model", max_candidates=1)
    judge.dispatches = 1
    judge.during = world.revoke
    answer = world.turn(MESSAGE, GROUP)
    assert len(judge.requests) == 1
    assert answer == {"outcome": "unavailable", "reason": "denied", **NOTHING}


def test_access_lost_before_the_candidates_came_asks_no_model(world: World, judge: Judge) -> None:
    [lane] = [name for name in world.scheduler.alive() if name.endswith("/lane")]
    world.scheduler.suspend(lane)
    pending = world.begin(MESSAGE, GROUP)
    world.scheduler.settle()
    world.revoke()
    world.scheduler.wake(lane)
    assert world.answer(pending) == {"outcome": "unavailable", "reason": "denied", **NOTHING}
    assert judge.requests == []


@pytest.mark.parametrize("message", [MESSAGE, "Nothing about that."], ids=["a page matches", "no page matches"])
def test_access_lost_between_the_result_and_the_hand_over_hands_nothing_over(
    world: World, judge: Judge, message: str
) -> None:
    pending = world.begin(message, GROUP)
    world.scheduler.run_until(pending.done)
    world.revoke()
    assert isinstance(world.refusal(pending), Denied)


def test_in_shadow_mode_a_lost_access_is_no_less_lost(world: World, judge: Judge) -> None:
    world.gate = replace(LIVE, mode="shadow")
    judge.during = world.revoke
    assert world.turn(MESSAGE, GROUP) == {"outcome": "unavailable", "reason": "denied", **NOTHING}
    assert len(judge.sent) == 1


def test_access_is_checked_again_before_the_injection_is_published(
    world: World, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost after the model's last answer, while the store gives the pages that it chose."""
    def then_revoked(context: OperationContext, request: GatePagesRequest) -> JsonObject:
        found = gate_pages(context, request)
        world.revoke()
        return found

    world.gate = replace(LIVE, candidates="model")
    judge.dispatches = 1
    monkeypatch.setattr(table, "gate_pages", then_revoked)
    assert world.turn(MESSAGE, GROUP) == {"outcome": "unavailable", "reason": "denied", **NOTHING}


class Stubborn(Judge):
    """Makes something of its own of the refusal at a dispatch, and tries again."""

    makes: BaseException | None = None
    meanwhile: Callable[[], object] = lambda: None

    def evaluate(
        self, request: DecisionRequest, *, deadline: Deadline, before_dispatch: Callable[[], None]
    ) -> Decision:
        self.during()
        try:
            before_dispatch()
        except KnowledgeError:
            type(self).meanwhile()
            with pytest.raises(Denied):
                before_dispatch()
            if self.makes is not None:
                raise self.makes from None
        return Decision({key: self._answer(question) for key, question in request.questions.items()})


@pytest.mark.parametrize("makes", [None, DecisionUnavailable("provider-error"), RuntimeError("no")])
def test_once_stopped_a_turn_stays_stopped_whatever_the_provider_makes_of_it(
    tmp_path: Path, makes: BaseException | None
) -> None:
    stubborn = Stubborn(default=0.9)
    world = World(tmp_path, stubborn)
    world.page("Garden Pilot", "It ships on Friday.")
    world.grant()
    stubborn.makes, stubborn.during = makes, world.revoke
    # Granted anew before the provider answers: what was stopped is not taken up again.
    Stubborn.meanwhile = world.grant
    assert world.turn(MESSAGE, GROUP) == {"outcome": "unavailable", "reason": "denied", **NOTHING}
    world.close()


def test_a_stale_audience_is_refused_and_asks_nothing(world: World, judge: Judge) -> None:
    world.end("run-1")
    ended = replace(MAIN, run_id="run-1")
    expired = replace(MAIN, expires_at=TODAY)
    for audience in (ended, expired):
        assert isinstance(world.refusal(world.begin(MESSAGE, audience)), AudienceStale)
    assert judge.requests == []


def test_a_forged_token_is_refused_and_asks_nothing(world: World, judge: Judge) -> None:
    assert isinstance(world.refusal(world.begin(MESSAGE, AudienceToken("forged"))), KnowledgeError)
    assert judge.requests == []


def test_a_conversation_is_served_by_its_grant_alone(world: World, judge: Judge) -> None:
    other = Conversation("main", "chat:other", GROUP.session_id)
    assert world.turn(MESSAGE, other)["reason"] == "not_private"
    topic = replace(GROUP, session_key=f"{GROUP.session_key}:topic")
    assert world.turn(MESSAGE, topic)["outcome"] == "injected"
    world.revoke()
    for audience in (GROUP, topic):
        assert world.turn(MESSAGE, audience)["reason"] == "not_private"
    assert len(judge.requests) == 1


def test_the_model_is_that_of_the_agent_whose_memory_it_is(world: World) -> None:
    world.turn(MESSAGE, OwnerPrivate("helper", root=MAIN))
    assert world.asked_for == ["main"]
