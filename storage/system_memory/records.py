"""Admissions, challenges and refutations: what stewards and accounts say of a system row, never changed afterwards.

Whether somebody is a steward is for the caller to say, before anything is read; an id that names nothing, an own row
of an account or a tombstone is ``not_found`` alike. The database's thread.

Source: system-memory-contract.md section 4.
"""

from __future__ import annotations

from messages.errors import NotFound, StewardRequired
from storage.system_memory.database import SystemDatabase, evidence_of, evidence_text, is_id, new_id
from storage.system_memory.model import Acting, Record, Row
from storage.system_memory.redaction import refuse_secrets
from storage.system_memory.rows import refuse_secrets_in_evidence
from storage.system_memory.shapes import Findings, require_account

_COLUMNS = "id, memory_id, author, role, ground, inserted_at, verdict, challenge_id, evidence_refs"


def require_steward(acting: Acting) -> None:
    """Raise ``StewardRequired``, alike for whatever the request names."""
    if not acting.is_steward:
        raise StewardRequired("Only a steward that the configuration names may do this (systemMemory.stewards).")


def admit(system: SystemDatabase, acting: Acting, memory_id: object, *, verdict: object, ground: object) -> Record:
    """A steward's decision about a row. Raises ``StewardRequired``, ``NotFound``, then what the shapes refuse."""
    require_steward(acting)
    row = _named(system, memory_id)
    findings = Findings()
    decided, reason = findings.verdict(verdict), findings.ground(ground)
    findings.settle()
    refuse_secrets("ground", reason)
    with system.change():
        record = Record(new_id(), row.id, acting.account, "admission", reason, system.next_time(), verdict=decided)
        insert(system, record)
        subject = {"memoryId": row.id, "recordId": record.id, "verdict": decided}
        system.note_action(acting.actor, acting.door, "memory.admit", {**subject})
    return record


def challenge(
    system: SystemDatabase, account: str, memory_id: object, *, ground: object, evidence_refs: object = None
) -> Record:
    """What any account may hold against a row, its author too; only with evidence it has an effect.

    Raises ``NotFound``, then what the shapes refuse.
    """
    row = _named(system, memory_id)
    findings = Findings()
    reason = findings.ground(ground)
    evidence = None if evidence_refs is None else findings.evidence(evidence_refs)
    findings.settle()
    refuse_secrets("ground", reason)
    refuse_secrets_in_evidence(evidence or ())
    with system.change():
        record = Record(new_id(), row.id, account, "challenge", reason, system.next_time(), evidence_refs=evidence)
        insert(system, record)
    return record


def refute(system: SystemDatabase, acting: Acting, challenge_id: object, *, ground: object) -> Record:
    """Close a challenge. Raises ``StewardRequired``, ``NotFound``, then what the shapes refuse."""
    require_steward(acting)
    found = None
    if isinstance(challenge_id, str) and is_id(challenge_id):
        found = system.database.query_one(
            "SELECT memory_id FROM record WHERE id = ? AND role = 'challenge'", (challenge_id,)
        )
    if found is None or not isinstance(challenge_id, str):
        raise NotFound("There is no challenge with that id.", field="id")
    findings = Findings()
    reason = findings.ground(ground)
    findings.settle()
    refuse_secrets("ground", reason)
    with system.change():
        record = refutation(system, acting.account, str(found[0]), challenge_id, reason)
        subject = {"memoryId": record.memory_id, "recordId": record.id, "challengeId": challenge_id}
        system.note_action(acting.actor, acting.door, "memory.refute", {**subject})
    return record


def refutation(system: SystemDatabase, steward: str, memory_id: str, challenge_id: str, ground: str) -> Record:
    """Write a refutation, inside a change."""
    record = Record(new_id(), memory_id, steward, "refutation", ground, system.next_time(), challenge_id=challenge_id)
    insert(system, record)
    return record


def insert(system: SystemDatabase, record: Record) -> None:
    """Add a record, inside a change. Raises ``InvalidArgument`` for an author who cannot be an account."""
    require_account(record.author)
    prefix, subject = {
        "admission": ("adm:", record.memory_id),
        "challenge": ("chl:", record.memory_id),
        "refutation": ("ref:", record.challenge_id),
    }[record.role]
    system.database.execute(
        "INSERT INTO record (id, memory_id, memory_bucket, memory_promoted, author, role, verdict, ground, slug, "
        "challenge_id, challenge_role, evidence_refs, inserted_at) "
        "VALUES (?, ?, 'system', 0, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            record.id,
            record.memory_id,
            record.author,
            record.role,
            record.verdict,
            record.ground,
            f"{prefix}{subject}",
            record.challenge_id,
            None if record.challenge_id is None else "challenge",
            None if record.evidence_refs is None else evidence_text(record.evidence_refs),
            record.inserted_at,
        ),
    )
    if record.verdict is not None:
        system.decided(record.memory_id, record.verdict)


def records_of(system: SystemDatabase, memory_id: str) -> list[Record]:
    """Every record about a row, the oldest first."""
    found = system.database.query(
        f"SELECT {_COLUMNS} FROM record WHERE memory_id = ? ORDER BY inserted_at, id", (memory_id,)
    )
    return [
        Record(id_, memory, author, role, ground, at, verdict, challenged, None if refs is None else evidence_of(refs))
        for id_, memory, author, role, ground, at, verdict, challenged, refs in found
    ]


def open_challenges(system: SystemDatabase, memory_id: str) -> list[str]:
    """The challenges of a row that nobody refuted, with evidence or not, the oldest first."""
    found = system.database.query(
        "SELECT id FROM record AS challenge WHERE memory_id = ? AND role = 'challenge' "
        "AND NOT EXISTS (SELECT 1 FROM record AS refutation WHERE refutation.challenge_id = challenge.id) "
        "ORDER BY inserted_at, id",
        (memory_id,),
    )
    return [str(id_) for (id_,) in found]


def _named(system: SystemDatabase, memory_id: object) -> Row:
    row = system.system_row(memory_id) if isinstance(memory_id, str) and is_id(memory_id) else None
    if row is None or row.promoted:
        raise NotFound("There is no system memory with that id about which this can be said.", field="id")
    return row
