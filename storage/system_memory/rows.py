"""What an account does with its own rows: create, list, fetch, delete. A row of another account is absent to it.

The database's thread. Source: system-memory-contract.md section 3.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from messages.errors import NotFound, QuotaReached, SupersedesNotFound
from storage.system_memory.database import COLUMNS, SystemDatabase, is_id, new_id, row_of
from storage.system_memory.model import (
    ACCOUNT_BUCKETS,
    BUCKETS,
    LIVE_ROWS_MAX,
    OWNER,
    Bucket,
    EvidenceReference,
    Row,
    SystemFields,
)
from storage.system_memory.redaction import refuse_secrets
from storage.system_memory.shapes import ClaimDraft, Findings, require_account

LIST_MAX: Final = 200


def create(
    system: SystemDatabase,
    account: str,
    *,
    body: object,
    bucket: object = None,
    source_ref: object = None,
    supersedes: object = None,
) -> Row:
    """Write a row of the account. ``supersedes`` names a live row of the account's own buckets, which it replaces.

    Raises ``InvalidArgument``, ``LimitExceeded``, ``RedactionRequired``, ``SupersedesNotFound``, ``QuotaReached``.
    """
    require_account(account)
    findings = Findings()
    chosen: Bucket = "user"
    if bucket is not None:
        chosen = "learned" if findings.word("bucket", bucket, ACCOUNT_BUCKETS) == "learned" else "user"
    kept, reference = findings.own_row(body, source_ref)
    findings.settle()
    refuse_secrets("body", kept)
    if reference is not None:
        refuse_secrets("sourceRef", reference)
    with system.change():
        if supersedes is None:
            _require_room(system, account)
        elif not _is_replaceable(system, account, supersedes):
            raise SupersedesNotFound("You have no live memory with that id to supersede.", field="supersedes")
        row = Row(new_id(), account, chosen, kept, system.next_time(), reference)
        system.insert(row)
        if isinstance(supersedes, str):
            system.point_to(supersedes, row.id, row.inserted_at)
    return row


def observe(system: SystemDatabase, account: str, draft: ClaimDraft) -> Row:
    """Write a claim of the account into the system bucket, where it is a candidate until a steward admits it.

    Raises ``InvalidArgument``, ``LimitExceeded``, ``EvidenceInvalid``, ``RedactionRequired``, ``QuotaReached``.
    """
    require_account(account)
    findings = Findings()
    body, fields = findings.claim(draft)
    findings.settle()
    refuse_claimed_secrets(body, fields)
    with system.change():
        _require_room(system, account)
        row = Row(new_id(), account, "system", body, system.next_time(), system=fields)
        system.insert(row)
    return row


def refuse_claimed_secrets(body: str, fields: SystemFields) -> None:
    """Raise ``RedactionRequired`` where a text of a claim holds a secret."""
    refuse_secrets("body", body)
    refuse_secrets("slug", fields.slug)
    if fields.entity is not None:
        refuse_secrets("entity", fields.entity)
    refuse_secrets_in_evidence(fields.evidence_refs)


def refuse_secrets_in_evidence(references: Collection[EvidenceReference]) -> None:
    """Raise ``RedactionRequired`` where a reference or its digest holds a secret."""
    for place, reference in enumerate(references):
        refuse_secrets(f"evidenceRefs[{place}].ref", reference.ref)
        refuse_secrets(f"evidenceRefs[{place}].digest", reference.digest)


def list_rows(
    system: SystemDatabase,
    account: str,
    *,
    buckets: Collection[str] | None = None,
    include_superseded: bool = False,
    limit: int = LIST_MAX,
) -> list[Row]:
    """The account's rows, the newest first; those that were superseded only where asked for.

    Raises ``InvalidArgument`` for an unknown bucket or a limit outside 1 to 200.
    """
    findings = Findings()
    wanted = [findings.word("buckets", bucket, BUCKETS) for bucket in (BUCKETS if buckets is None else buckets)]
    if not 1 <= limit <= LIST_MAX:
        findings.add("limit", f"must be 1 to {LIST_MAX}", "out_of_range", f"1 to {LIST_MAX}")
    findings.settle()
    marks = ", ".join("?" * len(wanted))
    live = "" if include_superseded else "AND superseded_by IS NULL "
    found = system.database.query(
        f"SELECT {COLUMNS} FROM memory WHERE account = ? AND bucket IN ({marks}) {live}"
        "ORDER BY inserted_at DESC, id DESC LIMIT ?",
        (account, *wanted, limit),
    )
    return [row_of(row) for row in found]


def fetch(system: SystemDatabase, account: str, memory_id: object) -> Row:
    """A row of the account, live or not. Raises ``NotFound`` for any other id, readable or not."""
    if isinstance(memory_id, str) and is_id(memory_id):
        found = system.database.query_one(
            f"SELECT {COLUMNS} FROM memory WHERE id = ? AND account = ?", (memory_id, account)
        )
        if found is not None:
            return row_of(found)
    raise _absent()


def delete(system: SystemDatabase, account: str, memory_id: object) -> Row:
    """Delete a row of the account, with the records about it; rows that it had superseded are live again.

    Raises ``NotFound`` for any other id.
    """
    row = fetch(system, account, memory_id)
    with system.change():
        system.database.execute("DELETE FROM memory WHERE id = ? AND account = ?", (row.id, account))
        system.forget_verdicts()
    system.overwrite_deleted()
    return row


def erase_account(system: SystemDatabase, account: str, door: str) -> int:
    """Delete every row and every record of an account; the number of its rows. Cannot be undone, and is no steward's
    right: whoever runs the owner may do it."""
    with system.change():
        removed = system.database.execute("DELETE FROM memory WHERE account = ?", (account,))
        system.database.execute("DELETE FROM record WHERE author = ?", (account,))
        system.note_action(OWNER, door, "memory.erase", {"account": account, "rows": removed})
        system.forget_verdicts()
    system.overwrite_deleted()
    return removed


def _require_room(system: SystemDatabase, account: str) -> None:
    found = system.database.query_one(
        "SELECT count(*) FROM memory WHERE account = ? AND superseded_by IS NULL", (account,)
    )
    if found is not None and found[0] >= LIVE_ROWS_MAX:
        raise QuotaReached(
            f"The account has {LIVE_ROWS_MAX} live memories, which is the most; supersede or delete one of them.",
            limit=LIVE_ROWS_MAX,
        )


def _is_replaceable(system: SystemDatabase, account: str, memory_id: object) -> bool:
    """A claim of the system bucket is corrected by its own path, which keeps its slug."""
    if not isinstance(memory_id, str) or not is_id(memory_id):
        return False
    found = system.database.query_one(
        "SELECT 1 FROM memory WHERE id = ? AND account = ? AND bucket <> 'system' AND superseded_by IS NULL",
        (memory_id, account),
    )
    return found is not None


def _absent() -> NotFound:
    return NotFound("You have no memory with that id.", field="id")
