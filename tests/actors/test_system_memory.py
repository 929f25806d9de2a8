"""The lane of system memory on a virtual clock: crashes, damage, lost commits, lost rights, and the audit.

Real lane, authority, registry and SQLite in one thread. system-memory-contract.md sections 3 to 5 and 8; decisions.md
section 6 (a save happens at its commit; the audit).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import pytest

from actors.authority import Policy, auditing
from actors.calls import PendingCall
from actors.runtime import Runtime, RuntimeSettings
from actors.store.lane import Lane
from actors.system_memory import SystemMemorySettings
from messages.audience import Audience, OwnerPrivate
from messages.envelope import Call
from messages.errors import (
    Denied,
    InternalError,
    KnowledgeError,
    Quarantined,
    Restarting,
    StewardRequired,
    StorageError,
    StoreUnavailable,
    WritesDisabled,
)
from messages.json_types import JsonObject, JsonValue
from messages.operator import LOCAL_OPERATOR, parse_operator_call
from messages.system_memory import parse_steward_call, parse_system_memory_call
from storage import faults
from storage.layout import Layout
from storage.system_memory import rows
from tests.kit.scheduler import VirtualScheduler
from tests.kit.store import MAIN, NOON

LANE = "root/system memory"
EMPTY: JsonObject = {"note": None, "attached": 0, "dropped": 0}
CLAIM: JsonObject = {
    "account": "ann",
    "slug": "sys:gateway",
    "body": "The gateway answers 402 for a retired model",
    "tier": "glass",
    "asOf": "2026-09-20",
    "evidenceRefs": [{"kind": "url", "ref": "https://example.org/report", "digest": "sha256:11"}],
}

CORRECTION: JsonObject = {key: value for key, value in CLAIM.items() if key != "account"} | {"steward": "stella"}


@dataclass
class House:
    """A runtime whose threads, clock and chance are virtual."""

    folder: Path
    scheduler: VirtualScheduler
    policy: Policy = field(default_factory=lambda: Policy(agents=("main", "research")))
    settings: SystemMemorySettings = field(
        default_factory=lambda: SystemMemorySettings(stewards=frozenset({"stella"}), system_bucket=True)
    )

    def __post_init__(self) -> None:
        self.layout = Layout(self.folder)
        self.open()

    def open(self) -> None:
        self.runtime = Runtime(
            self.layout,
            policy=lambda: self.policy,
            settings=RuntimeSettings(idle=60.0, max_live_stores=2, git=False, mailbox=4),
            now_ms=lambda: NOON + round(self.scheduler.clock.monotonic() * 1000),
            environment=self.scheduler.environment,
            system_memory=lambda: self.settings,
        )

    def close(self) -> None:
        assert self.runtime.close().stuck == ()
        assert self.scheduler.alive() == []

    def begin(
        self, method: str, audience: Audience = MAIN, *, seconds: JsonValue = 30.0, **params: JsonValue
    ) -> PendingCall:
        call = parse_system_memory_call(f"systemMemory.{method}", {**params}, caller=audience)
        return self.runtime.remind(replace(call, deadline=self.scheduler.deadline(float(str(seconds)))))

    def attend(self, method: str, *, seconds: JsonValue = 30.0, **params: JsonValue) -> PendingCall:
        call = parse_steward_call(f"steward.{method}", {**params}, door="program")
        return self.runtime.attend(replace(call, deadline=self.scheduler.deadline(float(str(seconds)))))

    def answer(self, pending: PendingCall) -> JsonObject:
        self.scheduler.run_until(pending.done)
        answers: list[JsonObject] = []
        pending.deliver(answers.append)
        return answers[0]

    def error(self, pending: PendingCall) -> KnowledgeError:
        with pytest.raises(KnowledgeError) as raised:
            self.answer(pending)
        return raised.value

    def ask(self, method: str, audience: Audience = MAIN, **params: JsonValue) -> JsonObject:
        return self.answer(self.begin(method, audience, **params))

    def steward(self, method: str, **params: JsonValue) -> JsonObject:
        return self.answer(self.attend(method, **params))

    def admit(self, claim: JsonObject) -> PendingCall:
        return self.attend("admit", steward="stella", id=claim["id"], verdict="admitted", ground="looked at it")

    def bodies(self) -> list[object]:
        found = self.ask("list")["memories"]
        assert isinstance(found, list)
        return [row["body"] for row in found if isinstance(row, dict)]

    def audited(self) -> list[object]:
        """The actions of stewards in the audit, the oldest first."""
        call = parse_operator_call("access.audit", {}, peer=LOCAL_OPERATOR)
        pending = self.runtime.operate(replace(call, deadline=self.scheduler.deadline(30)))
        self.scheduler.run_until(pending.done)
        got: list[JsonObject] = []
        pending.deliver(got.append)
        entries = got[0]["rows"]
        assert isinstance(entries, list)
        found = [entry["action"] for entry in reversed(entries) if isinstance(entry, dict)]
        return [action for action in found if str(action).startswith("memory.")]


@pytest.fixture(params=[1, 2, 3])
def scheduler(request: pytest.FixtureRequest) -> VirtualScheduler:
    return VirtualScheduler(seed=request.param, max_steps=2_000_000)


@pytest.fixture
def house(tmp_path: Path, scheduler: VirtualScheduler, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    monkeypatch.setattr(Lane, "_send_descriptor", lambda self: None)
    opened = House(tmp_path, scheduler)
    yield opened
    opened.close()


def defect(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("a defect")


def failing(point: str, error: Exception, *, times: int = 1) -> Callable[[str], None]:
    left = [times]

    def fail(reached: str) -> None:
        if reached == point and left[0] > 0:
            left[0] -= 1
            raise error

    return fail


# --- crashes ---------------------------------------------------------------------------------------------------------


def test_a_lane_that_crashes_in_a_request_is_started_again_and_later_callers_are_served(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.ask("create", body="before")
    with monkeypatch.context() as broken:
        broken.setattr(rows, "create", defect)
        failed = house.error(house.begin("create", body="never"))
    assert isinstance(failed, InternalError)
    assert failed.retry == "unknown"
    house.ask("create", body="after")
    assert house.bodies() == ["after", "before"]


def test_those_who_wait_while_the_lane_crashes_get_typed_answers(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.ask("create", body="before")
    with monkeypatch.context() as broken:
        broken.setattr(rows, "create", defect)
        house.scheduler.suspend(LANE)
        waiting = [house.begin("create", body="never"), house.begin("list"), house.begin("recall", query="before")]
        house.scheduler.wake(LANE)
        house.error(waiting[0])
    assert isinstance(house.answer(waiting[2])["attached"], int), "a recall is never an error"
    house.scheduler.run_until(waiting[1].done)
    outcome = waiting[1]._reply.error()
    assert outcome is None or (isinstance(outcome, Restarting) and outcome.retry == "safe")
    assert house.bodies() == ["before"]


def test_a_fence_that_a_crash_left_taken_is_released_when_the_lane_is_back(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.ask("create", body="before")
    with monkeypatch.context() as broken:
        broken.setattr(rows, "create", defect)
        house.error(house.begin("create", body="never"))
    house.bodies()
    gate = house.runtime.gate
    assert (gate._inside, gate._stranded, gate._unfinished) == ({}, {}, {})


# --- a recall is never an error --------------------------------------------------------------------------------------


def test_a_recall_that_the_lane_does_not_answer_by_its_deadline_is_empty(house: House) -> None:
    house.ask("create", body="the gateway is closed")
    house.scheduler.suspend(LANE)
    assert house.answer(house.begin("recall", query="gateway", seconds=2)) == EMPTY
    house.scheduler.wake(LANE)
    assert house.ask("recall", query="gateway")["attached"] == 1


def test_a_recall_that_never_reached_the_lane_by_its_deadline_is_empty(
    tmp_path: Path, scheduler: VirtualScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lane, "_send_descriptor", lambda self: None)
    house = House(tmp_path, scheduler)
    for name in ("root", "root/authority"):
        scheduler.suspend(name)
    assert house.answer(house.begin("recall", query="gateway", seconds=2)) == EMPTY
    for name in ("root", "root/authority"):
        scheduler.wake(name)
    scheduler.settle()
    house.close()


def test_a_recall_while_the_mailbox_is_full_is_empty(house: House) -> None:
    house.ask("create", body="the gateway is closed")
    house.scheduler.suspend(LANE)
    waiting = [house.begin("list") for _ in range(8)]
    assert house.answer(house.begin("recall", query="gateway")) == EMPTY
    house.scheduler.wake(LANE)
    for pending in waiting:
        house.scheduler.run_until(pending.done)


def test_a_recall_in_which_anything_fails_is_empty_and_the_lane_goes_on(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.ask("create", body="the gateway is closed")
    with monkeypatch.context() as broken:
        broken.setattr("actors.system_memory.lane.recall", defect)
        assert house.ask("recall", query="gateway") == EMPTY
    with faults.installed(failing("system_memory.statement", OSError(5, "it fails"))):
        assert house.ask("recall", query="gateway") == EMPTY
    assert house.ask("recall", query="gateway")["attached"] == 1


def test_a_recall_of_a_caller_without_a_right_is_refused_and_not_empty(house: House) -> None:
    house.ask("create", body="the gateway is closed")
    assert isinstance(house.error(house.begin("recall", OwnerPrivate("nobody"), query="x")), Denied)


def test_a_recall_while_the_runtime_stops_is_empty(house: House) -> None:
    house.ask("create", body="x")
    house.runtime._closing.set()
    try:
        assert house.ask("recall", query="x") == EMPTY
    finally:
        house.runtime._closing.clear()


# --- damage ----------------------------------------------------------------------------------------------------------


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100:4_096] = b"\xff" * (4_096 - 100)
    path.write_bytes(bytes(data))


def test_a_damaged_database_quarantines_system_memory_and_nothing_else(
    tmp_path: Path, scheduler: VirtualScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lane, "_send_descriptor", lambda self: None)
    house = House(tmp_path, scheduler)
    house.ask("create", body="kept")
    house.close()
    path = house.layout.system_memory
    whole = path.read_bytes()
    damage(path)
    house.open()
    scheduler.settle()
    refused = house.error(house.begin("list"))
    assert isinstance(refused, Quarantined)
    assert "backup" in refused.message
    assert house.ask("recall", query="kept") == EMPTY
    assert isinstance(house.error(house.attend("status")), Quarantined)
    status = house.runtime.submit(Call("knowledge_status", {}, MAIN, scheduler.deadline(30)))
    assert house.answer(status)["partition"] == "private"
    house.close()
    path.write_bytes(whole)
    house.open()
    assert house.bodies() == ["kept"], "a sound file and a start bring it back"
    house.close()


def test_a_newer_format_is_refused_by_name_and_a_recall_is_empty(
    tmp_path: Path, scheduler: VirtualScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    import apsw

    monkeypatch.setattr(Lane, "_send_descriptor", lambda self: None)
    house = House(tmp_path, scheduler)
    house.ask("create", body="kept")
    house.close()
    connection = apsw.Connection(str(house.layout.system_memory))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    house.open()
    refused = house.error(house.begin("list"))
    assert isinstance(refused, StoreUnavailable)
    assert refused.fields["reason"] == "newer_format"
    assert house.ask("recall", query="kept") == EMPTY
    house.close()


def test_a_database_that_was_removed_while_it_was_open_is_lost_and_never_made_anew(house: House) -> None:
    house.ask("create", body="kept")
    aside = house.layout.system_memory.with_name("aside.sqlite")
    os.rename(house.layout.system_memory, aside)
    for pending in (house.begin("create", body="nowhere"), house.begin("list"), house.attend("observe", **CLAIM)):
        refused = house.error(pending)
        assert isinstance(refused, StoreUnavailable)
        assert refused.fields["reason"] == "lost"
    assert house.ask("recall", query="kept") == EMPTY
    assert not house.layout.system_memory.exists()
    os.rename(aside, house.layout.system_memory)
    assert house.bodies() == ["kept"]


def test_a_commit_that_failed_is_retry_unknown_and_what_is_there_is_looked_at_again(house: House) -> None:
    house.ask("create", body="before")
    with faults.installed(failing("system_memory.change.commit", OSError(5, "it fails"))):
        sure = house.error(house.begin("create", body="not begun"))
    assert sure.retry == "safe" or sure.retry == "unknown"
    with faults.installed(failing("system_memory.change.commit.after", OSError(5, "it fails"))):
        unsure = house.error(house.begin("create", body="perhaps"))
    assert isinstance(unsure, StorageError)
    assert (unsure.retry, unsure.fields["reason"]) == ("unknown", "commit")
    assert house.bodies() == ["perhaps", "before"]
    gate = house.runtime.gate
    assert (gate._inside, gate._stranded) == ({}, {})


# --- rights that are lost on the way ---------------------------------------------------------------------------------


def test_a_steward_who_is_removed_between_acceptance_and_the_lanes_turn_is_refused(house: House) -> None:
    claim = house.steward("observe", **CLAIM)
    house.scheduler.suspend(LANE)
    waiting = [
        house.admit(claim),
        house.attend("promote", steward="stella", id=claim["id"], stance="s", slug="sys:gateway"),
        house.attend("refute", steward="stella", id=claim["id"], ground="x"),
        house.attend("supersede", **CORRECTION, id=claim["id"]),
    ]
    house.settings = replace(house.settings, stewards=frozenset())
    house.scheduler.wake(LANE)
    for pending in waiting:
        assert isinstance(house.error(pending), StewardRequired)
    assert house.steward("status", id=claim["id"])["status"] == "candidate"
    assert house.audited() == []


def test_an_audience_that_loses_its_right_between_acceptance_and_the_lanes_turn_is_refused(house: House) -> None:
    house.ask("create", OwnerPrivate("research"), body="before")
    house.scheduler.suspend(LANE)
    waiting = [
        house.begin(method, OwnerPrivate("research"), **params)
        for method, params in (("create", {"body": "x"}), ("list", {}), ("recall", {"query": "before"}))
    ]
    house.policy = Policy(agents=("main",))
    house.scheduler.advance(5)
    house.scheduler.wake(LANE)
    for pending in waiting:
        assert isinstance(house.error(pending), Denied)
    house.policy = Policy(agents=("main", "research"))
    house.scheduler.advance(5)
    found = house.ask("list", OwnerPrivate("research"))["memories"]
    assert isinstance(found, list)
    assert len(found) == 1


def test_writes_that_are_disabled_while_a_save_waits_end_it(house: House) -> None:
    house.ask("create", body="before")
    house.scheduler.suspend(LANE)
    saving = house.begin("create", body="x")
    house.policy = Policy(agents=("main", "research"), writes_enabled=False)
    house.scheduler.advance(5)
    house.scheduler.wake(LANE)
    assert isinstance(house.error(saving), WritesDisabled)


# --- the audit -------------------------------------------------------------------------------------------------------


def test_every_steward_action_is_in_the_audit_once_and_nothing_else_is(house: House) -> None:
    claim = house.steward("observe", **CLAIM)
    challenge = house.steward("challenge", account="ben", id=claim["id"], ground="not so")
    house.answer(house.admit(claim))
    house.steward("refute", steward="stella", id=challenge["id"], ground="it is")
    house.steward("supersede", **CORRECTION, id=claim["id"])
    for look in ("status", "ready", "show"):
        house.steward(look)
    house.steward("erase", account="ann")
    expected = ["memory.admit", "memory.refute", "memory.supersede", "memory.erase"]
    assert house.audited() == expected


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_authority_that_crashes_around_its_note_has_each_action_exactly_once(
    house: House, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    claim = house.steward("observe", **CLAIM)
    note = auditing.note_actions

    def crashing(*given: object) -> NoReturn:
        if when == "after":
            note(*given)  # type: ignore[arg-type]
        raise RuntimeError("a defect")

    with monkeypatch.context() as broken:
        broken.setattr("actors.authority.authority.note_actions", crashing)
        answered = house.answer(house.admit(claim))
    assert answered["status"] == "admitted", "it is durable, whatever became of the audit"
    house.scheduler.advance(30)
    assert house.audited() == ["memory.admit"]
    house.scheduler.advance(60)
    house.steward("status")
    assert house.audited() == ["memory.admit"]


def test_what_the_owner_did_not_tell_before_it_ended_is_told_by_the_next(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = house.steward("observe", **CLAIM)
    with monkeypatch.context() as broken:
        broken.setattr("actors.system_memory.lane.SystemMemory._tell_audit", lambda self: None)
        house.answer(house.admit(claim))
        assert house.audited() == []
        house.close()
    house.open()
    house.scheduler.advance(1)
    assert house.audited() == ["memory.admit"]


def test_a_registry_that_cannot_be_written_for_a_while_is_told_later_and_by_one_timer(house: House) -> None:
    claim = house.steward("observe", **CLAIM)
    asked = []

    def unavailable(registry: object, message: object) -> NoReturn:
        asked.append(message)
        raise StorageError("registry.sqlite cannot grow: the disk is full", reason="full")

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr("actors.authority.authority.note_actions", unavailable)
        for _ in range(5):
            house.answer(house.admit(claim))
        before = len(asked)
        house.scheduler.advance(50)
        assert len(asked) - before <= 11, "every five seconds, not once for each action"
        assert house.audited() == []
    house.scheduler.advance(20)
    assert house.audited() == ["memory.admit"] * 5


def test_an_action_that_is_durable_is_answered_so_though_the_lane_cannot_look_for_what_to_tell(house: House) -> None:
    claim = house.steward("observe", **CLAIM)
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(
            "storage.system_memory.database.SystemDatabase.unaudited",
            lambda self: (_ for _ in ()).throw(StorageError("it fails", reason="io")),
        )
        assert house.answer(house.admit(claim))["status"] == "admitted"
    house.scheduler.advance(20)
    assert house.audited() == ["memory.admit"]
