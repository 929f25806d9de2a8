"""The auditor: slow looks, of maintenance and beside the watch, on a thread and a connection of its own.

Source: DESIGN.md (The tree), decisions.md section 5 (Maintenance).
"""

from __future__ import annotations

from collections.abc import Callable

from actors.store.messages import LookAtFiles
from actors.store.settings import StoreSettings
from actors.store.upkeep import Found, LookThroughDatabase, LookThroughIndex, ReadFiles, Survey
from actors.supervision import ActorContext, Envelope, GuardedActor
from messages.errors import Cancelled, DeadlineExceeded, InternalError
from messages.json_types import JsonObject
from storage.audit import StoreAudit, differing
from storage.state.connection import StorageCorrupt


class Auditor(GuardedActor):
    """A helper of one store; every look ends early when it is cancelled or late."""

    def __init__(self, context: ActorContext, settings: StoreSettings) -> None:
        super().__init__(context)
        self._layout = settings.layout
        self._audit: StoreAudit | None = None

    def on_ask(self, message: object, envelope: Envelope) -> object:
        def check() -> None:
            if envelope.cancellation.requested:
                raise Cancelled("The look was stopped.")
            if envelope.deadline.passed(self.context.clock.monotonic):
                raise DeadlineExceeded("This look did not end in time.")

        match message:
            case LookThroughDatabase() | LookThroughIndex() | ReadFiles() | Survey():
                try:
                    if self._audit is None:
                        self._audit = StoreAudit(self._layout)
                    return Found(look(self._audit, message, check))
                except StorageCorrupt:
                    # Not this thread's to judge: the lane takes the store out of service.
                    return Found({"sound": False})
            case LookAtFiles(partition, files):
                return differing(self._layout, partition, files, check)
            case _:
                raise InternalError(f"The auditor takes no {type(message).__name__}.")

    def on_ended(self) -> None:
        if self._audit is not None:
            self._audit.close()


def look(
    audit: StoreAudit, work: LookThroughDatabase | LookThroughIndex | ReadFiles | Survey, check: Callable[[], None]
) -> JsonObject:
    """The facts of one look: numbers, paths for the lane, ids. Raises what ``check`` raises."""
    match work:
        case LookThroughDatabase():
            sound = audit.database_is_sound(check)
            if not sound:
                return {"sound": False}
            sizes = audit.sizes()
            return {
                "sound": True,
                "texts": sizes.texts,
                "textBytes": sizes.text_bytes,
                "databaseBytes": sizes.database_bytes,
                "walBytes": sizes.wal_bytes,
            }
        case LookThroughIndex(partition):
            return {"sound": audit.index_is_sound(partition, check)}
        case ReadFiles(partition, files):
            compared = audit.compare(partition, files, check)
            return {"changed": list(compared.changed), "lost": list(compared.lost)}
        case Survey(partition, now_ms):
            duplicates = audit.duplicates(partition, check)
            uncited = audit.uncited(partition, now_ms, check)
            unfinished = audit.unfinished(partition, now_ms)
            return {
                "duplicates": [list(group) for group in duplicates.groups],
                "duplicatesTotal": duplicates.total,
                "uncited": list(uncited.requests),
                "uncitedTotal": uncited.total,
                "unfinished": list(unfinished.requests),
                "unfinishedTotal": unfinished.total,
                "unfinishedBytes": unfinished.bytes,
            }
