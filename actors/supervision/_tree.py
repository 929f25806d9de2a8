"""A running tree: the root supervisor, handles by path, health of all, and the orderly close.

Source: DESIGN.md ("The tree", rules 6 and 9).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pykka

from actors.supervision._child import ChildSpec
from actors.supervision._commands import QuarantineChild, ReleaseChild, StartChild, StopChild
from actors.supervision._context import ActorContext
from actors.supervision._environment import Environment
from actors.supervision._handle import ActorHandle
from actors.supervision._health import ActorHealth
from actors.supervision._messages import Control, Deliver, Drain, Ended
from actors.supervision._reply import Reply
from actors.supervision._settings import ActorSettings, InboxLimits
from actors.supervision._supervisor import Strategy, Supervisor
from messages.envelope import Deadline
from messages.errors import InternalError

ROOT_SETTINGS: Final = ActorSettings(inbox=InboxLimits(requests=1_024, per_audience=1_024))
"""A root is asked by the runtime alone, which may stop every store at once: one audience may fill its mailbox."""

_COMMAND_SECONDS = 30.0
_CLOSE_GRACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ClosedTree:
    """How a close went: the names of actors whose threads had not returned from a call when waiting ended."""

    stuck: tuple[str, ...]


class SupervisorHandle(ActorHandle):
    """Commands to a supervisor. Each returns its reply at once; the supervisor answers when it is done."""

    __slots__ = ()

    def start_child(self, spec: ChildSpec) -> Reply[ActorHandle]:
        """Start ``spec`` (nothing if it runs); its handle takes requests before the child is up."""
        return self.ask(StartChild(spec), deadline=self._deadline(_COMMAND_SECONDS))

    def stop_child(self, name: str, *, drain: float | None = None) -> Reply[bool]:
        """Stop a child in order: refuse, drain at most ``drain`` seconds, end. ``True`` once it is down."""
        return self.ask(StopChild(name, drain), deadline=self._deadline(_COMMAND_SECONDS + (drain or 0.0)))

    def quarantine(self, name: str, reason: str) -> Reply[bool]:
        """Take a child out of service. ``True`` once it is down."""
        return self.ask(QuarantineChild(name, reason), deadline=self._deadline(_COMMAND_SECONDS))

    def release(self, name: str, spec: ChildSpec | None = None) -> Reply[bool]:
        """Put a quarantined child back into service, by another ``spec`` if given; ``False`` if it was in none."""
        return self.ask(ReleaseChild(name, spec), deadline=self._deadline(_COMMAND_SECONDS))

    def child(self, name: str) -> ActorHandle:
        """A handle on the child called ``name``, whether it runs or not."""
        environment = self._slot.environment
        return ActorHandle(environment.slot(f"{self.name}/{name}"))

    def supervisor(self, name: str) -> SupervisorHandle:
        """As :meth:`child`, for a child that is a supervisor itself."""
        return SupervisorHandle(self._slot.environment.slot(f"{self.name}/{name}"))

    def _deadline(self, seconds: float) -> Deadline:
        return Deadline.after(seconds, self._slot.environment.clock.monotonic)


class Tree:
    """One root supervisor and everything below it. Used from any thread; close it, or use it as a context manager."""

    def __init__(
        self,
        children: Sequence[ChildSpec] = (),
        *,
        strategy: Strategy = "one_for_one",
        environment: Environment | None = None,
        settings: ActorSettings | None = None,
        name: str = "root",
    ) -> None:
        """Start the root and, on its thread, ``children``; returns at once: requests wait until they are up."""
        self.environment = environment or Environment()
        self._ended = threading.Event()
        self._ending: Ended | None = None
        slot = self.environment.slot(name)
        slot.await_start(settings or ROOT_SETTINGS, keeps_requests=False)
        self.root = SupervisorHandle(slot)
        self._context = ActorContext(slot, self._notice)
        root = Supervisor(self._context, strategy, children)
        pykka.ActorRegistry.register(root.actor_ref)
        try:
            root._start_actor_loop()  # what pykka's own start() does after the constructor
        except BaseException:
            pykka.ActorRegistry.unregister(root.actor_ref)
            slot.set_stopped()
            raise

    def handle(self, path: str) -> ActorHandle:
        """A handle on the actor at ``path`` below the root (``store 1/lane``), whether it runs or not."""
        return self.root.child(path)

    def health(self) -> tuple[ActorHealth, ...]:
        """The snapshots of all actors, parents first; nobody is asked."""
        return tuple(slot.health() for slot in self.environment.slots())

    @property
    def ended(self) -> bool:
        """Whether the root has ended: by a close, or because it could not go on."""
        return self._ended.is_set()

    def close(self, drain_seconds: float = 5.0) -> ClosedTree:
        """Stop everything in order and wait for it; a second close waits for the first. Not from an actor's thread.

        Waits at most the drain and a grace of 10 s; actors stuck in a call are named, their threads left alone.
        """
        until = self.environment.clock.monotonic() + drain_seconds
        self._context.inbox.control(Drain(until))
        if self.environment.drive is not None:
            self.environment.drive(lambda: self.ended or self._only_stuck())
        else:
            limit = drain_seconds + _CLOSE_GRACE_SECONDS
            waited = 0.0
            while not self._ended.wait(0.05) and waited < limit and not self._only_stuck():
                waited += 0.05
        if self.ended:
            self.environment.close()
        return ClosedTree(tuple(slot.name for slot in self.environment.slots() if slot.state == "stuck" and slot.live))

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _only_stuck(self) -> bool:
        """Whether all that is left are stuck actors and the supervisors that wait for them."""
        live = [slot for slot in self.environment.slots() if slot.live]
        stuck = [slot.name for slot in live if slot.state == "stuck"]
        return bool(stuck) and all(
            slot.state == "stuck" or any(name.startswith(slot.name + "/") for name in stuck) for slot in live
        )

    def _notice(self, notice: Control) -> bool:
        if isinstance(notice, Deliver) and isinstance(notice.message, Ended):
            self._ending = notice.message
            if notice.message.reason != "stopped":
                error = InternalError("The supervision tree ended by a defect; restart the process.")
                self._context.slot.last_error = error.code
            self._context.slot.set_stopped()
            self._ended.set()
        elif isinstance(notice, Deliver):
            self._context.slot.mark_ready(self._context.incarnation)
        return True
