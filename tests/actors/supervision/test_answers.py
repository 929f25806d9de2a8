"""DESIGN.md rule 2: every request has an absolute deadline and exactly one terminal answer."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

import pytest

from actors.supervision import PARKED, ActorContext, ActorSettings, ChildSpec, Envelope, InboxLimits, Phase, Reply, Tree
from messages.envelope import Cancellation, Deadline
from messages.errors import (
    Busy,
    Cancelled,
    DeadlineExceeded,
    Denied,
    InternalError,
    LimitExceeded,
    Poison,
    Quarantined,
    Restarting,
    Stopping,
)
from tests.kit.actors import Block, Corrupt, Echo, Park, Probe, Raise, ask, eventually, failure
from tests.kit.scheduler import VirtualScheduler

GRACE = 0.25


def test_a_request_gets_exactly_one_terminal_answer_however_many_threads_give_one() -> None:
    for _ in range(200):
        reply: Reply[int] = Reply()
        seen: list[int] = []
        reply.add_done_callback(lambda done, seen=seen: seen.append(done.result()))  # type: ignore[misc]
        barrier = threading.Barrier(4)
        won: list[int] = []

        def give(
            value: int,
            reply: Reply[int] = reply,
            barrier: threading.Barrier = barrier,
            won: list[int] = won,
        ) -> None:
            barrier.wait()
            if reply.succeed(value):
                won.append(value)

        threads = [threading.Thread(target=give, args=(value,)) for value in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == won
        assert len(won) == 1
        assert not reply.fail(Busy("too late"))
        assert reply.result() == won[0]


def test_the_deadline_is_answered_even_while_the_actor_is_stuck_in_c() -> None:
    entered, leave = threading.Event(), threading.Event()
    with Tree([ChildSpec("a", Probe)]) as tree:
        handle = tree.handle("a")
        running = ask(handle, Block(entered, leave), 0.3)
        assert entered.wait(5)
        begun = time.monotonic()
        queued = ask(handle, Echo(1), 0.2)
        safe = failure(queued)
        assert 0.19 <= time.monotonic() - begun < 0.2 + GRACE
        unknown = failure(running)
        assert time.monotonic() - begun < 0.3 + GRACE
        leave.set()
        assert ask(handle, Echo(2)).result() == 2
    assert isinstance(safe, DeadlineExceeded)
    assert isinstance(unknown, DeadlineExceeded)
    assert (safe.retry, unknown.retry) == ("safe", "unknown")


def test_a_request_whose_deadline_passed_in_the_queue_never_runs() -> None:
    entered, leave = threading.Event(), threading.Event()
    log: list[str] = []

    class Noting(Probe):
        def on_ask(self, message: object, envelope: Envelope) -> object:
            log.append(type(message).__name__)
            return super().on_ask(message, envelope)

    with Tree([ChildSpec("a", Noting)]) as tree:
        ask(tree.handle("a"), Block(entered, leave))
        assert entered.wait(5)
        failure(ask(tree.handle("a"), Echo(1), 0.05))
        leave.set()
        ask(tree.handle("a"), Park(), 0.05)
        assert ask(tree.handle("a"), Block(entered, leave)).result() == "unblocked"
    assert log == ["Block", "Park", "Block"]


def test_a_parked_request_still_gets_its_deadline_answer_and_it_is_unknown() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe)]) as tree:
        begun = scheduler.clock.monotonic()
        answer = failure(tree.handle("a").ask(Park(), deadline=scheduler.deadline(3)))
        assert scheduler.clock.monotonic() == begun + 3
    assert isinstance(answer, DeadlineExceeded)
    assert answer.retry == "unknown"


def test_a_parked_request_dies_typed_when_its_actor_dies() -> None:
    with Tree([ChildSpec("a", Probe)]) as tree:
        parked = ask(tree.handle("a"), Park())
        ask(tree.handle("a"), Raise(ValueError()))
        answer = failure(parked)
    assert isinstance(answer, Restarting)
    assert answer.retry == "unknown"


def test_a_parked_request_can_be_completed_from_any_thread() -> None:
    class Later(Probe):
        def on_ask(self, message: object, envelope: Envelope) -> object:
            reply = envelope.reply
            assert reply is not None
            threading.Thread(target=lambda: reply.succeed("later")).start()
            return PARKED

    with Tree([ChildSpec("a", Later)]) as tree:
        assert ask(tree.handle("a"), Echo(1)).result() == "later"


@pytest.mark.parametrize("seed", range(20))
def test_what_did_not_run_is_safe_and_what_may_have_run_is_unknown(seed: int) -> None:
    """One lane, requests of every fate, in twenty orders: the handler's own record decides what had begun."""
    begun: set[str] = set()

    class Recording(Probe):
        def on_ask(self, message: object, envelope: Envelope) -> object:
            begun.add(envelope.correlation_id)
            return super().on_ask(message, envelope)

    scheduler = VirtualScheduler(seed)
    replies: dict[str, Reply[object]] = {}
    with scheduler.tree([ChildSpec("a", Recording)]) as tree:
        for turn in range(40):
            message: object = (Echo(turn), Park(), Raise(ValueError()), Denied_(), Echo(turn))[turn % 5]
            key = f"{turn}"
            replies[key] = tree.handle("a").ask(
                message, deadline=scheduler.deadline(0.2 + turn % 3), correlation_id=key, fairness_key=f"{turn % 4}"
            )
            if turn % 7 == 0:
                scheduler.advance(0.05)
    for key, reply in replies.items():
        assert reply.done()
        error = reply.error()
        if error is None:
            assert key in begun
        elif isinstance(error, Denied):
            assert error.retry == "never"
        else:
            assert error.retry == ("unknown" if key in begun else "safe"), (key, error)


def Denied_() -> Raise:  # noqa: N802 - stands in a row of messages
    return Raise(Denied("not yours"))


def test_the_message_that_crashed_a_lane_is_not_replayed() -> None:
    seen: list[str] = []

    class Counting(Probe):
        def on_ask(self, message: object, envelope: Envelope) -> object:
            seen.append(type(message).__name__)
            return super().on_ask(message, envelope)

    with Tree([ChildSpec("a", Counting)]) as tree:
        failure(ask(tree.handle("a"), Raise(ValueError())))
        assert ask(tree.handle("a"), Echo(1)).result() == 1
    assert seen == ["Raise", "Echo"]


def test_a_request_id_that_crashes_it_twice_in_one_process_is_refused_as_poison() -> None:
    with Tree([ChildSpec("a", Probe)]) as tree:
        handle = tree.handle("a")
        first, second, third = (failure(ask(handle, Raise(ValueError()), request_key="k")) for _ in range(3))
        assert isinstance(first, InternalError)
        assert isinstance(second, InternalError)
        assert isinstance(third, Poison)
        assert third.retry == "never"
        assert ask(handle, Echo(1), request_key="another").result() == 1
        assert handle.health().crashes == 2


def test_poison_is_remembered_across_a_quarantine_and_its_release() -> None:
    with Tree([ChildSpec("a", Probe)]) as tree:
        handle = tree.handle("a")
        for _ in range(2):
            failure(ask(handle, Raise(ValueError()), request_key="k"))
        tree.root.quarantine("a", "a look at it").result()
        tree.root.release("a").result()
        assert ask(handle, Echo(1)).result() == 1
        assert isinstance(failure(ask(handle, Echo(1), request_key="k")), Poison)


def test_a_crash_in_the_continuation_of_a_parked_request_is_that_requests() -> None:
    class Continuing(Probe):
        def on_ask(self, message: object, envelope: Envelope) -> object:
            self.context.tell_self(Raise(ValueError()), envelope)
            return PARKED

    with Tree([ChildSpec("a", Continuing)]) as tree:
        first, second, third = (failure(ask(tree.handle("a"), Echo(1), request_key="k")) for _ in range(3))
    assert [type(answer) for answer in (first, second, third)] == [InternalError, InternalError, Poison]


def test_a_request_cancelled_in_the_queue_does_not_run() -> None:
    entered, leave = threading.Event(), threading.Event()
    cancellation = Cancellation()
    with Tree([ChildSpec("a", Probe)]) as tree:
        ask(tree.handle("a"), Block(entered, leave))
        assert entered.wait(5)
        reply = tree.handle("a").ask(Echo(1), deadline=Deadline.after(10), cancellation=cancellation)
        cancellation.cancel()
        leave.set()
        answer = failure(reply)
        assert tree.environment.dead_letters.counts() == {"cancelled": 1}
    assert isinstance(answer, Cancelled)
    assert answer.retry == "safe"


def test_a_request_cancelled_or_late_before_it_was_sent_is_answered_at_once() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with Tree([ChildSpec("a", Probe)]) as tree:
        reply = tree.handle("a").ask(Echo(1), deadline=Deadline.after(10), cancellation=cancellation)
        assert isinstance(reply.error(), Cancelled)
        assert isinstance(tree.handle("a").ask(Echo(1), deadline=Deadline.after(-1)).error(), DeadlineExceeded)


@pytest.mark.parametrize("at", [float("inf"), float("nan")])
def test_an_ask_without_a_finite_deadline_is_a_defect_of_the_caller(at: float) -> None:
    with Tree([ChildSpec("a", Probe)]) as tree, pytest.raises(ValueError, match="finite"):
        tree.handle("a").ask(Echo(1), deadline=Deadline(at))


def test_a_very_far_deadline_is_no_error() -> None:
    with Tree([ChildSpec("a", Probe)]) as tree:
        assert tree.handle("a").ask(Echo(1), deadline=Deadline(1e300)).result() == 1


def test_the_retry_of_every_refusal_is_safe() -> None:
    entered, leave = threading.Event(), threading.Event()
    limits = InboxLimits(requests=3, per_audience=2, bytes=100)
    with Tree([ChildSpec("a", Probe, settings=ActorSettings(inbox=limits))]) as tree:
        handle = tree.handle("a")
        ask(handle, Block(entered, leave), fairness_key="x")
        assert entered.wait(5)
        waiting = ask(handle, Echo(1), fairness_key="x")
        audience = ask(handle, Echo(1), fairness_key="x")
        size = ask(handle, Echo(1), fairness_key="y", size=101)
        last = ask(handle, Echo(1), fairness_key="y", size=90)
        full = ask(handle, Echo(1), fairness_key="z")
        leave.set()
        assert waiting.result() == 1
        assert last.result() == 1
        full_bytes = [ask(handle, Park(), fairness_key="y", size=60), ask(handle, Park(), fairness_key="y", size=60)][1]
        assert [failure(reply).code for reply in (audience, full, full_bytes)] == ["busy"] * 3
        assert [failure(reply).retry for reply in (audience, full, full_bytes)] == ["safe"] * 3
        assert [failure(reply).fields["scope"] for reply in (audience, full, full_bytes)] == [
            "audience",
            "requests",
            "bytes",
        ]
        assert isinstance(failure(size), LimitExceeded)
        tree.close(drain_seconds=0)


@pytest.mark.parametrize(
    ("end", "queued", "parked"),
    [
        (lambda tree: ask(tree.handle("a"), Raise(ValueError()), fairness_key="end"), Restarting, Restarting),
        (lambda tree: ask(tree.handle("a"), Corrupt(Denied("x")), fairness_key="end"), Quarantined, Quarantined),
        (lambda tree: begun(tree, tree.root.stop_child("a", drain=0), "stopping"), Stopping, Stopping),
        (lambda tree: begun(tree, tree.root.quarantine("a", "by hand"), "quarantined"), Quarantined, Quarantined),
    ],
    ids=["crash", "corruption", "stop", "quarantine"],
)
def test_whatever_ends_an_actor_nothing_admitted_stays_unanswered(
    end: Callable[[Tree], Reply[object]], queued: type[Exception], parked: type[Exception]
) -> None:
    entered, leave = threading.Event(), threading.Event()
    with Tree([ChildSpec("a", Probe)]) as tree:
        handle = tree.handle("a")
        waiting_parked = ask(handle, Park(), fairness_key="1")
        running = ask(handle, Block(entered, leave), fairness_key="2")
        assert entered.wait(5)
        # The end's message gets its turn before the third audience's second one.
        ended = end(tree)
        waiting = [ask(handle, Block(threading.Event(), leave), fairness_key="3") for _ in range(3)]
        leave.set()
        errors = [reply.error() for reply in waiting if not isinstance(_wait(reply), str)]
        assert isinstance(_wait(waiting_parked), parked)
        _wait(running)
        _wait(ended)
        assert all(isinstance(error, queued | parked) for error in errors)
        assert errors


def begun(tree: Tree, command: Reply[object], state: str) -> Reply[object]:
    eventually(lambda: tree.handle("a").health().state == state)
    return command


def _wait(reply: Reply[object]) -> object:
    try:
        return reply.result()
    except Exception as error:  # noqa: BLE001 - the answer is looked at, whatever it is
        return error


def test_the_place_in_the_mailbox_is_free_before_the_caller_sees_its_answer() -> None:
    limits = InboxLimits(per_audience=1)
    with Tree([ChildSpec("a", Probe, settings=ActorSettings(inbox=limits))]) as tree:
        for turn in range(2_000):
            assert ask(tree.handle("a"), Echo(turn), fairness_key="me").result() == turn


def test_a_waiting_caller_ends_its_own_wait_when_every_thread_of_the_clock_is_held_up() -> None:
    with Tree([ChildSpec("a", Probe)]) as tree:
        leave = threading.Event()
        held = threading.Semaphore(0)

        def hold() -> None:
            held.release()
            leave.wait(10)

        for _ in range(4):
            tree.environment.clock.call_later(0, hold)
        assert all(held.acquire(timeout=5) for _ in range(4))
        begun = time.monotonic()
        answer = failure(ask(tree.handle("a"), Park(), 0.2))
        assert time.monotonic() - begun < 0.2 + GRACE
        leave.set()
    assert isinstance(answer, DeadlineExceeded)


def test_what_a_callback_raises_does_not_end_the_lane_that_answers() -> None:
    entered, leave = threading.Event(), threading.Event()

    def bad(_: Reply[object]) -> None:
        raise SystemExit

    with Tree([ChildSpec("a", Probe)]) as tree:
        reply = ask(tree.handle("a"), Block(entered, leave))
        reply.add_done_callback(bad)
        leave.set()
        assert reply.result() == "unblocked"
        assert ask(tree.handle("a"), Echo(1)).result() == 1
        assert tree.handle("a").health().incarnation == 1


def test_a_callback_added_after_the_answer_runs_at_once() -> None:
    reply: Reply[int] = Reply()
    reply.succeed(1)
    seen: list[int] = []
    reply.add_done_callback(lambda done: seen.append(done.result()))
    assert seen == [1]


def test_a_refusal_that_cannot_be_made_is_still_an_answer() -> None:
    def broken(_: Phase) -> InternalError:
        raise RuntimeError

    reply: Reply[int] = Reply()
    assert reply.fail_by_phase(broken)
    with pytest.raises(InternalError):
        reply.result(0)


def test_a_wait_with_a_timeout_leaves_the_reply_open() -> None:
    reply: Reply[int] = Reply()
    with pytest.raises(DeadlineExceeded):
        reply.result(0.01)
    assert reply.succeed(1)
    assert reply.result() == 1


def test_a_dying_actor_takes_no_new_request_with_it() -> None:
    """Between the crash and the close of the mailbox, new requests already wait for the next incarnation."""
    inside, go_on = threading.Event(), threading.Event()

    class SlowToEnd(Probe):
        def __init__(self, context: ActorContext) -> None:
            super().__init__(context)

        def on_ended(self) -> None:
            if self.context.incarnation == 1:
                inside.set()
                go_on.wait(10)

    with Tree([ChildSpec("a", SlowToEnd)]) as tree:
        ask(tree.handle("a"), Raise(ValueError()))
        assert inside.wait(5)
        reply = ask(tree.handle("a"), Echo("next"))
        go_on.set()
        assert reply.result() == "next"
        assert reply.incarnation == 2


def test_a_request_answered_at_the_moment_of_its_pick_up_does_not_run() -> None:
    ran: list[object] = []

    class Noting(Probe):
        def on_ask(self, message: object, envelope: Envelope) -> object:
            ran.append(message)
            return super().on_ask(message, envelope)

    class Answering(Cancellation):
        """Answers the request while the actor looks whether it was cancelled."""

        reply: Reply[object] | None = None

        @property
        def requested(self) -> bool:
            if self.reply is not None:
                self.reply.fail(Busy("just now"))
            return False

    cancellation = Answering()
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Noting)]) as tree:
        cancellation.reply = tree.handle("a").ask(Echo(1), deadline=scheduler.deadline(5), cancellation=cancellation)
        assert isinstance(failure(cancellation.reply), Busy)
        scheduler.settle()
        assert tree.handle("a").ask(Echo(2), deadline=scheduler.deadline(5)).result() == 2
    assert ran == [Echo(2)]


def test_a_late_request_is_refused_at_its_pick_up_even_if_no_timer_came() -> None:
    ran: list[object] = []

    class Noting(Probe):
        def on_ask(self, message: object, envelope: Envelope) -> object:
            ran.append(type(message))
            return super().on_ask(message, envelope)

    entered, leave, held, free = threading.Event(), threading.Event(), threading.Semaphore(0), threading.Event()

    def hold() -> None:
        held.release()
        free.wait(10)

    with Tree([ChildSpec("a", Noting)]) as tree:
        clock = tree.environment.clock
        running = ask(tree.handle("a"), Block(entered, leave))
        assert entered.wait(5)
        for _ in range(4):
            clock.call_later(0, hold)
        assert all(held.acquire(timeout=5) for _ in range(4))
        deadline = Deadline.after(0.05)
        late = tree.handle("a").ask(Echo(1), deadline=deadline)
        eventually(deadline.passed)
        leave.set()
        answered = threading.Event()
        late.add_done_callback(lambda _: answered.set())
        assert answered.wait(5)
        free.set()
        error = late.error()
        assert isinstance(error, DeadlineExceeded)
        assert error.retry == "safe"
        assert running.result() == "unblocked"
    assert ran == [Block]


def test_an_answered_request_leaves_nothing_for_the_garbage_collector() -> None:
    def count() -> int:
        return sum(isinstance(found, Reply | Envelope) for found in gc.get_objects())

    with Tree([ChildSpec("a", Probe)]) as tree:
        assert ask(tree.handle("a"), Echo(0)).result() == 0
        gc.collect()
        gc.disable()
        try:
            before = count()
            for turn in range(300):
                assert ask(tree.handle("a"), Echo(turn)).result() == turn
            assert count() - before < 10
        finally:
            gc.enable()
