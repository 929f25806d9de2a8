"""The virtual scheduler itself: reproducible, exhaustive in what it orders, and loud when nothing can happen."""

from __future__ import annotations

import threading

import pytest

from actors.supervision import ChildSpec, Reply
from tests.kit.actors import Echo, Park, Probe, Raise
from tests.kit.scheduler import VirtualScheduler


def run(seed: int) -> list[str]:
    scheduler = VirtualScheduler(seed)
    with scheduler.tree([ChildSpec(name, Probe) for name in "abc"]) as tree:
        replies: list[Reply[object]] = []
        for turn in range(5):
            for name in "abc":
                handle = tree.handle(name)
                message: object = Raise(ValueError()) if (turn, name) == (2, "b") else Echo(turn)
                replies.append(handle.ask(message, deadline=scheduler.deadline(5)))
        scheduler.run_until(lambda: all(reply.done() for reply in replies))
    return scheduler.trace


def test_the_same_seed_gives_the_same_trace() -> None:
    assert run(3) == run(3)


def test_different_seeds_give_different_orders() -> None:
    assert len({tuple(run(seed)) for seed in range(10)}) == 10


def test_it_runs_the_real_actor_classes_without_a_thread() -> None:
    before = threading.active_count()
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe)]) as tree:
        assert tree.handle("a").ask(Echo(1), deadline=scheduler.deadline(5)).result() == 1
        assert threading.active_count() == before


def test_time_moves_only_when_nothing_else_can_happen() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe)]) as tree:
        begun = scheduler.clock.monotonic()
        for value in range(100):
            assert tree.handle("a").ask(Echo(value), deadline=scheduler.deadline(5)).result() == value
        assert scheduler.clock.monotonic() == begun
        parked = tree.handle("a").ask(Park(), deadline=scheduler.deadline(5))
        scheduler.run_until(parked.done)
        assert scheduler.clock.monotonic() == begun + 5


def test_a_condition_that_can_never_hold_fails_instead_of_hanging() -> None:
    scheduler = VirtualScheduler(0)
    with scheduler.tree([ChildSpec("a", Probe)]):
        with pytest.raises(AssertionError, match="nothing can happen any more"):
            scheduler.run_until(lambda: False)
