"""The lane of system memory: one database, one serialized lane, under the root's supervision.

Guarantees: what an account asks runs only while its audience still stands, what a steward asks only while the
configuration names the steward; an answer means that the change is durable and, for a steward, that the audit was
told or will be when it can be. A lane that crashed opens again; a damaged database takes the lane out of service and
nothing else.

Source: system-memory-boundary.md; system-memory-contract.md; DESIGN.md (rules 1 to 7), decisions.md section 6 (audit).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never

from actors.authority import NoteStewardActions
from actors.supervision import (
    PARKED,
    ActorContext,
    ActorHandle,
    Corruption,
    Envelope,
    GuardedActor,
    Reply,
    Request,
)
from messages.envelope import Deadline
from messages.errors import InternalError, KnowledgeError, NotFound, Quarantined, StorageError
from messages.json_types import JsonObject
from messages.system_memory import (
    AccountRequest,
    AdmitRequest,
    ChallengeRequest,
    CreateMemoryRequest,
    DeleteMemoryRequest,
    EraseAccountRequest,
    FetchMemoryRequest,
    ListMemoriesRequest,
    ObserveRequest,
    PromoteRequest,
    ReadyRequest,
    RecallMemoriesRequest,
    RefuteRequest,
    ShowRequest,
    StatusRequest,
    StewardRequest,
    SupersedeRequest,
)
from storage.state.connection import CommitUncertain, StorageCorrupt
from storage.system_memory import corrections, overview, readiness, records, rows
from storage.system_memory.database import SystemDatabase
from storage.system_memory.model import Acting, Record, account_view, steward_view
from storage.system_memory.ranking import Rankings
from storage.system_memory.recall import NOTHING, Recalled, recall
from storage.system_memory.shapes import ClaimDraft

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

LANE: Final = "system memory"
AUDIT_SECONDS: Final = 10.0
AUDIT_AGAIN_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class SystemMemorySettings:
    """What the configuration says now. ``corpus`` reads the compiled knowledge base, if one is configured."""

    stewards: frozenset[str] = frozenset()
    system_bucket: bool = False
    unchallenged_days: int = 30
    sessions: int = 5
    corpus: corrections.CorpusReader = field(default=lambda: None)


@dataclass(frozen=True, slots=True)
class OfAccount(Request[JsonObject]):
    """A request of an account. ``still_stands`` raises once the audience has lost it."""

    account: str
    request: AccountRequest
    still_stands: Callable[[], object]


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
    """Permanent. The database is made by the first row; until then there is nothing to read."""

    def __init__(
        self,
        context: ActorContext,
        path: Path,
        settings: Callable[[], SystemMemorySettings],
        now_us: Callable[[], int],
    ) -> None:
        super().__init__(context)
        self._path = path
        self._settings = settings
        self._now_us = now_us
        self._authority: ActorHandle | None = None
        self._system: SystemDatabase | None = None
        self._rankings = Rankings()

    def on_ready(self) -> None:
        """Actions of stewards that the audit never heard of are told to it now. A database that cannot be opened is no
        defect that a restart could mend: each request tries again and gets the refusal."""
        self._authority = self.context.ask_handle("authority")
        with self._typed():
            try:
                self._tell_audit()
            except KnowledgeError as refusal:
                logger.error("system memory cannot be opened", extra={"code": refusal.code})

    def on_drained(self) -> None:
        if self._system is not None:
            with self._typed():
                self._system.database.checkpoint("TRUNCATE")

    def on_ended(self) -> None:
        self._rankings.close()
        self._close()

    def on_ask(self, message: object, envelope: Envelope) -> object:
        with self._typed():
            match message:
                case OfAccount(account, request, still_stands):
                    still_stands()
                    return self._of_account(account, request)
                case OfSteward(request, door):
                    answer = self._of_steward(request, door)
                    told = self._tell_audit()
                    if told is None or envelope.reply is None:
                        return answer
                    reply: Reply[object] = envelope.reply
                    # Whatever became of telling it: the action is durable, and is told again.
                    told.add_done_callback(lambda _: reply.succeed(answer))
                    return PARKED
                case _:
                    raise InternalError(f"System memory takes no {type(message).__name__}.")

    def on_tell(self, message: object) -> None:
        with self._typed():
            match message:
                case _Told(sequence, None):
                    if self._system is not None:
                        self._system.audited(sequence)
                        self._tell_audit()
                case _Told(error=error):
                    logger.warning("the audit was not told", extra={"code": error and error.code})
                    self.context.start_timer(AUDIT_AGAIN_SECONDS, _TellAgain())
                case _TellAgain():
                    self._tell_audit()
                case _:
                    raise InternalError(f"System memory takes no {type(message).__name__}.")

    # --- accounts --------------------------------------------------------------------------------------

    def _of_account(self, account: str, request: AccountRequest) -> JsonObject:
        match request:
            case CreateMemoryRequest():
                return account_view(
                    rows.create(
                        self._made(),
                        account,
                        body=request.body,
                        bucket=request.bucket,
                        source_ref=request.source_ref,
                        supersedes=request.supersedes,
                    )
                )
            case ListMemoriesRequest():
                found = []
                system = self._opened()
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
                return account_view(rows.fetch(self._there("memory"), account, memory_id))
            case DeleteMemoryRequest(id=memory_id):
                return {"deleted": rows.delete(self._there("memory"), account, memory_id).id}
            case RecallMemoriesRequest():
                return _recalled(self._recall(account, request))
            case _:
                assert_never(request)

    def _recall(self, account: str, request: RecallMemoriesRequest) -> Recalled:
        """Whatever goes wrong with it, a turn goes on without a note; what is damaged shows with the next request."""
        try:
            system = self._opened()
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

    # --- observers and stewards ------------------------------------------------------------------------

    def _of_steward(self, request: StewardRequest, door: str) -> JsonObject:
        match request:
            case ObserveRequest():
                draft = _draft(request)
                return steward_view(rows.observe(self._made(), request.account, draft))
            case ChallengeRequest():
                made = records.challenge(
                    self._there("claim"),
                    request.account,
                    request.id,
                    ground=request.ground,
                    evidence_refs=request.evidence_refs,
                )
                return self._with_status(made)
            case AdmitRequest():
                acting = self._steward(request.steward, door)
                admitted = records.admit(
                    self._there("claim"), acting, request.id, verdict=request.verdict, ground=request.ground
                )
                return self._with_status(admitted)
            case RefuteRequest():
                acting = self._steward(request.steward, door)
                return self._with_status(
                    records.refute(self._there("challenge"), acting, request.id, ground=request.ground)
                )
            case SupersedeRequest():
                if request.steward is not None:
                    acting = self._steward(request.steward, door)
                else:
                    acting = self._acting(request.account or "", door)
                return steward_view(corrections.supersede(self._made(), acting, request.id, _draft(request)))
            case PromoteRequest():
                acting = self._steward(request.steward, door)
                tombstone = corrections.promote(
                    self._made(),
                    acting,
                    request.id,
                    stance=request.stance,
                    slug=request.slug,
                    evidence_refs=request.evidence_refs,
                    entity=request.entity,
                    as_of=request.as_of,
                    corpus=self._settings().corpus,
                )
                return steward_view(tombstone)
            case StatusRequest(id=None):
                return overview.counts(self._opened())
            case StatusRequest(id=memory_id):
                return overview.status(self._opened(), memory_id)
            case ReadyRequest():
                return self._ready()
            case ShowRequest(id=None, limit=limit):
                return overview.newest(self._opened(), limit)
            case ShowRequest(id=memory_id):
                return overview.shown(self._there("claim"), memory_id)
            case EraseAccountRequest(account=account):
                system, acting = self._opened(), Acting("local", True, door)
                erased = 0 if system is None else rows.erase_account(system, acting, account)
                return {"account": account, "erased": erased}
            case _:
                assert_never(request)

    def _acting(self, account: str, door: str) -> Acting:
        return Acting(account, account in self._settings().stewards, door)

    def _steward(self, account: str, door: str) -> Acting:
        """Looked at before anything is read, so that an outsider learns nothing of what exists."""
        acting = self._acting(account, door)
        records.require_steward(acting)
        return acting

    def _with_status(self, record: Record) -> JsonObject:
        assert self._system is not None
        return {**record.to_json(), "status": self._system.status(record.memory_id)}

    def _ready(self) -> JsonObject:
        settings, system = self._settings(), self._opened()
        found = []
        if system is not None:
            found = readiness.ready(system, unchallenged_days=settings.unchallenged_days, sessions=settings.sessions)
        return {
            "thresholds": {"unchallengedDays": settings.unchallenged_days, "sessions": settings.sessions},
            "memories": [{**steward_view(row), "counters": counted.to_json()} for row, counted in found],
        }

    # --- the database ----------------------------------------------------------------------------------

    def _opened(self) -> SystemDatabase | None:
        """The database, where there is one."""
        if self._system is None:
            self._system = SystemDatabase.open(self._path, now_us=self._now_us, create=False)
        return self._system

    def _made(self) -> SystemDatabase:
        """The database, made where there is none."""
        if self._system is None:
            self._system = SystemDatabase.open(self._path, now_us=self._now_us, create=True)
            assert self._system is not None
        return self._system

    def _there(self, what: str) -> SystemDatabase:
        system = self._opened()
        if system is None:
            raise NotFound(f"There is no {what} with that id.", field="id")
        return system

    def _close(self) -> None:
        system, self._system = self._system, None
        if system is not None:
            system.close()

    @contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except StorageCorrupt as damage:
            raise Corruption(
                Quarantined(
                    "The database of system memory is damaged and was taken out of service. Put a backup's in its "
                    "place, or move it away, and start the owner again; `knowledge doctor` looks at it.",
                    reason="damaged",
                    retry="never",
                )
            ) from damage
        except CommitUncertain:
            # Only what is found when it is opened again can tell.
            self._close()
            raise StorageError(
                "The change may or may not have been made durable; look before it is made again.",
                retry="unknown",
                reason="commit",
            ) from None

    # --- the audit -------------------------------------------------------------------------------------

    def _tell_audit(self) -> Reply[bool] | None:
        """Tell the audit what it has not heard yet; ``None`` where there is nothing."""
        system = self._opened()
        entries = () if system is None else tuple(system.unaudited())
        if not entries:
            return None
        assert self._authority is not None
        clock = self.context.clock
        told = self._authority.ask(NoteStewardActions(entries), deadline=Deadline.after(AUDIT_SECONDS, clock.monotonic))
        last = entries[-1].sequence
        self.context.pipe(told, lambda done: _Told(last, done.error()))
        return told


def _draft(request: ObserveRequest | SupersedeRequest) -> ClaimDraft:
    return ClaimDraft(
        slug=request.slug,
        body=request.body,
        tier=request.tier,
        as_of=request.as_of,
        evidence_refs=request.evidence_refs,
        entity=request.entity,
    )


def _recalled(found: Recalled) -> JsonObject:
    return {"note": found.note, "attached": len(found.rows), "dropped": found.dropped}


NOTHING_RECALLED: Final[JsonObject] = _recalled(NOTHING)

__all__ = [
    "LANE",
    "NOTHING_RECALLED",
    "OfAccount",
    "OfSteward",
    "SystemMemory",
    "SystemMemorySettings",
]
