"""What was done to a store, or would be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from messages.json_types import JsonObject
from storage.backup.manifest import Finding
from storage.repair.database import DATABASE_LOST, STAYS

Part: TypeAlias = Literal["database", "catalogue", "files", "index", "git"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)
REBUILT: Final = frozenset(("missing", "damaged"))
"""States of a database that is built anew."""


@dataclass(slots=True)
class Repaired:
    """What was done to one store, or would be (``dry_run``)."""

    vault_id: str
    dry_run: bool
    database: str = "sound"
    set_aside: str | None = None
    catalogue: bool = False
    restored: list[str] = field(default_factory=list)
    """Files that were written from history, relative to the vault."""
    damaged: list[str] = field(default_factory=list)
    """Those of them that stood there truncated; what was left of each is in history."""
    indexes: list[str] = field(default_factory=list)
    git: str = "sound"
    git_set_aside: str | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether anything was, or would be, put right."""
        rebuilt = self.database in REBUILT or self.git in ("built", "to build")
        return bool(rebuilt or self.catalogue or self.restored or self.indexes)

    def find(self, code: str, path: str, message: str) -> None:
        self.findings.append(Finding(code, path, message))

    def to_json(self) -> JsonObject:
        shown: JsonObject = {
            "vaultId": self.vault_id,
            "dryRun": self.dry_run,
            "changed": self.changed,
            "database": self.database,
            "catalogue": "rebuilt" if self.catalogue else "kept",
            "files": {"restored": [*self.restored], "damaged": [*self.damaged]},
            "indexes": [*self.indexes],
            "git": self.git,
            "findings": [finding.to_json() for finding in self.findings],
        }
        if self.database in REBUILT:
            shown |= {"lost": [*DATABASE_LOST], "stays": [*STAYS]}
        if self.set_aside is not None:
            shown["setAside"] = self.set_aside
        if self.git_set_aside is not None:
            shown["gitSetAside"] = self.git_set_aside
        return shown


__all__ = ["PARTS", "REBUILT", "Part", "Repaired"]
