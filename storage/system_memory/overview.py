"""What a person sees of the system bucket: how many rows of each status, the newest, and one with all that was said
of it.

The database's thread. Source: system-memory-boundary.md (Check the drain); system-memory-contract.md section 11.
"""

from __future__ import annotations

from messages.errors import NotFound
from messages.json_types import JsonObject
from storage.system_memory.database import COLUMNS, SystemDatabase, is_id, row_of
from storage.system_memory.model import Row, steward_view
from storage.system_memory.readiness import counters
from storage.system_memory.records import records_of


def claims_by_status(system: SystemDatabase | None) -> JsonObject:
    """How many live claims there are of each derived status, and how many are superseded or tombstones."""
    numbers = {"candidate": 0, "admitted": 0, "rejected": 0, "suspended": 0, "superseded": 0, "tombstones": 0}
    if system is not None:
        for memory_id, replaced, promoted in system.database.query(
            "SELECT id, superseded_by IS NOT NULL, promoted FROM memory WHERE bucket = 'system'"
        ):
            if promoted:
                numbers["tombstones"] += 1
            elif replaced:
                numbers["superseded"] += 1
            else:
                numbers[system.status(memory_id)] += 1
    return {"claims": {**numbers}}


def status(system: SystemDatabase | None, memory_id: object) -> JsonObject:
    """The derived status of an id: null for one that cannot be an id or is an account's own row, candidate for one that
    nobody knows."""
    if not isinstance(memory_id, str) or not is_id(memory_id):
        return {"id": memory_id if isinstance(memory_id, str) else None, "status": None}
    if system is None:
        return {"id": memory_id, "status": "candidate"}
    own = system.database.query_one("SELECT 1 FROM memory WHERE id = ? AND bucket <> 'system'", (memory_id,))
    return {"id": memory_id, "status": None if own is not None else system.status(memory_id)}


def newest(system: SystemDatabase | None, limit: int) -> JsonObject:
    """The newest claims, live or not, each with its status."""
    found = []
    if system is not None:
        found = system.database.query(
            f"SELECT {COLUMNS} FROM memory WHERE bucket = 'system' ORDER BY inserted_at DESC, id DESC LIMIT ?", (limit,)
        )
    return {"memories": [_with_status(system, row_of(row)) for row in found if system is not None]}


def shown(system: SystemDatabase, memory_id: object) -> JsonObject:
    """A claim with its status, its counters and every record about it, the oldest first. Raises ``NotFound``."""
    row = system.system_row(memory_id) if isinstance(memory_id, str) and is_id(memory_id) else None
    if row is None:
        raise NotFound("There is no claim with that id.", field="id")
    records = records_of(system, row.id)
    return {
        **_with_status(system, row),
        "counters": counters(system, row.id, records).to_json(),
        "records": [record.to_json() for record in records],
    }


def _with_status(system: SystemDatabase, row: Row) -> JsonObject:
    return {**steward_view(row), "status": system.status(row.id)}
