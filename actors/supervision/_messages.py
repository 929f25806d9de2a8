"""What lies in a mailbox: requests, tells, and the closed union of control messages. All frozen.

Source: DESIGN.md rules 1, 2, 6 and 7.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, TypeAlias

from pykka import Future

from actors.supervision._reply import Reply
from messages.envelope import Cancellation, Deadline
from messages.errors import KnowledgeError

FOREVER: Final = Deadline(float("inf"))
"""The deadline of a tell: nobody waits for it."""


class Parked(Enum):
    """What a handler returns when the envelope's reply will be completed later."""

    PARKED = "parked"


PARKED: Final = Parked.PARKED


class Corruption(Exception):
    """Raised by a handler when stored data cannot be trusted: the actor ends, is quarantined, is not restarted.

    ``error`` is the answer of the request that found it.
    """

    def __init__(self, error: KnowledgeError) -> None:
        super().__init__(error.message)
        self.error = error


class Transient(Exception):
    """Raised by a handler that had no effect yet and may succeed shortly (a busy database, a lock file).

    The message is handled again after a short, growing delay, as long as its deadline allows; then ``error`` is the
    answer. Meanwhile the actor serves others.
    """

    def __init__(self, error: KnowledgeError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """One message on its way to a handler; identity is its equality, since messages may be equal.

    ``reply`` is ``None`` for a tell. ``size`` is in bytes and counts against the mailbox. ``request_key`` names what
    is refused as poison after two crashes. ``passes_hold`` marks requests that are served while the actor is opening.
    """

    message: object
    reply: Reply[object] | None = None
    deadline: Deadline = FOREVER
    cancellation: Cancellation = field(default_factory=Cancellation)
    fairness_key: str = ""
    size: int = 0
    correlation_id: str = ""
    request_key: str = ""
    passes_hold: bool = False
    coalesce: Hashable | None = None


EndReason: TypeAlias = Literal["stopped", "crashed", "corrupt", "start_failed", "start_refused", "gave_up"]
"""How an actor ended. ``start_refused``: ``on_ready`` raised a typed error. ``gave_up``: out of restarts below it."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The notice of an ending, sent to the parent once every resource of that incarnation is released."""

    name: str
    incarnation: int
    reason: EndReason
    error: KnowledgeError | None = None
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Ready:
    """The proof of a start, sent by the child's own thread after ``on_ready``."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Drained:
    """A child has refused, finished and drained; it waits for :class:`Finish`."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Quiesced:
    """A supervisor has stopped its children that stop first."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """A message from the kit's own plumbing (timer, piped answer, notice): ``on_tell`` gets it ahead of data."""

    message: object
    incarnation: int
    request: Envelope | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """The next attempt at a message whose handler met something transient."""

    envelope: Envelope
    attempt: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Refuse new requests, finish the admitted ones until ``until`` (monotonic seconds), then fail the rest.

    With ``finish`` the actor then ends; without it, it reports :class:`Drained` and waits for :class:`Finish`.
    """

    until: float
    finish: bool = True


@dataclass(frozen=True, slots=True)
class DrainExpired:
    """The drain's time is up."""


@dataclass(frozen=True, slots=True)
class Quiesce:
    """To a supervisor: stop the children that stop first, then report :class:`Quiesced`."""


@dataclass(frozen=True, slots=True)
class Finish:
    """End now: everything left is failed, ``on_drained`` runs."""


@dataclass(frozen=True, slots=True)
class ChildStuck:
    """A supervisor that is stopping has a descendant whose thread does not end."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class ForeignStop:
    """Plain pykka code stopped the actor; ``reply_to`` is told once it has ended."""

    reply_to: Future[object] | None


@dataclass(frozen=True, slots=True)
class Idle:
    """Made by a draining mailbox itself: nothing is queued and nothing unanswered any more."""


Control: TypeAlias = Deliver | Again | Drain | DrainExpired | Quiesce | Finish | ForeignStop | Idle
