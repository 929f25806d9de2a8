"""DESIGN.md rules 6 and 7: orderly shutdown, stuck threads, incarnations."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from actors.supervision import PARKED, ActorContext, ActorSettings, ChildSpec, Envelope, Reply, Supervisor, Tree
from messages.errors import DeadlineExceeded, Restarting, Stopping, StoreUnavailable
from tests.kit.actors import Block, Echo, Park, Probe, Raise, ask, eventually, failure
from tests.kit.scheduler import VirtualScheduler


class Lane(Probe):
    """Parks everything that needs its helper, which answers while the lane drains."""

    def on_ask(self, message: object, envelope: Envelope) -> object:
        if isinstance(message, Echo):
            helper = self.context.ask_handle("helpers/indexer")
            self.note(f"asks for {message.value}")
            reply = helper.ask(message, deadline=envelope.deadline)
            self.context.pipe(reply, lambda done: (envelope, done), envelope)
            return PARKED
        return super().on_ask(message, envelope)

    def on_tell(self, message: object) -> None:
        if isinstance(message, tuple):
            envelope, done = message
            self.note(f"answers {done.result()}")
            envelope.reply.succeed(done.result())
            return
        super().on_tell(message)


class SlowHelper(Probe):
    """Answers half a second later."""

    def on_ask(self, message: object, envelope: Envelope) -> object:
        assert isinstance(message, Echo)
        self.context.start_timer(0.5, (envelope, message.value), envelope)
        return PARKED

    def on_tell(self, message: object) -> None:
        assert isinstance(message, tuple)
        envelope, value = message
        envelope.reply.succeed(value)


def store(log: list[str]) -> ChildSpec:
    def helpers(context: ActorContext) -> Supervisor:
        children = [
            ChildSpec("indexer", partial(SlowHelper, log=log)),
            ChildSpec("watcher", partial(Probe, log=log), stops_first=True),
        ]
        return Supervisor(context, "one_for_one", children)

    def start(context: ActorContext) -> Supervisor:
        lane = ChildSpec("lane", partial(Lane, log=log), drains_first=True, on_give_up="escalate")
        return Supervisor(context, "rest_for_one", [lane, ChildSpec("helpers", helpers)])

    return ChildSpec("store", start)


@pytest.mark.parametrize("seed", range(20))
def test_shutdown_refuses_stops_the_watcher_drains_stops_helpers_and_ends_the_lane_last(seed: int) -> None:
    log: list[str] = []
    scheduler = VirtualScheduler(seed)
    late: list[Reply[object]] = []
    with scheduler.tree([store(log)]) as tree:
        scheduler.settle()
        lane = tree.handle("store/lane")
        replies = [lane.ask(Echo(turn), deadline=scheduler.deadline(30)) for turn in range(3)]
        log.clear()
        stopped = tree.root.stop_child("store", drain=5)
        scheduler.run_until(lambda: tree.handle("store/lane").health().state == "stopping")
        late.append(lane.ask(Echo("late"), deadline=scheduler.deadline(30)))
        assert stopped.result() is True
        assert sorted(str(reply.result()) for reply in replies) == ["0", "1", "2"]
    assert isinstance(failure(late[0]), Stopping)
    endings = [line for line in log if "drained" in line or "ended" in line]
    assert endings == [
        "root/store/helpers/watcher#1 drained",
        "root/store/helpers/watcher#1 ended",
        "root/store/helpers/indexer#1 drained",
        "root/store/helpers/indexer#1 ended",
        "root/store/lane#1 drained",
        "root/store/lane#1 ended",
    ]
    last_answer = max(index for index, line in enumerate(log) if "answers" in line)
    assert last_answer < log.index("root/store/helpers/indexer#1 drained"), "helpers serve the lane while it drains"
    assert last_answer > log.index("root/store/helpers/watcher#1 ended"), "the watcher is stopped before the drain"


def test_the_drain_ends_at_its_limit_and_what_is_left_is_typed() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe)]) as tree:
        parked = tree.handle("a").ask(Park(), deadline=scheduler.deadline(60))
        scheduler.settle()
        begun = scheduler.clock.monotonic()
        assert tree.root.stop_child("a", drain=1.5).result() is True
        assert scheduler.clock.monotonic() == begun + 1.5
        answer = failure(parked)
    assert isinstance(answer, Stopping)
    assert answer.retry == "unknown"


def test_requests_that_wait_for_a_restart_are_answered_as_soon_as_the_tree_stops() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe), ChildSpec("b", Probe)]) as tree:
        tree.handle("b").ask(Park(), deadline=scheduler.deadline(60))
        for _ in range(3):
            failure(tree.handle("a").ask(Raise(ValueError()), deadline=scheduler.deadline(60)))
        scheduler.settle()
        assert tree.handle("a").health().state == "restarting"
        waiting = tree.handle("a").ask(Echo(1), deadline=scheduler.deadline(60))
        begun = scheduler.clock.monotonic()
        waiting.add_done_callback(lambda _: answered_at.append(scheduler.clock.monotonic()))
        answered_at: list[float] = []
    assert isinstance(failure(waiting), Stopping)
    assert answered_at == [begun]


def test_a_drain_does_not_last_longer_than_its_work() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe)]) as tree:
        replies = [tree.handle("a").ask(Echo(turn), deadline=scheduler.deadline(60)) for turn in range(20)]
        begun = scheduler.clock.monotonic()
        assert tree.root.stop_child("a").result() is True
        assert scheduler.clock.monotonic() == begun
        assert [reply.result() for reply in replies] == list(range(20))


def test_closing_the_tree_is_the_same_path_and_may_be_called_twice() -> None:
    log: list[str] = []
    tree = Tree([ChildSpec("a", partial(Probe, log=log)), ChildSpec("b", partial(Probe, log=log))])
    assert ask(tree.handle("b"), Echo(1)).result() == 1
    assert ask(tree.handle("a"), Echo(1)).result() == 1
    log.clear()
    assert tree.close().stuck == ()
    assert tree.close().stuck == ()
    assert log == ["root/b#1 drained", "root/b#1 ended", "root/a#1 drained", "root/a#1 ended"]
    assert isinstance(failure(ask(tree.handle("a"), Echo(1))), Stopping)


def test_a_lane_stuck_in_c_is_never_doubled_and_is_served_again_when_its_thread_returns() -> None:
    entered, leave = threading.Event(), threading.Event()
    settings = ActorSettings(stop_grace=0.1)
    with Tree([ChildSpec("a", Probe, settings=settings), ChildSpec("b", Probe)]) as tree:
        handle = tree.handle("a")
        running = ask(handle, Block(entered, leave), fairness_key="1")
        assert entered.wait(5)
        queued = ask(handle, Echo(1), fairness_key="2")
        stopped = tree.root.stop_child("a", drain=0.1)
        assert isinstance(failure(running), StoreUnavailable | Stopping)
        assert failure(running).retry == "unknown"
        assert failure(queued).retry == "safe"
        with pytest.raises(StoreUnavailable):
            stopped.result()
        assert handle.health().state == "stuck"
        refused = failure(ask(handle, Echo(2)))
        assert isinstance(refused, StoreUnavailable)
        assert refused.fields["reason"] == "stuck"
        with pytest.raises(StoreUnavailable):
            tree.root.start_child(ChildSpec("a", Probe)).result()
        assert handle.health().incarnation == 1
        assert ask(tree.handle("b"), Echo(1)).result() == 1
        leave.set()
        eventually(lambda: handle.health().state == "stopped")
        tree.root.start_child(ChildSpec("a", Probe)).result()
        assert ask(handle, Echo(3)).result() == 3
        assert handle.health().incarnation == 2


def test_a_stuck_lane_does_not_keep_the_others_from_closing() -> None:
    entered, leave = threading.Event(), threading.Event()
    log: list[str] = []

    def inner(context: ActorContext) -> Supervisor:
        stuck = ChildSpec("lane", Probe, settings=ActorSettings(stop_grace=0.1), drains_first=True)
        return Supervisor(context, "rest_for_one", [stuck, ChildSpec("helper", partial(Probe, log=log))])

    tree = Tree([ChildSpec("other", partial(Probe, log=log)), ChildSpec("store", inner)])
    ask(tree.handle("store/lane"), Block(entered, leave))
    assert entered.wait(5)
    assert ask(tree.handle("store/helper"), Echo(1)).result() == 1
    begun = time.monotonic()
    closed = tree.close(drain_seconds=0.1)
    assert time.monotonic() - begun < 3
    assert "root/store/lane" in closed.stuck
    assert "root/store/helper#1 ended" in log
    assert "root/other#1 ended" in log
    assert not tree.ended
    leave.set()
    eventually(lambda: tree.ended)
    assert tree.close().stuck == ()


def test_an_actor_that_crashes_while_it_drains_is_not_started_again() -> None:
    class Crashes(Probe):
        def on_drained(self) -> None:
            raise SystemExit

    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Crashes)]) as tree:
        scheduler.settle()
        assert tree.root.stop_child("a").result() is True
        assert tree.handle("a").health().state == "stopped"
        assert tree.handle("a").health().incarnation == 1


def test_a_hook_that_fails_while_resources_are_released_still_tells_the_parent() -> None:
    class Leaky(Probe):
        def on_ended(self) -> None:
            raise SystemExit

    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Leaky)]) as tree:
        failure(tree.handle("a").ask(Raise(ValueError()), deadline=scheduler.deadline(5)))
        assert tree.handle("a").ask(Echo(1), deadline=scheduler.deadline(5)).result() == 1


@pytest.mark.parametrize("seed", range(10))
def test_a_supervisor_that_crashes_ends_its_children_before_it_is_started_again(seed: int) -> None:
    log: list[str] = []

    class Fragile(Supervisor):
        def on_tell(self, message: object) -> None:
            if message == "crash":
                raise SystemExit
            super().on_tell(message)

    def start(context: ActorContext) -> Supervisor:
        return Fragile(context, "one_for_one", [ChildSpec(name, partial(Probe, log=log)) for name in "ab"])

    scheduler = VirtualScheduler(seed)
    with scheduler.tree([ChildSpec("s", start)]) as tree:
        scheduler.settle()
        log.clear()
        tree.handle("s").tell("crash")
        scheduler.settle()
        assert log[:4] == ["root/s/b#1 drained", "root/s/b#1 ended", "root/s/a#1 drained", "root/s/a#1 ended"]
        assert sorted(log[4:]) == ["root/s/a#2 ready", "root/s/b#2 ready"]
        assert tree.handle("s/a").ask(Echo(1), deadline=scheduler.deadline(5)).result() == 1


# --- rule 7 -----------------------------------------------------------------------------------------------------


def test_a_reply_carries_the_incarnation_that_served_it() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe)]) as tree:
        for expected in (1, 2, 3):
            reply = tree.handle("a").ask(Echo(1), deadline=scheduler.deadline(5))
            reply.result()
            assert reply.incarnation == expected
            failure(tree.handle("a").ask(Raise(ValueError()), deadline=scheduler.deadline(5)))


def test_a_timer_of_an_earlier_incarnation_is_dropped() -> None:
    log: list[str] = []

    class Timed(Probe):
        def __init__(self, context: ActorContext) -> None:
            super().__init__(context, log)

        def on_ready(self) -> None:
            self.context.start_timer(1, f"timer of {self.context.incarnation}")

    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Timed)]) as tree:
        scheduler.settle()
        failure(tree.handle("a").ask(Raise(ValueError()), deadline=scheduler.deadline(5)))
        scheduler.advance(2)
        assert [line for line in log if "timer" in line] == ["root/a#2 told timer of 2"]
        assert tree.environment.dead_letters.counts() == {"stale": 1}


def test_a_piped_answer_to_an_earlier_incarnation_is_dropped() -> None:
    log: list[str] = []
    kept: list[Envelope] = []

    class Helper(Probe):
        def on_ask(self, message: object, envelope: Envelope) -> object:
            kept.append(envelope)
            return PARKED

    class Asking(Probe):
        def __init__(self, context: ActorContext) -> None:
            super().__init__(context, log)

        def on_ask(self, message: object, envelope: Envelope) -> object:
            if isinstance(message, Echo):
                reply = self.context.ask_handle("helper").ask(message, deadline=envelope.deadline)
                self.context.pipe(reply, lambda done: done.result(), envelope)
                return PARKED
            return super().on_ask(message, envelope)

    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("helper", Helper), ChildSpec("a", Asking)]) as tree:
        asked = tree.handle("a").ask(Echo(1), deadline=scheduler.deadline(60))
        scheduler.settle()
        failure(tree.handle("a").ask(Raise(ValueError()), deadline=scheduler.deadline(5)))
        scheduler.settle()
        reply = kept[0].reply
        assert reply is not None
        assert reply.succeed("too late")
        scheduler.settle()
        assert isinstance(failure(asked), Restarting)
        assert not [line for line in log if "told" in line]


def test_a_message_for_one_incarnation_reaches_no_other() -> None:
    log: list[str] = []
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", partial(Probe, log=log))]) as tree:
        handle = tree.handle("a")
        scheduler.settle()
        seen = handle.incarnation
        assert handle.tell("now", incarnation=seen)
        assert handle.ask(Echo(1), deadline=scheduler.deadline(5), incarnation=seen).result() == 1
        failure(handle.ask(Raise(ValueError()), deadline=scheduler.deadline(5)))
        scheduler.settle()
        assert not handle.tell("later", incarnation=seen)
        answer = failure(handle.ask(Echo(1), deadline=scheduler.deadline(5), incarnation=seen))
        assert isinstance(answer, Restarting)
        assert answer.retry == "safe"
        assert [line for line in log if "told" in line] == ["root/a#1 told now"]


@pytest.mark.parametrize("seed", range(10))
def test_a_message_for_an_incarnation_that_ended_does_not_wait_for_the_next(seed: int) -> None:
    log: list[str] = []
    scheduler = VirtualScheduler(seed)
    with scheduler.tree([ChildSpec("a", partial(Probe, log=log))]) as tree:
        handle = tree.handle("a")
        for _ in range(3):
            failure(handle.ask(Raise(ValueError()), deadline=scheduler.deadline(5)))
        scheduler.run_until(lambda: handle.health().state == "restarting")
        ended = handle.incarnation
        assert not handle.tell("late", incarnation=ended)
        asked = handle.ask(Echo(1), deadline=scheduler.deadline(5), incarnation=ended)
        waiting = handle.ask(Echo(2), deadline=scheduler.deadline(5))
        answer = failure(asked)
        assert isinstance(answer, Restarting)
        assert answer.retry == "safe"
        assert waiting.result() == 2
        assert not [line for line in log if "told" in line]


def test_an_old_ended_notice_is_dropped() -> None:
    from actors.supervision import Ended

    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe)]) as tree:
        failure(tree.handle("a").ask(Raise(ValueError()), deadline=scheduler.deadline(5)))
        scheduler.settle()
        assert tree.handle("a").incarnation == 2
        tree.root.tell(Ended("root/a", 1, "crashed"))
        scheduler.settle()
        assert tree.handle("a").ask(Echo(1), deadline=scheduler.deadline(5)).result() == 1
        assert tree.handle("a").incarnation == 2


@pytest.mark.parametrize("seed", range(60))
def test_whatever_the_order_every_request_gets_one_answer_and_no_incarnation_overlaps(seed: int) -> None:
    """Crashes, stops, quarantines, releases and shutdown in sixty orders over a nested tree."""
    running: dict[str, int] = {}
    overlaps: list[str] = []

    class Watched(Probe):
        def on_ready(self) -> None:
            running[self.context.name] = running.get(self.context.name, 0) + 1
            if running[self.context.name] > 1:
                overlaps.append(self.context.name)

        def on_ended(self) -> None:
            running[self.context.name] = running.get(self.context.name, 0) - 1

    def helpers(context: ActorContext) -> Supervisor:
        return Supervisor(context, "one_for_one", [ChildSpec(name, Watched) for name in ("git", "indexer")])

    def start(context: ActorContext) -> Supervisor:
        lane = ChildSpec("lane", Watched, drains_first=True, on_give_up="escalate")
        return Supervisor(context, "rest_for_one", [lane, ChildSpec("helpers", helpers)])

    import random

    chance = random.Random(seed)
    scheduler = VirtualScheduler(seed)
    answered: list[int] = []
    replies: list[Reply[object]] = []
    commands: list[Reply[bool]] = []
    paths = ["one/lane", "one/helpers/git", "two/lane", "two/helpers/indexer", "plain"]
    with scheduler.tree(
        [ChildSpec("one", start), ChildSpec("two", start), ChildSpec("plain", Watched, restart="transient")]
    ) as tree:
        for number in range(120):
            message: object = chance.choice(
                [Echo(1), Echo(2), Echo(3), Park(), Raise(ValueError()), Raise(SystemExit())]
            )
            reply = tree.handle(chance.choice(paths)).ask(
                message,
                deadline=scheduler.deadline(chance.choice([0.05, 1, 20])),
                fairness_key=str(number % 5),
                request_key=str(number % 50),
            )
            reply.add_done_callback(lambda _, number=number: answered.append(number))  # type: ignore[misc]
            replies.append(reply)
            roll = chance.random()
            if roll < 0.05:
                commands.append(tree.root.stop_child(chance.choice(["one", "two"]), drain=chance.choice([0.0, 0.5])))
            elif roll < 0.10:
                commands.append(tree.root.quarantine(chance.choice(["one", "two"]), "by hand"))
            elif roll < 0.20:
                commands.append(tree.root.release(chance.choice(["one", "two"])))
            elif roll < 0.30:
                tree.root.start_child(ChildSpec(name := chance.choice(["one", "two"]), start)).done()
                assert name
            elif roll < 0.6:
                scheduler.advance(chance.choice([0.01, 0.3, 5.0]))
        limit = scheduler.clock.monotonic() + 20
    assert all(reply.done() for reply in replies)
    assert sorted(answered) == list(range(120))
    assert scheduler.clock.monotonic() <= limit + 30
    assert all(command.done() for command in commands)
    assert overlaps == []
    assert set(running.values()) == {0}
    assert not any(isinstance(reply.error(), DeadlineExceeded) and reply.error() is None for reply in replies)
