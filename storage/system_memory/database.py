"""``system-memory.sqlite``: opened, created, and what every operation on it shares.

Guarantees: times rise with each row and record, also when the clock of the machine is set back, so that what was
written later is later; a change is durable when its operation returns, or was rolled back as a whole; derived
statuses and the rows that recall may show are kept in memory and never older than the last change. One thread, that
which opened it.

Source: system-memory-contract.md sections 2 and 4; decisions.md section 1 (formats).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

import orjson

from messages.errors import InternalError, StoreUnavailable
from messages.json_types import JsonObject
from storage.faults import effect
from storage.state.connection import Database
from storage.system_memory.model import Acting, EvidenceReference, Row, Status, SystemFields, Verdict
from storage.system_memory.schema import FORMAT, SCHEMA
from storage.system_memory.status import OpenChallenge, status_of, suspended_rows

FAULT_POINTS: Final = (
    ("system_memory.folder", "making the folder of system-memory.sqlite"),
    ("system_memory.open", "opening system-memory.sqlite"),
    ("system_memory.statement", "one statement on system-memory.sqlite"),
    ("system_memory.checkpoint", "copying its log into its file"),
    ("system_memory.rollback", "undoing what was begun on it"),
    ("system_memory.close", "closing it"),
    ("system_memory.create.begin", "beginning to create its tables"),
    ("system_memory.create.commit", "making its tables durable"),
    ("system_memory.change.begin", "beginning a change of its rows or records"),
    ("system_memory.change.commit", "making that change durable"),
    ("system_memory.count.begin", "beginning to count what was recalled"),
    ("system_memory.count.commit", "committing that count"),
)

COLUMNS: Final = (
    "id, account, bucket, body, inserted_at, source_ref, superseded_by, slug, entity, tier, as_of, admission, "
    "evidence_refs, stance"
)
_CHECKPOINT_EVERY: Final = 64
_AUDITED_AT_ONCE: Final = 100


StewardAction: TypeAlias = Literal[
    "memory.admit", "memory.refute", "memory.supersede", "memory.promote", "memory.erase"
]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One action of a steward, as it is told to the audit. ``at`` is UTC milliseconds; ``subject`` holds ids."""

    sequence: int
    at: int
    actor: str
    door: str
    action: StewardAction
    subject: JsonObject


class SystemDatabase:
    """The open database. ``now_us`` is the wall clock in UTC microseconds."""

    def __init__(self, database: Database, now_us: Callable[[], int]) -> None:
        self.database = database
        self._now_us = now_us
        self._latest = _latest_time(database)
        self._verdicts: dict[str, Verdict] | None = None
        self._suspended: frozenset[str] | None = None
        self._pool: list[Row] | None = None
        self._changes = 0

    @classmethod
    def open(cls, path: Path, *, now_us: Callable[[], int], create: bool) -> SystemDatabase | None:
        """Open it; made where there is none and ``create`` says so, else ``None`` then.

        Raises ``StoreUnavailable`` (``newer_format``, ``foreign``), ``StorageCorrupt``, ``StorageError``.
        """
        with effect("system_memory.folder"):
            if not create and not os.path.exists(path):
                return None
            os.makedirs(path.parent, mode=0o700, exist_ok=True)
        database = Database.open(path, point_prefix="system_memory", create=create)
        try:
            with effect("system_memory.folder"):
                os.chmod(path, 0o600)
            found = database.user_version()
            if found > FORMAT:
                raise StoreUnavailable(
                    f"{path.name} has format {found}, which a newer version wrote; this one knows {FORMAT}. Use the "
                    "newer version.",
                    reason="newer_format",
                )
            if found == 0:
                if database.query_one("SELECT 1 FROM sqlite_schema") is not None:
                    raise StoreUnavailable(f"{path.name} is a database, but none of system memory.", reason="foreign")
                with database.transaction(full=True, point="system_memory.create"):
                    database.execute_script(SCHEMA)
            return cls(database, now_us)
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        """Close the connection; idempotent."""
        self.database.close()

    def wall_us(self) -> int:
        """What the clock of the machine says, UTC microseconds."""
        return self._now_us()

    def next_time(self) -> int:
        """The time of the next row or record: now, or just after the latest one."""
        self._latest = max(self._now_us(), self._latest + 1)
        return self._latest

    @contextmanager
    def change(self) -> Iterator[None]:
        """One durable change of rows or records, or none of it. What is derived is looked at again afterwards."""
        self._suspended = None
        try:
            with self.database.transaction(full=True, point="system_memory.change"):
                yield
        except BaseException:
            self.forget_verdicts()
            raise
        finally:
            self._suspended = None
            self._pool = None
        self._changes += 1
        if self._changes % _CHECKPOINT_EVERY == 0:
            self.database.checkpoint()

    def forget_verdicts(self) -> None:
        """Read the verdicts again when they are next needed: records went, or a change did not come."""
        self._verdicts = None

    def decided(self, memory_id: str, verdict: Verdict) -> None:
        """A later admission of a row was written, inside :meth:`change`."""
        if self._verdicts is not None:
            self._verdicts[memory_id] = verdict

    @contextmanager
    def count(self) -> Iterator[None]:
        """A change of counters only: committed, and durable with the next change."""
        with self.database.transaction(full=False, point="system_memory.count"):
            yield

    # --- what is derived -------------------------------------------------------------------------------

    def verdicts(self) -> dict[str, Verdict]:
        """What the latest admission of each row decides."""
        if self._verdicts is None:
            # In the order of time: the last one of a row stands.
            self._verdicts = dict(
                self.database.query(
                    "SELECT memory_id, verdict FROM record WHERE role = 'admission' ORDER BY inserted_at, id"
                )
            )
        return self._verdicts

    def suspended(self) -> frozenset[str]:
        """The admitted rows that challenges suspend."""
        if self._suspended is None:
            found = self.database.query(
                "SELECT memory_id, author, inserted_at, id FROM record AS challenge "
                "WHERE role = 'challenge' AND evidence_refs IS NOT NULL "
                "AND NOT EXISTS (SELECT 1 FROM record AS refutation WHERE refutation.challenge_id = challenge.id) "
                "ORDER BY inserted_at, id"
            )
            self._suspended = suspended_rows(self.verdicts(), (OpenChallenge(*row) for row in found))
        return self._suspended

    def status(self, memory_id: str) -> Status:
        """The derived status of a system row; one that nobody knows is a candidate."""
        return status_of(memory_id, self.verdicts(), self.suspended())

    def pool(self, read: Callable[[SystemDatabase], list[Row]]) -> list[Row]:
        """The rows that recall may show, as ``read`` found them since the last change."""
        if self._pool is None:
            self._pool = read(self)
        return self._pool

    # --- rows ------------------------------------------------------------------------------------------

    def insert(self, row: Row) -> None:
        """Add a row, inside :meth:`change`."""
        system = row.system
        values = (
            (None,) * 7
            if system is None
            else (
                system.slug,
                system.entity,
                system.tier,
                system.as_of,
                system.admission,
                evidence_text(system.evidence_refs),
                system.stance,
            )
        )
        self.database.execute(
            f"INSERT INTO memory ({COLUMNS}, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                row.id,
                row.account,
                row.bucket,
                row.body,
                row.inserted_at,
                row.source_ref,
                row.superseded_by,
                *values,
                row.inserted_at,
            ),
        )

    def point_to(self, replaced: str, replacement: str, at: int) -> None:
        """Point a row at what supersedes it, inside :meth:`change`."""
        self.database.execute(
            "UPDATE memory SET superseded_by = ?, updated_at = ? WHERE id = ? AND superseded_by IS NULL",
            (replacement, at, replaced),
        )

    def system_row(self, memory_id: str) -> Row | None:
        """A row of the system bucket, whosever it is."""
        found = self.database.query_one(
            f"SELECT {COLUMNS} FROM memory WHERE id = ? AND bucket = 'system'", (memory_id,)
        )
        return None if found is None else row_of(found)

    def note_action(self, acting: Acting, action: StewardAction, subject: JsonObject) -> None:
        """What a steward does, for the audit, inside the :meth:`change` that does it."""
        self.database.execute(
            "INSERT INTO steward_action (at, actor, door, action, subject) VALUES (?, ?, ?, ?, ?)",
            (self.wall_us() // 1_000, acting.actor, acting.door, action, orjson.dumps(subject).decode()),
        )

    def unaudited(self) -> list[AuditEntry]:
        """The actions of stewards that the audit does not have yet, the oldest first."""
        found = self.database.query(
            "SELECT sequence, at, actor, door, action, subject FROM steward_action ORDER BY sequence LIMIT ?",
            (_AUDITED_AT_ONCE,),
        )
        return [
            AuditEntry(sequence, at, actor, door, action, orjson.loads(subject))
            for sequence, at, actor, door, action, subject in found
        ]

    def audited(self, up_to: int) -> None:
        """The audit has the actions up to this one."""
        with self.database.transaction(full=False, point="system_memory.count"):
            self.database.execute("DELETE FROM steward_action WHERE sequence <= ?", (up_to,))


def new_id() -> str:
    """The id of a new row or record."""
    return str(uuid.uuid4())


def is_id(value: object) -> bool:
    """Whether a value can be an id of these tables."""
    try:
        return isinstance(value, str) and str(uuid.UUID(value)) == value
    except ValueError:
        return False


def evidence_text(references: tuple[EvidenceReference, ...]) -> str:
    """Evidence as its column holds it."""
    return orjson.dumps([reference.to_json() for reference in references]).decode()


def evidence_of(text: str) -> tuple[EvidenceReference, ...]:
    """The references that a column holds."""
    return tuple(EvidenceReference(entry["kind"], entry["ref"], entry["digest"]) for entry in orjson.loads(text))


def row_of(found: tuple[object, ...]) -> Row:
    """A row as :data:`COLUMNS` select it."""
    match found:
        case (
            str(id_),
            str(account),
            ("user" | "learned" | "system") as bucket,
            str(body),
            int(inserted_at),
            (None | str()) as source_ref,
            (None | str()) as superseded_by,
            slug,
            (None | str()) as entity,
            tier,
            as_of,
            admission,
            evidence,
            (None | str()) as stance,
        ):
            system = None
            match slug, tier, as_of, admission, evidence:
                case (
                    str(),
                    ("ledger" | "glass") as kept_tier,
                    str(),
                    ("candidate" | "admitted" | "rejected") as claimed,
                    str(),
                ):
                    system = SystemFields(slug, kept_tier, as_of, evidence_of(evidence), entity, claimed, stance)
                case _:
                    pass
            return Row(id_, account, bucket, body, inserted_at, source_ref, superseded_by, system)
        case _:
            raise InternalError("A row of system memory has another shape than its table allows.")


def _latest_time(database: Database) -> int:
    found = database.query_one(
        "SELECT max(coalesce((SELECT max(inserted_at) FROM memory), 0), "
        "coalesce((SELECT max(inserted_at) FROM record), 0))"
    )
    return 0 if found is None else int(found[0])
