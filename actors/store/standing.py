"""Standing indexes that the lane has others derive: who waits for which, and for how long.

A turn is never held up: whoever has waited :data:`WAIT_SECONDS` gets none. What is derived is kept, so that the
session's next turn has it. One thread: the lane's.

Source: decisions.md section 5 (Standing index), memory-provider.md (Knowledge index).
"""

from __future__ import annotations

import logging
from typing import Final

from actors.store.messages import DeriveStanding, Prepare, StandingDerived, StandingOverdue
from actors.store.needs import NeedStanding
from actors.store.operations.standing_index import keep_index
from actors.supervision import ActorContext
from messages.envelope import Deadline
from messages.json_types import JsonObject
from messages.vocabulary import Partition
from storage.ontology import Ontology
from storage.session import StoreSession

logger = logging.getLogger(__name__)

WAIT_SECONDS: Final = 0.05
DERIVE_SECONDS: Final = 120.0

_NONE: Final[JsonObject] = {"index": None}


class StandingErrands:
    """The lane's errands to its historian."""

    def __init__(self, context: ActorContext) -> None:
        self._context = context
        self._historian = context.ask_handle("helpers/historian")
        self._waiting: dict[tuple[Partition, int], list[Prepare]] = {}

    def send(self, parked: Prepare, need: NeedStanding, ontology: Ontology) -> None:
        """Have the index derived, unless that is under way, and let the request wait a moment for it."""
        partition = parked.message.permit.partition
        key = partition, need.started_at_ms
        begun = key in self._waiting
        self._waiting.setdefault(key, []).append(parked)
        self._context.start_timer(WAIT_SECONDS, StandingOverdue(parked), parked.envelope)
        if not begun:
            work = DeriveStanding(partition, need.started_at_ms, need.at_ms, ontology)
            deadline = Deadline.after(DERIVE_SECONDS, self._context.clock.monotonic)
            derived = self._historian.ask(work, deadline=deadline)
            self._context.pipe(derived, lambda done: StandingDerived(work, done))

    def overdue(self, message: StandingOverdue) -> None:
        """The request goes without."""
        _answer(message.parked, _NONE)

    def derived(self, session: StoreSession, message: StandingDerived) -> None:
        """Keep what was derived and answer whoever still waits."""
        work = message.work
        waiting = self._waiting.pop((work.partition, work.started_at_ms), [])
        error = message.reply.error()
        if error is not None:
            logger.info("no standing index", extra={"code": error.code})
            answer = _NONE
        else:
            answer = message.reply.result(0)
            body = answer["index"]
            assert body is None or isinstance(body, str)
            keep_index(session.publisher, work.partition, work.started_at_ms, body)
        for parked in waiting:
            _answer(parked, answer)


def _answer(parked: Prepare, answer: JsonObject) -> None:
    reply = parked.envelope.reply
    assert reply is not None
    if not reply.done():
        reply.succeed(answer)
