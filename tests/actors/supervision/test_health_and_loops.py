"""DESIGN.md rules 9 and 11: dead letters, health without asking, event loops; who may ask whom; the clock."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time

import pytest

from actors.supervision import (
    ActorContext,
    ActorHandle,
    ChildSpec,
    DeadLetter,
    DeadLetters,
    Environment,
    Reply,
    Supervisor,
    SystemClock,
    TellHandle,
    Tree,
    as_asyncio_future,
)
from messages.errors import Busy, Denied, InternalError
from tests.actors.supervision.test_plain_pykka import Plain
from tests.kit.actors import Block, Echo, Park, Probe, Raise, ask, eventually, failure
from tests.kit.scheduler import VirtualScheduler

SECRET = "the text of a record"


# --- rule 9 -----------------------------------------------------------------------------------------------------


def test_dead_letters_are_a_bounded_ring_without_payloads_counted_by_reason() -> None:
    letters = DeadLetters(capacity=3)
    for number in range(10):
        letters.add(DeadLetter(float(number), "a", 1, "Echo", "closed" if number % 2 else "full"))
    assert [letter.at for letter in letters.recent()] == [7.0, 8.0, 9.0]
    assert letters.counts() == {"closed": 5, "full": 5}


def test_a_tell_that_reaches_nobody_is_a_dead_letter_and_its_content_is_not_kept() -> None:
    with Tree([ChildSpec("a", Probe)]) as tree:
        assert ask(tree.handle("a"), Echo(1)).result() == 1
        tree.root.stop_child("a").result()
        assert tree.handle("a").tell(Echo(SECRET), correlation_id="c1") is False
        (letter,) = tree.environment.dead_letters.recent()
        assert (letter.actor, letter.message_type, letter.reason, letter.correlation_id) == (
            "root/a",
            "Echo",
            "closed",
            "c1",
        )
        assert SECRET not in repr(letter)


def test_health_is_a_snapshot_that_asks_nobody() -> None:
    entered, leave = threading.Event(), threading.Event()
    with Tree([ChildSpec("a", Probe)]) as tree:
        handle = tree.handle("a")
        ask(handle, Block(entered, leave), fairness_key="x", size=7)
        assert entered.wait(5)
        ask(handle, Echo(1), size=5)
        handle.tell("later")
        begun = time.monotonic()
        health = handle.health()
        everything = tree.health()
        assert time.monotonic() - begun < 0.5
        assert (health.queued, health.unanswered, health.unanswered_bytes) == (2, 2, 12)
        assert health.live
        assert health.busy_seconds > 0
        assert [state.name for state in everything] == ["root", "root/a"]
        leave.set()
        eventually(lambda: handle.health().handled == 3)
        assert handle.health().busy_seconds == 0.0


def test_liveness_is_not_readiness() -> None:
    go_on = threading.Event()

    class Slow(Probe):
        def on_ready(self) -> None:
            go_on.wait(5)

    with Tree([ChildSpec("a", Slow)]) as tree:
        eventually(lambda: tree.handle("a").health().live)
        assert not tree.handle("a").health().ready
        go_on.set()
        eventually(lambda: tree.handle("a").health().ready)


def test_an_actor_publishes_its_own_part_and_a_new_incarnation_begins_without_it() -> None:
    class Publishing(Probe):
        def on_tell(self, message: object) -> None:
            if message == "publish":
                self.context.publish({"records": 3})
            else:
                super().on_tell(message)

    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Publishing)]) as tree:
        tree.handle("a").tell("publish")
        scheduler.settle()
        assert tree.handle("a").health().detail == {"records": 3}
        failure(tree.handle("a").ask(Raise(ValueError()), deadline=scheduler.deadline(5)))
        scheduler.settle()
        health = tree.handle("a").health()
        assert health.detail == {}
        assert (health.crashes, health.last_error) == (1, "internal")


def test_one_correlation_id_runs_from_the_door_into_the_log_and_no_text_does(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = VirtualScheduler(0)
    with caplog.at_level(logging.DEBUG, logger="actors"), scheduler.tree([ChildSpec("a", Probe)]) as tree:
        reply = tree.handle("a").ask(
            Raise(KeyError(SECRET)), deadline=scheduler.deadline(5), correlation_id="abc123def456"
        )
        answer = failure(reply)
        assert isinstance(answer, InternalError)
        assert answer.fields["correlationId"] == "abc123def456"
    crashed = [record for record in caplog.records if getattr(record, "correlation_id", "") == "abc123def456"]
    assert crashed
    assert vars(crashed[0])["error_type"] == "KeyError"
    assert any("on_ask" in place for place in vars(crashed[0])["frames"])
    for record in caplog.records:
        assert SECRET not in str(vars(record))
    assert SECRET not in answer.message


# --- rule 11 ----------------------------------------------------------------------------------------------------


def test_awaiting_a_plain_pykka_future_blocks_the_loop() -> None:
    leave = threading.Event()
    ref = Plain.start()
    future = ref.ask(leave, block=False)

    async def wait() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        ticking = asyncio.create_task(tick())
        threading.Timer(0.2, leave.set).start()
        await future
        ticking.cancel()
        return ticks

    assert asyncio.run(wait()) <= 2, "in 200 ms, at a tick a millisecond"
    ref.stop()


def test_a_reply_reaches_an_event_loop_without_blocking_it() -> None:
    entered, leave = threading.Event(), threading.Event()
    with Tree([ChildSpec("a", Probe)]) as tree:

        async def wait() -> tuple[object, int]:
            ticks = 0
            future = as_asyncio_future(ask(tree.handle("a"), Block(entered, leave)))
            while not future.done():
                ticks += 1
                if ticks == 20:
                    leave.set()
                await asyncio.sleep(0.001)
            return await future, ticks

        value, ticks = asyncio.run(wait())
        assert value == "unblocked"
        assert ticks >= 20

        async def fail() -> None:
            await as_asyncio_future(ask(tree.handle("a"), Raise(Denied("no"))))

        with pytest.raises(Denied):
            asyncio.run(fail())


def test_an_answer_after_the_end_of_its_loop_is_no_error() -> None:
    reply: Reply[int] = Reply()

    async def leave_it() -> None:
        as_asyncio_future(reply).cancel()

    asyncio.run(leave_it())
    assert reply.succeed(1)
    gc.collect()


def test_a_reply_cannot_be_awaited_by_mistake() -> None:
    assert not hasattr(Reply(), "__await__")


# --- who may ask whom -------------------------------------------------------------------------------------------


def test_a_cycle_of_askers_is_refused_when_it_would_close() -> None:
    environment = Environment()
    environment.declare_ask("door", "lane")
    environment.declare_ask("lane", "helpers/indexer")
    environment.declare_ask("lane", "helpers/indexer")
    with pytest.raises(ValueError, match="cycle"):
        environment.declare_ask("helpers/indexer", "door")
    with pytest.raises(ValueError, match="cycle"):
        environment.declare_ask("lane", "lane")
    assert environment.asks() == {("door", "lane"), ("lane", "helpers/indexer")}


def test_paths_are_relative_to_the_parent_and_stay_in_the_tree() -> None:
    found: dict[str, str] = {}

    class Looking(Probe):
        def on_ready(self) -> None:
            for path in ("sibling", "../other", "sibling/below"):
                found[path] = self.context.tell_handle(path).name
            for path in ("../../..", ".."):
                try:
                    found[path] = self.context.ask_handle(path).name
                except ValueError:
                    found[path] = "refused"

    def inner(context: ActorContext) -> Supervisor:
        return Supervisor(context, "one_for_one", [ChildSpec("a", Looking)])

    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("s", inner)]):
        scheduler.settle()
    assert found == {
        "sibling": "root/s/sibling",
        "../other": "root/other",
        "sibling/below": "root/s/sibling/below",
        "../../..": "refused",
        "..": "root",
    }


def test_a_child_can_tell_upwards_but_not_ask() -> None:
    assert not hasattr(TellHandle, "ask")
    assert hasattr(ActorHandle, "ask")


# --- the clock --------------------------------------------------------------------------------------------------


def test_timers_fire_once_not_before_their_time_and_cancelled_ones_never() -> None:
    clock = SystemClock()
    seen: list[tuple[float, float]] = []
    begun = time.monotonic()
    done = threading.Semaphore(0)
    for delay in (0.03, 0.01, 0.02, -5.0):

        def fired(delay: float = delay) -> None:
            seen.append((delay, time.monotonic() - begun))
            done.release()

        clock.call_later(delay, fired)
    clock.call_later(0.005, lambda: seen.append((0.005, 0.0))).cancel()
    assert all(done.acquire(timeout=5) for _ in range(4))
    assert sorted(delay for delay, _ in seen) == [-5.0, 0.01, 0.02, 0.03]
    assert all(at >= delay for delay, at in seen)
    assert clock.close()


def test_callbacks_that_block_hold_up_nobody_elses_deadline() -> None:
    clock = SystemClock()
    leave, done = threading.Event(), threading.Event()
    for _ in range(3):
        clock.call_later(0, lambda: leave.wait(10))
    clock.call_later(0.05, done.set)
    assert done.wait(5)
    leave.set()
    assert clock.close()


def test_an_answer_by_callback_comes_at_its_deadline_while_another_ones_callback_blocks() -> None:
    leave, done = threading.Event(), threading.Event()
    with Tree([ChildSpec("a", Probe)]) as tree:
        blocking = ask(tree.handle("a"), Park(), 0.02)
        blocking.add_done_callback(lambda _: leave.wait(10))
        begun = time.monotonic()
        ask(tree.handle("a"), Park(), 0.1).add_done_callback(lambda _: done.set())
        assert done.wait(5)
        assert time.monotonic() - begun < 0.1 + 0.25
        leave.set()


def test_cancelling_a_timer_waits_for_nobody_who_makes_or_runs_one() -> None:
    """Each answered request cancels its timers: with the lock they would all meet there."""
    clock = SystemClock()
    timers = [clock.call_later(600, lambda: None) for _ in range(40)]
    cancelled = threading.Event()

    def cancel() -> None:
        for timer in timers:
            timer.cancel()
        cancelled.set()

    with clock._condition:
        thread = threading.Thread(target=cancel)
        thread.start()
        assert cancelled.wait(10)
    thread.join(10)
    assert clock.close()


def test_cancelled_timers_do_not_pile_up() -> None:
    clock = SystemClock()
    for _ in range(50_000):
        clock.call_later(600, lambda: None).cancel()
    assert clock.pending < 1_000
    keep = clock.call_later(600, lambda: None)
    assert clock.pending >= 1
    keep.cancel()
    keep.cancel()
    assert clock.close()


def test_a_callback_that_raises_ends_no_other_timer() -> None:
    clock = SystemClock()
    done = threading.Event()

    def bad() -> None:
        raise SystemExit

    clock.call_later(0, bad)
    clock.call_later(0.01, done.set)
    assert done.wait(5)
    assert clock.close()


def test_a_closed_clock_fires_nothing_and_can_be_closed_again() -> None:
    clock = SystemClock()
    seen: list[int] = []
    clock.call_later(0.01, lambda: seen.append(1))
    assert clock.close()
    clock.call_later(0, lambda: seen.append(2)).cancel()
    assert clock.close()
    assert seen == []
    assert clock.utc().tzinfo is not None


def test_a_timer_for_ever_is_no_error() -> None:
    clock = SystemClock()
    timer = clock.call_later(float("inf"), lambda: None)
    done = threading.Event()
    clock.call_later(0, done.set)
    assert done.wait(5)
    timer.cancel()
    assert clock.close()


def test_the_error_of_an_unanswered_reply_is_none() -> None:
    reply: Reply[int] = Reply()
    assert reply.error() is None
    reply.fail(Busy("full"))
    assert isinstance(reply.error(), Busy)
