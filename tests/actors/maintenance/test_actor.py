"""The maintenance actor on the virtual scheduler: its schedule, its pace, and what it does when something fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import pytest

from actors.authority import AuthorityView, Membership, PermitGate
from actors.directory import StoreHandle
from actors.maintenance import Maintenance, MaintenanceReport, Pace, RunMaintenance, Schedule
from actors.store.messages import RunTool
from actors.store.upkeep import CompareFiles, LinkClaims, ListPartitions, UpkeepStep
from actors.supervision import ChildSpec, Reply, Request, Tree
from messages.envelope import Cancellation, Deadline
from messages.errors import DeadlineExceeded, KnowledgeError, Quarantined, StoreUnavailable
from messages.json_types import JsonObject
from storage.layout import Layout, StoreLayout
from storage.maintenance_log import MaintenanceLog
from storage.registry import Isolated, Registry
from storage.registry_audit import By
from storage.registry_recovery import rebuild
from tests.kit.scheduler import VirtualScheduler

DAY = 24 * 3_600.0
ANSWERS: dict[str, JsonObject] = {
    "partitions": {"partitions": ["private"]},
    "link": {"next": None, "linked": ["c-1"], "conflict": False, "left": {"ambiguous": 2}},
    "evidence": {"next": None, "records": 1, "citations": 1, "failed": [{"id": "c-2", "reason": "missing"}]},
    "files": {"next": None, "files": 3, "changed": [], "changedTotal": 0, "lost": []},
    "index": {"sound": True},
    "merge": {"more": False},
    "report": {
        "duplicates": [["a", "b"]], "duplicatesTotal": 1, "uncited": [], "uncitedTotal": 0,
        "unfinished": ["r-1"], "unfinishedTotal": 1, "unfinishedBytes": 7, "entries": 9, "entriesLimit": 10,
    },
    "database": {"sound": True, "texts": 1, "textBytes": 2, "databaseBytes": 3, "walBytes": 4},
    "repository": {"sound": True, "index": "current", "packed": False},
}  # fmt: skip


@dataclass(slots=True)
class House:
    """A maintenance actor over stores that only answer; the registry and what it remembers are real."""

    scheduler: VirtualScheduler
    layout: Layout
    stores: tuple[str, ...]
    gate: PermitGate
    schedule: Schedule = field(default_factory=Schedule)
    writes: bool = True
    opened: list[str] = field(default_factory=list)
    asked: list[tuple[float, str, UpkeepStep]] = field(default_factory=list)
    open_at_once: int = 0
    most_at_once: int = 0
    takes: float = 0.0
    broken: bool = False
    fail: Callable[[str, UpkeepStep], KnowledgeError | None] = lambda vault_id, step: None
    cancellations: list[Cancellation] = field(default_factory=list)

    def publish(self) -> None:
        self.gate.publish(
            AuthorityView(
                epoch=self.gate.next_epoch(),
                valid_until=1e12,
                writes_enabled=self.writes,
                members=MappingProxyType({f"agent-{n}": Membership(each) for n, each in enumerate(self.stores)}),
                layouts=MappingProxyType({each: StoreLayout(Path(each)) for each in self.stores}),
            )
        )

    def open_store(self, vault_id: str) -> Reply[StoreHandle]:
        self.opened.append(vault_id)
        if self.broken:
            raise RuntimeError("a defect")
        reply: Reply[StoreHandle] = Reply()
        reply.succeed(Handle(self, vault_id))
        return reply

    @contextmanager
    def tree(self) -> Iterator[Tree]:
        start = partial(
            Maintenance,
            layout=self.layout,
            gate=self.gate,
            schedule=lambda: self.schedule,
            open_store=self.open_store,
            pace=Pace(),
            zone=UTC,
        )
        with self.scheduler.tree([ChildSpec("maintenance", start, stops_first=True)]) as tree:
            yield tree

    def ask(self, tree: Tree, message: Request[JsonObject]) -> JsonObject:
        return tree.handle("maintenance").ask(message, deadline=self.scheduler.deadline(60)).result()

    def report(self, tree: Tree) -> JsonObject:
        return self.ask(tree, MaintenanceReport())

    def steps(self, vault_id: str) -> list[str]:
        return [step.name for _, whose, step in self.asked if whose == vault_id]


@dataclass(slots=True)
class Handle:
    house: House
    vault_id: str

    def ask(
        self,
        message: Request[JsonObject],
        *,
        deadline: Deadline,
        fairness_key: str = "",
        size: int = 0,
        cancellation: Cancellation | None = None,
        correlation_id: str = "",
        request_key: str = "",
    ) -> Reply[JsonObject]:
        assert isinstance(message, RunTool)
        assert isinstance(message.request, UpkeepStep)
        assert message.permit.vault_id == self.vault_id
        assert message.permit.agent == "maintenance"
        assert cancellation is not None
        house, step = self.house, message.request
        house.asked.append((house.scheduler.clock.monotonic(), self.vault_id, step))
        house.cancellations.append(cancellation)
        house.open_at_once += 1
        house.most_at_once = max(house.most_at_once, house.open_at_once)
        reply: Reply[JsonObject] = Reply()

        def answer() -> None:
            house.open_at_once -= 1
            error = house.fail(self.vault_id, step)
            if error is None:
                reply.succeed(dict(ANSWERS[step.name]))
            else:
                reply.fail(error)

        house.scheduler.clock.call_later(house.takes, answer)
        return reply


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    scheduler = VirtualScheduler(seed=5)
    layout = Layout(tmp_path)
    registry = Registry.open(layout, at=1)
    ids = sorted(registry.ensure(Isolated(f"agent-{n}"), at=1).vault_id for n in range(2))
    made = House(scheduler, layout, tuple(ids), PermitGate(monotonic=scheduler.clock.monotonic))
    made.publish()
    yield made
    registry.close()


def rows(report: JsonObject) -> list[JsonObject]:
    found = report["stores"]
    assert isinstance(found, list)
    return [row for row in found if isinstance(row, dict)]


def last_run(report: JsonObject) -> JsonObject:
    found = report["lastRun"]
    assert isinstance(found, dict)
    return found


def test_a_run_looks_after_every_store_one_after_another_and_notes_the_result_of_each(house: House) -> None:
    first, second = house.stores
    with house.tree() as tree:
        begun = house.ask(tree, RunMaintenance())
        assert begun["joined"] is False
        assert begun["running"] is not None
        house.scheduler.advance(60)
        report = house.report(tree)
    order = [vault_id for _, vault_id, _ in house.asked]
    assert order == sorted(order, key=[first, second].index)
    assert house.steps(first) == [
        "partitions", "link", "evidence", "files", "index", "merge", "report", "database", "repository",
    ]  # fmt: skip
    assert house.most_at_once == 1
    assert [(row["vaultId"], row["outcome"]) for row in rows(report)] == [(first, "done"), (second, "done")]
    row = rows(report)[0]
    assert row["links"] == {
        "linked": 1, "ambiguous": 2, "missing": 0, "duplicate": 0, "conflict": 0, "ids": ["c-1"],
    }  # fmt: skip
    assert row["evidence"] == {
        "records": 1, "citations": 1, "failed": 1, "ids": [{"id": "c-2", "reason": "missing"}],
    }  # fmt: skip
    assert row["growth"] == {
        "fullestPartition": "private", "entries": 9, "entriesLimit": 10, "nearlyFull": True,
        "texts": 1, "textBytes": 2, "databaseBytes": 3, "walBytes": 4,
    }  # fmt: skip
    assert (row["database"], row["repository"], row["checkedOnly"]) == ("sound", "sound", False)
    assert (last_run(report)["outcome"], report["running"]) == ("done", None)


def test_it_runs_at_its_hour_and_again_a_day_later_and_never_in_between(house: House) -> None:
    with house.tree() as tree:
        house.scheduler.advance(3 * DAY)
        report = house.report(tree)
    clock = house.scheduler.clock
    starts = [
        clock.utc() - timedelta(seconds=clock.monotonic() - at)
        for at, _, step in house.asked
        if isinstance(step, ListPartitions)
    ]
    assert len(starts) == 6
    assert len({start.date() for start in starts}) == 3
    assert {start.strftime("%H:%M") for start in starts} <= {"03:30", "03:31"}
    assert str(report["nextRun"]).endswith("T03:30:00.000Z")
    assert last_run(report)["trigger"] == "schedule"


def test_what_fell_due_while_nothing_ran_is_done_after_the_start_and_not_at_once(house: House) -> None:
    with house.tree():
        house.scheduler.advance(90)
    house.scheduler.clock.move_to(house.scheduler.clock.monotonic() + 5 * DAY)
    with house.tree() as tree:
        house.scheduler.advance(59)
        assert house.asked == []
        house.scheduler.advance(60)
        report = house.report(tree)
    assert len([1 for _, _, step in house.asked if isinstance(step, ListPartitions)]) == 2
    assert last_run(report)["outcome"] == "done"


def test_the_next_and_the_last_run_are_known_after_a_restart(house: House) -> None:
    with house.tree() as tree:
        house.ask(tree, RunMaintenance())
        house.scheduler.advance(90)
        before = house.report(tree)
    with house.tree() as tree:
        after = house.report(tree)
    for key in ("nextRun", "lastRun", "stores", "schedule"):
        assert after[key] == before[key]


def test_a_schedule_that_changes_counts_from_the_next_look(house: House) -> None:
    with house.tree() as tree:
        house.scheduler.advance(90)
        assert str(house.report(tree)["nextRun"]).endswith("T03:30:00.000Z")
        house.schedule = Schedule(every=timedelta(hours=1), at="00:15")
        house.scheduler.advance(2 * 3_600)
        assert len([1 for _, _, step in house.asked if isinstance(step, ListPartitions)]) >= 2
        house.schedule = Schedule(enabled=False)
        seen = len(house.asked)
        house.scheduler.advance(2 * DAY)
        assert len(house.asked) == seen
        assert house.report(tree)["nextRun"] is None
        house.ask(tree, RunMaintenance())
        house.scheduler.advance(60)
        assert len(house.asked) > seen


def test_with_writes_disabled_it_only_checks(house: House) -> None:
    house.writes = False
    house.publish()
    with house.tree() as tree:
        house.ask(tree, RunMaintenance())
        house.scheduler.advance(60)
        report = house.report(tree)
    names = {step.name for _, _, step in house.asked}
    assert names.isdisjoint({"link", "merge"})
    assert {"evidence", "files", "database", "repository"} <= names
    assert not any(step.writes or getattr(step, "tidy", False) for _, _, step in house.asked)
    assert all(row["checkedOnly"] is True for row in rows(report))


def test_it_never_opens_a_store_that_no_agent_uses(house: House) -> None:
    with house.tree() as tree:
        house.ask(tree, RunMaintenance(("99999999-9999-4999-8999-999999999999",)))
        house.scheduler.advance(60)
        report = house.report(tree)
    assert house.opened == []
    failed = last_run(report)["failed"]
    assert isinstance(failed, list)
    assert [row["code"] for row in failed if isinstance(row, dict)] == ["denied"]


def test_while_nobody_vouches_for_access_nothing_runs_and_the_next_look_tries_again(house: House) -> None:
    with house.tree() as tree:
        house.scheduler.advance(90)
        house.gate.withdraw_view()
        house.scheduler.advance(2 * DAY)
        assert house.asked == []
        house.publish()
        house.scheduler.advance(90)
        assert len({vault_id for _, vault_id, _ in house.asked}) == 2
        assert last_run(house.report(tree))["outcome"] == "done"


def test_a_second_order_joins_the_run_under_way(house: House) -> None:
    house.takes = 5.0
    with house.tree() as tree:
        house.ask(tree, RunMaintenance())
        house.scheduler.advance(7)
        again = house.ask(tree, RunMaintenance())
        assert again["joined"] is True
        house.scheduler.advance(600)
        assert len([1 for _, _, step in house.asked if isinstance(step, ListPartitions)]) == 2


def test_it_rests_after_each_step_at_least_as_long_as_the_step_took(house: House) -> None:
    house.takes = 1.0
    with house.tree() as tree:
        house.ask(tree, RunMaintenance(house.stores[:1]))
        house.scheduler.advance(60)
    times = [at for at, _, _ in house.asked]
    assert len(times) == 9
    assert all(later - earlier >= 2.0 for earlier, later in pairwise(times))


def test_a_part_that_fails_is_noted_and_the_others_go_on(house: House) -> None:
    house.fail = lambda vault_id, step: DeadlineExceeded("late") if isinstance(step, CompareFiles) else None
    with house.tree() as tree:
        house.ask(tree, RunMaintenance(house.stores[:1]))
        house.scheduler.advance(60)
        [row] = rows(house.report(tree))
    assert row["failures"] == [{"part": "files", "partition": "private", "code": "deadline"}]
    assert (row["outcome"], row["database"]) == ("done", "sound")


def test_a_store_that_cannot_be_asked_fails_alone(house: House) -> None:
    first = house.stores[0]
    house.fail = lambda vault_id, step: (
        Quarantined("out of service", retry="never") if (vault_id, step.name) == (first, "link") else None
    )
    with house.tree() as tree:
        house.ask(tree, RunMaintenance())
        house.scheduler.advance(60)
        report = house.report(tree)
    assert house.steps(first) == ["partitions", "link"]
    assert [(row["outcome"], row.get("code")) for row in rows(report)] == [("failed", "quarantined"), ("done", None)]
    assert last_run(report)["outcome"] == "partly"
    assert last_run(report)["failed"] == [{"vaultId": first, "code": "quarantined", "retry": "never"}]


def test_writes_that_are_disabled_in_the_middle_end_linking_and_nothing_else(house: House) -> None:
    def disable(vault_id: str, step: UpkeepStep) -> KnowledgeError | None:
        if isinstance(step, ListPartitions):
            house.writes = False
            house.publish()
        return None

    house.fail = disable
    with house.tree() as tree:
        house.ask(tree, RunMaintenance(house.stores[:1]))
        house.scheduler.advance(60)
        [row] = rows(house.report(tree))
    assert not any(isinstance(step, LinkClaims) for _, _, step in house.asked)
    assert row["failures"] == [{"part": "link", "partition": "private", "code": "writes_disabled"}]
    assert row["database"] == "sound"


def test_an_orderly_stop_cancels_the_step_under_way_and_the_run_is_noted_as_stopped(house: House) -> None:
    house.takes = 1_000.0
    with house.tree() as tree:
        house.ask(tree, RunMaintenance())
        house.scheduler.advance(1)
        assert [each.requested for each in house.cancellations] == [False]
    assert [each.requested for each in house.cancellations] == [True]
    with house.tree() as tree:
        assert last_run(house.report(tree))["outcome"] == "stopped"


def test_a_run_that_its_actor_did_not_survive_is_not_begun_again_at_once(house: House) -> None:
    with house.tree():
        house.scheduler.advance(90)
    house.scheduler.clock.move_to(house.scheduler.clock.monotonic() + 2 * DAY)
    house.broken = True
    with house.tree() as tree:
        house.scheduler.advance(3_000)
        assert len(house.opened) == 1
        assert last_run(house.report(tree))["outcome"] == "interrupted"
        house.scheduler.advance(1_000)
        assert len(house.opened) == 2


def test_without_a_registry_there_is_nothing_to_do_and_nothing_is_created(tmp_path: Path) -> None:
    scheduler = VirtualScheduler(seed=1)
    layout = Layout(tmp_path / "empty")
    house = House(scheduler, layout, (), PermitGate(monotonic=scheduler.clock.monotonic))
    house.publish()
    with house.tree() as tree:
        scheduler.advance(2 * DAY)
        report = house.report(tree)
        with pytest.raises(StoreUnavailable):
            house.ask(tree, RunMaintenance())
    assert (report["lastRun"], report["stores"]) == (None, [])
    assert not layout.root.exists()


def test_what_is_noted_after_the_registry_was_made_anew_is_in_the_new_one(house: House) -> None:
    with house.tree() as tree:
        house.ask(tree, RunMaintenance())
        house.scheduler.advance(60)
        house.layout.registry.rename(house.layout.registry.with_name("aside"))
        by = By("a test", "test", 1)
        rebuild(house.layout, [(each, house.layout.new_store(each).root, None) for each in house.stores], by)
        assert house.report(tree)["lastRun"] is None
        house.ask(tree, RunMaintenance())
        house.scheduler.advance(60)
        assert [row["vaultId"] for row in rows(house.report(tree))] == [*house.stores]
    log = MaintenanceLog.open(house.layout)
    assert len(log.results()) == 2
    log.close()
