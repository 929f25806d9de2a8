"""What is wrong with the files of one partition, as the catalogue last saw them; counted, and listed within a bound.

Withheld files are not listed: their scope says that they are somebody else's. Source: stores-and-access.md (Limits).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from messages.json_types import JsonObject
from messages.vocabulary import Partition
from storage.state.connection import Database


@dataclass(frozen=True, slots=True)
class FileFinding:
    """One finding of one file; ``path`` is relative to the partition, the message never repeats text of the file."""

    path: str
    code: str
    message: str
    field: str = ""

    def to_json(self) -> JsonObject:
        shown: JsonObject = {"path": self.path, "code": self.code, "message": self.message}
        if self.field:
            shown["field"] = self.field
        return shown


def file_findings(db: Database, partition: Partition, limit: int) -> tuple[Sequence[FileFinding], int]:
    """Up to ``limit`` findings by path, and how many there are."""
    where = "FROM finding f JOIN catalogue_partition p ON p.id = f.partition WHERE p.key = ?"
    counted = db.query_one(f"SELECT count(*) {where}", (partition.key,))
    rows = db.query(
        f"SELECT f.path, f.code, f.message, f.field {where} ORDER BY f.path, f.position LIMIT ?",
        (partition.key, limit),
    )
    found = [FileFinding(str(path), str(code), str(message), str(field)) for path, code, message, field in rows]
    return found, 0 if counted is None else int(counted[0])
