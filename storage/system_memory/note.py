"""How recalled memories read in the instructions of a turn. Pure; any thread.

One line a row whatever its body holds, so that no body can begin a line of its own and pass for another row.

Source: system-memory-contract.md section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from messages.text import one_line
from storage.system_memory.model import Row, Status

ROWS_MAX: Final = 8
CHARS_MAX: Final = 2_000

_MINUTE: Final = 60_000_000
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR


def note_of(rows: Sequence[tuple[Row, Status | None]], dropped: int, now_us: int) -> str | None:
    """The lines of the rows in their order, then how many more there were; ``None`` where nothing was recalled."""
    lines = [line_of(row, status, now_us) for row, status in rows]
    if dropped > 0:
        subject = "memory was" if dropped == 1 else "memories were"
        lines.append(
            f"[From memory: {dropped} more {subject} not attached; a turn carries at most {ROWS_MAX} memories and "
            f"{CHARS_MAX} characters of them.]"
        )
    return "\n".join(lines) if lines else None


def line_of(row: Row, status: Status | None, now_us: int) -> str:
    """One row."""
    body = one_line(row.body)
    if row.bucket != "system":
        return f"[From memory: {row.bucket}, {age(row.inserted_at, now_us)}] {body}"
    dated = "date unknown" if row.system is None else f"as of {row.system.as_of}"
    return f"[From memory: (system, {dated}, {status or 'status unknown'})] {body}"


def age(inserted_at: int | None, now_us: int) -> str:
    """How long ago something was written, in the largest unit that fits, a minute at least."""
    if inserted_at is None:
        return "age unknown"
    passed = now_us - inserted_at
    if passed < _HOUR:
        return f"{max(passed // _MINUTE, 1)}m ago"
    return f"{passed // _HOUR}h ago" if passed < _DAY else f"{passed // _DAY}d ago"
