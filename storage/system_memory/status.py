"""What a system row counts as, derived from its records and from nothing else: candidate, admitted, rejected,
suspended.

The order in which records are handed over never matters: the latest admission is found by its time and id, a
challenge is closed by the refutations that name it, and which challenges count is decided by their time and id. Pure;
any thread.

Source: system-memory-contract.md section 4 (Status derivation).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from storage.system_memory.model import Record, Status, Verdict

CAP_DIVISOR: Final = 4
"""One account suspends at most a quarter of the admitted rows, rounded up."""


@dataclass(frozen=True, slots=True)
class OpenChallenge:
    """A challenge with evidence that no refutation names."""

    memory_id: str
    author: str
    inserted_at: int
    id: str


def verdicts_of(records: Iterable[Record]) -> dict[str, Verdict]:
    """What the latest admission of each row decides, by row."""
    latest: dict[str, tuple[int, str, Verdict]] = {}
    for record in records:
        if record.role == "admission" and record.verdict is not None:
            found = (record.inserted_at, record.id, record.verdict)
            if record.memory_id not in latest or found[:2] > latest[record.memory_id][:2]:
                latest[record.memory_id] = found
    return {memory_id: verdict for memory_id, (_, _, verdict) in latest.items()}


def open_challenges_of(records: Collection[Record]) -> list[OpenChallenge]:
    """The challenges with evidence that are not refuted."""
    refuted = {record.challenge_id for record in records if record.role == "refutation"}
    return [
        OpenChallenge(record.memory_id, record.author, record.inserted_at, record.id)
        for record in records
        if record.role == "challenge" and record.evidence_refs is not None and record.id not in refuted
    ]


def suspended_rows(verdicts: Mapping[str, Verdict], challenges: Iterable[OpenChallenge]) -> frozenset[str]:
    """The admitted rows that open challenges suspend: of each account's, the earliest up to its cap."""
    cap = -(-sum(verdict == "admitted" for verdict in verdicts.values()) // CAP_DIVISOR)
    by_account: dict[str, dict[str, None]] = {}
    for challenge in sorted(challenges, key=lambda found: (found.inserted_at, found.id)):
        if verdicts.get(challenge.memory_id) != "admitted":
            continue
        mine = by_account.setdefault(challenge.author, {})
        if len(mine) < cap:  # a further one on a row that counts already changes nothing
            mine.setdefault(challenge.memory_id)
    return frozenset(memory_id for rows in by_account.values() for memory_id in rows)


def status_of(memory_id: str, verdicts: Mapping[str, Verdict], suspended: Collection[str]) -> Status:
    """The status of a row of the system bucket; one without a record is a candidate."""
    return "suspended" if memory_id in suspended else verdicts.get(memory_id, "candidate")


def statuses(records: Collection[Record]) -> dict[str, Status]:
    """The status of every row that has a record."""
    verdicts = verdicts_of(records)
    suspended = suspended_rows(verdicts, open_challenges_of(records))
    return {memory_id: status_of(memory_id, verdicts, suspended) for memory_id in {row.memory_id for row in records}}
