"""Mending a store that nobody has open: a database built anew from the vault, and files, index and Git from history.

Nothing is deleted: what is replaced is set aside under another name, and a text that history does not have is recorded
before anything takes its place.

Source: decisions.md section 4 (Git, Manifest), section 5 (Maintenance); stores-and-access.md (Stores).
"""

from storage.repair.database import DATABASE_LOST, STAYS, rebuild_database
from storage.repair.examining import Agreement, DatabaseState, agreement, database_state
from storage.repair.mending import repair
from storage.repair.model import PARTS, Part, Repaired

__all__ = [
    "DATABASE_LOST",
    "PARTS",
    "STAYS",
    "Agreement",
    "DatabaseState",
    "Part",
    "Repaired",
    "agreement",
    "database_state",
    "rebuild_database",
    "repair",
]
