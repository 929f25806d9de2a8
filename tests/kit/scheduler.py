"""A virtual scheduler: the real actor classes in one thread, in an order drawn from a seed, on a clock of its own.

Same seed, same trace. Nothing sleeps: time moves only when nothing else can happen, straight to the next timer.

    scheduler = VirtualScheduler(seed=7)
    with scheduler.tree([ChildSpec("lane", Lane)]) as tree:
        reply = tree.handle("lane").ask(...)
        assert reply.result() == ...          # runs the scheduler until the answer is there
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from actors.supervision import ChildSpec, Environment, GuardedActor, Strategy, Tree
from messages.envelope import Deadline

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class _VirtualTimer:
    def __init__(self, at: float, callback: Callable[[], object]) -> None:
        self.at = at
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualClock:
    """A clock that stands still until it is moved; timers fire only when :meth:`fire` is called.

    It starts before any real clock stands: a deadline that a parser took from the real one has not passed.
    """

    def __init__(self, start: float = 1.0) -> None:
        self._start = start
        self._now = start
        self._heap: list[tuple[float, int, _VirtualTimer]] = []
        self._order = 0

    def monotonic(self) -> float:
        return self._now

    def utc(self) -> datetime:
        return EPOCH + timedelta(seconds=self._now - self._start)

    def call_later(self, delay: float, callback: Callable[[], object]) -> _VirtualTimer:
        timer = _VirtualTimer(self._now + max(0.0, delay), callback)
        self._order += 1
        heapq.heappush(self._heap, (timer.at, self._order, timer))
        return timer

    def next_at(self) -> float | None:
        """When the next live timer is due."""
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def move_to(self, at: float) -> None:
        """Move forward without firing anything."""
        self._now = max(self._now, at)

    def fire(self) -> bool:
        """Run the first timer that is due now; false if none is."""
        at = self.next_at()
        if at is None or at > self._now:
            return False
        timer = heapq.heappop(self._heap)[2]
        callback, timer.callback = timer.callback, None
        assert callback is not None
        callback()
        return True


class _Life:
    def __init__(self, actor: GuardedActor) -> None:
        self.actor = actor
        self.turns: Generator[None, None, None] = actor.turns()
        self.begun = False
        self.inside = False

    @property
    def name(self) -> str:
        return self.actor.context.name

    def runnable(self) -> bool:
        return not self.inside and (not self.begun or self.actor.context.inbox.ready())


class VirtualScheduler:
    """Runs actors step by step. One step is one actor's start, one message, or one due timer, chosen by the seed."""

    def __init__(self, seed: int, *, max_steps: int = 200_000) -> None:
        self.clock = VirtualClock()
        self.trace: list[str] = []
        self._choice = random.Random(seed)
        self._lives: list[_Life] = []
        self._suspended: set[str] = set()
        self._steps_left = max_steps
        self.environment = Environment(
            clock=self.clock,
            random_source=random.Random(seed + 1),
            launch=self._launch,
            drive=self.run_until,
            observe=self._observe,
        )

    @contextmanager
    def tree(self, children: Sequence[ChildSpec], strategy: Strategy = "one_for_one") -> Iterator[Tree]:
        """A tree on this scheduler, closed at the end of the block, after which nobody may be alive."""
        tree = Tree(children, strategy=strategy, environment=self.environment)
        try:
            yield tree
        finally:
            self._suspended.clear()
            closed = tree.close()
            assert not closed.stuck
            assert self.alive() == []

    def deadline(self, seconds: float) -> Deadline:
        """A deadline on the virtual clock."""
        return Deadline.after(seconds, self.clock.monotonic)

    def alive(self) -> list[str]:
        """The names of actors that have not ended."""
        return [life.name for life in self._lives]

    def suspend(self, name: str) -> None:
        """Give ``name`` no more turns, as if its thread did not come back from a call."""
        self._suspended.add(name)

    def wake(self, name: str) -> None:
        """Undo :meth:`suspend`."""
        self._suspended.discard(name)

    def settle(self) -> None:
        """Run until nobody can act without time moving on."""
        while self._step():
            pass

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, running everything that happens meanwhile."""
        end = self.clock.monotonic() + seconds
        while True:
            self.settle()
            at = self.clock.next_at()
            if at is None or at > end:
                break
            self.clock.move_to(at)
        self.clock.move_to(end)
        self.settle()

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Run until ``condition`` holds; fails when nothing can happen any more and it does not."""
        while not condition():
            if self._step():
                continue
            at = self.clock.next_at()
            if at is None:
                raise AssertionError(f"nothing can happen any more; alive: {self.alive()}; trace: {self.trace[-20:]}")
            self.clock.move_to(at)

    def _step(self) -> bool:
        self._steps_left -= 1
        if self._steps_left <= 0:
            raise AssertionError(f"no end in sight; trace: {self.trace[-20:]}")
        runnable = [life for life in self._lives if life.name not in self._suspended and life.runnable()]
        due = self.clock.next_at()
        timer_due = due is not None and due <= self.clock.monotonic()
        if not runnable and not timer_due:
            return False
        index = self._choice.randrange(len(runnable) + timer_due)
        if index == len(runnable):
            self.trace.append(f"{self.clock.monotonic():.3f} timer")
            return self.clock.fire()
        self._run(runnable[index])
        return True

    def _run(self, life: _Life) -> None:
        life.begun = True
        life.inside = True
        try:
            next(life.turns)
        except StopIteration:
            self._note(life.name, life.actor.context.incarnation, "ended")
            self._lives.remove(life)
        finally:
            life.inside = False

    def _launch(self, actor: GuardedActor) -> None:
        self._note(actor.context.name, actor.context.incarnation, "launched")
        self._lives.append(_Life(actor))

    def _observe(self, name: str, incarnation: int, what: str) -> None:
        self._note(name, incarnation, what)

    def _note(self, name: str, incarnation: int, what: str) -> None:
        self.trace.append(f"{self.clock.monotonic():.3f} {name}#{incarnation} {what}")
