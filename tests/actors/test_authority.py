"""Who gets which permit, and what a check, a fence and a lease promise (decisions.md section 6)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType

import pytest

from actors.authority import AuthorityView, Membership, Permit, PermitGate, Unbound, resolve
from actors.authority.view import require_audience
from messages.audience import Audience, Conversation, OwnerPrivate
from messages.errors import (
    AudienceMissing,
    AudienceStale,
    Denied,
    KnowledgeError,
    LimitExceeded,
    Restarting,
    Sandboxed,
    StorageError,
    StoreAmbiguous,
    WritesDisabled,
)
from messages.operator import Operator
from messages.vocabulary import PRIVATE, Partition
from storage.layout import StoreLayout

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
GROUP = Conversation("main", "chat:group", "33333333-3333-4333-8333-333333333333")
MEMBERS = {
    "main": Membership("vault-1"),
    "research": Membership("vault-1"),
    "new": Membership(),
    "torn": Membership(ambiguous=("home", "work")),
}


def view(epoch: int = 1, /, **changes: object) -> AuthorityView:
    made = AuthorityView(
        epoch=epoch,
        valid_until=100.0,
        writes_enabled=True,
        members=MappingProxyType(MEMBERS),
        layouts=MappingProxyType({"vault-1": StoreLayout(Path("somewhere"))}),
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # fields of the view


class Gate(PermitGate):
    """A gate on a clock that stands."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.wall = NOW
        super().__init__(monotonic=lambda: self.clock, now=lambda: self.wall)

    def permit(self, audience: Audience = GROUP, *, write: bool = True) -> Permit:
        found = self.resolve(audience, write=write)
        assert isinstance(found, Permit)
        return found


@pytest.fixture
def gate() -> Gate:
    made = Gate()
    made.publish(view())
    return made


# --- resolution -------------------------------------------------------------------------------------------------------


def test_an_owner_private_audience_reaches_the_private_partition_of_its_agents_store() -> None:
    permit = resolve(view(), OwnerPrivate("main"), write=True, now=NOW)
    assert isinstance(permit, Permit)
    assert (permit.agent, permit.vault_id, permit.partition, permit.may_write) == ("main", "vault-1", PRIVATE, True)


def test_a_conversation_reaches_its_own_partition_only() -> None:
    permit = resolve(view(), GROUP, write=True, now=NOW)
    assert isinstance(permit, Permit)
    assert permit.partition == Partition(GROUP.session_id)


@pytest.mark.parametrize("root", [OwnerPrivate("main"), GROUP])
def test_a_child_has_exactly_its_roots_partition_and_its_own_name(root: Audience) -> None:
    of_root = resolve(view(), root, write=True, now=NOW)
    for child in (OwnerPrivate("research", root=root), replace(GROUP, agent="research", session_key="x", root=root)):
        permit = resolve(view(), child, write=True, now=NOW)
        assert isinstance(permit, Permit)
        assert isinstance(of_root, Permit)
        assert (permit.partition, permit.vault_id, permit.agent) == (of_root.partition, of_root.vault_id, "research")


def test_an_agent_without_a_store_is_unbound_so_that_first_use_creates_it() -> None:
    assert resolve(view(), OwnerPrivate("new"), write=False, now=NOW) == Unbound("new")


@pytest.mark.parametrize(
    ("audience", "changes", "write", "expected"),
    [
        (None, {}, False, AudienceMissing),
        (OwnerPrivate("main", sandboxed=True), {}, False, Sandboxed),
        (OwnerPrivate("main", expires_at=NOW), {}, False, AudienceStale),
        (OwnerPrivate("main", root=OwnerPrivate("main", expires_at=NOW)), {}, False, AudienceStale),
        (OwnerPrivate("main", run_id="r"), {"ended_runs": frozenset(("r",))}, False, AudienceStale),
        (OwnerPrivate("stranger"), {}, False, Denied),
        (OwnerPrivate("torn"), {}, False, StoreAmbiguous),
        (OwnerPrivate("main"), {"writes_enabled": False}, True, WritesDisabled),
        (OwnerPrivate("new"), {"writes_enabled": False}, True, WritesDisabled),
    ],
)
def test_a_refusal_has_its_own_code(
    audience: Audience | None, changes: dict[str, object], write: bool, expected: type[KnowledgeError]
) -> None:
    with pytest.raises(expected) as raised:
        resolve(view(**changes), require_audience(audience), write=write, now=NOW)
    assert type(raised.value) is expected
    assert raised.value.retry == "never"


# --- checks -----------------------------------------------------------------------------------------------------------


def test_without_a_view_or_with_one_that_has_lived_out_everything_is_refused(gate: Gate) -> None:
    permit = gate.permit()
    steps: list[Callable[[], object]] = [
        lambda: gate.resolve(GROUP, write=False),
        lambda: gate.check(permit, write=False),
        lambda: gate.fence(permit).__enter__(),
        lambda: gate.lease(permit).__enter__(),
    ]
    gate.clock = 100.0
    for step in steps:
        with pytest.raises(Restarting):
            step()
    gate.clock = 0.0
    gate.withdraw_view()
    for step in steps:
        with pytest.raises(Restarting):
            step()
    assert not gate.open()


def test_a_new_epoch_that_still_gives_the_right_changes_nothing(gate: Gate) -> None:
    permit = gate.permit()
    gate.publish(view(2))
    gate.check(permit, write=True)
    with gate.fence(permit), gate.lease(permit):
        pass


@pytest.mark.parametrize(
    "changes",
    [
        {"members": MappingProxyType({})},
        {"members": MappingProxyType({"main": Membership("vault-2")})},
        {"members": MappingProxyType({"main": Membership()})},
        {"ended_runs": frozenset(("run",))},
    ],
)
def test_a_right_that_a_new_epoch_does_not_give_fails_at_the_next_check_fence_or_lease(
    gate: Gate, changes: dict[str, object]
) -> None:
    permit = gate.permit(replace(GROUP, run_id="run"))
    gate.publish(view(2, **changes))
    steps: list[Callable[[], object]] = [
        lambda: gate.check(permit, write=False),
        lambda: gate.fence(permit).__enter__(),
        lambda: gate.lease(permit).__enter__(),
    ]
    for step in steps:
        with pytest.raises((Denied, AudienceStale)):
            step()


def test_writes_that_are_switched_off_stop_writes_and_let_answers_out(gate: Gate) -> None:
    permit = gate.permit()
    gate.publish(view(2, writes_enabled=False))
    with pytest.raises(WritesDisabled):
        gate.check(permit, write=True)
    with pytest.raises(WritesDisabled), gate.fence(permit):
        raise AssertionError("entered")
    gate.check(permit, write=False)
    with gate.lease(permit):
        assert gate.await_barrier(0), "a reader is not waited for when writes are switched off"


def test_an_audience_that_expires_meanwhile_fails_at_the_next_check_of_the_same_epoch(gate: Gate) -> None:
    permit = gate.permit(OwnerPrivate("main", expires_at=NOW + timedelta(seconds=5)))
    gate.check(permit, write=True)
    gate.wall = NOW + timedelta(seconds=5)
    with pytest.raises(AudienceStale):
        gate.check(permit, write=True)


def test_an_ended_run_is_remembered_by_the_gate(gate: Gate) -> None:
    gate.end_run("a")
    gate.end_run("b")
    assert gate.ended_runs == {"a", "b"}


def test_beyond_the_bound_a_run_is_refused_and_none_that_has_ended_is_forgotten(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.authority.gate.ENDED_RUNS_MAX", 2)
    gate.end_run("a")
    gate.end_run("b")
    with pytest.raises(LimitExceeded) as refusal:
        gate.end_run("c")
    assert refusal.value.fields == {"field": "runId", "limit": 2}
    gate.end_run("a")
    assert gate.ended_runs == {"a", "b"}


def test_epochs_rise_over_every_authority_that_publishes(gate: Gate) -> None:
    numbers = [gate.next_epoch() for _ in range(3)]
    assert numbers == sorted(set(numbers))


# --- the barrier ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("right", ["fence", "lease"])
def test_a_barrier_waits_for_whoever_holds_a_right_that_is_not_given_any_more(gate: Gate, right: str) -> None:
    permit = gate.permit()
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with getattr(gate, right)(permit):
            inside.set()
            assert go_on.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(20)
    assert gate.await_barrier(0), "the right still stands: nothing to wait for"
    gate.publish(view(2, members=MappingProxyType({})))
    assert not gate.await_barrier(0)
    go_on.set()
    holder.join(20)
    assert gate.await_barrier(0)


def test_a_barrier_does_not_wait_for_those_whose_right_stands(gate: Gate) -> None:
    with gate.fence(gate.permit(OwnerPrivate("research"))):
        gate.publish(view(2, members=MappingProxyType({"research": Membership("vault-1")})))
        assert gate.await_barrier(0)


def test_a_fence_that_a_typed_error_leaves_is_free_and_one_that_a_defect_leaves_is_taken_until_recovery(
    gate: Gate,
) -> None:
    permit = gate.permit()
    with pytest.raises(StorageError), gate.fence(permit):
        raise StorageError("full")
    gate.publish(view(2, members=MappingProxyType({})))
    assert gate.await_barrier(0)
    gate.publish(view(3))
    with pytest.raises(RuntimeError), gate.fence(permit):
        raise RuntimeError("a defect after the commit, perhaps")
    gate.publish(view(4, members=MappingProxyType({})))
    assert not gate.await_barrier(0), "the save may have happened and is not finished yet"
    gate.recovered("vault-2")
    assert not gate.await_barrier(0), "another store's recovery says nothing of this one"
    gate.recovered("vault-1")
    assert gate.await_barrier(0)


# --- operators --------------------------------------------------------------------------------------------------------

READER = Operator("reader", frozenset(("operator.read",)), ("main",))


def inspecting(gate: PermitGate) -> Permit:
    found = gate.resolve_operator(READER, "main", scope="operator.read")
    assert isinstance(found, Permit)
    return found


@pytest.mark.parametrize("change", [{"operator_read": False}, {"shared_gateway": True}, {"members": {}}])
def test_what_is_switched_off_for_operators_fails_what_is_under_way_and_waits_for_answers(
    gate: Gate, change: dict[str, object]
) -> None:
    permit = inspecting(gate)
    with gate.lease(permit):
        gate.publish(view(2, **change))
        assert not gate.await_barrier(0), "the answer is being handed over"
    assert gate.await_barrier(0)
    with pytest.raises(Denied):
        gate.check(permit, write=False)
    with pytest.raises(Denied), gate.lease(permit):
        pass


def test_an_epoch_that_still_lets_operators_read_changes_nothing_for_them(gate: Gate) -> None:
    permit = inspecting(gate)
    gate.publish(view(2, writes_enabled=False))
    with gate.lease(permit):
        assert gate.await_barrier(0)
