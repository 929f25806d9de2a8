"""The two ways in which a system row is replaced: by a correction, and by its promotion into the knowledge base.

Either is one transaction: the replacement is there and the row points at it, with the refutations that a steward's word
brings and the entry for the audit, or nothing of it happened. Nothing is erased: what was replaced keeps its records
and its derived status. The database's thread.

Source: system-memory-boundary.md (Running a promotion, What a promotion writes); system-memory-contract.md sections
4, 8 and 11.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, TypeAlias

from messages.errors import EvidenceInvalid, NotSupersedable, SlugMismatch, StanceRequired
from messages.json_types import JsonObject
from storage.knowledge_base import Corpus
from storage.system_memory.database import StewardAction, SystemDatabase, is_id, new_id
from storage.system_memory.model import Acting, Row, SystemFields
from storage.system_memory.records import open_challenges, refutation, require_steward
from storage.system_memory.rows import refuse_claimed_secrets
from storage.system_memory.shapes import ClaimDraft, Findings

CORRECTED: Final = "Resolved by the correction {later}, which a steward made."
DRAINED: Final = (
    "This claim has been reviewed: its live home is the stance `{stance}` of the knowledge base. This row only says "
    "where it went and is shown to nobody."
)


CorpusReader: TypeAlias = Callable[[], Corpus | None]
"""The knowledge base that is compiled now; ``None`` where none is configured. Raises what hinders reading it."""


def supersede(system: SystemDatabase, acting: Acting, target: object, draft: ClaimDraft) -> Row:
    """Correct a live system row, as its author or as a steward: the replacement is a candidate of its own.

    Raises ``NotSupersedable`` first, alike for whatever cannot be corrected by this account; then what the shapes
    refuse, ``SlugMismatch``, ``RedactionRequired``.
    """
    row = _correctable(system, acting, target)
    findings = Findings()
    body, fields = findings.claim(draft)
    findings.settle()
    _require_slug(row, fields)
    refuse_claimed_secrets(body, fields)
    return _replaced(system, acting, row, body, fields, "memory.supersede")


def promote(
    system: SystemDatabase,
    acting: Acting,
    target: object,
    *,
    stance: object,
    slug: object,
    evidence_refs: object,
    entity: object = None,
    as_of: object = None,
    corpus: CorpusReader = lambda: None,
) -> Row:
    """Drain a claim into a reviewed stance; the tombstone that points there.

    Raises in this order: ``StewardRequired``, ``StanceRequired`` (none named), ``NotSupersedable``, what the shapes
    refuse, ``SlugMismatch``, ``StanceRequired`` (``unknown_stance``) and ``EvidenceInvalid`` (``digest_mismatch``)
    where a corpus is configured, ``RedactionRequired``.
    """
    require_steward(acting)
    if not isinstance(stance, str) or not stance.strip():
        raise StanceRequired("A promotion names the reviewed stance that the claim becomes.", field="stance")
    row = _correctable(system, acting, target)
    findings = Findings()
    named = findings.stance(stance)
    today = datetime.fromtimestamp(system.wall_us() / 1_000_000, UTC).date().isoformat()
    draft = ClaimDraft(
        slug=slug,
        body=DRAINED.format(stance=named),
        tier="ledger",
        as_of=today if as_of is None else as_of,
        evidence_refs=evidence_refs,
        entity=entity,
    )
    body, fields = findings.claim(draft)
    findings.settle()
    _require_slug(row, fields)
    _require_reviewed(corpus(), named, fields)
    refuse_claimed_secrets("", fields)
    return _replaced(system, acting, row, body, replace(fields, stance=named), "memory.promote")


def _correctable(system: SystemDatabase, acting: Acting, target: object) -> Row:
    row = system.system_row(target) if isinstance(target, str) and is_id(target) else None
    if row is None or not row.live or not (acting.is_steward or row.account == acting.account):
        raise NotSupersedable("There is no live system memory with that id that you may supersede.", field="id")
    return row


def _require_slug(row: Row, fields: SystemFields) -> None:
    if row.system is None or row.system.slug != fields.slug:
        raise SlugMismatch("The slug is not that of the memory to be superseded; read it off the claim.", field="slug")


def _require_reviewed(corpus: Corpus | None, stance: str, fields: SystemFields) -> None:
    if corpus is None:
        return
    reviewed = corpus.stance(stance)
    if reviewed is None:
        raise StanceRequired(
            f"The knowledge base has no stance {stance}; review and compile it first.",
            field="stance",
            reason="unknown_stance",
            stance=stance,
        )
    digest = reviewed.digest
    if all(reference.digest != digest for reference in fields.evidence_refs):
        raise EvidenceInvalid(
            f"No evidence carries the digest of the reviewed stance {stance}, which is {digest}; look at what was "
            "reviewed.",
            field="evidenceRefs",
            reason="digest_mismatch",
            stance=stance,
            digest=digest,
        )


def _replaced(
    system: SystemDatabase, acting: Acting, row: Row, body: str, fields: SystemFields, action: StewardAction
) -> Row:
    with system.change():
        later = Row(
            new_id(), acting.account, "system", body, system.next_time(), system=replace(fields, admission="candidate")
        )
        system.insert(later)
        system.point_to(row.id, later.id, later.inserted_at)
        if acting.is_steward:
            ground = CORRECTED.format(later=later.id)
            resolved = [
                refutation(system, acting.account, row.id, challenge, ground).id
                for challenge in open_challenges(system, row.id)
            ]
            subject: JsonObject = {"memoryId": row.id, "replacementId": later.id, "refutations": [*resolved]}
            if fields.stance is not None:
                subject["stance"] = fields.stance
            system.note_action(acting.actor, acting.door, action, subject)
    return later
