"""Child specifications, the record of a child's failures, and what a supervisor keeps of each child.

Source: DESIGN.md rules 3 and 5.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from actors.supervision._actor import GuardedActor
from actors.supervision._clock import Timer
from actors.supervision._context import ActorContext
from actors.supervision._messages import Control, Envelope
from actors.supervision._settings import ActorSettings, RestartPolicy
from actors.supervision._slot import Slot

Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
"""``permanent``: always started again. ``transient``: after a failure only. ``temporary``: never."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What a supervisor needs to start a child, and to start it again.

    ``start`` makes the actor from its context, on the supervisor's thread: an actor class, or a ``partial`` of one.
    """

    name: str
    """Unique among its siblings, without ``/``; the actor's name is the path from the root."""
    start: Callable[[ActorContext], GuardedActor]
    restart: Restart = "permanent"
    settings: ActorSettings = field(default_factory=ActorSettings)
    on_give_up: Literal["quarantine", "escalate"] = "quarantine"
    """Out of restarts, or corrupt: the child is quarantined, or its supervisor ends with that reason."""
    drains_first: bool = False
    """At shutdown it refuses and drains while its siblings still serve it, and ends in its own turn after them."""
    stops_first: bool = False
    """At shutdown it stops before anything drains, wherever below the stopping supervisor it is."""

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name or self.name == "..":
            raise ValueError(f"a child's name is one path segment, not {self.name!r}")


class RestartHistory:
    """Decides when a failed child starts again, and when to give up."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._restarts: deque[float] = deque()
        self._streak = 0

    def next_delay(self, now: float, ready_since: float | None, chance: random.Random) -> float | None:
        """Seconds until the restart of a child that failed ``now``; ``None`` when its restarts are used up."""
        policy = self._policy
        while self._restarts and now - self._restarts[0] >= policy.within:
            self._restarts.popleft()
        if len(self._restarts) >= policy.restarts:
            return None
        healthy = 0.0 if ready_since is None else now - ready_since
        forgiven = self._streak if healthy >= policy.healthy_after else int(healthy // policy.forgiven_after)
        self._streak = max(0, self._streak - forgiven)
        self._restarts.append(now)
        self._streak += 1
        if self._streak == 1:
            return 0.0
        # The exponent is bounded: a float overflows long after the longest delay is reached.
        delay = min(policy.longest_delay, policy.first_delay * policy.factor ** min(self._streak - 2, 64))
        return delay * (1.0 + chance.uniform(-policy.jitter, policy.jitter))

    def clear(self) -> None:
        """Forget everything: a released child begins anew."""
        self._restarts.clear()
        self._streak = 0


class Child:
    """What the supervisor knows of one child; touched on the supervisor's thread only."""

    def __init__(self, spec: ChildSpec, slot: Slot) -> None:
        self.spec = spec
        self.slot = slot
        self.history = RestartHistory(spec.settings.restarts)
        self.wanted = True
        self.alive = False
        self.context: ActorContext | None = None
        self.is_supervisor = False
        self.ready_since: float | None = None
        self.due_at = 0.0
        self.must_stop = False
        self.stop_sent = False
        self.stop_drain = 0.0
        self.drained = False
        self.quiesced = False
        self.stuck = False
        self.start_overdue = False
        self.waiters: list[Envelope] = []
        self.timers: list[Timer] = []

    @property
    def gone(self) -> bool:
        return not self.alive or self.stuck

    def send(self, message: Control) -> None:
        if self.context is not None:
            self.context.inbox.control(message)

    def reset(self) -> None:
        """Down: nothing of the last incarnation counts any more."""
        self.cancel_timers()
        self.alive = self.stop_sent = self.must_stop = self.drained = self.quiesced = False
        self.stuck = self.start_overdue = False
        self.context = None
        self.ready_since = None

    def cancel_timers(self) -> None:
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()
