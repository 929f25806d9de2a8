"""One memory directory: the entries, which are what is true, and the files that follow from them for people.

A remembered entry is acknowledged when the store has it durably. ``MEMORY.md`` and the daily log are brought after it
before the call returns; what a crash or a full disk kept from them is brought after it by the next call. Which facts
were put into ``MEMORY.md`` stands in ``.facts.jsonl``, so that a line that a person removes is told from one that was
never written: its entry is forgotten with it. A ``MEMORY.md`` that is gone or empty as a whole is an accident and is
written again; :meth:`MemoryDirectory.clear` forgets everything.

One thread at a time (its lane); other threads and processes are kept out by the directory's lock.

Source: agent-memory.md; agent-memory-contract.md section 11.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from messages.errors import Busy, KnowledgeError
from storage import files
from storage.agent_memory import daily_logs, notes, released
from storage.agent_memory.contract import ALL, KnowledgeStore, WatchedStore, to_evict
from storage.agent_memory.daily_logs import LogLine, day_of
from storage.agent_memory.entry import KnowledgeEntry, in_utc, utc_now
from storage.agent_memory.file_store import FileKnowledgeStore
from storage.agent_memory.locking import DirectoryLock, is_same_directory, make_directory
from storage.agent_memory.notes import Fact
from storage.agent_memory.sqlite_store import SQLiteKnowledgeStore
from storage.replaced_text import EditedMeanwhile, read_text, replace_text

logger = logging.getLogger(__name__)

NOTES_NAME: Final = notes.NAME
FACTS_NAME: Final = notes.FACTS_NAME
FLOOR_NAME: Final = ".logged-from"
NOTES_MAX_BYTES: Final = 64 * 1024 * 1024
_ATTEMPTS: Final = 8
_LINES_AT_ONCE: Final = 64

FAULT_POINTS: Final = (
    ("agent_memory.notes", "looking whether MEMORY.md has changed"),
    ("agent_memory.facts", "reading and appending which facts stand in MEMORY.md"),
    ("agent_memory.floor", "noting from when on entries belong into daily logs"),
    ("agent_memory.forget", "removing files of an agent memory that is cleared"),
)


class _Seen(NamedTuple):
    """What the files were brought after: the stamp of ``MEMORY.md`` and the version of the store."""

    notes: files.Stamp | None
    version: object


class MemoryDirectory:
    """See the module. Every method may raise the store's errors, ``Busy`` and ``StorageError``."""

    def __init__(
        self,
        path: Path,
        store: KnowledgeStore | None = None,
        *,
        max_entries: int | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """Makes the directory where there is none. ``store``: where entries are kept, by default in the directory."""
        make_directory(path)
        self.path = path
        if store is None:
            store = released.store_beside(path, now=now) or FileKnowledgeStore(path, now=now)
        self.store = store
        self._max_entries = max_entries
        self._now = now
        self.lock = self._lock()
        self._settled: _Seen | None = None
        self._parsed: tuple[files.Stamp | None, list[Fact]] | None = None
        self._next_expiry: datetime | None = None
        self._logged: set[str] = set()

    def convert(self) -> int:
        """Bring what the released package wrote into this directory into ours; how many files there were."""
        with self._held() as folder:
            for _ in range(_ATTEMPTS - 1):
                try:
                    return released.convert(self.path, folder, self._entries, self._now())
                except EditedMeanwhile:
                    continue
            raise Busy("Somebody keeps writing into MEMORY.md while it is converted; try again.")

    # --- writing ---------------------------------------------------------------------------------------

    def remember(self, entry: KnowledgeEntry, *, accepts: Callable[[str], str | None] | None = None) -> str:
        """Keep an entry; its id, or ``""`` where ``accepts`` says ``None`` to its text while nobody else can save."""
        with self._held() as folder:
            self._catch_up(folder, whole=False)
            if accepts is not None:
                text = accepts(entry.content)
                if text is None:
                    return ""
                entry.content = text
            kept = self.store.save(entry)
            if self._settled is not None:
                self._settled = self._seen(folder) if self._write_after(entry, folder) else None
                self._note_expiry([entry])
            self._evict()
            return kept

    def clear(self) -> None:
        """Forget everything: entries, ``MEMORY.md`` with what people wrote into it, and daily logs."""
        with self._held() as folder:
            self._delete(entry.id for entry in self._entries())
            for name in (NOTES_NAME, FACTS_NAME, FLOOR_NAME):
                files.unlink(folder, name, at="agent_memory.forget")
            daily_logs.remove(folder, daily_logs.days(folder))
            released.forget_originals(folder, logs_only=False)
            self._settled = None
            self._logged.clear()

    def clear_logs(self) -> None:
        """Forget what is not persistent, and the daily logs."""
        with self._held() as folder:
            self._catch_up(folder)
            self._set_floor(folder, self._now())
            self._delete(entry.id for entry in self._entries() if not entry.persistent)
            daily_logs.remove(folder, daily_logs.days(folder))
            released.forget_originals(folder, logs_only=True)

    def prune(self, first_kept: date) -> int:
        """Delete the daily logs of the days before, and the entries of those days that are not persistent; how many
        logs there were."""
        with self._held() as folder:
            old = [day for day in daily_logs.days(folder) if day < first_kept]
            if not old:
                return 0
            self._set_floor(folder, datetime.combine(first_kept, datetime.min.time(), UTC) - timedelta(microseconds=1))
            self._delete(
                entry.id for entry in self._entries() if not entry.persistent and day_of(entry) < first_kept
            )
            return daily_logs.remove(folder, old)

    # --- reading ---------------------------------------------------------------------------------------

    def facts(self) -> list[Fact]:
        """What stands in ``MEMORY.md``, by whomever, but for facts whose entry is gone or expired."""
        with self._held() as folder:
            self._catch_up(folder)
            stamp = None if self._settled is None else self._settled.notes
            if stamp is None or self._parsed is None or self._parsed[0] != stamp:
                self._parsed = (stamp, notes.facts(self._notes()))
            return list(self._parsed[1])

    def recent(self, since: date, limit: int, *, transient_only: bool = False) -> list[LogLine]:
        """The latest log lines of the days from ``since`` on whose entries live still, in the order of their times."""
        found: list[LogLine] = []
        with self._held() as folder:
            self._catch_up(folder)
            for day in daily_logs.days(folder):
                if day < since or len(found) >= limit:
                    break
                lines = daily_logs.latest_first(folder, day)
                while len(found) < limit and (some := list(islice(lines, _LINES_AT_ONCE))):
                    found += self._shown(some, transient_only)[: limit - len(found)]
        found.reverse()
        return sorted(found, key=lambda line: line.at)

    def live(self, limit: int) -> list[KnowledgeEntry]:
        """Copies of the entries that are not expired, in the order of all stores."""
        return self.store.query(min_importance=float("-inf"), limit=limit)

    @property
    def store_is_ours(self) -> bool:
        """Whether what its store raises beside typed errors is a defect of ours."""
        return isinstance(self.store, FileKnowledgeStore | SQLiteKnowledgeStore)

    def close_thread(self) -> None:
        """Give up what the store holds for the calling thread."""
        if isinstance(self.store, SQLiteKnowledgeStore):
            self.store.close()

    # --- inside ----------------------------------------------------------------------------------------

    def _lock(self) -> DirectoryLock:
        """A store that locks the same directory must be held, not waited for."""
        if isinstance(self.store, FileKnowledgeStore) and is_same_directory(self.store.directory, self.path):
            return self.store.lock
        return DirectoryLock(self.path)

    def _held(self) -> AbstractContextManager[int]:
        # What somebody else's store raises comes out as it is, be it an OSError.
        return self.lock.reporting() if self.store_is_ours else self.lock.held()

    def _shown(self, lines: list[LogLine], transient_only: bool) -> list[LogLine]:
        """Those whose entries live, and those that a hand wrote."""
        wanted = [line for line in lines if not (transient_only and line.persistent)]
        entries = self._some({line.id for line in wanted if line.id})
        now = self._now()
        return [
            line
            for line in wanted
            if not line.id or ((entry := entries.get(line.id)) is not None and not entry.expired_at(now))
        ]

    def _some(self, entry_ids: set[str]) -> dict[str, KnowledgeEntry]:
        if isinstance(self.store, WatchedStore):
            return self.store.get_many(entry_ids)
        found = (self.store.get(entry_id) for entry_id in entry_ids)
        return {entry.id: entry for entry in found if entry is not None}

    def _entries(self) -> list[KnowledgeEntry]:
        if isinstance(self.store, WatchedStore):
            return self.store.everything()
        return self.store.query(min_importance=float("-inf"), limit=ALL)

    def _delete(self, entry_ids: Iterable[str]) -> None:
        gone = list(entry_ids)
        if isinstance(self.store, WatchedStore):
            self.store.remove(gone)
            return
        for entry_id in gone:
            self.store.delete(entry_id)

    def _evict(self) -> None:
        if self._max_entries is None or self.store.count() <= self._max_entries:
            return
        now = self._now()
        live = (entry for entry in self._entries() if not entry.expired_at(now))
        for entry in to_evict(live, self._max_entries):
            self.store.delete(entry.id)

    def _seen(self, folder: int) -> _Seen:
        status = files.stat_entry(folder, NOTES_NAME, at="agent_memory.notes")
        version = self.store.version() if isinstance(self.store, WatchedStore) else None
        return _Seen(None if status is None else files.Stamp.of(status), version)

    def _catch_up(self, folder: int, *, whole: bool = True) -> None:
        """Bring the entries after what a person removed, and the files after the entries.

        ``whole=False``: only where a person may have been at work, or a call before failed.
        """
        seen, known = self._seen(folder), self._settled
        if known is not None and seen.notes == known.notes:
            expired = self._next_expiry is not None and self._now() > self._next_expiry
            if not whole or (seen.version == known.version and not expired):
                return
        now = self._now()
        entries = {entry.id: entry for entry in self._entries() if not entry.expired_at(now)}
        facts, text = self._facts(folder), self._notes()
        there = {notes.sameness(*fact) for fact in notes.facts(text)}
        if text.strip():
            self._forget([entries.pop(key).id for key, fact in facts.items() if key in entries and fact not in there])
        living = {key: fact for key, fact in facts.items() if key in entries}
        stale = (set(facts.values()) - set(living.values())) & there
        if stale:
            self._replace_notes(lambda now: notes.without_facts(now, frozenset(stale)))
        if len(living) < len(facts):
            self._write_facts(folder, living)
        behind = self._write_behind(entries.values(), living if text.strip() else {}, folder)
        self._settled = None if behind else self._seen(folder)
        self._next_expiry = None
        self._note_expiry(entries.values())

    def _note_expiry(self, entries: Iterable[KnowledgeEntry]) -> None:
        ends = [end for entry in entries if entry.persistent and (end := entry.expires_at) is not None]
        self._next_expiry = min(ends if self._next_expiry is None else [*ends, self._next_expiry], default=None)

    def _forget(self, entry_ids: list[str]) -> None:
        """A person took their lines out of ``MEMORY.md``."""
        if entry_ids:
            logger.info("facts were removed from MEMORY.md", extra={"entries": len(entry_ids)})
            self._delete(entry_ids)

    def _write_after(self, entry: KnowledgeEntry, folder: int) -> bool:
        """Whether the files have followed an entry that is new. A failure is for a later call to mend: it is kept."""
        return not self._failing(lambda: self._write(folder, [entry] if entry.persistent else [], [entry]))

    def _write_behind(self, entries: Iterable[KnowledgeEntry], facts: dict[str, Fact], folder: int) -> bool:
        """Whether the files could not be given what they lack of these entries."""
        ordered = sorted(entries, key=lambda entry: (in_utc(entry.created_at), entry.id))

        def write() -> None:
            floor = self._floor(folder)
            due = [
                entry
                for entry in ordered
                if entry.id not in self._logged and (floor is None or in_utc(entry.created_at) > floor)
            ]
            for day in {day_of(entry) for entry in due}:
                self._logged.update(line.id for line in daily_logs.latest_first(folder, day))
            unlogged = [entry for entry in due if entry.id not in self._logged]
            self._write(folder, [one for one in ordered if one.persistent and one.id not in facts], unlogged)

        return self._failing(write)

    def _write(self, folder: int, unnoted: list[KnowledgeEntry], unlogged: list[KnowledgeEntry]) -> None:
        if unnoted:
            self._replace_notes(lambda text: _with_all(text, unnoted))
            self._append_facts(folder, unnoted)
        if unlogged:
            daily_logs.append(folder, unlogged)
            self._logged.update(entry.id for entry in unlogged)

    def _failing(self, write: Callable[[], None]) -> bool:
        try:
            write()
        except (OSError, files.UnsafeFile, KnowledgeError, EditedMeanwhile) as error:
            logger.warning("a memory's files are behind its entries", extra={"cause": type(error).__name__})
            return True
        return False

    # --- MEMORY.md -------------------------------------------------------------------------------------

    def _notes(self) -> str:
        data = read_text(self.path / NOTES_NAME, limit=NOTES_MAX_BYTES)
        return "" if data is None else data.decode("utf-8", errors="surrogateescape")

    def _replace_notes(self, change: Callable[[str], str]) -> None:
        """Put a changed text in place, durable; what a person saves meanwhile is the text that is changed."""
        path = self.path / NOTES_NAME
        for attempt in range(_ATTEMPTS):
            before = read_text(path, limit=NOTES_MAX_BYTES)
            text = "" if before is None else before.decode("utf-8", errors="surrogateescape")
            after = change(text)
            if after == text:
                return
            try:
                replace_text(path, before, after.encode("utf-8", errors="surrogateescape"), limit=NOTES_MAX_BYTES)
            except EditedMeanwhile:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            return

    # --- which facts stand there -----------------------------------------------------------------------

    def _facts(self, folder: int) -> dict[str, Fact]:
        data = self._small_file(folder, FACTS_NAME, at="agent_memory.facts")
        found: dict[str, Fact] = {}
        for line in data.splitlines():
            try:
                entry_id, category, content = json.loads(line)
                found[entry_id] = Fact(category, content)
            except (ValueError, TypeError):  # torn: its entry is looked at again
                continue
        return found

    def _append_facts(self, folder: int, entries: list[KnowledgeEntry]) -> None:
        facts = {entry.id: notes.sameness(entry.category, entry.content) for entry in entries}
        if files.stat_entry(folder, FACTS_NAME, at="agent_memory.facts") is None:
            self._write_facts(folder, facts)
            return
        fd, status = files.open_to_write(folder, FACTS_NAME, at="agent_memory.facts.open")
        try:
            # A line that a crash tore is closed by the first line break, and passed over.
            files.write_at(fd, b"\n" + _fact_lines(facts), status.st_size, at="agent_memory.facts.write")
        finally:
            files.close(fd)

    def _write_facts(self, folder: int, facts: dict[str, Fact]) -> None:
        self._put(folder, FACTS_NAME, _fact_lines(facts), at="agent_memory.facts")

    # --- from when on entries are logged ---------------------------------------------------------------

    def _floor(self, folder: int) -> datetime | None:
        text = self._small_file(folder, FLOOR_NAME, at="agent_memory.floor").decode("ascii", errors="replace").strip()
        try:
            return in_utc(datetime.fromisoformat(text)) if text else None
        except ValueError:
            return None

    def _set_floor(self, folder: int, at: datetime) -> None:
        before = self._floor(folder)
        if before is None or at > before:
            self._put(folder, FLOOR_NAME, in_utc(at).isoformat().encode("ascii"), at="agent_memory.floor")

    def _small_file(self, folder: int, name: str, *, at: str) -> bytes:
        try:
            return files.read_file(folder, name, limit=NOTES_MAX_BYTES, at=at)[0]
        except FileNotFoundError:
            return b""

    def _put(self, folder: int, name: str, data: bytes, *, at: str) -> None:
        staged = f"{name}.tmp"
        files.unlink(folder, staged, at=at)
        files.close(files.create_file(folder, staged, data, mode=0o600, at=at))
        files.rename_over(folder, staged, name, at=at)


def _fact_lines(facts: dict[str, Fact]) -> bytes:
    return b"".join(json.dumps([key, *fact]).encode("ascii") + b"\n" for key, fact in facts.items())


def _with_all(text: str, entries: Iterable[KnowledgeEntry]) -> str:
    for entry in entries:
        text = notes.with_fact(text, entry.category, entry.content)
    return text

