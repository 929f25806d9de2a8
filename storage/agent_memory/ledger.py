"""The small files of a memory directory that say what was written for people: no one's to edit, and not what is true.

``.facts.jsonl``: which entries stand in ``MEMORY.md`` and as which fact; what stands there and not here is a person's.
A fact gets here after ``MEMORY.md`` has it durably, so that no power cut can make it look removed by a person; and
durably itself, so that it does not look written by one when its entry has ended.
``.logged-from``: entries of that moment and before belong into no daily log.
``.store``: where the entries are that the files follow. With another store nothing that stands in ``MEMORY.md`` is
known to have an entry that ended, so that all of it stays, as a person's.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final

from storage import files
from storage.agent_memory import notes
from storage.agent_memory.entry import in_utc
from storage.agent_memory.notes import Fact
from storage.whole_files import put_whole

FACTS_NAME: Final = notes.FACTS_NAME
FLOOR_NAME: Final = ".logged-from"
STORE_NAME: Final = ".store"
FILE_MAX_BYTES: Final = 256 * 1024 * 1024

FAULT_POINTS: Final = (
    ("agent_memory.facts", "reading and appending which facts stand in MEMORY.md"),
    ("agent_memory.ledger.sync", "making what was appended durable"),
    ("agent_memory.floor", "noting from when on entries belong into daily logs"),
    ("agent_memory.store", "noting which store a memory's files follow"),
)


def facts(folder: int) -> dict[str, Fact]:
    """The fact of each entry that was put into ``MEMORY.md``."""
    found: dict[str, Fact] = {}
    for line in _read(folder, FACTS_NAME, at="agent_memory.facts").splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):  # torn: its entry is looked at again
            continue
        if isinstance(value, list) and len(value) == 3 and all(isinstance(part, str) for part in value):
            found[value[0]] = Fact(value[1], value[2])
    return found


def append_facts(folder: int, added: dict[str, Fact]) -> None:
    """Note further ones."""
    if files.stat_entry(folder, FACTS_NAME, at="agent_memory.facts") is None:
        write_facts(folder, added)
        return
    fd, status = files.open_to_write(folder, FACTS_NAME, at="agent_memory.facts.open")
    try:
        # A line that a crash tore is closed by the first line break, and passed over.
        files.write_at(fd, b"\n" + _lines(added), status.st_size, at="agent_memory.facts.write")
        files.fsync(fd, at="agent_memory.ledger.sync")
    finally:
        files.close(fd)


def write_facts(folder: int, all_of_them: dict[str, Fact]) -> None:
    """Note these and no others."""
    _put(folder, FACTS_NAME, _lines(all_of_them), at="agent_memory.facts")


def follow_store(folder: int, name: str) -> None:
    """From now on the files follow the store of this name; what was noted of another is forgotten."""
    before = _read(folder, STORE_NAME, at="agent_memory.store")
    if before == name.encode():
        return
    if before:
        files.unlink(folder, FACTS_NAME, at="agent_memory.facts")
    _put(folder, STORE_NAME, name.encode(), at="agent_memory.store")


def floor(folder: int) -> datetime | None:
    """The moment up to which entries belong into no daily log."""
    text = _read(folder, FLOOR_NAME, at="agent_memory.floor").decode("ascii", errors="replace").strip()
    try:
        return in_utc(datetime.fromisoformat(text)) if text else None
    except ValueError:
        return None


def raise_floor(folder: int, at: datetime) -> None:
    """Let that moment be at least this."""
    before = floor(folder)
    if before is None or at > before:
        _put(folder, FLOOR_NAME, in_utc(at).isoformat().encode("ascii"), at="agent_memory.floor")


def _lines(of: dict[str, Fact]) -> bytes:
    return b"".join(json.dumps([key, *fact]).encode("ascii") + b"\n" for key, fact in of.items())


def _read(folder: int, name: str, *, at: str) -> bytes:
    try:
        return files.read_file(folder, name, limit=FILE_MAX_BYTES, at=at)[0]
    except FileNotFoundError:
        return b""


def _put(folder: int, name: str, data: bytes, *, at: str) -> None:
    put_whole(folder, name, data, staged=f"{name}.tmp", at=at)
