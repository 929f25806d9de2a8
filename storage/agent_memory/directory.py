"""One memory directory: the entries, which are what is true, and the files that follow from them for people.

A remembered entry is acknowledged when the store has it durably. ``MEMORY.md`` and the daily log are brought after it
before the call returns; what a crash, a full disk or a person at work kept from them, by the next call. Which facts
were put into ``MEMORY.md`` stands in ``.facts.jsonl``, so that a line that a person removes is told from one that was
never written: its entry is forgotten with it. A ``MEMORY.md`` that is gone or empty as a whole is an accident and is
written again; :meth:`MemoryDirectory.clear` forgets everything.

One thread at a time (its lane); other threads and processes are kept out by the directory's lock.

Source: agent-memory.md; agent-memory-contract.md section 11.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from messages.errors import Busy, KnowledgeError
from storage import files
from storage.agent_memory import daily_logs, ledger, notes, released
from storage.agent_memory.contract import KnowledgeStore, to_evict
from storage.agent_memory.daily_logs import LogLine, day_of
from storage.agent_memory.entry import KnowledgeEntry, in_utc, utc_now
from storage.agent_memory.file_store import FileKnowledgeStore
from storage.agent_memory.followed_store import FollowedStore
from storage.agent_memory.ledger import FACTS_NAME, FLOOR_NAME
from storage.agent_memory.locking import DirectoryLock, is_same_directory, make_directory
from storage.agent_memory.notes import Fact
from storage.agent_memory.notes_file import NotesFile
from storage.agent_memory.sqlite_store import SQLiteKnowledgeStore
from storage.replaced_text import EditedMeanwhile

logger = logging.getLogger(__name__)

_ATTEMPTS: Final = 8

FAULT_POINTS: Final = (("agent_memory.forget", "removing files of an agent memory that is cleared"),)


class _Seen(NamedTuple):
    """What the files were brought after: the stamp of ``MEMORY.md`` and the version of the store."""

    notes: object
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
        self._followed = FollowedStore(self.store, now)
        self._notes = NotesFile(path)
        self._max_entries = max_entries
        self._now = now
        self.lock = self._lock()
        self._follows = False
        self._settled: _Seen | None = None
        self._parsed: tuple[object, list[Fact]] | None = None
        self._next_expiry: datetime | None = None
        self._logged: set[str] = set()

    def convert(self) -> int:
        """Bring what the released package wrote into this directory into ours; how many files there were."""
        with self._held() as folder:
            for _ in range(_ATTEMPTS):
                try:
                    self._followed.look()
                    return released.convert(self.path, folder, self._followed.entries().values, self._now())
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
            before = self._followed.version
            kept = self._followed.save(entry)
            if self._settled is not None:
                # What others changed before is still to be followed.
                unchanged = self._settled.version == before
                followed = self._write_after(kept, self._settled.notes, folder)
                version = self._followed.version if unchanged else object()
                stamp = self._notes.known if kept.persistent else self._settled.notes
                self._settled = _Seen(stamp, version) if followed else None
                self._note_expiry([kept])
            self._evict()
            return kept.id

    def clear(self) -> None:
        """Forget everything: entries, ``MEMORY.md`` with what people wrote into it, and daily logs."""
        with self._held() as folder:
            self._followed.look()
            self._followed.remove(self._followed.entries())
            self.store.prune()
            # MEMORY.md first, and durably: its facts without their ids would pass for a person's.
            self._notes.forget(at="agent_memory.forget")
            for name in (FACTS_NAME, FLOOR_NAME):
                files.unlink(folder, name, at="agent_memory.forget")
            daily_logs.remove(folder, daily_logs.days(folder))
            released.forget_originals(folder, logs_only=False)
            self._settled = None
            self._logged.clear()

    def clear_logs(self) -> None:
        """Forget what is not persistent, and the daily logs."""
        with self._held() as folder:
            self._catch_up(folder)
            ledger.raise_floor(folder, self._now())
            self._followed.remove([entry.id for entry in self._followed.entries().values() if not entry.persistent])
            daily_logs.remove(folder, daily_logs.days(folder))
            released.forget_originals(folder, logs_only=True)

    def prune(self, first_kept: date) -> int:
        """Delete the daily logs of the days before, and the entries of those days that are not persistent; how many
        logs there were."""
        with self._held() as folder:
            old = [day for day in daily_logs.days(folder) if day < first_kept]
            if not old:
                return 0
            ledger.raise_floor(folder, datetime.combine(first_kept, time.min, UTC) - timedelta(microseconds=1))
            self._followed.look()
            self._followed.remove(
                [
                    entry.id
                    for entry in self._followed.entries().values()
                    if not entry.persistent and day_of(entry) < first_kept
                ]
            )
            return daily_logs.remove(folder, old)

    # --- reading ---------------------------------------------------------------------------------------

    def facts(self) -> list[Fact]:
        """What stands in ``MEMORY.md``, by whomever, but for facts whose entry is gone or expired."""
        with self._held() as folder:
            self._catch_up(folder)
            stamp = None if self._settled is None else self._settled.notes
            if stamp is None or self._parsed is None or self._parsed[0] != stamp:
                self._parsed = (stamp, notes.facts(self._notes.read()))
            return list(self._parsed[1])

    def recent(self, since: date, limit: int, *, transient_only: bool = False) -> list[LogLine]:
        """The latest log lines of the days from ``since`` on whose entries live still, in the order of their times."""
        found: list[LogLine] = []
        limit = min(limit, sys.maxsize)
        with self._held() as folder:
            self._catch_up(folder)
            for day in daily_logs.days(folder):
                if day < since or len(found) >= limit:
                    break
                lines = daily_logs.latest_first(folder, day)
                if transient_only:
                    lines = (line for line in lines if not line.persistent)
                while len(found) < limit and (some := list(islice(lines, limit - len(found)))):
                    found += self._shown(some)
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

    def _shown(self, lines: list[LogLine]) -> list[LogLine]:
        """Those of the lines whose entries live still, and those that a hand wrote."""
        now = self._now()
        there = self._followed.get_many([line.id for line in lines if line.id])
        live = {key for key, entry in there.items() if not entry.expired_at(now)}
        return [line for line in lines if not line.id or line.id in live]

    def _evict(self) -> None:
        if self._max_entries is None or len(self._followed.entries()) <= self._max_entries:
            return
        now = self._now()
        live = (entry for entry in self._followed.entries().values() if not entry.expired_at(now))
        self._followed.delete([entry.id for entry in to_evict(live, self._max_entries)])

    def _catch_up(self, folder: int, *, whole: bool = True) -> None:
        """Bring the entries after what a person removed, and the files after the entries.

        ``whole=False``: only where a person may have been at work, or a call before failed.
        """
        self._follow_store(folder)
        self._followed.look()
        seen, known = _Seen(self._notes.stamp(), self._followed.version), self._settled
        if known is not None and seen.notes == known.notes:
            expired = self._next_expiry is not None and self._now() > self._next_expiry
            if not whole or (seen.version == known.version and not expired):
                return
        now = self._now()
        entries = {key: entry for key, entry in self._followed.entries().items() if not entry.expired_at(now)}
        facts, text = ledger.facts(folder), self._notes.read()
        self._notes.clear_staged(text, lambda: [*facts.values(), *map(_fact, self._followed.entries().values())])
        there = {notes.sameness(*fact) for fact in notes.facts(text)}
        missing = [key for key, fact in facts.items() if key in entries and fact not in there]
        settled = not missing or self._notes.is_settled(text)
        if settled and text.strip():
            self._forget([entries.pop(key).id for key in missing])
        living = {key: fact for key, fact in facts.items() if key in entries}
        stale = (set(facts.values()) - set(living.values())) & there
        if stale:
            self._notes.replace(lambda now: notes.without_facts(now, frozenset(stale)))
        if len(living) < len(facts):
            ledger.write_facts(folder, living)
        behind = self._write_behind(entries.values(), living if text.strip() or not settled else {}, folder)
        self._settled = None if behind or not settled else _Seen(self._notes.known, self._followed.version)
        self._next_expiry = None
        self._note_expiry(entries.values())

    def _follow_store(self, folder: int) -> None:
        if not self._follows:
            ledger.follow_store(folder, _store_name(self.store))
            self._follows = True

    def _note_expiry(self, entries: Iterable[KnowledgeEntry]) -> None:
        ends = [end for entry in entries if entry.persistent and (end := entry.expires_at) is not None]
        self._next_expiry = min(ends if self._next_expiry is None else [*ends, self._next_expiry], default=None)

    def _forget(self, entry_ids: list[str]) -> None:
        """A person took their lines out of ``MEMORY.md``."""
        if entry_ids:
            logger.info("facts were removed from MEMORY.md", extra={"entries": len(entry_ids)})
            self._followed.remove(entry_ids)

    def _write_after(self, entry: KnowledgeEntry, seen: object, folder: int) -> bool:
        """Whether the files have followed an entry that is new. A failure is for a later call to mend: it is kept."""

        def is_whole(_: str) -> bool:
            return self._notes.stamp() == seen  # the text was read before

        return not self._failing(lambda: self._write(folder, [entry] if entry.persistent else [], [entry], is_whole))

    def _write_behind(self, entries: Iterable[KnowledgeEntry], facts: dict[str, Fact], folder: int) -> bool:
        """Whether the files could not be given what they lack of these entries."""
        ordered = sorted(entries, key=lambda entry: (in_utc(entry.created_at), entry.id))

        def is_whole(text: str) -> bool:
            return {notes.sameness(*fact) for fact in notes.facts(text)}.issuperset(facts.values())

        def write() -> None:
            floor = ledger.floor(folder)
            due = [
                entry
                for entry in ordered
                if entry.id not in self._logged and (floor is None or in_utc(entry.created_at) > floor)
            ]
            for day in {day_of(entry) for entry in due}:
                self._logged.update(line.id for line in daily_logs.latest_first(folder, day))
            unlogged = [entry for entry in due if entry.id not in self._logged]
            unnoted = [one for one in ordered if one.persistent and one.id not in facts]
            self._write(folder, unnoted, unlogged, is_whole)

        return self._failing(write)

    def _write(
        self,
        folder: int,
        unnoted: list[KnowledgeEntry],
        unlogged: list[KnowledgeEntry],
        is_whole: Callable[[str], bool],
    ) -> None:
        def added(text: str) -> str:
            # A fact on top of a file that is gone or half written would make the others look removed by a person.
            if not is_whole(text):
                raise Busy("MEMORY.md was changed by another program meanwhile.")
            return _with_all(text, unnoted)

        if unnoted:
            self._notes.replace(added)
            ledger.append_facts(folder, {one.id: _fact(one) for one in unnoted})
        if unlogged:
            daily_logs.append(folder, unlogged)
            self._logged.update(entry.id for entry in unlogged)

    def _failing(self, write: Callable[[], None]) -> bool:
        try:
            write()
        except (OSError, files.UnsafeFile, KnowledgeError) as error:
            logger.warning("a memory's files are behind its entries", extra={"cause": type(error).__name__})
            return True
        return False


def _store_name(store: KnowledgeStore) -> str:
    """Tells a directory's stores from one another. A name that changes without need costs a look at every fact."""
    match store:
        case FileKnowledgeStore():
            return f"file {store.directory.name}"
        case SQLiteKnowledgeStore():
            return f"sqlite {store.db_path.name}"
        case _:
            return type(store).__qualname__


def _fact(entry: KnowledgeEntry) -> Fact:
    return notes.sameness(entry.category, entry.content)


def _with_all(text: str, entries: Iterable[KnowledgeEntry]) -> str:
    for entry in entries:
        text = notes.with_fact(text, entry.category, entry.content)
    return text
