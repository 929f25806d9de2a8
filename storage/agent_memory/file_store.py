"""Entries in one file of JSON lines, appended to: a save is one line and one sync, however many entries there are.

The last line of an id counts; a line ``{"id": ..., "deleted": true}`` ends one. Lines that cannot be read are kept
where they are and reported once, never lost. A line that a crash tore is closed before the next is written. When dead
lines outnumber living ones the file is written anew; a prune writes it anew at once, so that its texts are gone.

Any thread and any number of processes: each call holds the directory's lock and first reads what others have added.

Source: agent-memory-contract.md section 3.1; issues of the released format that are mended: what is unreadable is lost
there at the next write, and two processes overwrite each other.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from storage import files
from storage.agent_memory.contract import is_prunable, selected
from storage.agent_memory.entry import KnowledgeEntry, from_json, storable, to_json, utc_now
from storage.agent_memory.locking import DirectoryLock, make_directory
from storage.whole_files import put_whole

logger = logging.getLogger(__name__)

ENTRIES_NAME: Final = "entries.jsonl"
_STAGED_NAME: Final = "entries.jsonl.tmp"
_DEAD_LINES_MIN: Final = 256
_END_BYTES: Final = 256

FAULT_POINTS: Final = (
    ("agent_memory.entries", "opening, reading and appending to the entries of an agent memory"),
    ("agent_memory.sync", "making entries durable"),
    ("agent_memory.rewrite", "writing the living entries into a new file in the place of the old"),
)


class FileKnowledgeStore:
    """The entries of a directory, in memory and in ``entries.jsonl``; see the module. Entries are copied in and out."""

    __stability__ = "stable"

    def __init__(
        self, directory: str | os.PathLike[str] = "./memory", *, now: Callable[[], datetime] = utc_now
    ) -> None:
        """Makes the directory where there is none; the file with the first entry."""
        self.directory = Path(directory)
        make_directory(self.directory)
        self.lock = DirectoryLock(self.directory)
        self._now = now
        self._known: files.Stamp | None = None
        self._forget_all()

    @property
    def _entries_path(self) -> Path:
        return self.directory / ENTRIES_NAME

    # --- the contract ----------------------------------------------------------------------------------

    def save(self, entry: KnowledgeEntry) -> str:
        """As the contract says. Raises what :func:`~storage.agent_memory.entry.storable` does, and ``StorageError``;
        nothing is changed then."""
        kept = storable(entry)
        line = _line(to_json(kept))
        with self.lock.reporting() as folder:
            self._follow(folder)
            self._append(folder, [line])
            self._lines += 1
            self._entries[entry.id] = kept
            self._rewrite_if_mostly_dead(folder)
        return entry.id

    def get(self, entry_id: str) -> KnowledgeEntry | None:
        with self.lock.reporting() as folder:
            self._follow(folder)
            found = self._entries.get(entry_id)
            return None if found is None else found.copied()

    def query(
        self,
        category: str | None = None,
        min_importance: float = 0.0,
        since: datetime | None = None,
        limit: int = 50,
    ) -> list[KnowledgeEntry]:
        with self.lock.reporting() as folder:
            self._follow(folder)
            found = selected(
                self._entries.values(),
                now=self._now(),
                category=category,
                min_importance=min_importance,
                since=since,
                limit=limit,
            )
            return [entry.copied() for entry in found]

    def delete(self, entry_id: str) -> bool:
        with self.lock.reporting() as folder:
            self._follow(folder)
            if entry_id not in self._entries:
                return False
            self._append(folder, [_line({"id": entry_id, "deleted": True})])
            self._lines += 1
            del self._entries[entry_id]
            self._rewrite_if_mostly_dead(folder)
            return True

    def count(self) -> int:
        with self.lock.reporting() as folder:
            self._follow(folder)
            return len(self._entries)

    def prune(self, max_age_days: int | None = None, min_importance: float = 0.0) -> int:
        now = self._now()
        with self.lock.reporting() as folder:
            self._follow(folder)
            gone = [
                entry.id
                for entry in self._entries.values()
                if is_prunable(entry, now=now, max_age_days=max_age_days, min_importance=min_importance)
            ]
            return self._remove(folder, gone)

    # --- beyond the contract ---------------------------------------------------------------------------

    def everything(self) -> list[KnowledgeEntry]:
        """All entries; they are the store's own and not to be changed."""
        with self.lock.reporting() as folder:
            self._follow(folder)
            return list(self._entries.values())

    def get_many(self, entry_ids: Iterable[str]) -> dict[str, KnowledgeEntry]:
        """Those of these entries that there are; they are the store's own and not to be changed."""
        with self.lock.reporting() as folder:
            self._follow(folder)
            return {one: self._entries[one] for one in entry_ids if one in self._entries}

    def version(self) -> object:
        """The stamp of the file: it changes with every write."""
        with self.lock.reporting() as folder:
            self._follow(folder)
            return self._known

    def remove(self, entry_ids: Collection[str]) -> int:
        """Delete several entries and their lines at once; how many there were."""
        with self.lock.reporting() as folder:
            self._follow(folder)
            return self._remove(folder, [entry_id for entry_id in entry_ids if entry_id in self._entries])

    # --- inside ----------------------------------------------------------------------------------------

    def _remove(self, folder: int, entry_ids: Iterable[str]) -> int:
        gone = set(entry_ids)
        if gone:
            self._rewrite(folder, {key: entry for key, entry in self._entries.items() if key not in gone})
        return len(gone)

    def _forget_all(self) -> None:
        self._entries: dict[str, KnowledgeEntry] = {}
        self._unreadable: list[bytes] = []
        self._lines = 0
        self._read_to = 0
        self._torn = b""
        self._end = b""

    def _follow(self, folder: int) -> None:
        """Take over what others have written since the last time."""
        status = files.stat_entry(folder, ENTRIES_NAME, at="agent_memory.entries")
        if status is None:
            self._known = None
            self._forget_all()
            return
        stamp = files.Stamp.of(status)
        if stamp == self._known:
            return
        grown = self._known is not None and stamp[:2] == self._known[:2] and stamp.size > self._read_to
        fd, status = files.open_file(folder, ENTRIES_NAME, at="agent_memory.entries.open")
        try:
            if not grown or not self._ends_as_before(fd):
                self._forget_all()
            self._read(files.read_at(fd, status.st_size - self._read_to, self._read_to, at="agent_memory.entries.read"))
        finally:
            files.close(fd)
        self._known = files.Stamp.of(status)

    def _ends_as_before(self, fd: int) -> bool:
        """Whether what was read still ends where it did: an editor that writes in place moves it."""
        size = len(self._end)
        return files.read_at(fd, size, self._read_to - size, at="agent_memory.entries.read") == self._end

    def _read(self, data: bytes) -> None:
        """Apply whole lines; what follows the last line break is torn, or still to be finished by nobody."""
        self._read_to += len(data)
        self._end = (self._end + data)[-_END_BYTES:]
        *lines, self._torn = (self._torn + data).split(b"\n")
        for line in lines:
            self._take(line)
        self._apply(self._torn)  # whole but for its line break, or torn

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        self._lines += 1
        if not self._apply(line):
            self._unreadable.append(line)
            logger.warning("a line of entries.jsonl cannot be read and is kept", extra={"lines": len(self._unreadable)})

    def _apply(self, line: bytes) -> bool:
        """Whether the line could be read; what it says holds then."""
        try:
            value = json.loads(line)
            if not isinstance(value, dict):
                return False
            if value.get("deleted") is True:
                self._entries.pop(str(value.get("id")), None)
                return True
            entry = from_json(value)
        except (ValueError, RecursionError):
            return False
        self._entries[entry.id] = entry
        return True

    def _append(self, folder: int, lines: list[bytes]) -> None:
        """Whole lines at the end, durable. What could not be written whole is taken back."""
        created = self._known is None
        data = b"".join(lines)
        if self._torn:
            data = b"\n" + data
        fd = self._opened(folder, created)
        try:
            try:
                files.write_at(fd, data, self._read_to, at="agent_memory.entries.write")
                files.fsync(fd, at="agent_memory.sync")
                if created:
                    files.fsync(folder, at="agent_memory.sync")
            except OSError:
                with suppress(OSError):
                    files.truncate(fd, self._read_to, at="agent_memory.entries")
                self._known = None
                self._forget_all()
                raise
            self._take(self._torn)
            self._torn = b""
            self._read_to += len(data)
            self._end = (self._end + data)[-_END_BYTES:]
            self._known = files.Stamp.of(files.stat_open(fd, at="agent_memory.entries.stat"))
        finally:
            files.close(fd)

    def _opened(self, folder: int, created: bool) -> int:
        if created:
            return files.create_file(folder, ENTRIES_NAME, b"", mode=0o600, at="agent_memory.entries")
        return files.open_to_write(folder, ENTRIES_NAME, at="agent_memory.entries.open")[0]

    def _rewrite_if_mostly_dead(self, folder: int) -> None:
        dead = self._lines - len(self._entries) - len(self._unreadable)
        if dead > max(_DEAD_LINES_MIN, len(self._entries)):
            self._rewrite(folder, self._entries)

    def _rewrite(self, folder: int, entries: dict[str, KnowledgeEntry]) -> None:
        """The file with these entries alone, durable; the old one stays until the new one is complete."""
        kept = [*self._unreadable, *([self._torn] if self._torn.strip() else [])]
        data = b"".join([*(line + b"\n" for line in kept), *(_line(to_json(entry)) for entry in entries.values())])
        try:
            put_whole(folder, ENTRIES_NAME, data, staged=_STAGED_NAME, at="agent_memory.rewrite")
        except OSError:
            self._known = None
            self._forget_all()
            raise
        self._entries, self._unreadable, self._torn = dict(entries), kept, b""
        self._lines, self._read_to, self._end = len(entries) + len(kept), len(data), data[-_END_BYTES:]
        status = files.stat_entry(folder, ENTRIES_NAME, at="agent_memory.entries.stat")
        self._known = None if status is None else files.Stamp.of(status)


def _line(value: dict[str, object]) -> bytes:
    return json.dumps(value).encode("ascii") + b"\n"

