"""Child specifications, and the record of a child's failures.

Source: DESIGN.md rules 3 and 5.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from actors.supervision._actor import GuardedActor
from actors.supervision._context import ActorContext
from actors.supervision._settings import ActorSettings, RestartPolicy

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
        if ready_since is not None and now - ready_since >= policy.healthy_after:
            self._streak = 0
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
