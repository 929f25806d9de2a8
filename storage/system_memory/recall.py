"""What a turn is reminded of: the account's own rows, then what the network has admitted, within fixed bounds.

Guarantees: equal rows and equal queries give equal notes; nothing of another account's own buckets is ever read; of the
system bucket only live rows of a derived status ``admitted`` appear, at most one of an account and two in all, and
what is left out there is not told. Counting what was recalled never hinders it. The database's thread.

Source: system-memory-contract.md sections 5, 6 and 11 (1).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from messages.errors import KnowledgeError
from messages.text import is_blank, one_line
from storage.state.connection import CommitUncertain
from storage.system_memory.database import COLUMNS, SystemDatabase, row_of
from storage.system_memory.model import Row, Status
from storage.system_memory.note import CHARS_MAX, ROWS_MAX, note_of
from storage.system_memory.ranking import Rankings, query_phrases

logger = logging.getLogger(__name__)

ACCOUNT_ROWS_MAX: Final = 200
POOL_ROWS_MAX: Final = 40
POOL_SHARE: Final = 4
"""One account fills at most a quarter of the pool, rounded up."""
NOTE_ROWS_PER_ACCOUNT: Final = 1
NOTE_SYSTEM_ROWS: Final = 2
SESSIONS_COUNTED_MAX: Final = 1_000
"""Of one row; a higher count says nothing more."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """What was recalled. ``dropped`` counts the account's own rows only."""

    rows: tuple[tuple[Row, Status | None], ...]
    dropped: int
    note: str | None


NOTHING: Final = Recalled((), 0, None)


def recall(
    system: SystemDatabase,
    rankings: Rankings,
    account: str,
    query: str,
    *,
    session_key: str | None = None,
    system_bucket: bool = False,
) -> Recalled:
    """What this query reminds the account of; an empty one of nothing."""
    if is_blank(query):
        return NOTHING
    phrases = query_phrases(query)
    own, dropped, left = _of_the_account(system, rankings, account, phrases)
    rows: list[tuple[Row, Status | None]] = [(row, None) for row in own]
    shared = _of_the_network(system, rankings, phrases, left) if system_bucket else []
    rows += [(row, system.status(row.id)) for row in shared]
    recalled = Recalled(tuple(rows), dropped, note_of(rows, dropped, system.wall_us()))
    if shared:
        _count(system, account, shared, session_key)
    return recalled


def _of_the_account(
    system: SystemDatabase, rankings: Rankings, account: str, phrases: Sequence[tuple[str, ...]]
) -> tuple[list[Row], int, int]:
    """Its rows that are kept, how many were not, and the characters that are left."""
    found = system.database.query(
        f"SELECT {COLUMNS} FROM memory WHERE account = ? AND bucket IN ('user', 'learned') AND superseded_by IS NULL "
        "ORDER BY inserted_at DESC, id DESC LIMIT ?",
        (account, ACCOUNT_ROWS_MAX),
    )
    rows = [row_of(row) for row in found]
    scores = rankings.of(f"account {account}", rows).scores(phrases) if rows else {}
    eligible = [place for place, row in enumerate(rows) if row.bucket == "user" or place in scores]
    eligible.sort(key=lambda place: -scores.get(place, 0.0))  # stable: of equals, the newest first
    kept, left = [], CHARS_MAX
    for place in eligible[:ROWS_MAX]:
        size = len(one_line(rows[place].body))
        if size <= left:
            kept.append(rows[place])
            left -= size
    return kept, len(eligible) - len(kept), left


def pool(system: SystemDatabase) -> list[Row]:
    """The newest rows of the system bucket that may be recalled."""
    rows: list[Row] = []
    for found in system.database.iterate(
        f"SELECT {COLUMNS} FROM memory WHERE bucket = 'system' AND superseded_by IS NULL AND stance IS NULL "
        "ORDER BY inserted_at DESC, id DESC"
    ):
        if system.status(str(found[0])) == "admitted":
            rows.append(row_of(found))
            if len(rows) == POOL_ROWS_MAX:
                break
    return rows


def _of_the_network(
    system: SystemDatabase, rankings: Rankings, phrases: Sequence[tuple[str, ...]], left: int
) -> list[Row]:
    rows = system.pool(pool)
    scores = rankings.of("pool", rows).scores(phrases) if rows else {}
    ranked = [rows[place] for place in sorted(range(len(rows)), key=lambda place: -scores.get(place, 0.0))]
    kept: list[Row] = []
    for row in _in_turn(ranked):
        size = len(one_line(row.body))
        of_account = sum(other.account == row.account for other in kept)
        if size <= left and of_account < NOTE_ROWS_PER_ACCOUNT:
            kept.append(row)
            left -= size
        if len(kept) == NOTE_SYSTEM_ROWS:
            break
    return kept


def _in_turn(ranked: Sequence[Row]) -> Iterator[Row]:
    """The best row of each account, then the second best of each, accounts by their best row, up to their share."""
    by_account: dict[str, list[Row]] = {}
    for row in ranked:
        by_account.setdefault(row.account, []).append(row)
    for round_ in range(-(-POOL_ROWS_MAX // POOL_SHARE)):
        for rows in by_account.values():
            if round_ < len(rows):
                yield rows[round_]


def _count(system: SystemDatabase, account: str, rows: Sequence[Row], session_key: str | None) -> None:
    session = None
    if session_key is not None:
        session = hashlib.sha256(f"{account}\0{session_key}".encode("utf-8", "replace")).digest()[:16]
    try:
        with system.counting():
            at = system.wall_us()
            for row in rows:
                system.database.execute(
                    "INSERT INTO recalled (memory_id, times, last_at) VALUES (?, 1, ?) ON CONFLICT (memory_id) DO "
                    "UPDATE SET times = times + 1, last_at = excluded.last_at",
                    (row.id, at),
                )
                if session is not None:
                    system.database.execute(
                        "INSERT OR IGNORE INTO recalled_in (memory_id, session) SELECT ?1, ?2 WHERE "
                        "(SELECT count(*) FROM recalled_in WHERE memory_id = ?1) < ?3",
                        (row.id, session, SESSIONS_COUNTED_MAX),
                    )
    except (KnowledgeError, CommitUncertain) as error:
        logger.warning("what was recalled could not be counted", extra={"reason": type(error).__name__})
