"""The runtime's life on a virtual clock: real lanes, files and SQLite, one thread, no waiting (DESIGN.md, The tree)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import cast

import pytest

from actors.authority import Policy, SharedStore
from actors.calls import PendingCall
from actors.operators import Operators, PendingOperation
from actors.runtime import Runtime, RuntimeSettings
from actors.store.lane import Lane
from actors.store.operations import table
from actors.store.read_indexes import ReadIndexes
from host_bridge.owner.logs import JsonLines
from messages.audience import Audience, OwnerPrivate
from messages.envelope import Call, Deadline
from messages.errors import (
    Busy,
    Cancelled,
    DeadlineExceeded,
    Denied,
    IndexUnavailable,
    InternalError,
    KnowledgeError,
    ManifestMissing,
    Quarantined,
    Restarting,
    Stopping,
    StoreAmbiguous,
    StoreOpening,
    StoreUnavailable,
)
from messages.json_types import JsonObject, JsonValue
from messages.operator import LOCAL_OPERATOR, SubscribeCall, Subscriber, parse_operator_call
from storage import faults
from storage.layout import Layout
from tests.kit.scheduler import VirtualScheduler
from tests.kit.store import MAIN, NOON, remembering, request_id

AGENTS = ("main", "research", "garden", "orchard", "attic")


@dataclass
class House:
    """A runtime whose threads, clock and chance are virtual."""

    folder: Path
    settings: RuntimeSettings
    scheduler: VirtualScheduler
    policy: Policy = field(default_factory=lambda: Policy(agents=AGENTS))

    def __post_init__(self) -> None:
        self.runtime = Runtime(
            Layout(self.folder),
            policy=lambda: self.policy,
            settings=self.settings,
            now_ms=lambda: NOON + round(self.scheduler.clock.monotonic() * 1000),
            environment=self.scheduler.environment,
        )

    def submit(
        self,
        audience: Audience = MAIN,
        tool: str = "status",
        arguments: JsonObject | None = None,
        *,
        seconds: float = 30.0,
    ) -> PendingCall:
        return self.runtime.submit(
            Call(f"knowledge_{tool}", arguments or {}, audience, self.scheduler.deadline(seconds))
        )

    def answer(self, pending: PendingCall) -> JsonObject:
        self.scheduler.run_until(pending.done)
        answers: list[JsonObject] = []
        pending.deliver(answers.append)
        return answers[0]

    def call(self, audience: Audience = MAIN, tool: str = "status", arguments: JsonObject | None = None) -> JsonObject:
        return self.answer(self.submit(audience, tool, arguments))

    def error(self, pending: PendingCall) -> KnowledgeError:
        with pytest.raises(KnowledgeError) as raised:
            self.answer(pending)
        return raised.value

    def operate(self, name: str, *, seconds: float = 30.0, **params: JsonValue) -> PendingOperation:
        call = parse_operator_call(f"operator.{name}", {**params}, peer=LOCAL_OPERATOR)
        return self.runtime.operate(replace(call, deadline=self.scheduler.deadline(seconds)))

    def refusal(self, pending: PendingOperation) -> KnowledgeError:
        self.scheduler.run_until(pending.done)
        with pytest.raises(KnowledgeError) as raised:
            pending.deliver(lambda _: None)
        return raised.value

    def subscribe(self, audience: Audience) -> None:
        call = SubscribeCall(Subscriber(audience=audience), self.scheduler.deadline(30))
        begun = self.runtime.subscribe(call, lambda _: None)
        decided: list[object] = []
        begun.add_done_callback(decided.append)
        self.scheduler.run_until(lambda: bool(decided))
        begun.deliver(lambda _: None)

    def live(self) -> int:
        stores = self.runtime.health()["stores"]
        assert isinstance(stores, list)
        return len(stores)

    def alive(self, end: str) -> list[str]:
        return [name for name in self.scheduler.alive() if name.endswith(end)]


@pytest.fixture(params=[1, 2])
def scheduler(request: pytest.FixtureRequest) -> VirtualScheduler:
    return VirtualScheduler(seed=request.param, max_steps=2_000_000)


@pytest.fixture
def house(tmp_path: Path, scheduler: VirtualScheduler, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    # A watcher waits for a descriptor, which takes real time; without one it has nothing to do.
    monkeypatch.setattr(Lane, "_send_descriptor", lambda self: None)
    settings = RuntimeSettings(idle=60.0, max_live_stores=2, git=False)
    opened = House(tmp_path, settings, scheduler)
    yield opened
    assert opened.runtime.close().stuck == ()
    assert opened.scheduler.alive() == []


def test_a_store_is_started_at_its_first_use_and_stopped_when_it_was_idle_long_enough(house: House) -> None:
    assert house.live() == 0
    house.call()
    assert house.alive("/lane")
    house.scheduler.advance(40)
    assert house.live() == 1, "not idle long enough"
    house.call()
    house.scheduler.advance(50)
    assert house.live() == 1, "used since"
    house.scheduler.advance(30)
    assert house.live() == 0
    assert house.alive("/lane") == []


def test_a_store_that_was_stopped_is_started_again_by_the_next_call(house: House) -> None:
    first = house.call()
    house.call(tool="remember", arguments={**remembering("A fact."), "requestId": request_id(1)})
    house.scheduler.advance(100)
    assert house.live() == 0
    again = house.call()
    assert again["vaultId"] == first["vaultId"]
    assert again["counts"] == {"claim": {"active": 1}}


def test_no_more_stores_live_than_allowed_the_one_idle_longest_makes_room(house: House) -> None:
    house.call(OwnerPrivate("main"))
    house.scheduler.advance(10)
    house.call(OwnerPrivate("research"))
    house.scheduler.advance(10)
    house.call(OwnerPrivate("main"))
    before = set(house.alive("/lane"))
    house.call(OwnerPrivate("garden"))
    house.scheduler.advance(1)
    assert len(house.alive("/lane")) == 2
    assert len(set(house.alive("/lane")) & before) == 1, "main was used later than research and stayed"
    assert house.call(OwnerPrivate("research"))["counts"] == {}


def test_a_store_is_started_only_when_the_one_that_makes_room_is_down(house: House) -> None:
    house.call(OwnerPrivate("main"))
    [lane] = house.alive("/lane")
    house.scheduler.advance(10)
    house.call(OwnerPrivate("research"))
    house.scheduler.suspend(lane)
    waiting = house.submit(OwnerPrivate("garden"))
    house.scheduler.settle()
    assert len(house.alive("/lane")) == 2, "one that stops still has its files open"
    assert house.live() == 2
    house.scheduler.wake(lane)
    assert house.answer(waiting)["partition"] == "private"
    assert len(house.alive("/lane")) == 2


def test_the_idle_stores_make_room_for_as_many_calls_as_there_are_places(house: House) -> None:
    for agent in ("main", "research"):
        house.call(OwnerPrivate(agent))
    lanes = house.alive("/lane")
    for lane in lanes:
        house.scheduler.suspend(lane)
    waiting = [house.submit(OwnerPrivate(agent)) for agent in ("garden", "orchard", "attic")]
    house.scheduler.settle()
    assert house.alive("/lane") == lanes
    assert isinstance(house.error(waiting[2]), Busy)
    for lane in lanes:
        house.scheduler.wake(lane)
    for one in waiting[:2]:
        assert house.answer(one)["partition"] == "private"
    assert len(house.alive("/lane")) == 2


def test_a_store_that_does_not_stop_makes_no_room(house: House) -> None:
    house.call(OwnerPrivate("main"))
    [lane] = house.alive("/lane")
    house.scheduler.advance(10)
    house.call(OwnerPrivate("research"))
    house.scheduler.suspend(lane)
    refused = house.error(house.submit(OwnerPrivate("garden"), seconds=60))
    assert isinstance(refused, Busy)
    assert refused.retry == "safe"
    assert len(house.alive("/lane")) == 2
    house.scheduler.wake(lane)
    house.scheduler.advance(1)
    assert house.call(OwnerPrivate("garden"))["partition"] == "private"


def state(house: House, name: str) -> object:
    actors = house.runtime.health()["actors"]
    assert isinstance(actors, list)
    return next(actor["state"] for actor in actors if isinstance(actor, dict) and actor["name"] == name)


def test_a_call_while_its_store_stops_waits_for_the_next_start(house: House) -> None:
    house.call()
    [lane] = house.alive("/lane")
    house.scheduler.suspend(lane)
    # The sweep tells the store to stop, and its lane does not come back yet.
    house.scheduler.run_until(lambda: state(house, lane) == "stopping")
    pending = house.submit()
    house.scheduler.wake(lane)
    assert house.answer(pending)["partition"] == "private"


def test_while_every_live_store_is_in_use_another_is_refused_as_busy(house: House) -> None:
    for agent in ("main", "research"):
        house.call(OwnerPrivate(agent))
    lanes = house.alive("/lane")
    for lane in lanes:
        house.scheduler.suspend(lane)
    pending = [house.submit(OwnerPrivate(agent)) for agent in ("main", "research")]
    error = house.error(house.submit(OwnerPrivate("garden"), seconds=5))
    assert isinstance(error, Busy)
    assert error.retry == "safe"
    for lane in lanes:
        house.scheduler.wake(lane)
    for one in pending:
        assert house.answer(one)["partition"] == "private"


def test_while_the_authority_is_down_every_call_is_refused_and_nothing_is_delivered(house: House) -> None:
    house.call()
    ready = house.submit()
    house.scheduler.run_until(ready.done)
    house.scheduler.suspend("root/authority")
    house.scheduler.advance(11)  # its view has lived out
    assert isinstance(house.error(ready), Restarting), "an answer that is ready is not handed over either"
    late = house.submit(seconds=1)
    house.scheduler.run_until(late.done)
    assert not isinstance(house.error(late), Denied)
    house.scheduler.wake("root/authority")
    house.scheduler.advance(2)
    assert house.call()["partition"] == "private"


def test_an_authority_that_restarts_remembers_the_runs_that_have_ended(house: House) -> None:
    run = OwnerPrivate("main", run_id="run 1")
    house.call(run)
    ended = house.runtime.end_run("run 1", house.scheduler.deadline(10))
    house.scheduler.run_until(ended.done)
    assert house.error(house.submit(run)).code == "audience_stale"
    authority = house.runtime._authority
    authority.tell(object())  # it takes no such message: a defect
    house.scheduler.run_until(lambda: authority.health().incarnation == 2)
    house.scheduler.advance(2)
    assert house.error(house.submit(run)).code == "audience_stale"
    assert house.call()["partition"] == "private"


def test_a_membership_edit_takes_effect_within_a_second(house: House) -> None:
    house.call(OwnerPrivate("research"))
    house.policy = Policy(agents=("main",))
    house.scheduler.advance(1.1)
    assert isinstance(house.error(house.submit(OwnerPrivate("research"))), Denied)
    house.policy = Policy(agents=AGENTS, stores=MappingProxyType({"work": SharedStore(("main", "research"))}))
    house.scheduler.advance(1.1)
    house.call(OwnerPrivate("main"), "remember", {**remembering("Shared."), "requestId": request_id(1)})
    assert house.call(OwnerPrivate("research"))["counts"] == {"claim": {"active": 1}}


def test_calls_during_a_long_opening_wait_and_get_its_progress_at_their_deadline(house: House) -> None:
    vault_id = house.call()["vaultId"]
    house.scheduler.advance(100)
    pending = house.submit(seconds=2)
    house.scheduler.run_until(lambda: bool(house.alive("/lane")))
    [lane] = house.alive("/lane")
    house.scheduler.suspend(lane)
    house.scheduler.advance(3)
    error = house.error(pending)
    assert isinstance(error, StoreOpening | Restarting)
    assert error.retry == "safe"
    house.scheduler.wake(lane)
    assert house.call()["vaultId"] == vault_id


def test_a_clean_stop_leaves_nothing_to_recover(house: House) -> None:
    house.call(tool="remember", arguments={**remembering("A fact."), "requestId": request_id(1)})
    house.scheduler.advance(100)
    points: list[str] = []
    with faults.installed(points.append):
        house.call()
    assert [point for point in points if point.startswith(("replay", "take.", "place.", "settle"))] == []


def test_a_request_to_an_actor_that_the_root_has_not_started_yet_waits_for_it(house: House) -> None:
    pending = house.runtime.operate(parse_operator_call("operator.maintenance", {}, peer=LOCAL_OPERATOR))
    house.scheduler.advance(1)
    answers: list[JsonObject] = []
    pending.deliver(answers.append)
    assert answers[0]["running"] is None


def test_an_agent_that_becomes_ambiguous_while_its_store_is_made_is_told_so(house: House) -> None:
    house.scheduler.advance(1)
    stores = {name: SharedStore(("main",)) for name in ("work", "home")}
    house.policy = Policy(agents=AGENTS, stores=MappingProxyType(stores))
    error = house.error(house.submit())
    assert isinstance(error, StoreAmbiguous)
    assert error.fields["stores"] == ["work", "home"]


# --- deadlines, whatever a call waits for --------------------------------------------------------------------


def test_a_call_is_answered_at_its_deadline_while_its_store_is_not_even_being_started(house: House) -> None:
    house.scheduler.advance(1)
    house.call()
    house.scheduler.suspend("root")
    begun = house.scheduler.clock.monotonic()
    error = house.error(house.submit(OwnerPrivate("research"), seconds=2))
    assert house.scheduler.clock.monotonic() - begun <= 2.25
    assert isinstance(error, DeadlineExceeded)
    assert error.retry == "safe"
    house.scheduler.wake("root")
    assert house.call(OwnerPrivate("research"))["partition"] == "private"


def test_a_read_that_ran_into_its_deadline_is_never_said_to_have_had_an_effect(house: House) -> None:
    pending = PendingCall(house.runtime.gate, Call("knowledge_grep", {}, OwnerPrivate("main"), Deadline.after(1)))
    pending.fail(DeadlineExceeded("It may have taken effect.", retry="unknown"))
    error = house.error(pending)
    assert error.retry == "safe"
    assert "effect" not in error.message


def test_a_call_is_answered_at_its_deadline_while_its_store_stops(house: House) -> None:
    house.call()
    [lane] = house.alive("/lane")
    house.scheduler.suspend(lane)
    house.scheduler.run_until(lambda: state(house, lane) == "stopping")
    begun = house.scheduler.clock.monotonic()
    write: JsonObject = {**remembering("Never run."), "requestId": request_id(7)}
    error = house.error(house.submit(MAIN, "remember", write, seconds=1))
    assert house.scheduler.clock.monotonic() - begun <= 1.25
    assert error.retry == "safe", "no lane was asked, so it did not run"
    house.scheduler.wake(lane)
    house.scheduler.advance(1)
    assert house.call()["counts"] == {}, "what was answered as not run does not run later"


def test_an_operators_request_that_never_began_is_answered_at_its_deadline_as_safe(house: House) -> None:
    house.call()
    house.scheduler.advance(100)
    house.scheduler.suspend("root")
    error = house.refusal(house.operate("status", agent="main", seconds=0.5))
    assert isinstance(error, DeadlineExceeded)
    assert error.retry == "safe"
    house.scheduler.wake("root")


def test_an_operators_request_that_was_cancelled_while_its_store_stopped_is_answered_as_cancelled(
    house: House, tmp_path: Path
) -> None:
    vault_id = str(house.call()["vaultId"])
    [lane] = house.alive("/lane")
    house.scheduler.suspend(lane)
    moving = house.operate("relocateStore", store=vault_id, path=str(tmp_path / "moved"))
    house.scheduler.run_until(lambda: state(house, lane) == "stopping")
    moving.cancel()
    house.scheduler.wake(lane)
    assert isinstance(house.refusal(moving), Cancelled)
    assert not (tmp_path / "moved").exists()
    assert house.call()["vaultId"] == vault_id


def test_an_operators_request_that_was_cancelled_before_it_began_is_answered_as_cancelled(house: House) -> None:
    pending = house.operate("runMaintenance")  # the authority has no view yet
    pending.cancel()
    assert isinstance(house.refusal(pending), Cancelled)


# --- holds ---------------------------------------------------------------------------------------------------


def stopping_with_a_caller(house: House) -> tuple[str, str, PendingCall]:
    """A store that stops, with a call that waits to start it again."""
    vault_id = str(house.call()["vaultId"])
    [lane] = house.alive("/lane")
    house.scheduler.suspend(lane)
    house.scheduler.run_until(lambda: state(house, lane) == "stopping")
    return vault_id, lane, house.submit()


def test_a_store_is_not_started_under_a_hold_by_a_call_that_came_before_it(house: House) -> None:
    vault_id, lane, pending = stopping_with_a_caller(house)
    held = house.runtime._stores.hold(vault_id)
    house.scheduler.wake(lane)
    house.scheduler.run_until(held.done)
    assert held.result(0) is True
    house.scheduler.settle()
    assert house.alive("/lane") == []
    error = house.error(pending)
    assert isinstance(error, StoreOpening)
    assert error.retry == "safe"
    house.runtime._stores.release(vault_id)
    assert house.call()["vaultId"] == vault_id


def test_a_store_is_not_started_after_the_close_by_a_call_that_came_before_it(house: House) -> None:
    _, lane, pending = stopping_with_a_caller(house)
    house.runtime._stores.close()
    house.scheduler.wake(lane)
    assert isinstance(house.error(pending), Stopping)
    assert house.alive("/lane") == []


def test_a_store_that_does_not_stop_stays_known_until_it_has_ended(house: House) -> None:
    vault_id = str(house.call()["vaultId"])
    [lane] = house.alive("/lane")
    house.scheduler.suspend(lane)
    house.scheduler.run_until(lambda: state(house, lane) == "stuck")
    house.scheduler.advance(60)
    assert house.live() == 1, "it still has its files open"
    error = house.error(house.submit())
    assert isinstance(error, StoreUnavailable)
    assert error.fields["reason"] == "stuck"
    assert house.live() == 1
    house.scheduler.wake(lane)
    house.scheduler.advance(30)
    assert house.live() == 0
    assert house.call()["vaultId"] == vault_id


def test_a_move_between_the_check_and_the_store_is_no_defect_and_the_call_may_be_repeated(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.call()
    gate = house.runtime.gate
    resolve, publish = gate.resolve, gate.publish

    def resolved_then_moved(audience: Audience | None, *, write: bool) -> object:
        found = resolve(audience, write=write)
        publish(replace(gate._current(), epoch=gate.next_epoch(), layouts=MappingProxyType({})))
        return found

    monkeypatch.setattr(gate, "resolve", resolved_then_moved)
    error = house.error(house.submit())
    assert isinstance(error, StoreOpening)
    assert error.retry == "safe"


# --- stores that somebody listens to -------------------------------------------------------------------------


def test_a_store_with_a_subscriber_does_not_make_room_for_another(house: House) -> None:
    listened = house.call(OwnerPrivate("main"))["vaultId"]
    house.subscribe(OwnerPrivate("main"))
    house.scheduler.advance(10)
    other = house.call(OwnerPrivate("research"))["vaultId"]
    house.scheduler.advance(10)
    house.call(OwnerPrivate("garden"))
    house.scheduler.advance(1)
    lanes = house.alive("/lane")
    assert any(str(listened) in lane for lane in lanes)
    assert not any(str(other) in lane for lane in lanes)


def test_a_store_with_a_subscriber_is_open_again_after_a_hold(house: House) -> None:
    vault_id = str(house.call()["vaultId"])
    house.subscribe(MAIN)
    held = house.runtime._stores.hold(vault_id)
    house.scheduler.run_until(held.done)
    assert house.alive("/lane") == []
    house.runtime._stores.release(vault_id)
    house.scheduler.settle()
    assert house.alive("/lane") != []


# --- what callers learn of the tree --------------------------------------------------------------------------


def seen(error: KnowledgeError) -> str:
    """All that an agent may read of an error."""
    return f"{error.message} {error.to_data()}"


def failing(*_: object) -> object:
    raise ValueError("the text of a record")


def assert_tells_nothing_of_the_inside(error: KnowledgeError) -> None:
    for word in ("root", "lane", ".py", ".sqlite", "ValueError", "the text of a record"):
        assert word not in seen(error), seen(error)
    assert error.fields["correlationId"]


def test_a_caller_of_a_store_that_crashes_learns_no_names_of_actors_files_or_places(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.call()
    monkeypatch.setattr(table, "run", failing)
    errors: list[KnowledgeError] = []
    while not errors or not isinstance(errors[-1], Quarantined):
        errors.append(house.error(house.submit(seconds=0.5)))
        assert len(errors) < 100
        house.scheduler.advance(0.5)  # a refusal that comes at once lets no time pass
        if isinstance(errors[-1], InternalError | Quarantined | Restarting):
            assert_tells_nothing_of_the_inside(errors[-1])
    assert any(isinstance(error, InternalError) for error in errors)
    assert "The store is out of service" in errors[-1].message
    shown = next(
        actor["quarantine"]
        for actor in cast("list[dict[str, dict[str, str]]]", house.runtime.health()["actors"])
        if "quarantine" in actor
    )
    assert "ValueError at test_runtime.py" in shown["detail"], "operators see where it was"


def test_a_caller_of_a_full_mailbox_learns_no_names_of_actors(house: House) -> None:
    house.call()
    [lane] = house.alive("/lane")
    house.scheduler.suspend(lane)
    pending = [house.submit(seconds=2) for _ in range(house.settings.per_audience)]
    error = house.error(house.submit(seconds=2))
    assert isinstance(error, Busy)
    assert_tells_nothing_of_the_inside(error)
    assert "The store" in error.message
    house.scheduler.wake(lane)
    for one in pending:
        house.answer(one)


def test_a_defect_between_two_replies_is_logged_by_type_and_place_without_its_text(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    house.call()
    monkeypatch.setattr(Operators, "_visible", failing)
    error = house.refusal(house.operate("maintenance"))
    assert isinstance(error, InternalError)
    [logged] = [record for record in caplog.records if getattr(record, "error_type", "") == "ValueError"]
    assert logged.exc_info is None
    assert any("test_runtime.py" in place for place in cast("list[str]", vars(logged)["frames"]))
    assert "the text of a record" not in "".join(JsonLines().format(record) for record in caplog.records)


def test_the_fields_of_a_store_that_fails_closed_cannot_break_its_log_record(house: House) -> None:
    pending = house.submit()
    pending.fail(ManifestMissing("There is no manifest.", name="vault.json", module="any", args="any"))
    assert isinstance(house.error(pending), ManifestMissing)


@pytest.mark.parametrize(
    ("raised", "state_of_index"),
    [(IndexUnavailable("Not yet.", reason="missing"), "current"), (InternalError("x"), "")],
)
def test_only_an_index_that_is_unavailable_counts_as_one_that_is_being_built(
    house: House, monkeypatch: pytest.MonkeyPatch, raised: KnowledgeError, state_of_index: str
) -> None:
    house.call()

    def broken(*_: object) -> object:
        raise raised

    monkeypatch.setattr(ReadIndexes, "open", broken)
    pending = house.submit()
    if state_of_index:
        assert house.answer(pending)["partition"] == "private"
    else:
        assert isinstance(house.error(pending), InternalError)
