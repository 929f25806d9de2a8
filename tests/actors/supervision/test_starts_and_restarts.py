"""DESIGN.md rules 3, 4 and 5: proven starts, error classes that decide, restart intensity."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from functools import partial

import pytest

from actors.supervision import (
    STORE_RESTARTS,
    ActorContext,
    ActorHealth,
    ActorSettings,
    ChildSpec,
    Corruption,
    Envelope,
    Environment,
    GuardedActor,
    Reply,
    RestartHistory,
    RestartPolicy,
    StopChild,
    Supervisor,
    Transient,
    Tree,
    launch_thread,
)
from messages.errors import (
    Denied,
    ForeignVault,
    InternalError,
    InvalidArgument,
    KnowledgeError,
    NotFound,
    Quarantined,
    Restarting,
    StorageError,
    StoreOpening,
    StoreUnavailable,
)
from tests.kit.actors import Corrupt, Echo, End, Park, Probe, Raise, ask, eventually, failure
from tests.kit.scheduler import VirtualScheduler


class StartScript(Probe):
    """``on_ready`` follows a script, one step an incarnation; past its end it succeeds."""

    def __init__(self, context: ActorContext, steps: list[BaseException | None]) -> None:
        super().__init__(context)
        self.steps = steps

    def on_ready(self) -> None:
        step = self.steps.pop(0) if self.steps else None
        if step is not None:
            raise step


def health(tree: Tree, path: str) -> ActorHealth:
    return tree.handle(path).health()


def crash(scheduler: VirtualScheduler, tree: Tree, path: str = "a") -> KnowledgeError:
    return failure(tree.handle(path).ask(Raise(ValueError()), deadline=scheduler.deadline(60)))


# --- rule 3 -----------------------------------------------------------------------------------------------------


def test_a_child_is_up_when_it_answers_ready_from_its_own_thread() -> None:
    threads: list[str] = []
    go_on = threading.Event()

    class Slow(Probe):
        def on_ready(self) -> None:
            threads.append(threading.current_thread().name)
            go_on.wait(5)

    with Tree([ChildSpec("a", Slow)]) as tree:
        waiting = ask(tree.handle("a"), Echo(1))
        assert not health(tree, "a").ready
        go_on.set()
        assert waiting.result() == 1
        assert threads == ["root/a"]
        eventually(lambda: health(tree, "a").ready)


def test_a_child_that_is_not_ready_within_5_seconds_is_a_failed_start_and_never_doubled() -> None:
    entered, leave = threading.Event(), threading.Event()
    running: list[int] = []
    most: list[int] = []

    class Slow(Probe):
        def on_ready(self) -> None:
            running.append(1)
            most.append(len(running))
            if self.context.incarnation == 1:
                entered.set()
                leave.wait(10)

        def on_ended(self) -> None:
            running.pop()

    settings = ActorSettings(start_timeout=0.1)
    assert ActorSettings().start_timeout == 5.0
    with Tree([ChildSpec("a", Slow, settings=settings)]) as tree:
        waiting = ask(tree.handle("a"), Echo(1))
        answer = failure(waiting)
        assert isinstance(answer, StoreUnavailable)
        assert answer.fields["reason"] == "stuck"
        assert answer.retry == "safe"
        assert health(tree, "a").state == "stuck"
        assert health(tree, "a").live
        assert isinstance(failure(ask(tree.handle("a"), Echo(1))), StoreUnavailable)
        leave.set()
        eventually(lambda: health(tree, "a").state == "ready")
        assert ask(tree.handle("a"), Echo(2)).result() == 2
        assert health(tree, "a").incarnation == 2
    assert max(most) == 1


def test_requests_wait_for_the_opening_to_their_deadline_then_get_store_opening_with_its_progress() -> None:
    class Opening(Probe):
        def on_ready(self) -> None:
            self.context.hold({"done": 0, "of": 3})
            self.context.start_timer(1, 1)

        def on_tell(self, message: object) -> None:
            assert isinstance(message, int)
            if message == 3:
                self.context.resume()
            else:
                self.context.hold({"done": message, "of": 3})
                self.context.start_timer(1, message + 1)

    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Opening)]) as tree:
        handle = tree.handle("a")
        short = handle.ask(Echo(1), deadline=scheduler.deadline(2.5))
        long = handle.ask(Echo(2), deadline=scheduler.deadline(10))
        status = handle.ask(Echo(3), deadline=scheduler.deadline(10), passes_hold=True)
        scheduler.settle()
        assert status.result() == 3
        assert health(tree, "a").state == "opening"
        answer = failure(short)
        assert isinstance(answer, StoreOpening)
        assert answer.fields["progress"] == {"done": 2, "of": 3}
        assert answer.retry == "safe"
        assert not long.done()
        assert health(tree, "a").progress == {"done": 2, "of": 3}
        assert long.result() == 2
        assert health(tree, "a").state == "ready"


def test_requests_sent_before_the_first_start_wait_for_it() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe)]) as tree:
        assert tree.handle("a").ask(Echo(1), deadline=scheduler.deadline(5)).result() == 1


def test_a_child_that_cannot_even_be_made_is_a_failed_start() -> None:
    def broken(_: ActorContext) -> GuardedActor:
        raise RuntimeError

    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", broken), ChildSpec("b", Probe)]) as tree:
        answer = failure(tree.handle("a").ask(Echo(1), deadline=scheduler.deadline(60)))
        assert isinstance(answer, Restarting)
        scheduler.advance(10)
        assert health(tree, "a").state == "quarantined"
        assert tree.handle("b").ask(Echo(1), deadline=scheduler.deadline(5)).result() == 1


def test_a_child_whose_thread_cannot_be_started_is_a_failed_start_and_later_tried_again() -> None:
    failures = [RuntimeError("can't start new thread")] * 2

    def launch(actor: GuardedActor) -> None:
        if actor.context.name == "root/a" and failures:
            raise failures.pop()
        launch_thread(actor)

    with Tree([ChildSpec("a", Probe)], environment=Environment(launch=launch)) as tree:
        eventually(lambda: health(tree, "a").state == "ready")
        assert ask(tree.handle("a"), Echo(1)).result() == 1
        assert health(tree, "a").incarnation == 3


def test_a_root_whose_thread_cannot_be_started_raises_and_leaves_nothing() -> None:
    def launch(_: GuardedActor) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.raises(RuntimeError):
        Tree([ChildSpec("a", Probe)], environment=Environment(launch=launch))


def test_requests_to_a_child_of_a_supervisor_still_to_start_wait_for_it_and_unknown_ones_are_refused() -> None:
    scheduler = VirtualScheduler(0)

    def inner(context: ActorContext) -> Supervisor:
        return Supervisor(context, "one_for_one", [ChildSpec("known", Probe)])

    with scheduler.tree([ChildSpec("s", inner)]) as tree:
        known = tree.handle("s/known").ask(Echo(1), deadline=scheduler.deadline(5))
        unknown = tree.handle("s/unknown").ask(Echo(1), deadline=scheduler.deadline(5))
        begun = scheduler.clock.monotonic()
        assert known.result() == 1
        assert isinstance(failure(unknown), NotFound)
        assert scheduler.clock.monotonic() == begun
        for path in ("s/unknown", "nobody", "nobody/below"):
            assert isinstance(failure(tree.handle(path).ask(Echo(1), deadline=scheduler.deadline(5))), NotFound)


# --- rule 4 -----------------------------------------------------------------------------------------------------


def test_an_expected_outcome_is_a_typed_answer_and_restarts_nothing() -> None:
    with Tree([ChildSpec("a", Probe)]) as tree:
        answer = failure(ask(tree.handle("a"), Raise(Denied("not yours", field="id"))))
        assert isinstance(answer, Denied)
        assert answer.fields == {"field": "id"}
        assert ask(tree.handle("a"), Echo(1)).result() == 1
        assert health(tree, "a").incarnation == 1


def test_a_defect_in_an_ask_restarts_the_lane() -> None:
    with Tree([ChildSpec("a", Probe)]) as tree:
        assert isinstance(failure(ask(tree.handle("a"), Raise(KeyError("x")))), InternalError)
        assert ask(tree.handle("a"), Echo(1)).result() == 1
        assert health(tree, "a").incarnation == 2


def test_an_internal_error_is_a_declared_defect_and_restarts_the_lane_too() -> None:
    with Tree([ChildSpec("a", Probe)]) as tree:
        assert failure(ask(tree.handle("a"), Raise(InternalError("ours")))).message == "ours"
        assert ask(tree.handle("a"), Echo(1)).result() == 1
        assert health(tree, "a").incarnation == 2


@pytest.mark.parametrize("by", ["ask", "tell", "start"])
def test_corruption_quarantines_without_a_restart_and_leaves_others_untouched(by: str) -> None:
    found = StorageError("page 7 is torn")
    steps: list[BaseException | None] = [Corruption(found)] if by == "start" else []
    scheduler = VirtualScheduler(1)
    with scheduler.tree([ChildSpec("a", partial(StartScript, steps=steps)), ChildSpec("b", Probe)]) as tree:
        handle = tree.handle("a")
        if by == "ask":
            assert failure(handle.ask(Corrupt(found), deadline=scheduler.deadline(5))) is found
        elif by == "tell":
            handle.tell(Corrupt(found))
        scheduler.settle()
        state = health(tree, "a")
        assert (state.state, state.incarnation, state.live) == ("quarantined", 1, False)
        assert state.quarantine is not None
        assert state.quarantine.cause is found
        answer = failure(handle.ask(Echo(1), deadline=scheduler.deadline(5)))
        assert isinstance(answer, Quarantined)
        assert answer.fields["cause"] == "storage_error"
        assert answer.fields["since"] == "2026-01-01T00:00:00.000+00:00"
        assert tree.handle("b").ask(Echo(1), deadline=scheduler.deadline(5)).result() == 1
        assert health(tree, "b").incarnation == 1


def test_a_start_refused_by_disagreeing_halves_is_quarantined_at_once_and_answers_with_that_very_error() -> None:
    steps: list[BaseException | None] = [ForeignVault("another store's vault", expected="x")]
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", partial(StartScript, steps=steps))]) as tree:
        handle = tree.handle("a")
        first = failure(handle.ask(Echo(1), deadline=scheduler.deadline(5)))
        later = failure(handle.ask(Echo(1), deadline=scheduler.deadline(5)))
        for answer in (first, later):
            assert isinstance(answer, ForeignVault)
            assert answer.fields == {"expected": "x"}
        assert health(tree, "a").state == "quarantined"
        assert tree.root.release("a").result() is True
        assert handle.ask(Echo(1), deadline=scheduler.deadline(5)).result() == 1


def test_a_start_that_storage_refuses_for_now_is_tried_again() -> None:
    steps: list[BaseException | None] = [StorageError("disk full"), StorageError("disk full"), None]
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", partial(StartScript, steps=steps))]) as tree:
        scheduler.advance(1)
        assert tree.handle("a").ask(Echo(1), deadline=scheduler.deadline(5)).result() == 1
        assert health(tree, "a").incarnation == 3


class Flaky(Probe):
    """Meets a busy database ``failures`` times, each time before it did anything."""

    def __init__(self, context: ActorContext, failures: int, log: list[str]) -> None:
        super().__init__(context, log)
        self.failures = failures

    def on_ask(self, message: object, envelope: Envelope) -> object:
        if message == "busy" and self.failures:
            self.failures -= 1
            raise Transient(StorageError("the database is locked"))
        self.note(f"did {message}")
        return super().on_ask(Echo(message), envelope)

    def on_tell(self, message: object) -> None:
        if self.failures:
            self.failures -= 1
            raise Transient(StorageError("the database is locked"))
        super().on_tell(message)


def test_a_transient_failure_is_retried_within_the_deadline_and_others_are_served_meanwhile() -> None:
    log: list[str] = []
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", partial(Flaky, failures=4, log=log))]) as tree:
        handle = tree.handle("a")
        retried = handle.ask("busy", deadline=scheduler.deadline(5))
        scheduler.settle()
        assert handle.ask("other", deadline=scheduler.deadline(5)).result() == "other"
        assert retried.result() == "busy"
        assert [line for line in log if "did" in line] == ["root/a#1 did other", "root/a#1 did busy"]
        assert health(tree, "a").crashes == 0


def test_a_transient_failure_that_outlasts_the_deadline_is_answered_before_it_and_is_safe() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", partial(Flaky, failures=1_000, log=[]))]) as tree:
        begun = scheduler.clock.monotonic()
        answer = failure(tree.handle("a").ask("busy", deadline=scheduler.deadline(2)))
        assert isinstance(answer, StorageError)
        assert answer.retry == "safe"
        assert 1 < scheduler.clock.monotonic() - begun <= 2
        begun = scheduler.clock.monotonic()
        answer = failure(tree.handle("a").ask("busy", deadline=scheduler.deadline(600)))
        assert isinstance(answer, StorageError)
        assert scheduler.clock.monotonic() - begun < 10, "bounded, however long the deadline"


def test_a_tell_that_meets_something_transient_is_retried_a_bounded_number_of_times() -> None:
    for failures, handled in ((3, 1), (1_000, 0)):
        log: list[str] = []
        scheduler = VirtualScheduler(0)
        with scheduler.tree([ChildSpec("a", partial(Flaky, failures=failures, log=log))]) as tree:
            tree.handle("a").tell("x")
            scheduler.advance(60)
            assert len([line for line in log if "told" in line]) == handled
            assert health(tree, "a").crashes == 0


def test_a_retry_ends_with_its_actor_and_is_answered_typed() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", partial(Flaky, failures=1_000, log=[]))]) as tree:
        retried = tree.handle("a").ask("busy", deadline=scheduler.deadline(5))
        scheduler.settle()
        tree.handle("a").tell(Raise(ValueError()))
        assert tree.root.quarantine("a", "by hand").result()
        assert isinstance(failure(retried), Quarantined)


# --- rule 5 -----------------------------------------------------------------------------------------------------


def test_the_numbers_are_5_restarts_in_30_s_a_child_and_3_in_300_s_a_store() -> None:
    assert (RestartPolicy().restarts, RestartPolicy().within) == (5, 30.0)
    assert (STORE_RESTARTS.restarts, STORE_RESTARTS.within) == (3, 300.0)


def test_the_first_restart_is_at_once_then_a_tenth_doubling_to_10_s_with_20_percent_jitter() -> None:
    policy = RestartPolicy(restarts=12, within=1e9)
    nominal = [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0, 10.0]
    seen: list[list[float]] = []
    for seed in range(200):
        history, chance = RestartHistory(policy), random.Random(seed)
        delays = [history.next_delay(float(turn), None, chance) for turn in range(12)]
        assert history.next_delay(13.0, None, chance) is None
        seen.append([delay for delay in delays if delay is not None])
    for position, expected in enumerate(nominal):
        column = [delays[position] for delays in seen]
        assert min(column) >= expected * 0.8 - 1e-9
        assert max(column) <= expected * 1.2 + 1e-9
        if expected:
            assert max(column) - min(column) > expected * 0.3, "the jitter is really drawn"


def test_thirty_healthy_seconds_bring_back_the_immediate_restart() -> None:
    history, chance = RestartHistory(RestartPolicy(restarts=100)), random.Random(0)
    for _ in range(20):
        history.next_delay(0.0, None, chance)
    assert history.next_delay(29.9, 0.0, chance) != 0.0
    assert history.next_delay(60.0, 30.0, chance) == 0.0


def test_every_six_healthy_seconds_undo_one_doubling() -> None:
    history, chance = RestartHistory(RestartPolicy(restarts=100, jitter=0.0)), random.Random(0)
    delays = [history.next_delay(0.0, None, chance) for _ in range(5)]
    assert delays == [0.0, 0.1, 0.2, 0.4, 0.8]
    assert history.next_delay(5.9, 0.0, chance) == 1.6
    assert history.next_delay(18.0, 6.0, chance) == 0.8, "two undone, one more taken"


@pytest.mark.parametrize("pace", [6.1, 7.0, 9.0, 29.0])
def test_a_child_that_crashes_below_the_intensity_for_ever_is_never_away_for_long(pace: float) -> None:
    history, chance = RestartHistory(RestartPolicy()), random.Random(0)
    now = 0.0
    for _ in range(500):
        delay = history.next_delay(now, now - pace, chance)
        assert delay is not None
        assert delay <= 0.12
        now += pace


def test_a_very_long_row_of_failures_does_not_overflow_the_delay() -> None:
    history, chance = RestartHistory(RestartPolicy(restarts=10_000, within=1e9)), random.Random(0)
    delays = [history.next_delay(0.0, None, chance) or 0.0 for _ in range(5_000)]
    assert max(delays) <= 12.0


def test_the_sixth_crash_in_30_s_quarantines_with_a_reason_and_a_time() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe)]) as tree:
        for expected in range(1, 6):
            assert isinstance(crash(scheduler, tree), InternalError)
            scheduler.advance(2)
            assert health(tree, "a").incarnation == expected + 1
        crash(scheduler, tree)
        scheduler.settle()
        state = health(tree, "a")
        assert state.state == "quarantined"
        assert state.quarantine is not None
        assert "5 restarts in 30 s" in state.quarantine.reason
        assert state.quarantine.since == scheduler.clock.utc()
        scheduler.advance(1_000)
        assert health(tree, "a").incarnation == 6, "a quarantine does not end by itself"


def test_crashes_further_apart_than_the_window_never_quarantine() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe)]) as tree:
        for _ in range(20):
            crash(scheduler, tree)
            scheduler.advance(31)
        assert health(tree, "a").incarnation == 21


def test_requests_wait_for_a_restart_and_one_due_before_it_is_told_at_once_when_to_come_back() -> None:
    policy = RestartPolicy(first_delay=0.5, factor=8.0, jitter=0.0)
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe, settings=ActorSettings(restarts=policy))]) as tree:
        handle = tree.handle("a")
        began = scheduler.clock.monotonic()
        crash(scheduler, tree)
        crash(scheduler, tree)
        scheduler.settle()
        near = handle.ask(Echo("near"), deadline=scheduler.deadline(5))
        impatient = handle.ask(Echo(0), deadline=scheduler.deadline(0.2))
        assert impatient.done(), "nobody is kept waiting for what cannot come in time"
        told = failure(impatient)
        assert isinstance(told, Restarting)
        assert (told.retry, told.fields["retryAfterMs"]) == ("safe", 500)
        assert near.result() == "near"
        crash(scheduler, tree)
        scheduler.settle()
        far = handle.ask(Echo("far"), deadline=scheduler.deadline(60))
        assert far.result() == "far"
        assert scheduler.clock.monotonic() - began >= 4.0


def test_what_waits_already_is_told_at_once_when_the_restart_turns_out_to_come_after_its_deadline() -> None:
    policy = RestartPolicy(first_delay=4.0, jitter=0.0)
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe, settings=ActorSettings(restarts=policy))]) as tree:
        crash(scheduler, tree)
        scheduler.settle()
        scheduler.suspend("root")  # the parent has not decided yet
        crash(scheduler, tree)
        scheduler.settle()
        short = tree.handle("a").ask(Echo("short"), deadline=scheduler.deadline(2))
        patient = tree.handle("a").ask(Echo("long"), deadline=scheduler.deadline(9))
        scheduler.settle()
        assert not short.done()
        scheduler.wake("root")
        scheduler.settle()
        assert short.done()
        told = failure(short)
        assert isinstance(told, Restarting)
        assert told.fields["retryAfterMs"] == 4_000
        assert patient.result() == "long"


def test_a_released_child_begins_with_a_clean_record() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe)]) as tree:
        assert tree.root.release("a").result() is False
        assert tree.root.quarantine("a", "inspection").result() is True
        answer = failure(tree.handle("a").ask(Echo(1), deadline=scheduler.deadline(5)))
        assert isinstance(answer, Quarantined)
        assert answer.fields["reason"] == "inspection"
        assert tree.root.release("a").result() is True
        assert tree.handle("a").ask(Echo(1), deadline=scheduler.deadline(5)).result() == 1
        for _ in range(5):
            crash(scheduler, tree)
            scheduler.advance(2)
        assert tree.handle("a").ask(Echo(1), deadline=scheduler.deadline(5)).result() == 1


@pytest.mark.parametrize("seed", range(10))
def test_the_child_after_a_failed_one_is_restarted_with_it_under_rest_for_one(seed: int) -> None:
    log: list[str] = []
    scheduler = VirtualScheduler(seed)
    children = [ChildSpec(name, partial(Probe, log=log)) for name in "abc"]
    with scheduler.tree(children, "rest_for_one") as tree:
        scheduler.settle()
        assert log == ["root/a#1 ready", "root/b#1 ready", "root/c#1 ready"]
        log.clear()
        crash(scheduler, tree, "b")
        scheduler.settle()
        reply = tree.handle("c").ask(Echo(1), deadline=scheduler.deadline(5))
        assert reply.result() == 1
        assert log == [
            "root/b#1 ended",
            "root/c#1 drained",
            "root/c#1 ended",
            "root/b#2 ready",
            "root/c#2 ready",
        ]
        log.clear()
    assert log == [f"root/{name} {what}" for name in ("c#2", "b#2", "a#1") for what in ("drained", "ended")]


@pytest.mark.parametrize("seed", range(5))
def test_requests_for_a_child_that_is_restarted_with_another_wait_for_its_next_incarnation(seed: int) -> None:
    scheduler = VirtualScheduler(seed)
    with scheduler.tree([ChildSpec(name, Probe) for name in "ab"], "rest_for_one") as tree:
        scheduler.settle()
        scheduler.suspend("root/b")
        left = tree.handle("b").ask(Echo("left"), deadline=scheduler.deadline(5))
        crash(scheduler, tree, "a")
        scheduler.settle()
        waiting = tree.handle("b").ask(Echo("waited"), deadline=scheduler.deadline(5))
        scheduler.settle()
        assert not waiting.done()
        scheduler.wake("root/b")
        assert waiting.result() == "waited"
        assert waiting.incarnation == 2
        answer = failure(left)
        assert isinstance(answer, Restarting)
        assert answer.retry == "safe"


def test_a_child_that_is_always_late_with_its_start_is_quarantined_in_the_end() -> None:
    policy = RestartPolicy(within=300.0)
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe, settings=ActorSettings(restarts=policy))]) as tree:
        for expected in range(1, 7):
            scheduler.suspend("root/a")
            scheduler.advance(10)
            assert health(tree, "a").incarnation == expected
            assert health(tree, "a").state == "stuck"
            scheduler.wake("root/a")
            scheduler.run_until(lambda: scheduler.alive() == ["root"])
        scheduler.settle()
        assert health(tree, "a").state == "quarantined"
        assert health(tree, "a").incarnation == 6


@pytest.mark.parametrize("seed", range(5))
def test_only_the_failed_child_is_restarted_under_one_for_one(seed: int) -> None:
    scheduler = VirtualScheduler(seed)
    with scheduler.tree([ChildSpec(name, Probe) for name in "abc"]) as tree:
        scheduler.settle()
        crash(scheduler, tree, "b")
        scheduler.settle()
        assert [health(tree, name).incarnation for name in "abc"] == [1, 2, 1]


def store(restarts: RestartPolicy = STORE_RESTARTS, lane: type[Probe] = Probe) -> ChildSpec:
    def helpers(context: ActorContext) -> Supervisor:
        return Supervisor(context, "one_for_one", [ChildSpec("indexer", Probe), ChildSpec("watcher", Probe)])

    def start(context: ActorContext) -> Supervisor:
        children = [ChildSpec("lane", lane, on_give_up="escalate"), ChildSpec("helpers", helpers)]
        return Supervisor(context, "rest_for_one", children)

    return ChildSpec("store", start, settings=ActorSettings(restarts=restarts))


@pytest.mark.parametrize("seed", range(5))
def test_a_lane_out_of_restarts_restarts_its_store_and_handles_survive_that(seed: int) -> None:
    scheduler = VirtualScheduler(seed)
    with scheduler.tree([store(), ChildSpec("other", Probe)]) as tree:
        lane = tree.handle("store/lane")
        for _ in range(6):
            crash(scheduler, tree, "store/lane")
        assert lane.ask(Echo(1), deadline=scheduler.deadline(5)).result() == 1
        scheduler.settle()
        assert health(tree, "store").incarnation == 2
        assert health(tree, "store/lane").incarnation == 7
        indexer = tree.handle("store/helpers/indexer")
        assert indexer.ask(Echo(2), deadline=scheduler.deadline(5)).result() == 2
        assert health(tree, "other").incarnation == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_store_out_of_restarts_is_quarantined_as_a_whole_and_can_be_released(seed: int) -> None:
    scheduler = VirtualScheduler(seed)
    with scheduler.tree([store(), ChildSpec("other", Probe)]) as tree:
        for _ in range(24):
            assert isinstance(crash(scheduler, tree, "store/lane"), InternalError)
        scheduler.settle()
        assert health(tree, "store").state == "quarantined"
        for path in ("store/lane", "store/helpers/indexer", "store"):
            answer = failure(tree.handle(path).ask(Echo(1), deadline=scheduler.deadline(5)))
            assert isinstance(answer, Quarantined)
            assert not health(tree, path).live
        assert tree.handle("other").ask(Echo(1), deadline=scheduler.deadline(5)).result() == 1
        assert tree.root.release("store").result() is True
        assert tree.handle("store/lane").ask(Echo(1), deadline=scheduler.deadline(5)).result() == 1


@pytest.mark.parametrize("seed", range(10))
def test_what_waits_for_a_store_that_is_quarantined_or_stopped_meanwhile_is_told_so(seed: int) -> None:
    for end in ("quarantine", "stop"):
        scheduler = VirtualScheduler(seed)
        with scheduler.tree([store(RestartPolicy(restarts=9, first_delay=5.0))]) as tree:
            scheduler.settle()
            for _ in range(12):
                crash(scheduler, tree, "store/lane")
            scheduler.run_until(lambda: health(tree, "store").state == "restarting")
            paths = ("store", "store/lane", "store/helpers/indexer")
            waiting = [tree.handle(path).ask(Echo(1), deadline=scheduler.deadline(60)) for path in paths]
            assert not [reply for reply in waiting if reply.done()]
            if end == "quarantine":
                assert tree.root.quarantine("store", "by hand").result()
            else:
                assert tree.root.stop_child("store").result()
            for path, reply in zip(paths, waiting, strict=True):
                told, new = failure(reply), failure(tree.handle(path).ask(Echo(1), deadline=scheduler.deadline(5)))
                assert (path, told.code, told.retry) == (path, new.code, "safe")
                assert told.code == ("quarantined" if end == "quarantine" else "stopping")


@pytest.mark.parametrize("seed", range(5))
def test_corruption_in_a_lane_quarantines_its_store_without_a_restart(seed: int) -> None:
    scheduler = VirtualScheduler(seed)
    with scheduler.tree([store(), ChildSpec("other", Probe)]) as tree:
        found = StorageError("torn")
        assert failure(tree.handle("store/lane").ask(Corrupt(found), deadline=scheduler.deadline(5))) is found
        scheduler.settle()
        assert health(tree, "store").state == "quarantined"
        assert health(tree, "store").incarnation == 1
        assert health(tree, "store/lane").incarnation == 1
        answer = failure(tree.handle("store/lane").ask(Echo(1), deadline=scheduler.deadline(5)))
        assert isinstance(answer, Quarantined)
        assert tree.handle("other").ask(Echo(1), deadline=scheduler.deadline(5)).result() == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_helper_out_of_restarts_is_quarantined_alone_and_its_lane_goes_on(seed: int) -> None:
    scheduler = VirtualScheduler(seed)
    with scheduler.tree([store()]) as tree:
        for _ in range(6):
            crash(scheduler, tree, "store/helpers/indexer")
        scheduler.settle()
        assert health(tree, "store/helpers/indexer").state == "quarantined"
        assert tree.handle("store/lane").ask(Echo(1), deadline=scheduler.deadline(5)).result() == 1
        assert health(tree, "store/lane").incarnation == 1
        assert health(tree, "store/helpers/watcher").state == "ready"


# --- the kinds of children ----------------------------------------------------------------------------------------


def test_a_permanent_child_that_ends_by_itself_comes_back_and_a_transient_one_is_forgotten() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe), ChildSpec("t", Probe, restart="transient")]) as tree:
        for name in ("a", "t"):
            assert tree.handle(name).ask(End(), deadline=scheduler.deadline(5)).result() == "ending"
        scheduler.settle()
        assert health(tree, "a").incarnation == 2
        assert {state.name for state in tree.health()} == {"root", "root/a"}


def test_a_temporary_child_is_forgotten_after_a_crash_and_a_transient_one_restarted() -> None:
    scheduler = VirtualScheduler(0)
    children = [ChildSpec("temporary", Probe, restart="temporary"), ChildSpec("transient", Probe, restart="transient")]
    with scheduler.tree(children) as tree:
        for child in children:
            crash(scheduler, tree, child.name)
        scheduler.settle()
        assert {state.name for state in tree.health()} == {"root", "root/transient"}
        assert health(tree, "transient").incarnation == 2


def test_children_are_started_and_stopped_while_the_tree_runs() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([]) as tree:
        handle = tree.root.start_child(ChildSpec("a", Probe)).result()
        assert handle.ask(Echo(1), deadline=scheduler.deadline(5)).result() == 1
        again = tree.root.start_child(ChildSpec("a", Probe)).result()
        assert again.ask(Echo(2), deadline=scheduler.deadline(5)).result() == 2
        assert again.incarnation == 1
        assert tree.root.stop_child("a").result() is True
        assert health(tree, "a").state == "stopped"
        assert not health(tree, "a").live
        assert tree.root.stop_child("a").result() is True
        tree.root.start_child(ChildSpec("a", Probe)).result()
        assert handle.ask(Echo(3), deadline=scheduler.deadline(5)).result() == 3
        assert handle.incarnation == 2


def test_a_child_started_again_while_it_is_stopping_comes_up_after_its_end() -> None:
    scheduler = VirtualScheduler(3)
    with scheduler.tree([ChildSpec("a", Probe)]) as tree:
        parked = tree.handle("a").ask(Park(), deadline=scheduler.deadline(60))
        scheduler.settle()
        stopped = tree.root.stop_child("a", drain=5)
        scheduler.settle()
        started = tree.root.start_child(ChildSpec("a", Probe))
        handle = started.result()
        scheduler.advance(6)
        assert stopped.result() is True
        assert parked.done()
        assert handle.ask(Echo(1), deadline=scheduler.deadline(5)).result() == 1
        assert handle.incarnation == 2


def test_commands_about_unknown_children_and_foreign_messages_are_typed_refusals() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([]) as tree:
        replies: list[Reply[bool]] = [tree.root.stop_child("x"), tree.root.release("x"), tree.root.quarantine("x", "?")]
        for reply in replies:
            with pytest.raises(NotFound):
                reply.result()
        with pytest.raises(InvalidArgument):
            tree.root.ask(Echo(1), deadline=scheduler.deadline(5)).result()
        assert health(tree, "x").state == "absent"
        assert tree.root.ask(StopChild("y"), deadline=scheduler.deadline(5)).error() is None


def test_stopping_a_quarantined_child_leaves_it_quarantined() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe)]) as tree:
        tree.root.quarantine("a", "by hand").result()
        assert tree.root.stop_child("a").result() is True
        assert health(tree, "a").state == "quarantined"
        assert isinstance(failure(tree.handle("a").ask(Echo(1), deadline=scheduler.deadline(5))), Quarantined)


def test_what_is_kept_of_a_quarantined_actor_does_not_keep_its_resources() -> None:
    class Resource:
        pass

    alive: list[weakref.ref[Resource]] = []

    class Holding(Probe):
        def on_ready(self) -> None:
            self.resource = Resource()
            alive.append(weakref.ref(self.resource))

        def on_ask(self, message: object, envelope: Envelope) -> object:
            resource = self.resource
            try:
                raise OSError("torn")
            except OSError as error:
                assert resource is not None
                raise Corruption(StorageError("torn")) from error

    with Tree([ChildSpec("a", Holding)]) as tree:
        kept = failure(ask(tree.handle("a"), Echo(1)))
        eventually(lambda: health(tree, "a").quarantine is not None)
        kept.__traceback__ = None
        eventually(lambda: gc.collect() >= 0 and alive[0]() is None)


def test_a_quarantined_child_is_not_started_by_a_second_start() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe)]) as tree:
        tree.root.quarantine("a", "by hand").result()
        with pytest.raises(Quarantined):
            tree.root.start_child(ChildSpec("a", Probe)).result()


@pytest.mark.parametrize("name", ["", "a/b", ".."])
def test_a_childs_name_is_one_path_segment(name: str) -> None:
    with pytest.raises(ValueError, match="one path segment"):
        ChildSpec(name, Probe)


def test_two_children_of_one_name_are_refused() -> None:
    scheduler = VirtualScheduler(0)

    def twins(context: ActorContext) -> Supervisor:
        return Supervisor(context, "one_for_one", [ChildSpec("a", Probe), ChildSpec("a", Probe)])

    with scheduler.tree([ChildSpec("s", twins)]) as tree:
        scheduler.advance(20)
        assert health(tree, "s").state == "quarantined"


def test_a_handler_may_not_reach_a_request_that_its_subclass_does_not_know() -> None:
    class Nothing(GuardedActor):
        def on_tell(self, message: object) -> None:
            super().on_tell(message)

        def on_ask(self, message: object, envelope: Envelope) -> object:
            return super().on_ask(message, envelope)

    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Nothing)]) as tree:
        assert isinstance(failure(tree.handle("a").ask(Echo(1), deadline=scheduler.deadline(5))), InternalError)
        tree.handle("a").tell(Echo(1))
        scheduler.settle()
        assert health(tree, "a").crashes == 2
