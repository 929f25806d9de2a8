"""What observers and stewards ask of system memory, from the look at who acts to the answer.

Lane thread. Source: system-memory-boundary.md (Running a promotion); system-memory-contract.md sections 4, 8, 11.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from actors.system_memory.keeping import KeptDatabase
from messages.json_types import JsonObject
from messages.system_memory import (
    AdmitRequest,
    ChallengeRequest,
    EraseAccountRequest,
    ObserveRequest,
    PromoteRequest,
    ReadyRequest,
    RefuteRequest,
    ShowRequest,
    StatusRequest,
    StewardRequest,
    SupersedeRequest,
)
from storage.system_memory import corrections, overview, readiness, records, rows
from storage.system_memory.database import SystemDatabase
from storage.system_memory.model import Acting, Record, steward_view
from storage.system_memory.shapes import ClaimDraft


@dataclass(frozen=True, slots=True)
class SystemMemorySettings:
    """What the configuration says now. ``corpus`` reads the compiled knowledge base, if one is configured."""

    stewards: frozenset[str] = frozenset()
    system_bucket: bool = False
    unchallenged_days: int = 30
    sessions: int = 5
    corpus: corrections.CorpusReader = field(default=lambda: None)


def steward_answer(
    kept: KeptDatabase, settings: SystemMemorySettings, request: StewardRequest, door: str
) -> JsonObject:
    """Do it. Who is a steward is looked at before anything is read, so that an outsider learns nothing of what exists.

    Raises the refusals of :mod:`storage.system_memory`.
    """
    match request:
        case ObserveRequest():
            return steward_view(rows.observe(kept.made(), request.account, _draft(request)))
        case ChallengeRequest():
            system = kept.there("claim")
            challenge = records.challenge(
                system, request.account, request.id, ground=request.ground, evidence_refs=request.evidence_refs
            )
            return _with_status(system, challenge)
        case AdmitRequest():
            acting = _steward(settings, request.steward, door)
            system = kept.there("claim")
            admission = records.admit(system, acting, request.id, verdict=request.verdict, ground=request.ground)
            return _with_status(system, admission)
        case RefuteRequest():
            acting = _steward(settings, request.steward, door)
            system = kept.there("challenge")
            return _with_status(system, records.refute(system, acting, request.id, ground=request.ground))
        case SupersedeRequest(steward=None):
            acting = _acting(settings, request.account or "", door)
            return steward_view(corrections.supersede(kept.made(), acting, request.id, _draft(request)))
        case SupersedeRequest(steward=steward):
            acting = _steward(settings, steward or "", door)
            return steward_view(corrections.supersede(kept.made(), acting, request.id, _draft(request)))
        case PromoteRequest():
            acting = _steward(settings, request.steward, door)
            tombstone = corrections.promote(
                kept.made(),
                acting,
                request.id,
                stance=request.stance,
                slug=request.slug,
                evidence_refs=request.evidence_refs,
                entity=request.entity,
                as_of=request.as_of,
                corpus=settings.corpus,
            )
            return steward_view(tombstone)
        case StatusRequest(id=None):
            return overview.claims_by_status(kept.opened())
        case StatusRequest(id=memory_id):
            return overview.status(kept.opened(), memory_id)
        case ReadyRequest():
            return _ready(kept.opened(), settings)
        case ShowRequest(id=None, limit=limit):
            return overview.newest(kept.opened(), limit)
        case ShowRequest(id=memory_id):
            return overview.shown(kept.there("claim"), memory_id)
        case EraseAccountRequest(account=account):
            erasing = kept.opened()
            erased = 0 if erasing is None else rows.erase_account(erasing, account, door)
            return {"account": account, "erased": erased}
        case _:
            assert_never(request)


def _acting(settings: SystemMemorySettings, account: str, door: str) -> Acting:
    return Acting(account, account in settings.stewards, door)


def _steward(settings: SystemMemorySettings, account: str, door: str) -> Acting:
    acting = _acting(settings, account, door)
    records.require_steward(acting)
    return acting


def _with_status(system: SystemDatabase, record: Record) -> JsonObject:
    return {**record.to_json(), "status": system.status(record.memory_id)}


def _ready(system: SystemDatabase | None, settings: SystemMemorySettings) -> JsonObject:
    found = []
    if system is not None:
        found = readiness.ready(system, unchallenged_days=settings.unchallenged_days, sessions=settings.sessions)
    return {
        "thresholds": {"unchallengedDays": settings.unchallenged_days, "sessions": settings.sessions},
        "memories": [{**steward_view(row), "counters": counted.to_json()} for row, counted in found],
    }


def _draft(request: ObserveRequest | SupersedeRequest) -> ClaimDraft:
    return ClaimDraft(
        slug=request.slug,
        body=request.body,
        tier=request.tier,
        as_of=request.as_of,
        evidence_refs=request.evidence_refs,
        entity=request.entity,
    )
