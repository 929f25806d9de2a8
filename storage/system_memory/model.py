"""Rows, records and evidence references of system memory, as they are held in memory. Frozen; any thread.

Source: system-memory-contract.md sections 1, 2 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias

from messages.json_types import JsonObject

Bucket: TypeAlias = Literal["user", "learned", "system"]
EvidenceKind: TypeAlias = Literal["receipt", "memory", "url"]
Role: TypeAlias = Literal["admission", "challenge", "refutation"]
Status: TypeAlias = Literal["candidate", "admitted", "rejected", "suspended"]
Tier: TypeAlias = Literal["ledger", "glass"]
Verdict: TypeAlias = Literal["admitted", "rejected"]

BUCKETS: Final[tuple[Bucket, ...]] = ("user", "learned", "system")
ACCOUNT_BUCKETS: Final[tuple[Bucket, ...]] = ("user", "learned")
EVIDENCE_KINDS: Final[tuple[EvidenceKind, ...]] = ("receipt", "memory", "url")
TIERS: Final[tuple[Tier, ...]] = ("ledger", "glass")
VERDICTS: Final[tuple[Verdict, ...]] = ("admitted", "rejected")

ACCOUNT_MAX_CHARS: Final = 128
BODY_MAX_CHARS: Final = 2_000
GROUND_MAX_CHARS: Final = 2_000
SOURCE_REF_MAX_CHARS: Final = 200
SLUG_PREFIX: Final = "sys:"
SLUG_MAX_CHARS: Final = 200
ENTITY_MAX_CHARS: Final = 200
STANCE_MAX_CHARS: Final = 200
EVIDENCE_MAX_REFS: Final = 20
OWNER: Final = "operator:local"
"""Whoever runs the owner on this machine, as the audit calls them."""
LIVE_ROWS_MAX: Final = 200
"""Of one account, all buckets together."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Acting:
    """Who acts on system rows: an account, whether the configuration has it among the stewards, and its door."""

    account: str
    is_steward: bool
    door: str = "program"

    @property
    def actor(self) -> str:
        """Who it is, as the audit calls them."""
        return f"{'steward' if self.is_steward else 'account'}:{self.account}"


@dataclass(frozen=True, slots=True)
class EvidenceReference:
    """Where the support of a claim lies, and the digest of what was seen there."""

    kind: EvidenceKind
    ref: str
    digest: str

    def to_json(self) -> JsonObject:
        return {"kind": self.kind, "ref": self.ref, "digest": self.digest}


@dataclass(frozen=True, slots=True)
class SystemFields:
    """What only a row of the system bucket has. ``admission`` is its author's claim and decides nothing."""

    slug: str
    tier: Tier
    as_of: str
    evidence_refs: tuple[EvidenceReference, ...]
    entity: str | None = None
    admission: Literal["candidate", "admitted", "rejected"] = "candidate"
    stance: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One memory. ``inserted_at`` is UTC microseconds; ``system`` is there exactly in the system bucket."""

    id: str
    account: str
    bucket: Bucket
    body: str
    inserted_at: int
    source_ref: str | None = None
    superseded_by: str | None = None
    system: SystemFields | None = None

    @property
    def live(self) -> bool:
        return self.superseded_by is None

    @property
    def promoted(self) -> bool:
        """Whether it is a promotion tombstone."""
        return self.system is not None and self.system.stance is not None


@dataclass(frozen=True, slots=True)
class Record:
    """One admission, challenge or refutation of a system row."""

    id: str
    memory_id: str
    author: str
    role: Role
    ground: str
    inserted_at: int
    verdict: Verdict | None = None
    challenge_id: str | None = None
    evidence_refs: tuple[EvidenceReference, ...] | None = None

    def to_json(self) -> JsonObject:
        shown: JsonObject = {
            "id": self.id,
            "memoryId": self.memory_id,
            "role": self.role,
            "author": self.author,
            "ground": self.ground,
            "insertedAt": instant_text(self.inserted_at),
        }
        if self.verdict is not None:
            shown["verdict"] = self.verdict
        if self.challenge_id is not None:
            shown["challengeId"] = self.challenge_id
        if self.evidence_refs is not None:
            shown["evidenceRefs"] = [reference.to_json() for reference in self.evidence_refs]
        return shown


def instant_text(microseconds: int) -> str:
    """An instant of these tables as RFC 3339, to the microsecond."""
    return (_EPOCH + timedelta(microseconds=microseconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def account_view(row: Row) -> JsonObject:
    """A row as its account sees it: no field of the system bucket is shown."""
    return {
        "id": row.id,
        "bucket": row.bucket,
        "body": row.body,
        "sourceRef": row.source_ref,
        "supersededBy": row.superseded_by,
        "createdAt": instant_text(row.inserted_at),
    }


def steward_view(row: Row) -> JsonObject:
    """A system row with everything that its author gave."""
    shown: JsonObject = {
        "id": row.id,
        "account": row.account,
        "bucket": row.bucket,
        "body": row.body,
        "supersededBy": row.superseded_by,
        "insertedAt": instant_text(row.inserted_at),
    }
    system = row.system
    if system is not None:
        shown |= {
            "slug": system.slug,
            "entity": system.entity,
            "tier": system.tier,
            "asOf": system.as_of,
            "admission": system.admission,
            "evidenceRefs": [reference.to_json() for reference in system.evidence_refs],
            "stance": system.stance,
            "promoted": row.promoted,
        }
    return shown
