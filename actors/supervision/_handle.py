"""Handles: what code outside an actor holds. They survive restarts and never expose an actor or its reference.

Source: DESIGN.md rules 1, 2, 8 and 9.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Generic, TypeVar, cast, overload

from actors.supervision._health import ActorHealth
from actors.supervision._messages import Envelope
from actors.supervision._refusals import cancelled, poisoned
from actors.supervision._reply import Phase, Reply, deadline_error
from actors.supervision._slot import Slot
from messages.envelope import Cancellation, Deadline

R = TypeVar("R")


class Request(Generic[R]):
    """A message whose answer has the type ``R``: ``class Count(Request[int])``. A mark for the type checker only."""

    __slots__ = ()


class TellHandle:
    """May tell an actor, not ask it: what children hold of those above them."""

    __slots__ = ("_slot",)

    def __init__(self, slot: Slot) -> None:
        self._slot = slot

    @property
    def name(self) -> str:
        """The actor's path in the tree."""
        return self._slot.name

    @property
    def incarnation(self) -> int:
        """The number of the current incarnation; 0 before the first."""
        return self._slot.incarnation

    def tell(
        self,
        message: object,
        *,
        coalesce: Hashable | None = None,
        correlation_id: str = "",
        incarnation: int | None = None,
    ) -> bool:
        """Queue a one-way message; false (and a dead letter) if nobody will get it. Never blocks.

        A waiting message with the same ``coalesce`` is replaced. With ``incarnation`` it reaches that one or nobody.
        """
        envelope = Envelope(message, coalesce=coalesce, correlation_id=correlation_id)
        return self._slot.tell(envelope, incarnation)

    def health(self) -> ActorHealth:
        """The published snapshot; never asks the actor."""
        return self._slot.health()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class ActorHandle(TellHandle):
    """May ask and tell an actor, across its restarts. Every ask gets exactly one answer by its deadline. Any thread."""

    __slots__ = ()

    @overload
    def ask(
        self,
        message: Request[R],
        *,
        deadline: Deadline,
        fairness_key: str = "",
        size: int = 0,
        cancellation: Cancellation | None = None,
        correlation_id: str = "",
        request_key: str = "",
        passes_hold: bool = False,
        incarnation: int | None = None,
    ) -> Reply[R]: ...

    @overload
    def ask(
        self,
        message: object,
        *,
        deadline: Deadline,
        fairness_key: str = "",
        size: int = 0,
        cancellation: Cancellation | None = None,
        correlation_id: str = "",
        request_key: str = "",
        passes_hold: bool = False,
        incarnation: int | None = None,
    ) -> Reply[object]: ...

    def ask(
        self,
        message: object,
        *,
        deadline: Deadline,
        fairness_key: str = "",
        size: int = 0,
        cancellation: Cancellation | None = None,
        correlation_id: str = "",
        request_key: str = "",
        passes_hold: bool = False,
        incarnation: int | None = None,
    ) -> Reply[R] | Reply[object]:
        """Queue a request and return its reply at once; never blocks, never raises a refusal: the reply carries it.

        ``size`` (bytes) and ``fairness_key`` count against the mailbox until the answer. ``request_key`` is refused
        as poison once it crashed the actor twice. ``passes_hold`` is served while the actor is opening. With
        ``incarnation`` only that incarnation serves it. Raises ``ValueError`` for a deadline that is not finite or a
        negative size: defects of the caller.
        """
        if not math.isfinite(deadline.at):
            raise ValueError("an ask needs a finite deadline")
        if size < 0:
            raise ValueError("a size in bytes is not negative")
        slot = self._slot
        environment = slot.environment
        clock = environment.clock
        remaining = deadline.remaining(clock.monotonic)
        own_clock = environment.drive is not None
        reply: Reply[object] = Reply(deadline=None if own_clock else deadline.at, drive=environment.drive)
        cancellation = cancellation or Cancellation()
        if cancellation.requested:
            reply.fail(cancelled())
        elif remaining <= 0:
            reply.fail(deadline_error(Phase.QUEUED))
        elif request_key and slot.poisoned(request_key):
            reply.fail(poisoned(slot.label, request_key))
        else:
            # The timer comes first: once a mailbox has the request, its deadline is already watched.
            timer = clock.call_later(remaining, lambda: reply.fail_by_phase(slot.overdue))
            reply.add_done_callback(lambda _: timer.cancel())
            envelope = Envelope(
                message,
                reply,
                deadline,
                cancellation,
                fairness_key,
                size,
                correlation_id,
                request_key,
                passes_hold,
            )
            refusal = slot.admit(envelope, incarnation)
            if refusal is not None:
                reply.fail(refusal)
        return cast("Reply[R]", reply)
