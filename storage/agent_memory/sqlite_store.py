"""Entries in one SQLite table, for a database of their own or beside others.

Any thread (each has a connection of its own) and any number of processes. A save is durable when it returns.

Source: agent-memory-contract.md section 3.2.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import apsw

from messages.errors import Busy, StorageError
from storage.agent_memory.contract import is_prunable, selected
from storage.agent_memory.entry import KnowledgeEntry, from_json, in_utc, storable, to_json, utc_now
from storage.agent_memory.locking import make_directory
from storage.state.connection import CommitUncertain, Database, Row, StorageCorrupt

logger = logging.getLogger(__name__)

_COLUMNS: Final = "id, content, category, importance, persistent, ttl_days, created_at, updated_at, metadata"
_SCHEMA: Final = (
    (
        "CREATE TABLE IF NOT EXISTS knowledge (id TEXT PRIMARY KEY, content TEXT NOT NULL, "
        "category TEXT NOT NULL DEFAULT 'general', importance REAL NOT NULL DEFAULT 0.5, "
        "persistent INTEGER NOT NULL DEFAULT 0, ttl_days INTEGER, created_at TEXT NOT NULL, updated_at TEXT NOT NULL, "
        "metadata TEXT NOT NULL DEFAULT '{}')"
    ),
    "CREATE INDEX IF NOT EXISTS idx_knowledge_category ON knowledge(category)",
    "CREATE INDEX IF NOT EXISTS idx_knowledge_importance ON knowledge(importance)",
    "CREATE INDEX IF NOT EXISTS idx_knowledge_created ON knowledge(created_at)",
    "CREATE INDEX IF NOT EXISTS idx_knowledge_order ON knowledge(importance DESC, created_at, id)",
    "CREATE INDEX IF NOT EXISTS idx_knowledge_zones ON knowledge(id) WHERE substr(created_at, -6) <> '+00:00'",
)

_CHECKPOINT_EVERY: Final = 128
"""A save adds some 25 kB to the database's log, which every reader looks through."""
_OF_PARENTS: Final[list[Database]] = []

FAULT_POINTS: Final = (
    ("agent_memory.sqlite.open", "opening that database"),
    ("agent_memory.sqlite.statement", "one statement on it"),
    ("agent_memory.sqlite.checkpoint", "copying its log into its file"),
    ("agent_memory.sqlite.rollback", "undoing what was begun on it"),
    ("agent_memory.sqlite.close", "closing it"),
    ("agent_memory.sqlite.change.begin", "beginning a change of its entries"),
    ("agent_memory.sqlite.change.commit", "making that change durable"),
)


class SQLiteKnowledgeStore:
    """The table ``knowledge`` of a database file; see the module."""

    __stability__ = "stable"

    def __init__(
        self, db_path: str | os.PathLike[str] = "knowledge.db", *, now: Callable[[], datetime] = utc_now
    ) -> None:
        """Makes file, folder and table where there are none. Raises ``ValueError`` for ``:memory:``, which would be
        another database in each thread."""
        if os.fspath(db_path) == ":memory:":
            raise ValueError("an agent memory needs a file: each thread has a connection of its own")
        self.db_path = Path(db_path)
        make_directory(self.db_path.parent)
        self._now = now
        self._of_thread = threading.local()
        with self._changing() as database:
            for statement in _SCHEMA:
                database.execute(statement)

    def save(self, entry: KnowledgeEntry) -> str:
        value = to_json(storable(entry))
        row = tuple(value.values())[:-1]
        with self._changing() as database:
            database.execute(
                f"INSERT INTO knowledge ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
                "content = excluded.content, category = excluded.category, importance = excluded.importance, "
                "persistent = excluded.persistent, ttl_days = excluded.ttl_days, created_at = excluded.created_at, "
                "updated_at = excluded.updated_at, metadata = excluded.metadata",
                (*row, json.dumps(value["metadata"])),
            )
        return entry.id

    def get(self, entry_id: str) -> KnowledgeEntry | None:
        with self._reading() as database:
            row = database.query_one(f"SELECT {_COLUMNS} FROM knowledge WHERE id = ?", (entry_id,))
        return None if row is None else _entry(row)

    def query(
        self,
        category: str | None = None,
        min_importance: float = 0.0,
        since: datetime | None = None,
        limit: int = 50,
    ) -> list[KnowledgeEntry]:
        now, bound = self._now(), None if since is None else in_utc(since)
        if self._has_other_zones():
            return selected(
                self.everything(),
                now=now,
                category=category,
                min_importance=min_importance,
                since=since,
                limit=limit,
            )
        found: list[KnowledgeEntry] = []
        with self._reading() as database:
            for entry in _in_order(database, category, min_importance):
                if len(found) >= limit:
                    break
                if not entry.expired_at(now) and (bound is None or in_utc(entry.created_at) >= bound):
                    found.append(entry)
        return found

    def delete(self, entry_id: str) -> bool:
        return self.remove([entry_id]) == 1

    def count(self) -> int:
        with self._reading() as database:
            return int(database.query("SELECT count(*) FROM knowledge")[0][0])

    def prune(self, max_age_days: int | None = None, min_importance: float = 0.0) -> int:
        now = self._now()
        with self._reading() as database:
            loose = database.query(f"SELECT {_COLUMNS} FROM knowledge WHERE persistent = 0")
        return self.remove(
            [
                entry.id
                for entry in _entries(loose)
                if is_prunable(entry, now=now, max_age_days=max_age_days, min_importance=min_importance)
            ]
        )

    def everything(self) -> list[KnowledgeEntry]:
        """All entries."""
        with self._reading() as database:
            return list(_entries(database.query(f"SELECT {_COLUMNS} FROM knowledge")))

    def get_many(self, entry_ids: Iterable[str]) -> dict[str, KnowledgeEntry]:
        """Those of these entries that there are, by id."""
        listed = json.dumps(list(entry_ids))
        with self._reading() as database:
            rows = database.query(
                f"SELECT {_COLUMNS} FROM knowledge WHERE id IN (SELECT value FROM json_each(?))", (listed,)
            )
        return {entry.id: entry for entry in _entries(rows)}

    def version(self) -> object:
        """What SQLite counts: changes by other connections, and by this one."""
        with self._reading() as database:
            return tuple(database.query("SELECT * FROM pragma_data_version(), (SELECT total_changes())")[0])

    def remove(self, entry_ids: Collection[str]) -> int:
        """Delete several entries in one transaction; how many there were."""
        removed = 0
        with self._changing() as database:
            for entry_id in entry_ids:
                removed += len(database.query("DELETE FROM knowledge WHERE id = ? RETURNING id", (entry_id,)))
        return removed

    def close(self) -> None:
        """Close the calling thread's connection; those of other threads end with their threads."""
        database: Database | None = getattr(self._of_thread, "database", None)
        if database is not None:
            del self._of_thread.database
            database.close()

    def _has_other_zones(self) -> bool:
        """Whether there are times that do not sort as text among ours: another program wrote them."""
        with self._reading() as database:
            return database.query_one("SELECT 1 FROM knowledge WHERE substr(created_at, -6) <> '+00:00'") is not None

    @contextmanager
    def _reading(self) -> Iterator[Database]:
        """The calling thread's connection; what SQLite says of it is a typed error."""
        try:
            yield self._database()
        except StorageCorrupt as error:
            self.close()
            raise StorageError(
                f"{self.db_path.name} is damaged; restore it from a copy.", retry="never", reason="corrupt"
            ) from error
        except CommitUncertain as error:
            self.close()
            raise StorageError(
                f"{self.db_path.name} may or may not have taken a change; look before it is made again.",
                retry="unknown",
                reason="uncertain",
            ) from error
        except apsw.Error as error:
            raise StorageError(
                f"{self.db_path.name} refused a change or a query: {type(error).__name__}.",
                retry="never",
                reason="refused",
            ) from error

    @contextmanager
    def _changing(self) -> Iterator[Database]:
        """The same in a transaction, durable when the block ends; now and then the log is copied into the file."""
        with self._reading() as database:
            with database.transaction(full=True, point="agent_memory.sqlite.change"):
                yield database
            self._of_thread.changes += 1
            if self._of_thread.changes % _CHECKPOINT_EVERY == 0:
                with suppress(StorageError, Busy):  # the change is durable all the same
                    database.checkpoint()

    def _database(self) -> Database:
        found: Database | None = getattr(self._of_thread, "database", None)
        if found is not None and self._of_thread.process != os.getpid():
            _OF_PARENTS.append(found)  # to close it here would be to let go of the parent's locks
            found = None
        if found is None:
            found = Database.open(self.db_path, point_prefix="agent_memory.sqlite", create=True)
            self._of_thread.database, self._of_thread.process, self._of_thread.changes = found, os.getpid(), 0
        return found


def _in_order(database: Database, category: str | None, min_importance: float) -> Iterator[KnowledgeEntry]:
    where, values = ("AND category = ? ", (category,)) if category else ("", ())
    rows = database.iterate(
        f"SELECT {_COLUMNS} FROM knowledge WHERE importance >= ? {where}ORDER BY importance DESC, created_at, id",
        (min_importance, *values),
    )
    return _entries(rows)


def _entries(rows: Iterable[Row]) -> Iterator[KnowledgeEntry]:
    return (entry for entry in map(_entry, rows) if entry is not None)


def _entry(row: Row) -> KnowledgeEntry | None:
    """The entry of a row; ``None`` for one of another program that cannot be read."""
    entry_id, content, category, importance, persistent, ttl_days, created_at, updated_at, metadata = row
    try:
        return from_json(
            {
                "id": entry_id,
                "content": content,
                "category": category,
                "importance": importance,
                "persistent": bool(persistent),
                "ttl_days": ttl_days,
                "created_at": created_at,
                "updated_at": updated_at,
                "metadata": metadata,
            }
        )
    except ValueError:
        logger.warning("a row of an agent memory cannot be read and is passed over")
        return None
