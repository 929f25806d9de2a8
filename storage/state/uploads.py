"""The rows of attached sources: how far an upload has come, and what a retained file was described as.

Plain functions over the store's connection; they decide nothing. Writes run inside the caller's transaction, on the
thread that owns the connection.

Source: decisions.md section 2 (an upload that nobody cites yet is a row in state.sqlite beside its file).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from messages.vocabulary import Partition
from storage.state import journal
from storage.state.connection import Database, Row

UploadOperation: TypeAlias = Literal["attach", "attach_file"]

RETAINED_MAX: Final = 3
"""How many files with the same bytes are looked at before a further one is kept."""

_COLUMNS: Final = (
    "u.request_id, u.operation, u.payload_hash, u.actor, u.filename, u.media_type, u.attribution, u.received, u.size, "
    "u.sha256, u.path, u.at"
)
_UPLOADS: Final = f"SELECT {_COLUMNS} FROM upload u JOIN partition p ON p.id = u.partition WHERE p.key = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """One attached source. Sizes in bytes, ``at`` in nanoseconds since 1970 (the last change).

    ``received`` bytes are on disk and synced. ``size`` is known once the final chunk is there. ``path`` (relative to
    the partition) and ``sha256`` are set when the source is retained, and nothing changes afterwards.
    """

    request_id: str
    operation: UploadOperation
    payload_hash: str
    actor: str
    filename: str
    media_type: str | None
    attribution: str
    received: int = 0
    size: int | None = None
    sha256: str | None = None
    path: str | None = None
    at: int = 0


def find(db: Database, partition: Partition, request_id: str) -> Upload | None:
    """The upload of a request."""
    row = db.query_one(f"{_UPLOADS} AND u.request_id = ?", (partition.key, request_id))
    return None if row is None else _upload(row)


def put(db: Database, partition: Partition, upload: Upload) -> None:
    """Keep an upload as it is now. A retained one is never changed."""
    number, _ = journal.partition_row(db, partition)
    db.execute(
        "INSERT INTO upload (partition, request_id, operation, payload_hash, actor, filename, media_type, attribution, "
        "received, size, sha256, path, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (partition, request_id) DO UPDATE SET received = excluded.received, size = excluded.size, "
        "sha256 = excluded.sha256, path = excluded.path, at = excluded.at WHERE path IS NULL",
        (
            number,
            upload.request_id,
            upload.operation,
            upload.payload_hash,
            upload.actor,
            upload.filename,
            upload.media_type,
            upload.attribution,
            upload.received,
            upload.size,
            upload.sha256,
            upload.path,
            upload.at,
        ),
    )


def descriptors(db: Database, partition: Partition, path: str, sha256: str) -> Sequence[Upload]:
    """The uploads that were answered with this retained file, the first one first."""
    rows = db.query(
        # Left alone, SQLite walks all uploads of the partition.
        f"SELECT {_COLUMNS} FROM upload u INDEXED BY upload_retained JOIN partition p ON p.id = u.partition "
        "WHERE p.key = ? AND u.sha256 = ? AND u.path = ? AND u.path IS NOT NULL ORDER BY u.at, u.request_id",
        (partition.key, sha256, path),
    )
    return [_upload(row) for row in rows]


def retained(db: Database, partition: Partition, sha256: str) -> Sequence[str]:
    """Paths of the partition that hold these bytes, as far as uploads and citations say: at most three."""
    rows = db.query(
        "SELECT DISTINCT u.path FROM upload u JOIN partition p ON p.id = u.partition "
        "WHERE p.key = ? AND u.sha256 = ? AND u.path IS NOT NULL ORDER BY u.path LIMIT ?",
        (partition.key, sha256, RETAINED_MAX),
    )
    cited = db.query(
        "SELECT DISTINCT c.path FROM citation c JOIN catalogue_partition p ON p.id = c.partition "
        "WHERE p.key = ? AND c.sha256 = ? ORDER BY c.path LIMIT ?",
        (partition.key, sha256, RETAINED_MAX),
    )
    return list(dict.fromkeys(str(path) for (path,) in (*rows, *cited)))[:RETAINED_MAX]


def _upload(row: Row) -> Upload:
    request_id, operation, payload_hash, actor, filename, media_type = row[:6]
    attribution, received, size, sha256, path, at = row[6:]
    return Upload(
        request_id=request_id,
        operation=operation,
        payload_hash=payload_hash,
        actor=actor,
        filename=filename,
        media_type=media_type,
        attribution=attribution,
        received=received,
        size=size,
        sha256=sha256,
        path=path,
        at=at,
    )
