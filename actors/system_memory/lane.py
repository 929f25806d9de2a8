"""The lane of system memory: one database, one serialized lane, under the root's supervision.

Guarantees: what an account asks runs only while its audience still stands, and a change of its rows is committed
inside the commit fence, so that nothing is saved under a right once its revocation was answered; what a steward asks
runs only while the configuration names the steward; an answer means that the change is durable and, for a steward,
that the audit was told or will be when it can be. A lane that crashed opens again; a damaged database takes the lane
out of service and nothing else.

Source: system-memory-boundary.md; system-memory-contract.md; DESIGN.md (rules 1 to 7), decisions.md section 6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, assert_never

from actors.authority import SYSTEM_MEMORY, NoteStewardActions, Permit, PermitGate
from actors.supervision import PARKED, ActorContext, ActorHandle, Envelope, GuardedActor, Reply, Request, Timer
from actors.system_memory.keeping import KeptDatabase
from actors.system_memory.stewarding import SystemMemorySettings, steward_answer
from messages.envelope import Deadline
from messages.errors import InternalError, KnowledgeError
from messages.json_types import JsonObject
from messages.system_memory import (
    AccountRequest,
    CreateMemoryRequest,
    DeleteMemoryRequest,
    FetchMemoryRequest,
    ListMemoriesRequest,
    RecallMemoriesRequest,
    StewardRequest,
)
from storage.system_memory import rows
from storage.system_memory.model import account_view
from storage.system_memory.ranking import Rankings
from storage.system_memory.recall import NOTHING, Recalled, recall
from storage.system_memory.shapes import require_account

logger = logging.getLogger(__name__)

LANE: Final = "system memory"
AUDIT_SECONDS: Final = 10.0
AUDIT_AGAIN_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class OfAccount(Request[JsonObject]):
    """A request of the account that a permit names."""

    permit: Permit
    request: AccountRequest


@dataclass(frozen=True, slots=True)
class OfSteward(Request[JsonObject]):
    """A request from the owner's own machine."""

    request: StewardRequest
    door: str


@dataclass(frozen=True, slots=True)
class _Told:
    """The audit has the actions up to ``sequence``, or could not be told."""

    sequence: int
    error: KnowledgeError | None


@dataclass(frozen=True, slots=True)
class _TellAgain:
    """From its own timer."""


class SystemMemory(GuardedActor):
    """Permanent. The database is made by the first request to write; until then there is nothing to read."""

    def __init__(
        self,
        context: ActorContext,
        path: Path,
        gate: PermitGate,
        settings: Callable[[], SystemMemorySettings],
        now_us: Callable[[], int],
    ) -> None:
        super().__init__(context)
        self._gate = gate
        self._settings = settings
        self._authority: ActorHandle | None = None
        self._kept = KeptDatabase(path, now_us, settled=lambda: gate.recovered(SYSTEM_MEMORY))
        self._rankings = Rankings()
        self._again: Timer | None = None

    def on_ready(self) -> None:
        """Actions of stewards that the audit never heard of are told to it now. A database that cannot be opened is no
        defect that a restart could mend: each request tries again and gets the refusal."""
        self._authority = self.context.ask_handle("authority")
        with self._kept.typed():
            try:
                self._tell_audit()
            except KnowledgeError as refusal:
                logger.error("system memory cannot be opened", extra={"code": refusal.code})

    def on_drained(self) -> None:
        with self._kept.typed():
            self._kept.empty_log()

    def on_ended(self) -> None:
        if self._again is not None:
            self._again.cancel()
        self._rankings.close()
        self._kept.close()

    def on_ask(self, message: object, envelope: Envelope) -> object:
        with self._kept.typed():
            match message:
                case OfAccount(permit, request):
                    return self._of_account(permit, request)
                case OfSteward(request, door):
                    answer = steward_answer(self._kept, self._settings(), request, door)
                    assert envelope.reply is not None
                    return self._once_audited(answer, envelope.reply)
                case _:
                    raise InternalError(f"System memory takes no {type(message).__name__}.")

    def on_tell(self, message: object) -> None:
        match message:
            case _Told(sequence, None):
                self._retried(lambda: self._heard(sequence))
            case _Told(error=error):
                logger.warning("the audit was not told", extra={"code": error and error.code})
                self._tell_again_later()
            case _TellAgain():
                self._again = None
                self._retried(self._tell_audit)
            case _:
                raise InternalError(f"System memory takes no {type(message).__name__}.")

    # --- accounts --------------------------------------------------------------------------------------

    def _of_account(self, permit: Permit, request: AccountRequest) -> JsonObject:
        account = permit.agent
        require_account(account)
        match request:
            case CreateMemoryRequest():
                with self._gate.fence(permit):
                    made = rows.create(
                        self._kept.made(),
                        account,
                        body=request.body,
                        bucket=request.bucket,
                        source_ref=request.source_ref,
                        supersedes=request.supersedes,
                    )
                return account_view(made)
            case DeleteMemoryRequest(id=memory_id):
                with self._gate.fence(permit):
                    return {"deleted": rows.delete(self._kept.there("memory"), account, memory_id).id}
            case _:
                self._gate.check(permit, write=False)
        match request:
            case ListMemoriesRequest():
                system = self._kept.opened()
                found = []
                if system is not None:
                    found = rows.list_rows(
                        system,
                        account,
                        buckets=request.buckets,
                        include_superseded=request.include_superseded,
                        limit=request.limit,
                    )
                return {"memories": [account_view(row) for row in found]}
            case FetchMemoryRequest(id=memory_id):
                return account_view(rows.fetch(self._kept.there("memory"), account, memory_id))
            case RecallMemoriesRequest():
                return _recalled(self._recall(account, request))
            case _:
                assert_never(request)

    def _recall(self, account: str, request: RecallMemoriesRequest) -> Recalled:
        """Whatever goes wrong with it, a turn goes on without a note; what is damaged shows with the next request."""
        try:
            system = self._kept.opened()
            if system is None:
                return NOTHING
            return recall(
                system,
                self._rankings,
                account,
                request.query,
                session_key=request.session_key,
                system_bucket=self._settings().system_bucket,
            )
        except Exception as error:  # noqa: BLE001 - a turn is never held up by its memories
            logger.warning("a recall failed", extra={"reason": type(error).__name__})
            return NOTHING

    # --- the audit -------------------------------------------------------------------------------------

    def _once_audited(self, answer: JsonObject, reply: Reply[object]) -> object:
        """The answer to what is durable already, whatever becomes of telling the audit, which is told again."""
        waits: list[Reply[bool] | None] = []
        self._retried(lambda: waits.append(self._tell_audit()))
        told = waits[0] if waits else None
        if told is None:
            return answer
        told.add_done_callback(lambda _: reply.succeed(answer))
        return PARKED

    def _tell_audit(self) -> Reply[bool] | None:
        """Tell the audit what it has not heard yet; ``None`` where there is nothing, or it will be told later."""
        system = None if self._again is not None else self._kept.opened()
        entries = () if system is None else tuple(system.unaudited())
        if not entries:
            return None
        assert self._authority is not None
        clock = self.context.clock
        told = self._authority.ask(NoteStewardActions(entries), deadline=Deadline.after(AUDIT_SECONDS, clock.monotonic))
        last = entries[-1].sequence
        self.context.pipe(told, lambda done: _Told(last, done.error()))
        return told

    def _heard(self, sequence: int) -> None:
        system = self._kept.opened()
        if system is not None:
            system.audited(sequence)
            self._tell_audit()

    def _retried(self, step: Callable[[], object]) -> None:
        """A step of telling the audit: what hinders it now does not hinder it for good."""
        try:
            with self._kept.typed():
                step()
        except KnowledgeError as error:
            logger.warning("the audit could not be told", extra={"code": error.code})
            self._tell_again_later()

    def _tell_again_later(self) -> None:
        if self._again is None:
            self._again = self.context.start_timer(AUDIT_AGAIN_SECONDS, _TellAgain())


def _recalled(found: Recalled) -> JsonObject:
    return {"note": found.note, "attached": len(found.rows), "dropped": found.dropped}


NOTHING_RECALLED: Final[JsonObject] = _recalled(NOTHING)
