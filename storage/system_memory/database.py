"""``system-memory.sqlite``: opened, created, and what every operation on it shares.

Guarantees: times rise with each row and record, also when the clock of the machine is set back, so that what was
written later is later; a change is durable when its operation returns, or was rolled back as a whole; derived
statuses and the rows that recall may show are kept in memory and never older than the last change. One thread, that
which opened it.

Source: system-memory-contract.md sections 2 and 4; decisions.md section 1 (formats).
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

import orjson

from messages.errors import InternalError, KnowledgeError, StorageError, StoreUnavailable
from messages.json_types import JsonObject
from storage.faults import effect
from storage.state.connection import Database
from storage.system_memory.model import EvidenceReference, Row, Status, SystemFields, Verdict
from storage.system_memory.schema import FORMAT, SCHEMA, TABLES
from storage.system_memory.shapes import require_account
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

logger = logging.getLogger(__name__)

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
        self._file = _identity(database.path)
        self._verdicts: dict[str, Verdict] | None = None
        self._suspended: frozenset[str] | None = None
        self._pool: list[Row] | None = None
        self._changes = 0

    @classmethod
    def open(cls, path: Path, *, now_us: Callable[[], int], create: bool) -> SystemDatabase | None:
        """Open it; made where there is none and ``create`` says so, else ``None`` then.

        Raises ``StoreUnavailable`` (``newer_format``, ``foreign``), ``StorageCorrupt``, ``StorageError``.
        """
        with _reached(path), effect("system_memory.folder"):
            there = os.path.lexists(path)
            if not there and not create:
                return None
            if there and not stat.S_ISREG(os.lstat(path).st_mode):
                raise StoreUnavailable(
                    f"{path.name} is no plain file (a link is not followed). Put the file itself there.",
                    reason="foreign",
                )
            os.makedirs(path.parent, mode=0o700, exist_ok=True)
        if there:
            # Before it is opened for writing, which alone would change a file of somebody else's.
            looked = Database.open(path, point_prefix="system_memory", read_only=True)
            try:
                require_ours(looked)
            finally:
                looked.close()
        with _reached(path), effect("system_memory.folder"):
            # Before SQLite makes the files beside it, which get its mode.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            os.chmod(path, 0o600)
        database = Database.open(path, point_prefix="system_memory")
        try:
            if database.user_version() == 0:
                with database.transaction(full=True, point="system_memory.create"):
                    database.execute_script(SCHEMA)
            return cls(database, now_us)
        except BaseException:
            database.close()
            raise

    def require_in_place(self) -> None:
        """Raise ``StoreUnavailable`` unless the file is still the one that is open: what is written into one that lost
        its name is lost with the process, and a new file beside the old one's log would be spoiled by it."""
        if _identity(self.database.path) != self._file:
            raise StoreUnavailable(
                f"{self.database.path.name} was removed or replaced while it was open. Stop the owner, put the file of "
                "a backup there with no -wal and -shm beside it, and start the owner again.",
                retry="never",
                reason="lost",
            )

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
            self._checkpoint("PASSIVE")

    def overwrite_deleted(self) -> None:
        """Leave nothing of what was deleted in the log either."""
        self._checkpoint("TRUNCATE")

    def _checkpoint(self, mode: Literal["PASSIVE", "TRUNCATE"]) -> None:
        try:
            self.database.checkpoint(mode)
        except KnowledgeError as error:  # the change is durable, and the log is copied with a later one
            logger.warning("the log of system memory was not copied", extra={"code": error.code})

    def forget_verdicts(self) -> None:
        """Read the verdicts again when they are next needed: records went, or a change did not come."""
        self._verdicts = None

    def decided(self, memory_id: str, verdict: Verdict) -> None:
        """A later admission of a row was written, inside :meth:`change`."""
        if self._verdicts is not None:
            self._verdicts[memory_id] = verdict

    @contextmanager
    def counting(self) -> Iterator[None]:
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
        """Add a row, inside :meth:`change`. Raises ``InvalidArgument`` for an account that cannot be one."""
        require_account(row.account)
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

    def note_action(self, actor: str, door: str, action: StewardAction, subject: JsonObject) -> None:
        """What a steward does, for the audit, inside the :meth:`change` that does it."""
        self.database.execute(
            "INSERT INTO steward_action (at, actor, door, action, subject) VALUES (?, ?, ?, ?, ?)",
            (self.wall_us() // 1_000, actor, door, action, orjson.dumps(subject).decode()),
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
        with self.counting():
            self.database.execute("DELETE FROM steward_action WHERE sequence <= ?", (up_to,))


def require_ours(database: Database) -> None:
    """Raise ``StoreUnavailable`` (``newer_format``, ``foreign``) unless this is an empty database, or one of system
    memory that this version knows."""
    name = database.path.name
    tables = {str(table) for (table,) in database.query("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    found = database.user_version()
    if found == 0 and not tables:
        return
    if found > FORMAT and tables >= {"memory", "record"}:
        raise StoreUnavailable(
            f"{name} has format {found}, which a newer version wrote; this one knows {FORMAT}. Use the newer version.",
            reason="newer_format",
        )
    if found != FORMAT or not tables >= TABLES:
        raise StoreUnavailable(
            f"{name} is a database, but none of system memory. Move it away, or put a backup's in its place.",
            reason="foreign",
        )


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


@contextmanager
def _reached(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path.name} cannot be reached: {error.strerror}", reason="io", errno=error.errno or 0
        ) from error


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        with _reached(path), effect("system_memory.folder"):
            found = os.lstat(path)
    except StorageError as error:
        if error.fields.get("errno") == errno.ENOENT:
            return None
        raise
    return found.st_dev, found.st_ino


def _latest_time(database: Database) -> int:
    found = database.query_one(
        "SELECT max(coalesce((SELECT max(inserted_at) FROM memory), 0), "
        "coalesce((SELECT max(inserted_at) FROM record), 0))"
    )
    return 0 if found is None else int(found[0])
