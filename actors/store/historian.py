"""The historian: derives what a session's standing index was, from history, on a thread and a connection of its own.

Source: DESIGN.md (The tree), decisions.md section 5 (Standing index).
"""

from __future__ import annotations

from actors.store.messages import DeriveStanding
from actors.store.operations.standing_index import derive
from actors.store.settings import StoreSettings
from actors.supervision import ActorContext, Envelope, GuardedActor
from messages.errors import Cancelled, DeadlineExceeded, InternalError, Stopping
from storage.state.connection import StorageCorrupt


class Historian(GuardedActor):
    """A helper of one store; it holds nothing between two requests."""

    def __init__(self, context: ActorContext, settings: StoreSettings) -> None:
        super().__init__(context)
        self._layout = settings.layout

    def on_ask(self, message: object, envelope: Envelope) -> object:
        def check() -> None:
            if self._inbox.leaving():
                raise Stopping("The store is stopping.")
            if envelope.cancellation.requested:
                raise Cancelled("Nobody waits for this any more.")
            if envelope.deadline.passed(self.context.clock.monotonic):
                raise DeadlineExceeded("History was not read in time.")

        match message:
            case DeriveStanding(partition, _, at_ms, ontology):
                try:
                    return {"index": derive(self._layout.state_database, partition, ontology, at_ms, check)}
                except StorageCorrupt as damage:
                    # Not this thread's to judge: the lane meets it too.
                    raise InternalError("History cannot be read.") from damage
            case _:
                raise InternalError(f"The historian takes no {type(message).__name__}.")
