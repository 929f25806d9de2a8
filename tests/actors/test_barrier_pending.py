"""What a revocation answers when work under the old access does not end: on a virtual clock, without waiting.

Real lanes, files and SQLite in one thread. A lane "stands" at a fault point by running everybody else from there.

Source: decisions.md section 6 (If either takes longer than 10 s; The authority defers that reply; it never blocks).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from actors.authority import Permit, Unbound
from actors.calls import PendingCall
from actors.operators import PendingOperation
from actors.runtime import RuntimeSettings
from actors.store.lane import Lane
from messages.audience import Conversation, OwnerPrivate
from messages.errors import (
    Busy,
    Denied,
    InternalError,
    KnowledgeError,
    Quarantined,
    Restarting,
    RevocationPending,
)
from messages.json_types import JsonObject, JsonValue
from messages.operator import LOCAL_OPERATOR, parse_operator_call
from storage import faults
from tests.actors.test_runtime import House as BareHouse
from tests.host_bridge.test_barrier import CHAT, KEY, on_disk
from tests.kit.moments import at_point
from tests.kit.scheduler import VirtualScheduler
from tests.kit.store import MAIN, remembering, request_id

OTHER = "chat:other"
ELSEWHERE = Conversation("research", KEY, "55555555-5555-4555-8555-555555555555")


class House(BareHouse):
    """A house that is asked about grants too."""

    def access(self, method: str, **params: JsonValue) -> PendingOperation:
        call = parse_operator_call(f"access.grants.{method}", {"agent": "main", **params}, peer=LOCAL_OPERATOR)
        return self.runtime.operate(replace(call, deadline=self.scheduler.deadline(30)))

    def told(self, pending: PendingOperation) -> JsonObject | KnowledgeError:
        """The answer to an operator, awaited."""
        self.scheduler.run_until(pending.done)
        answers: list[JsonObject] = []
        try:
            pending.deliver(answers.append)
        except KnowledgeError as error:
            return error
        return answers[0]

    def grant(self, key: str = KEY, agent: str = "main") -> None:
        assert isinstance(self.told(self.access("set", agent=agent, sessionKey=key, access="read-save")), dict)

    def revoke(self, key: str = KEY, agent: str = "main") -> PendingOperation:
        return self.access("remove", agent=agent, sessionKey=key)

    def save(self, audience: Conversation | OwnerPrivate, number: int) -> PendingCall:
        arguments = {**remembering(f"Fact {number}."), "requestId": request_id(number)}
        return self.submit(audience, "remember", arguments, seconds=300.0)

    def permit(self, audience: Conversation = CHAT) -> Permit:
        found = self.runtime.gate.resolve(audience, write=False)
        assert not isinstance(found, Unbound)
        return found

    def granted(self) -> bool:
        return self.permit().partition.session_id is None


@pytest.fixture(params=[1, 2])
def scheduler(request: pytest.FixtureRequest) -> VirtualScheduler:
    return VirtualScheduler(seed=request.param, max_steps=2_000_000)


@pytest.fixture
def opened(
    tmp_path: Path, scheduler: VirtualScheduler, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], House]]:
    """Opens a house; one is open at a time."""
    # A watcher waits for a descriptor, which takes real time; without one it has nothing to do.
    monkeypatch.setattr(Lane, "_send_descriptor", lambda self: None)
    houses: list[House] = []

    def open_house() -> House:
        houses.append(House(tmp_path, RuntimeSettings(idle=600.0, git=False), scheduler))
        return houses[-1]

    yield open_house
    for house in houses:
        assert house.runtime.close().stuck == ()
    assert scheduler.alive() == []


@pytest.fixture
def house(opened: Callable[[], House]) -> House:
    made = opened()
    made.call()
    return made


def is_pending(found: object) -> bool:
    assert not isinstance(found, RevocationPending) or found.retry == "safe"
    return isinstance(found, RevocationPending)


def test_a_revocation_that_meets_a_save_that_does_not_end_answers_revocation_pending_after_10_seconds(
    house: House, scheduler: VirtualScheduler
) -> None:
    house.grant()
    seen: list[object] = []

    def while_the_lane_stands() -> None:
        began = scheduler.clock.monotonic()
        revoking = house.revoke()
        scheduler.settle()
        assert not house.granted(), "closed to new permits at once"
        scheduler.advance(9.9)
        assert not revoking.done()
        seen.append(house.told(revoking))
        assert scheduler.clock.monotonic() - began == pytest.approx(10.0, abs=0.1)
        assert isinstance(house.told(house.access("list")), dict), "the authority is not blocked"
        again = house.revoke()
        seen.append(house.told(again))
        waits = house.revoke()
        scheduler.advance(5)
        assert not waits.done()
        seen.append(waits)

    with at_point("place.file", while_the_lane_stands):
        saving = house.save(CHAT, 1)
        scheduler.run_until(saving.done)
    assert is_pending(seen[0])
    assert is_pending(seen[1]), "asked again, it is still not claimed"
    waits = seen[2]
    assert isinstance(waits, PendingOperation)
    assert isinstance(house.told(waits), dict), "the save is over, and so is the revocation"
    assert on_disk(house.folder) == 1
    assert isinstance(house.error(saving), Denied), "its answer never leaves"
    assert isinstance(house.told(house.revoke()), dict), "asking again tells that it ended"


def test_a_revocation_that_meets_a_reader_that_does_not_end_answers_revocation_pending_after_10_seconds(
    house: House, scheduler: VirtualScheduler
) -> None:
    house.grant()
    with house.runtime.gate.lease(house.permit()):
        revoking = house.revoke()
        scheduler.advance(9.9)
        assert not revoking.done()
        assert is_pending(house.told(revoking))
        assert not house.granted()
        again = house.revoke()
        scheduler.advance(3)
        assert not again.done()
    assert isinstance(house.told(again), dict)


def test_of_two_revocations_at_once_each_is_answered_and_both_wait_for_what_is_under_way(
    house: House, scheduler: VirtualScheduler
) -> None:
    house.grant()
    house.grant(OTHER)
    with house.runtime.gate.lease(house.permit()):
        both = [house.revoke(), house.revoke(), house.revoke(OTHER)]
        scheduler.advance(5)
        assert [one.done() for one in both] == [False, False, False]
    assert all(isinstance(house.told(one), dict) for one in both)
    with house.runtime.gate.lease(house.permit()):
        assert isinstance(house.told(house.revoke(OTHER)), dict), "of what nothing is taken from nobody waits"


def test_what_one_agents_callers_do_holds_up_no_revocation_of_another_agents_grants(
    house: House, scheduler: VirtualScheduler
) -> None:
    house.call(OwnerPrivate("research"))
    house.grant()
    house.grant(agent="research")
    with house.runtime.gate.lease(house.permit()):
        mine, others = house.revoke(), house.revoke(agent="research")
        scheduler.advance(1)
        assert others.done()
        assert isinstance(house.told(others), dict)
        assert not mine.done()
        with house.runtime.gate.lease(house.permit(ELSEWHERE)):
            pass
    assert isinstance(house.told(mine), dict)


def test_a_store_that_does_not_open_answers_revocation_pending_after_10_seconds_and_later_that_it_ended(
    opened: Callable[[], House], scheduler: VirtualScheduler
) -> None:
    def full(point: str) -> None:
        if point == "place.file":
            raise OSError(28, "No space left on device")

    before = opened()
    before.call()
    with faults.installed(full):
        assert before.answer(before.save(MAIN, 1))["state"] == "pending"
        before.runtime.close()
    house = opened()
    house.told(house.access("list"))
    revoking = house.revoke()
    scheduler.run_until(lambda: any(name.endswith("/lane") for name in scheduler.alive()))
    [lane] = house.alive("/lane")
    scheduler.suspend(lane)
    scheduler.advance(9.9)
    found = house.told(revoking)
    scheduler.wake(lane)
    assert is_pending(found)
    assert on_disk(house.folder) == 0
    again = house.told(house.revoke())
    assert isinstance(again, dict), again
    assert on_disk(house.folder) == 1


def test_an_authority_that_is_restarted_while_a_revocation_waits_says_so_and_forgets_nobody_inside(
    house: House, scheduler: VirtualScheduler
) -> None:
    house.grant()
    with ExitStack() as inside:
        inside.enter_context(house.runtime.gate.lease(house.permit()))
        waiting = [house.revoke(), house.revoke()]
        scheduler.advance(1)
        assert not any(one.done() for one in waiting)

        def die() -> None:
            raise RuntimeError("a defect of ours")

        with at_point("registry.folder", die):
            scheduler.advance(0.6)
        for one in waiting:
            assert one.done(), "nobody waits for a dead authority"
            error = house.told(one)
            assert isinstance(error, InternalError | Restarting)
            assert error.retry == "unknown", "the change may have been made: asking again makes it harmless"
        again = house.revoke()
        scheduler.advance(5)
        assert not house.granted()
        assert not again.done(), "who was inside before still is"
    assert isinstance(house.told(again), dict)


def test_a_store_in_quarantine_is_not_waited_for(
    house: House, scheduler: VirtualScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.grant()

    def die() -> None:
        # From here on no lane of this store opens any more.
        monkeypatch.setattr(Lane, "_open_store", lambda self: die())
        raise RuntimeError("a defect of ours")

    with at_point("place.file", die):
        saving = house.save(CHAT, 1)
        scheduler.run_until(saving.done)
    revoking = house.revoke()
    found = house.told(revoking)
    while is_pending(found):
        found = house.told(house.revoke())
    assert isinstance(found, dict)
    assert isinstance(house.error(house.submit(MAIN)), Quarantined)
    assert on_disk(house.folder) == 0


# --- turns ------------------------------------------------------------------------------------------------------------


def test_a_conversation_that_fills_its_share_of_the_mailbox_leaves_its_owners_share_alone(
    house: House, scheduler: VirtualScheduler
) -> None:
    house.grant()
    [lane] = house.alive("/lane")
    scheduler.suspend(lane)
    theirs = [house.submit(CHAT) for _ in range(house.settings.per_audience)]
    assert isinstance(house.error(house.submit(CHAT, seconds=2)), Busy)
    mine = house.submit(MAIN)
    scheduler.settle()
    assert not mine.done(), "taken, not refused"
    scheduler.wake(lane)
    house.answer(mine)
    assert sum(one.done() for one in theirs) <= 2, "served in turn, not behind them"
    for one in theirs:
        house.answer(one)
