"""The schema of state.sqlite: made once, migrated forward only, and a newer one refused by name.

Source: decisions.md section 1 (formats carry versions).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files as resources
from typing import Final

from messages.errors import StoreUnavailable
from storage import files
from storage.faults import effect
from storage.state.connection import Database, StorageCorrupt

SCHEMA_VERSION: Final = 5
"""2: uploads have rows, and the catalogue the links of pages and their degrees; the journal is that of 1.
3: what recoveries did is kept.
4: approvals of recall are found by an index of history.
5: sessions' standing indexes are kept, and the catalogue has which pages are connected."""

FAULT_POINTS: Final = (
    ("schema.read", "reading a schema file that ships with the package"),
    ("schema.folder", "opening the folder of a database that is brought forward"),
    ("schema.copy.stage", "making the copy of a database before it is brought forward"),
    ("schema.copy.sync", "syncing that copy, or the folder it lies in"),
    ("schema.copy.place", "giving the copy its name"),
    ("schema.forward.begin", "beginning the transaction that brings a database forward"),
    ("schema.forward.commit", "its durable commit"),
)

_STAGED_COPY: Final = ".kr-copy.sqlite"


def create_schema(database: Database) -> None:
    """Make the journal's tables inside the caller's transaction; the catalogue makes its own."""
    for name in ("schema.sql", "uploads.sql", "notices.sql", "approvals.sql", "standing.sql"):
        database.execute_script(_script(name))
    database.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def check_version(database: Database) -> bool:
    """Whether the schema is there; ``False`` for an empty file.

    Raises ``StoreUnavailable`` naming both versions for a newer one, :class:`StorageCorrupt` for a file of ours
    without a version.
    """
    version = database.user_version()
    if version > SCHEMA_VERSION:
        raise StoreUnavailable(
            f"{database.path.name} has format {version}, this program reads up to {SCHEMA_VERSION}: "
            "use a newer version of it",
            format=version,
            supported=SCHEMA_VERSION,
        )
    if version == 0 and database.query_one("SELECT 1 FROM sqlite_schema LIMIT 1") is not None:
        raise StorageCorrupt(f"{database.path.name} has tables but no version")
    return version > 0


def bring_forward(database: Database, rebuild_catalogue: Callable[[Database], None]) -> None:
    """Bring an older database to :data:`SCHEMA_VERSION` in one transaction, a complete copy of it beside it first.

    The copy is called ``<name>.format-<older>``. ``rebuild_catalogue`` replaces the catalogue's tables, which hold
    nothing that files and history lack. Costs one statement where nothing is to be done.
    """
    older = database.user_version()
    if older >= SCHEMA_VERSION:
        return
    folder = files.open_root(database.path.parent, at="schema.folder")
    try:
        files.unlink(folder, _STAGED_COPY, at="schema.copy.stage")
        database.execute("VACUUM INTO ?", (str(database.path.with_name(_STAGED_COPY)),))
        staged, _ = files.open_file(folder, _STAGED_COPY, at="schema.copy.stage")
        try:
            files.fsync(staged, at="schema.copy.sync")
        finally:
            files.close(staged)
        # A crash before the commit leaves a copy of the same tables: the next attempt may replace it.
        files.rename_over(folder, _STAGED_COPY, f"{database.path.name}.format-{older}", at="schema.copy.place")
        files.fsync(folder, at="schema.copy.sync")
    finally:
        files.close(folder)
    with database.transaction(full=True, point="schema.forward"):
        if older < 2:
            database.execute_script(_script("uploads.sql"))
        if older < 3:
            database.execute_script(_script("notices.sql"))
        if older < 4:
            database.execute_script(_script("approvals.sql"))
        database.execute_script(_script("standing.sql"))
        rebuild_catalogue(database)
        database.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def _script(name: str) -> str:
    with effect("schema.read"):
        return resources("storage.state").joinpath(name).read_text("utf-8")
