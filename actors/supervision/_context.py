"""What an actor knows of the world: its name, incarnation, clock, timers and the handles it may have.

Source: DESIGN.md ("Who may ask whom", rules 3 and 7).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TypeVar

from actors.supervision._clock import Clock, Timer
from actors.supervision._environment import Environment
from actors.supervision._handle import ActorHandle, TellHandle
from actors.supervision._inbox import Inbox
from actors.supervision._messages import Control, Deliver, Envelope
from actors.supervision._reply import Reply
from actors.supervision._settings import ActorSettings
from actors.supervision._slot import Slot
from messages.json_types import JsonValue

R = TypeVar("R")


class ActorContext:
    """One incarnation's view of its surroundings. Made by the parent, used on the actor's thread.

    Timers, piped answers and :meth:`tell_self` may come from any thread; they reach this incarnation or nobody.
    """

    def __init__(self, slot: Slot, notify: Callable[[Control], bool]) -> None:
        self.slot = slot
        self.name: str = slot.name
        self.settings: ActorSettings = slot.settings
        self.environment: Environment = slot.environment
        self.clock: Clock = slot.environment.clock
        self.random: random.Random = slot.environment.random
        self.incarnation, self.inbox = slot.begin()
        self._notify = notify

    inbox: Inbox
    incarnation: int

    def tell_parent(self, message: object) -> bool:
        """Send ``message`` to the supervisor; false once that has ended."""
        return self._notify(Deliver(message, 0))

    def tell_self(self, message: object, request: Envelope | None = None) -> bool:
        """Queue ``message`` for this incarnation's ``on_tell``, ahead of data; false (a dead letter) once it ended.

        ``request`` is the parked request that the message continues: a crash in its handling is that request's.
        """
        if self.inbox.control(Deliver(message, self.incarnation, request)):
            return True
        self.slot.dead_letter(message, "stale", "" if request is None else request.correlation_id)
        return False

    def start_timer(self, delay: float, message: object, request: Envelope | None = None) -> Timer:
        """Deliver ``message`` to this incarnation's ``on_tell`` after ``delay`` seconds."""
        return self.clock.call_later(delay, lambda: self.tell_self(message, request))

    def pipe(self, reply: Reply[R], to_message: Callable[[Reply[R]], object], request: Envelope | None = None) -> None:
        """Deliver ``to_message(reply)`` to this incarnation's ``on_tell`` once ``reply`` is answered.

        How an actor asks without waiting: park ``request``, pipe the helper's answer, complete ``request`` then.
        """
        reply.add_done_callback(lambda done: self.tell_self(to_message(done), request))

    def hold(self, progress: Mapping[str, JsonValue]) -> None:
        """Let ordinary requests wait while the actor opens in slices; at their deadline they get ``progress``.

        Call it again to publish more progress, then :meth:`resume`.
        """
        self.slot.hold(self.incarnation, progress)

    def resume(self) -> None:
        """Serve ordinary requests again."""
        self.slot.resume(self.incarnation)

    def publish(self, detail: Mapping[str, JsonValue]) -> None:
        """Replace the actor's own part of its health snapshot."""
        if self.incarnation == self.slot.incarnation:
            self.slot.detail = dict(detail)

    def ask_handle(self, path: str) -> ActorHandle:
        """A handle on another actor; ``path`` is relative to the parent (``helpers/indexer``, ``../authority``).

        Raises ``ValueError`` if asking it could close a cycle of actors that wait for each other.
        """
        slot = self.environment.slot(self._resolve(path))
        self.environment.declare_ask(self.name, slot.name)
        return ActorHandle(slot)

    def tell_handle(self, path: str) -> TellHandle:
        """A handle that only tells; ``path`` as for :meth:`ask_handle`. Free of cycles by construction."""
        return TellHandle(self.environment.slot(self._resolve(path)))

    def _resolve(self, path: str) -> str:
        parts = self.name.split("/")[:-1]
        for part in path.split("/"):
            if part == "..":
                if not parts:
                    raise ValueError(f"{path!r} leads out of the tree, seen from {self.name}")
                parts.pop()
            elif part:
                parts.append(part)
        if not parts:
            raise ValueError(f"{path!r} names no actor, seen from {self.name}")
        return "/".join(parts)
