"""A directory that the released package wrote, brought into ours: once, when it is opened.

There ``MEMORY.md`` has lines ``- [category] content`` without headings, and each day a text file ``YYYY-MM-DD.log``
beside it; ``entries.jsonl`` is read as it is. What was there is kept in ``originals``. Every step is whole or not done,
and done again it changes nothing: a process killed anywhere leaves the rest to the next opening.

Texts may span lines there, and nothing says where one ends. The entries tell; what none of them explains is kept as
text, and a logged line without an entry (evicted or deleted there) does not come back into a context.

Source: agent-memory-contract.md sections 4 and 11.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from messages.errors import StorageError
from storage import files
from storage.agent_memory import daily_logs, notes
from storage.agent_memory.daily_logs import LogLine
from storage.agent_memory.entry import KnowledgeEntry, in_utc, utc_now
from storage.agent_memory.file_store import ENTRIES_NAME
from storage.agent_memory.sqlite_store import SQLiteKnowledgeStore
from storage.faults import effect
from storage.replaced_text import replace_text
from storage.state.connection import Database
from storage.whole_files import put_whole

logger = logging.getLogger(__name__)

ORIGINALS_NAME: Final = "originals"
DATABASE_NAME: Final = "knowledge.db"
FILE_MAX_BYTES: Final = 256 * 1024 * 1024
_LOG_NAME: Final = re.compile(r"(\d{4}-\d{2}-\d{2})\.log")
_STAMPED: Final = re.compile(r"\[(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2})\] (?=\[)")
_LABELLED: Final = re.compile(r"\[([^\]\n]*[^\]\s][^\]\n]*)\] (.*)", re.DOTALL)
_FACT: Final = "- "
_BOXES: Final = ("x", "X")
_SAME_ENTRY_SECONDS: Final = 60.0

FAULT_POINTS: Final = (
    ("agent_memory.released", "looking for files of the released package in a memory directory"),
    ("agent_memory.originals", "keeping what was there before a conversion"),
    ("agent_memory.released.db.open", "opening a database in a memory directory, to see whether it holds entries"),
    ("agent_memory.released.db.statement", "looking for the table of entries in it"),
    ("agent_memory.released.db.close", "closing it"),
)


def store_beside(path: Path, *, now: Callable[[], datetime] = utc_now) -> SQLiteKnowledgeStore | None:
    """The store in ``knowledge.db`` of a directory that keeps its entries there and has no ``entries.jsonl``.

    Raises ``StorageError``.
    """
    database = path / DATABASE_NAME
    try:
        with effect("agent_memory.released"):
            if (path / ENTRIES_NAME).exists() or not database.is_file():
                return None
    except OSError as error:
        raise StorageError(f"The memory directory could not be looked into: {error.strerror}.") from error
    try:
        opened = Database.open(database, point_prefix="agent_memory.released.db", read_only=True)
    except Exception:  # noqa: BLE001 - whatever it is, it is none of ours and stays
        return None
    try:
        found = opened.query_one("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'knowledge'")
    except Exception:  # noqa: BLE001 - as above
        return None
    finally:
        opened.close()
    return None if found is None else SQLiteKnowledgeStore(database, now=now)


def convert(path: Path, folder: int, entries: Callable[[], Iterable[KnowledgeEntry]], now: datetime) -> int:
    """Bring every file of the released package below ``folder`` into ours; how many there were.

    Under the directory's lock. Raises ``OSError`` and ``EditedMeanwhile``; what is not yet done is done next time.
    """
    names = {entry.name for entry in files.list_folder(folder, at="agent_memory.released") if entry.kind == "file"}
    logs = sorted(name for name in names if _day(name) is not None)
    flat = _flat_notes(folder) if notes.NAME in names and notes.FACTS_NAME not in names else None
    if not logs and flat is None:
        return 0
    known = list(entries())
    files.make_folder(folder, ORIGINALS_NAME, mode=0o700, at="agent_memory.originals")
    kept = files.open_folder(folder, ORIGINALS_NAME, at="agent_memory.originals.open")
    try:
        if ENTRIES_NAME in names:
            _keep(kept, ENTRIES_NAME, _read(folder, ENTRIES_NAME), anew=False)
        if flat is not None:
            _keep(kept, notes.NAME, flat)
            after = converted_notes(flat.decode("utf-8", "surrogateescape"), known, now)
            replace_text(path / notes.NAME, flat, after.encode("utf-8", "surrogateescape"), limit=FILE_MAX_BYTES)
        for name in logs:
            data = _read(folder, name)
            day = _day(name)
            assert day is not None
            daily_logs.insert(folder, day, converted_log(data.decode("utf-8", "replace"), day, known))
            _keep(kept, name, data)
            files.fsync(kept, at="agent_memory.originals")
            files.unlink(folder, name, at="agent_memory.released.unlink")
    finally:
        files.close(kept)
    logger.info("a memory directory was converted", extra={"files": len(logs) + (flat is not None)})
    return len(logs) + (flat is not None)


def forget_originals(folder: int, *, logs_only: bool) -> None:
    """Remove what was kept: a memory that is cleared leaves no text behind."""
    try:
        kept = files.open_folder(folder, ORIGINALS_NAME, at="agent_memory.originals.open")
    except FileNotFoundError:
        return
    try:
        for entry in files.list_folder(kept, at="agent_memory.originals"):
            # The entries of before hold passing notes as well.
            if entry.kind == "file" and not (logs_only and entry.name == notes.NAME):
                files.unlink(kept, entry.name, at="agent_memory.originals.unlink")
    finally:
        files.close(kept)


# --- texts; pure ---------------------------------------------------------------------------------------


def converted_notes(text: str, entries: Iterable[KnowledgeEntry], now: datetime) -> str:
    """A flat ``MEMORY.md`` with its facts under headings. Facts of expired entries are left out; what is no fact
    stands as it was, above the first heading."""
    explained: dict[str, KnowledgeEntry] = {}
    for known in entries:
        if known.persistent:
            explained[_raw(known)] = known
    facts: dict[str, list[str]] = {}
    others: list[str] = []
    seen: set[notes.Fact] = set()
    for block in _blocks(text.split("\n"), lambda line: line.startswith(f"{_FACT}[")):
        entry, used = _explained(block, explained, len(_FACT))
        labelled = None if entry is not None else _LABELLED.fullmatch(block[0][len(_FACT) :])
        if entry is not None:
            category, content = notes.one_line(entry.category), entry.content
        elif labelled is not None and block[0].startswith(_FACT) and labelled[1] not in _BOXES:
            category, content, used = notes.one_line(labelled[1]), labelled[2], 1
        else:
            others += block
            continue
        others += [line for line in block[used:] if line.strip()]
        same = notes.sameness(category, content)
        if same not in seen and not (entry is not None and entry.expired_at(now)):
            seen.add(same)
            facts.setdefault(category, []).extend(notes.bullet(content))
    lines = [notes.TITLE]
    others = [line.rstrip("\r") for line in others]
    while others and not others[-1].strip():
        others.pop()
    if others:
        lines += ["", *others]
    for category, bullets in facts.items():
        lines += ["", f"## {category}", *bullets]
    return "\n".join(lines) + "\n"


def converted_log(text: str, day: date, entries: Iterable[KnowledgeEntry]) -> list[LogLine]:
    """The lines of a day's text log. Those that an entry explains have its id; where there are entries, those that
    none explains have an id that no entry has."""
    waiting: dict[str, list[KnowledgeEntry]] = {}
    for known in sorted(entries, key=lambda one: in_utc(one.created_at)):
        waiting.setdefault(_raw(known), []).append(known)
    has_entries = bool(waiting)
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    found: list[LogLine] = []
    for block in _blocks(text.split("\n"), lambda line: _STAMPED.match(line) is not None):
        stamped = _STAMPED.match(block[0])
        at = midnight if stamped is None else _moment(stamped[1], midnight)
        raw = "\n".join(block)[0 if stamped is None else stamped.end() :].rstrip("\n")
        if not raw.strip():
            continue
        entry = _nearest(waiting.get(raw, []), at)
        if entry is not None:
            found.append(LogLine(at, entry.category, entry.content, entry.persistent, entry.id))
            continue
        labelled = _LABELLED.fullmatch(raw)
        category, content = (labelled[1], labelled[2]) if labelled is not None else ("", raw)
        digest = hashlib.sha256(f"{at.isoformat()}\0{len(found)}\0{raw}".encode("utf-8", "replace")).hexdigest()[:32]
        found.append(LogLine(at, category, content, False, digest if has_entries else ""))
    return found


def _raw(entry: KnowledgeEntry) -> str:
    return f"[{entry.category}] {entry.content}".rstrip("\n")


def _blocks(lines: list[str], begins: Callable[[str], bool]) -> Iterator[list[str]]:
    """Lines from one that begins something up to before the next."""
    block: list[str] = []
    for line in lines:
        if begins(line) and block:
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def _explained(block: list[str], entries: dict[str, KnowledgeEntry], skipped: int) -> tuple[KnowledgeEntry | None, int]:
    """The entry whose text a block begins with, the longest if there are several, and how many lines that is."""
    raw = ""
    found: tuple[KnowledgeEntry | None, int] = (None, 0)
    for used, line in enumerate(block, 1):
        raw = line[skipped:] if used == 1 else f"{raw}\n{line}"
        entry = entries.get(raw)
        if entry is not None:
            found = (entry, used)
    return found


def _nearest(waiting: list[KnowledgeEntry], at: datetime) -> KnowledgeEntry | None:
    """Takes the entry that was created about then."""
    for number, entry in enumerate(waiting):
        if abs((in_utc(entry.created_at) - at).total_seconds()) <= _SAME_ENTRY_SECONDS:
            return waiting.pop(number)
    return None


def _moment(text: str, otherwise: datetime) -> datetime:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return otherwise


def _day(name: str) -> date | None:
    match = _LOG_NAME.fullmatch(name)
    try:
        return None if match is None else date.fromisoformat(match[1])
    except ValueError:
        return None


# --- files ---------------------------------------------------------------------------------------------


def _flat_notes(folder: int) -> bytes | None:
    """``MEMORY.md`` if it has facts and no heading; ours never is so."""
    data = _read(folder, notes.NAME)
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    has_heading = any(line.startswith(("## ", notes.TITLE)) for line in lines)
    has_fact = any(line.startswith(_FACT) and _LABELLED.fullmatch(line[len(_FACT) :]) for line in lines)
    return data if has_fact and not has_heading else None


def _keep(kept: int, name: str, data: bytes, *, anew: bool = True) -> None:
    """A durable copy, under a name with a number where another text has the name already."""
    number, target = 1, name
    while files.stat_entry(kept, target, at="agent_memory.originals") is not None:
        if not anew or _read(kept, target) == data:
            return
        number += 1
        target = f"{name}.{number}"
    put_whole(kept, target, data, staged=f"{target}.tmp", at="agent_memory.originals")


def _read(folder: int, name: str) -> bytes:
    return files.read_file(folder, name, limit=FILE_MAX_BYTES, at="agent_memory.released")[0]
