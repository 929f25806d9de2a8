"""The schema of state.sqlite: made once, migrated forward only, and a newer one refused by name.

Source: decisions.md section 1 (formats carry versions).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files as resources
from typing import Final

from messages.errors import StoreUnavailable
from storage.faults import effect
from storage.state.connection import Database, StorageCorrupt

SCHEMA_VERSION: Final = 2
"""2: the catalogue has the links of pages and their degrees; the journal is that of 1."""

FAULT_POINTS: Final = (("schema.read", "reading a schema file that ships with the package"),)


def create_schema(database: Database) -> None:
    """Make the journal's tables inside the caller's transaction; the catalogue makes its own."""
    with effect("schema.read"):
        script = resources("storage.state").joinpath("schema.sql").read_text("utf-8")
    database.execute_script(script)
    database.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def bring_forward(database: Database, rebuild_catalogue: Callable[[Database], None]) -> None:
    """Bring an older database to :data:`SCHEMA_VERSION` inside the caller's transaction.

    No copy is made first: so far only the catalogue has changed, which holds nothing that files and history lack.
    """
    if database.user_version() < SCHEMA_VERSION:
        rebuild_catalogue(database)
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
