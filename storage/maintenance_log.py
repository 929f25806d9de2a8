"""What maintenance remembers between processes: when it runs next, the last run, the last result of each store.

Kept in ``registry.sqlite`` through a connection of its own; the registry itself is opened, made and brought forward by
its owner only. Results are bounded and hold ids, codes and counts, never text. One thread, that which opened it.

Source: decisions.md section 5 (Maintenance).
"""

from __future__ import annotations

import os
from typing import Final, cast

import orjson

from messages.errors import StoreUnavailable
from messages.json_types import JsonObject
from storage.faults import effect
from storage.layout import Layout
from storage.state.connection import Database, StorageCorrupt

FORMAT_NEEDED: Final = 2

FAULT_POINTS: Final = (
    ("maintenance.open", "opening registry.sqlite for what maintenance remembers"),
    ("maintenance.look", "looking whether registry.sqlite is still the file that is open"),
    ("maintenance.statement", "one statement on what maintenance remembers"),
    ("maintenance.rollback", "rolling a failed change of it back"),
    ("maintenance.close", "closing registry.sqlite after maintenance"),
    ("maintenance.note.begin", "beginning to note a schedule, a run or a result"),
    ("maintenance.note.commit", "committing a schedule, a run or a result"),
)


class MaintenanceLog:
    """The open log of one state directory."""

    __slots__ = ("_database", "_file", "_layout")

    def __init__(self, layout: Layout, database: Database) -> None:
        self._layout = layout
        self._database = database
        self._file = _file_of(layout)

    @classmethod
    def open(cls, layout: Layout) -> MaintenanceLog:
        """Open the log; never creates the registry. Raises ``StoreUnavailable`` while there is none of this format."""
        try:
            database = Database.open(layout.registry, point_prefix="maintenance")
        except StorageCorrupt as error:
            raise StoreUnavailable("registry.sqlite is damaged.", reason="registry_damaged") from error
        if database.user_version() < FORMAT_NEEDED:
            database.close()
            raise StoreUnavailable("The registry is not ready yet; try again.", reason="registry_missing", retry="safe")
        return cls(layout, database)

    def next_at(self, rule: str) -> int | None:
        """When the next run is due (UTC milliseconds), if that was reckoned from this rule."""
        found = self._database.query_one("SELECT rule, next_at FROM maintenance_schedule")
        return None if found is None or found[0] != rule else found[1]

    def schedule(self, rule: str, next_at: int | None) -> None:
        """Note when the next run is due, and the rule that says so."""
        with self._database.transaction(full=False, point="maintenance.note"):
            self._database.execute("INSERT OR REPLACE INTO maintenance_schedule VALUES (1, ?, ?)", (rule, next_at))

    def last_run(self) -> JsonObject | None:
        """The last run as it was noted."""
        found = self._database.query_one("SELECT body FROM maintenance_run")
        return None if found is None else cast(JsonObject, orjson.loads(found[0]))

    def note_run(self, run: JsonObject) -> None:
        """Replace the last run."""
        with self._database.transaction(full=False, point="maintenance.note"):
            self._database.execute("INSERT OR REPLACE INTO maintenance_run VALUES (1, ?)", (_json(run),))

    def results(self) -> list[JsonObject]:
        """The last result of each store that is still registered, by its id."""
        rows = self._database.query("SELECT body FROM maintenance_store ORDER BY vault_id")
        return [cast(JsonObject, orjson.loads(body)) for (body,) in rows]

    def note_result(self, vault_id: str, result: JsonObject) -> None:
        """Replace a store's last result; nothing is noted for a store that is not registered any more."""
        with self._database.transaction(full=False, point="maintenance.note"):
            self._database.execute(
                "INSERT OR REPLACE INTO maintenance_store SELECT vault_id, ? FROM store WHERE vault_id = ?",
                (_json(result), vault_id),
            )

    def in_place(self) -> bool:
        """Whether ``registry.sqlite`` is still the file that is open: one that was made anew is another."""
        return self._file is not None and _file_of(self._layout) == self._file

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._database.close()


def _file_of(layout: Layout) -> tuple[int, int] | None:
    with effect("maintenance.look"):
        try:
            found = os.stat(layout.registry)
        except FileNotFoundError:
            return None
    return found.st_dev, found.st_ino


def _json(value: JsonObject) -> str:
    return orjson.dumps(value).decode()
