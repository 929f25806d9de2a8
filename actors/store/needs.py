"""What an operation may still lack: work that a helper does off the lane while the request is parked.

An operation is run again from its beginning when the need is met, on a fresh snapshot, so nothing it read
before is trusted afterwards (DESIGN.md, One request: prepare and commit).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from actors.store.sources import ReadPassage, SourceWork
from actors.store.upkeep import UpkeepWork
from storage.records import EvidenceCitation


class CitationKey(NamedTuple):
    """What makes two citations the same claim on a retained file."""

    path: str
    sha256: str
    start_line: int | None
    end_line: int | None
    quote: str | None

    @classmethod
    def of(cls, citation: EvidenceCitation) -> CitationKey:
        return cls(citation.path, citation.sha256, citation.start_line, citation.end_line, citation.quote)


@dataclass(frozen=True, slots=True)
class NeedIndex:
    """The keyword index must have reached this catalogue change."""

    change: int


@dataclass(frozen=True, slots=True)
class NeedEvidence:
    """These citations must be verified against their retained files."""

    citations: tuple[EvidenceCitation, ...]
    fresh: bool = False
    """Read the files even where an earlier verdict still has the file's stamp."""
    excerpts: bool = True
    """``False``: only whether they hold; an unchanged file is not read again."""


@dataclass(frozen=True, slots=True)
class NeedUpkeep:
    """A piece of maintenance must be done by the helper it is for."""

    work: UpkeepWork


@dataclass(frozen=True, slots=True)
class NeedSource:
    """A source must be hashed or copied to its end."""

    work: SourceWork


@dataclass(frozen=True, slots=True)
class NeedPassage:
    """A passage of a verified source must be read."""

    work: ReadPassage


@dataclass(frozen=True, slots=True)
class NeedStanding:
    """The standing index of a session that began then must be derived: its caller waits a moment and goes without."""

    started_at_ms: int
    at_ms: int


Need: TypeAlias = NeedIndex | NeedEvidence | NeedUpkeep | NeedSource | NeedPassage | NeedStanding
