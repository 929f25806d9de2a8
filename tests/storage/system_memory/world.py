"""One system memory on a clock that only the test moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from messages.json_types import JsonObject
from storage.system_memory import corrections, records, rows
from storage.system_memory.database import SystemDatabase
from storage.system_memory.model import Acting, Record, Row
from storage.system_memory.ranking import Rankings
from storage.system_memory.recall import Recalled, recall
from storage.system_memory.shapes import ClaimDraft

STEWARD = Acting("stella", True)
EVIDENCE: list[JsonObject] = [{"kind": "url", "ref": "https://example.org/report", "digest": "sha256:11"}]
START_US = 1_800_000_000_000_000
DAY_US = 24 * 3_600 * 1_000_000


def draft(
    slug: str = "sys:gateway", body: str = "The gateway answers 402 for a retired model", **changes: object
) -> ClaimDraft:
    given: dict[str, object] = {"tier": "glass", "as_of": "2026-09-20", "evidence_refs": EVIDENCE, **changes}
    return ClaimDraft(
        slug=slug,
        body=body,
        tier=given["tier"],
        as_of=given["as_of"],
        evidence_refs=given["evidence_refs"],
        entity=given.get("entity"),
        admission=given.get("admission"),
    )


@dataclass
class World:
    """The database of one folder, with the words of a test."""

    path: Path
    now_us: int = START_US
    rankings: Rankings = field(default_factory=Rankings)

    def __post_init__(self) -> None:
        self.system = self.opened()

    def opened(self) -> SystemDatabase:
        system = SystemDatabase.open(self.path, now_us=lambda: self.now_us, create=True)
        assert system is not None
        return system

    def reopen(self) -> None:
        self.system.close()
        self.system = self.opened()

    def later(self, microseconds: int) -> None:
        self.now_us += microseconds

    def observe(self, account: str = "ann", slug: str = "sys:gateway", **changes: object) -> Row:
        return rows.observe(self.system, account, draft(slug, **changes))  # type: ignore[arg-type]

    def admit(self, row: Row, verdict: str = "admitted", steward: Acting = STEWARD) -> Record:
        return records.admit(self.system, steward, row.id, verdict=verdict, ground="looked at it")

    def admitted(self, account: str = "ann", slug: str = "sys:gateway", **changes: object) -> Row:
        row = self.observe(account, slug, **changes)
        self.admit(row)
        return row

    def challenge(self, row: Row, account: str = "ben", *, evidence: bool = True) -> Record:
        refs = EVIDENCE if evidence else None
        return records.challenge(self.system, account, row.id, ground="not so", evidence_refs=refs)

    def refute(self, challenge: Record) -> Record:
        return records.refute(self.system, STEWARD, challenge.id, ground="the challenge is mistaken")

    def promote(self, row: Row, stance: str = "gateway-402", **changes: object) -> Row:
        assert row.system is not None
        return corrections.promote(
            self.system,
            STEWARD,
            row.id,
            stance=stance,
            slug=changes.get("slug", row.system.slug),
            evidence_refs=changes.get("evidence_refs", EVIDENCE),
            entity=changes.get("entity"),
            as_of=changes.get("as_of"),
        )

    def recall(self, account: str, query: str, *, session: str | None = None, bucket: bool = True) -> Recalled:
        return recall(self.system, self.rankings, account, query, session_key=session, system_bucket=bucket)

    def status(self, row: Row) -> str:
        return self.system.status(row.id)

    def everything(self) -> list[tuple[object, ...]]:
        """All rows and records, as they lie in the tables."""
        return [
            *self.system.database.query("SELECT * FROM memory ORDER BY id"),
            *self.system.database.query("SELECT * FROM record ORDER BY id"),
            *self.system.database.query("SELECT * FROM steward_action ORDER BY sequence"),
        ]
