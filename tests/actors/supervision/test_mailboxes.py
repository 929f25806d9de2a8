"""DESIGN.md rules 8 and 10: bounded, fair, closable mailboxes, and events that merge instead of getting lost."""

from __future__ import annotations

import threading
from collections import Counter

import pykka
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pykka._envelope import Envelope as PykkaEnvelope

from actors.supervision import ChildSpec, Envelope, EventMerger, Inbox, InboxLimits, MergedEvents, Phase, Reply, Tree
from messages.errors import Busy, KnowledgeError, Stopping
from tests.kit.actors import Block, Echo, Probe, ask
from tests.kit.scheduler import VirtualScheduler


def refused_foreign(_: Inbox, envelope: PykkaEnvelope[object]) -> None:
    raise AssertionError(f"unexpected {envelope}")


def box(limits: InboxLimits | None = None) -> Inbox:
    return Inbox("box", limits or InboxLimits(), refused_foreign)


def request(key: str, message: object = None, size: int = 0, *, passes_hold: bool = False) -> Envelope:
    return Envelope(message, Reply(), fairness_key=key, size=size, passes_hold=passes_hold)


def stop(phase: Phase) -> KnowledgeError:
    return Stopping("stopping", retry="safe" if phase is Phase.QUEUED else "unknown")


def taken(inbox: Inbox) -> list[object]:
    found: list[object] = []
    while (item := inbox.take()) is not None:
        assert isinstance(item, Envelope)
        found.append(item.message)
    return found


def test_audiences_are_served_in_turn_however_many_requests_one_of_them_sends() -> None:
    inbox = box()
    for number in range(30):
        assert inbox.admit(request("loud", f"loud {number}")) is None
    for name in ("quiet", "calm"):
        for number in range(2):
            assert inbox.admit(request(name, f"{name} {number}")) is None
    order = taken(inbox)
    assert order[:6] == ["loud 0", "quiet 0", "calm 0", "loud 1", "quiet 1", "calm 1"]
    assert order[6:] == [f"loud {number}" for number in range(2, 30)]


def test_a_request_waits_behind_at_most_one_of_each_other_audience() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe)]) as tree:
        handle = tree.handle("a")
        order: list[str] = []
        for number in range(32):
            for name in ("x", "y"):
                reply = handle.ask(Echo(f"{name}{number}"), deadline=scheduler.deadline(60), fairness_key=name)
                reply.add_done_callback(lambda done: order.append(str(done.result())))
        last = handle.ask(Echo("late"), deadline=scheduler.deadline(60), fairness_key="z")
        last.add_done_callback(lambda done: order.append(str(done.result())))
        last.result()
        assert order.index("late") <= 2


def test_a_mailbox_is_bounded_by_count_by_bytes_and_per_audience() -> None:
    assert (InboxLimits().requests, InboxLimits().bytes, InboxLimits().per_audience) == (256, 64 * 2**20, 32)
    inbox = box(InboxLimits(requests=4, bytes=10, per_audience=2))
    assert inbox.admit(request("a", size=4)) is None
    assert inbox.admit(request("a", size=4)) is None
    for refused, scope in ((request("a", size=1), "audience"), (request("b", size=3), "bytes")):
        error = inbox.admit(refused)
        assert isinstance(error, Busy)
        assert error.fields["scope"] == scope
    assert inbox.admit(request("b", size=2)) is None
    assert inbox.admit(request("c")) is None
    error = inbox.admit(request("d"))
    assert isinstance(error, Busy)
    assert error.fields["scope"] == "requests"
    assert inbox.figures() == (4, 4, 10)


def test_a_parked_request_counts_until_its_answer() -> None:
    inbox = box(InboxLimits(per_audience=1))
    parked = request("a")
    assert inbox.admit(parked) is None
    assert inbox.take() is parked
    assert parked.reply is not None
    assert parked.reply.begin(1)
    assert isinstance(inbox.admit(request("a")), Busy)
    parked.reply.succeed(None)
    assert inbox.admit(request("a")) is None


def test_a_request_answered_in_the_queue_leaves_it_and_frees_its_place() -> None:
    inbox = box(InboxLimits(per_audience=2, bytes=10))
    first, second = request("a", 1, size=5), request("a", 2, size=5)
    assert inbox.admit(first) is None
    assert inbox.admit(second) is None
    assert first.reply is not None
    first.reply.fail(Busy("expired"))
    assert inbox.figures() == (1, 1, 5)
    assert inbox.admit(request("a", 3, size=5)) is None
    assert taken(inbox) == [2, 3]


def test_closing_answers_everything_left_and_nothing_gets_in_afterwards() -> None:
    inbox = box()
    running, queued = request("a"), request("b")
    assert inbox.admit(running) is None
    assert inbox.take() is running
    assert running.reply is not None
    assert queued.reply is not None
    running.reply.begin(1)
    assert inbox.admit(queued) is None
    assert inbox.tell(Envelope("left")) == "queued"
    tells, _ = inbox.close(stop)
    assert [tell.message for tell in tells] == ["left"]
    for reply, retry in ((running.reply, "unknown"), (queued.reply, "safe")):
        error = reply.error()
        assert isinstance(error, Stopping)
        assert error.retry == retry
    assert isinstance(inbox.admit(request("a")), Stopping)
    assert inbox.tell(Envelope("late")) == "closed"
    assert inbox.take() is None


def test_no_request_slips_between_a_put_and_a_close() -> None:
    for _ in range(100):
        inbox = box(InboxLimits(requests=10_000, per_audience=10_000))
        replies: list[Reply[object]] = []
        barrier = threading.Barrier(3)

        def put(
            inbox: Inbox = inbox, replies: list[Reply[object]] = replies, barrier: threading.Barrier = barrier
        ) -> None:
            barrier.wait()
            for _ in range(50):
                envelope = request("a")
                assert envelope.reply is not None
                replies.append(envelope.reply)
                error = inbox.admit(envelope)
                if error is not None:
                    envelope.reply.fail(error)

        threads = [threading.Thread(target=put) for _ in range(2)]
        for thread in threads:
            thread.start()
        barrier.wait()
        inbox.close(stop)
        for thread in threads:
            thread.join()
        assert all(reply.done() for reply in replies)
        assert inbox.figures() == (0, 0, 0)


def test_tells_have_a_bound_of_their_own_and_full_requests_never_shut_them_out() -> None:
    inbox = box(InboxLimits(requests=1, tells=2))
    assert inbox.admit(request("a")) is None
    assert isinstance(inbox.admit(request("a")), Busy)
    assert [inbox.tell(Envelope(number)) for number in range(3)] == ["queued", "queued", "full"]
    taken(inbox)
    assert inbox.tell(Envelope(4)) == "queued"


def test_a_tell_that_coalesces_replaces_the_one_that_waits_where_it_stands() -> None:
    inbox = box(InboxLimits(tells=2))
    assert inbox.tell(Envelope("old", coalesce="k")) == "queued"
    assert inbox.tell(Envelope("other")) == "queued"
    assert [inbox.tell(Envelope(number, coalesce="k")) for number in range(1_000)] == ["merged"] * 1_000
    assert taken(inbox) == [999, "other"]
    assert inbox.tell(Envelope("again", coalesce="k")) == "queued"


def test_control_goes_ahead_of_data_but_does_not_starve_it() -> None:
    from actors.supervision._messages import Deliver

    inbox = box(InboxLimits(control_burst=3))
    assert inbox.admit(request("a", "data")) is None
    for number in range(10):
        inbox.control(Deliver(number, 1))
    order = [item.message for _ in range(11) if isinstance(item := inbox.take(), Deliver | Envelope)]
    assert order == [0, 1, 2, "data", 3, 4, 5, 6, 7, 8, 9]


def test_a_held_mailbox_serves_tells_and_passing_requests_only() -> None:
    inbox = box()
    inbox.hold()
    assert inbox.admit(request("a", "ordinary")) is None
    assert inbox.admit(request("a", "passing", passes_hold=True)) is None
    inbox.tell(Envelope("told"))
    assert taken(inbox) == ["passing", "told"]
    assert not inbox.ready()
    inbox.resume()
    assert taken(inbox) == ["ordinary"]


def test_pykkas_own_way_out_of_a_mailbox_is_closed() -> None:
    with pytest.raises(NotImplementedError):
        box().get()
    assert box().empty()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(0, 40), st.sampled_from(["put", "take", "answer", "drop"])),
        max_size=80,
    )
)
def test_whatever_happens_the_figures_are_those_of_the_unanswered_requests(
    steps: list[tuple[str, int, str]],
) -> None:
    limits = InboxLimits(requests=12, bytes=100, per_audience=5)
    inbox = box(limits)
    queued: list[Envelope] = []
    running: list[Envelope] = []
    for key, size, what in steps:
        if what == "put":
            envelope = request(key, size=size)
            error = inbox.admit(envelope)
            open_now = queued + running
            full = (
                len(open_now) >= limits.requests
                or sum(item.size for item in open_now) + size > limits.bytes
                or Counter(item.fairness_key for item in open_now)[key] >= limits.per_audience
            )
            assert (error is not None) == full
            if error is None:
                queued.append(envelope)
        elif what == "take":
            item = inbox.take()
            assert (item is None) == (not queued)
            if item is not None:
                assert isinstance(item, Envelope)
                first = next(other for other in queued if other.fairness_key == item.fairness_key)
                assert item is first, "in order within an audience"
                assert item.reply is not None
                assert item.reply.begin(1)
                queued.remove(item)
                running.append(item)
        elif (pool := running if what == "answer" else queued) != []:
            envelope = pool.pop(size % len(pool))
            assert envelope.reply is not None
            assert envelope.reply.succeed(None)
        assert inbox.figures() == (
            len(queued),
            len(queued) + len(running),
            sum(item.size for item in queued + running),
        )


def test_the_lane_is_told_once_however_many_events_come_before_it_takes() -> None:
    told: list[int] = []
    merger = EventMerger(100, lambda: told.append(1))
    for number in range(50):
        merger.add([f"{number % 5}.md"])
    assert len(told) == 1
    assert merger.take() == MergedEvents(frozenset(f"{number}.md" for number in range(5)))
    assert merger.take() == MergedEvents(frozenset())
    merger.add(["x"])
    assert len(told) == 2


def test_watcher_events_overflow_into_one_rescan_flag_and_are_never_lost() -> None:
    told: list[int] = []
    merger = EventMerger(3, lambda: told.append(1))
    merger.add(["a", "b", "c", "a"])
    merger.add(["d"])
    merger.add(["e"])
    assert merger.take() == MergedEvents(frozenset(), rescan=True)
    merger.add(["f"])
    merger.overflow()
    assert merger.take().rescan
    assert len(told) == 2
    merger.overflow()
    assert merger.take().rescan
    assert len(told) == 3
    merger.add([])
    assert len(told) == 3


def test_every_event_is_taken_or_covered_by_a_rescan_from_any_thread() -> None:
    woken = threading.Semaphore(0)
    merger = EventMerger(50, woken.release)
    taken_paths: set[str] = set()
    rescans = 0
    done = threading.Event()

    def put(start: int) -> None:
        for number in range(2_000):
            merger.add([f"{start + number}"])

    def take() -> None:
        nonlocal rescans
        while not done.is_set() or woken.acquire(blocking=False):
            if woken.acquire(timeout=0.01):
                events = merger.take()
                taken_paths.update(events.paths)
                rescans += events.rescan

    taker = threading.Thread(target=take)
    putters = [threading.Thread(target=put, args=(start,)) for start in (0, 10_000)]
    for thread in (taker, *putters):
        thread.start()
    for thread in putters:
        thread.join()
    done.set()
    taker.join()
    last = merger.take()
    taken_paths.update(last.paths)
    rescans += last.rescan
    expected = {str(start + number) for start in (0, 10_000) for number in range(2_000)}
    assert taken_paths == expected or rescans


def test_a_full_mailbox_refuses_at_once_and_never_blocks_the_caller() -> None:
    entered, leave = threading.Event(), threading.Event()
    with Tree([ChildSpec("a", Probe)]) as tree:
        ask(tree.handle("a"), Block(entered, leave))
        assert entered.wait(5)
        replies = [ask(tree.handle("a"), Echo(1), fairness_key="loud") for _ in range(33)]
        assert isinstance(replies[-1].error(), Busy)
        assert not any(reply.done() for reply in replies[:-1])
        leave.set()
        assert all(reply.result() == 1 for reply in replies[:-1])


def test_a_plain_put_is_not_data() -> None:
    with Tree([ChildSpec("a", Probe)]) as tree:
        assert ask(tree.handle("a"), Echo(1)).result() == 1
        refs = [ref for ref in pykka.ActorRegistry.get_all() if ref.actor_class is Probe]
        future = pykka.ThreadingFuture[object]()
        refs[0].actor_inbox.put(PykkaEnvelope("x", reply_to=future))
        with pytest.raises(pykka.ActorDeadError):
            future.get(timeout=5)
