"""Small actors for tests, and short ways to ask them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from actors.supervision import PARKED, ActorContext, ActorHandle, Corruption, Envelope, GuardedActor, Reply
from messages.envelope import Deadline
from messages.errors import KnowledgeError


@dataclass(frozen=True, slots=True)
class Echo:
    """Answered with its value."""

    value: object = None


@dataclass(frozen=True, slots=True)
class Raise:
    """Raises in the handler."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Raises :class:`Corruption` in the handler."""

    error: KnowledgeError


@dataclass(frozen=True, slots=True)
class Park:
    """Parked; :attr:`Probe.parked` keeps the envelope."""


@dataclass(frozen=True, slots=True)
class Block:
    """Sets ``entered``, then blocks until ``leave`` is set."""

    entered: threading.Event
    leave: threading.Event


@dataclass(frozen=True, slots=True)
class End:
    """The actor ends in order; answered first."""


class Probe(GuardedActor):
    """Does what a message says, and notes what happened in ``log`` (shared by all incarnations)."""

    def __init__(self, context: ActorContext, log: list[str] | None = None) -> None:
        super().__init__(context)
        self.log: list[str] = [] if log is None else log
        self.parked: list[Envelope] = []

    def note(self, what: str) -> None:
        self.log.append(f"{self.context.name}#{self.context.incarnation} {what}")

    def on_ready(self) -> None:
        self.note("ready")

    def on_drained(self) -> None:
        self.note("drained")

    def on_ended(self) -> None:
        self.note("ended")

    def on_ask(self, message: object, envelope: Envelope) -> object:
        match message:
            case Echo(value):
                return value
            case Raise(error):
                raise error
            case Corrupt(error):
                raise Corruption(error)
            case Park():
                self.parked.append(envelope)
                return PARKED
            case Block(entered, leave):
                entered.set()
                leave.wait(30)
                return "unblocked"
            case End():
                self.end()
                return "ending"
            case _:
                return super().on_ask(message, envelope)

    def on_tell(self, message: object) -> None:
        match message:
            case Raise(error):
                raise error
            case Corrupt(error):
                raise Corruption(error)
            case Block(entered, leave):
                entered.set()
                leave.wait(30)
            case _:
                self.note(f"told {message}")


def ask(handle: ActorHandle, message: object, seconds: float = 10.0, **options: str | int) -> Reply[object]:
    """Ask with a deadline ``seconds`` from now on the real clock; options: fairness_key, size, request_key."""
    return handle.ask(
        message,
        deadline=Deadline.after(seconds),
        fairness_key=str(options.get("fairness_key", "")),
        size=int(options.get("size", 0)),
        request_key=str(options.get("request_key", "")),
    )


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for a state that other threads bring about and that announces itself to nobody; fails after ``seconds``."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the awaited state did not come"
        time.sleep(0.001)


def failure(reply: Reply[object]) -> KnowledgeError:
    """The typed error that ``reply`` ends with; fails if it is a success."""
    try:
        value = reply.result()
    except KnowledgeError as error:
        return error
    raise AssertionError(f"expected an error, got {value!r}")
