"""What earlier recoveries did, kept long enough for a person to read it: a store is often opened and closed unseen.

Plain functions over the store's connection, on the thread that owns it. Writes run inside the caller's transaction.

Source: WRITE-PATH.md section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from storage.state.connection import Database

KEPT_NS: Final = 30 * 86_400 * 10**9
KEPT_MOST: Final = 1_000

NoticeRow: TypeAlias = tuple[str, str, int, int | None]
"""What happened, the path in the vault, when our version was accepted (ns since 1970), and the revision kept of it."""


def keep(db: Database, at: int, rows: Sequence[NoticeRow]) -> None:
    """Add what the recovery of this opening did; forget what is older than 30 days, and all but the newest 1,000."""
    db.execute_many(
        "INSERT INTO recovery_notice (at, happened, path, accepted_at, revision) VALUES (?, ?, ?, ?, ?)",
        [(at, *row) for row in rows],
    )
    db.execute(
        "DELETE FROM recovery_notice WHERE at < ? OR id NOT IN "
        "(SELECT id FROM recovery_notice ORDER BY id DESC LIMIT ?)",
        (at - KEPT_NS, KEPT_MOST),
    )


def kept(db: Database, now: int) -> Sequence[tuple[int, Sequence[NoticeRow]]]:
    """What the recoveries of the last 30 days did, the newest first, each with the time of its opening."""
    found: dict[int, list[NoticeRow]] = {}
    for at, *row in db.query(
        "SELECT at, happened, path, accepted_at, revision FROM recovery_notice WHERE at >= ? ORDER BY at DESC, id",
        (now - KEPT_NS,),
    ):
        found.setdefault(int(at), []).append((str(row[0]), str(row[1]), int(row[2]), row[3]))
    return tuple(found.items())
