"""Maintenance of one store in small steps: what the lane is asked, and what it asks of its helpers. All frozen.

Each step is a request of its own, short on the lane; where it goes on is in its answer. What is slow is a piece of work
for a helper while the step is parked.

Source: decisions.md section 5 (Maintenance).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from actors.supervision import Request
from messages.json_types import JsonObject
from messages.vocabulary import Partition
from storage.state.upkeep import CataloguedFile


class UpkeepStep:
    """One step of maintenance on one partition. ``name`` is for logs and progress; ``writes``: it may publish."""

    __slots__ = ()

    name: ClassVar[str]
    writes: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class ListPartitions(UpkeepStep):
    """The keys of the store's partitions."""

    name: ClassVar[str] = "partitions"


@dataclass(frozen=True, slots=True)
class LinkClaims(UpkeepStep):
    """Link unlinked claims behind a row by the rules of remembering; at most one publication."""

    name: ClassVar[str] = "link"
    writes: ClassVar[bool] = True
    after: int = 0


@dataclass(frozen=True, slots=True)
class VerifyRecords(UpkeepStep):
    """Verify the evidence of records behind a row against the retained sources."""

    name: ClassVar[str] = "evidence"
    after: int = 0


@dataclass(frozen=True, slots=True)
class CompareFiles(UpkeepStep):
    """Compare the bytes of files behind a path with catalogue and history."""

    name: ClassVar[str] = "files"
    after: str = ""


@dataclass(frozen=True, slots=True)
class CheckIndex(UpkeepStep):
    """Check the partition's keyword index; a damaged one is built anew by itself."""

    name: ClassVar[str] = "index"


@dataclass(frozen=True, slots=True)
class MergeIndex(UpkeepStep):
    """Join some segments of the keyword index."""

    name: ClassVar[str] = "merge"


@dataclass(frozen=True, slots=True)
class Report(UpkeepStep):
    """Likely duplicates, uncited sources and unfinished uploads of the partition, and how full it is."""

    name: ClassVar[str] = "report"


@dataclass(frozen=True, slots=True)
class CheckDatabase(UpkeepStep):
    """Check the store's database, and measure it."""

    name: ClassVar[str] = "database"


@dataclass(frozen=True, slots=True)
class CheckRepository(UpkeepStep):
    """Check the vault's Git repository; ``tidy``: bring its index up and pack it too."""

    name: ClassVar[str] = "repository"
    tidy: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What a helper found."""

    facts: JsonObject


@dataclass(frozen=True, slots=True)
class LookThroughDatabase(Request[Found]):
    """To the auditor: ``sound``, and what the store takes on disk."""


@dataclass(frozen=True, slots=True)
class LookThroughIndex(Request[Found]):
    """To the auditor: ``sound`` of a keyword index, ``None`` where there is none."""

    partition: Partition


@dataclass(frozen=True, slots=True)
class ReadFiles(Request[Found]):
    """To the auditor: the paths that ``changed``, and those whose text is ``lost`` in history."""

    partition: Partition
    files: tuple[CataloguedFile, ...]


@dataclass(frozen=True, slots=True)
class Survey(Request[Found]):
    """To the auditor: likely ``duplicates``, ``uncited`` sources and ``unfinished`` uploads."""

    partition: Partition
    now_ms: int


@dataclass(frozen=True, slots=True)
class MergeSegments(Request[Found]):
    """To the indexer: one slice of merging; ``more``: there is more to do."""

    partition: Partition


@dataclass(frozen=True, slots=True)
class LookThroughRepository(Request[Found]):
    """To the Git queue: whether the repository is ``sound``; with ``tidy`` also what was done."""

    tidy: bool


UpkeepWork: TypeAlias = (
    LookThroughDatabase | LookThroughIndex | ReadFiles | Survey | MergeSegments | LookThroughRepository
)
