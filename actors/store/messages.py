"""What crosses the mailboxes of one store: the lane's requests and its helpers' work. All frozen."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field

from actors.authority.permit import Permit
from actors.store.needs import CitationKey
from actors.store.sources import Complete, Passage
from actors.store.upkeep import Found, UpkeepStep
from actors.supervision import Envelope, Reply, Request
from messages.json_types import JsonObject
from messages.tools import ToolRequest
from messages.vocabulary import Partition
from storage.evidence import Verdict
from storage.git import Checkpoint, IndexState, Outcome
from storage.ontology import Ontology
from storage.publication import Cut, Synced
from storage.records import EvidenceCitation
from storage.state.upkeep import CataloguedFile


@dataclass(frozen=True, slots=True)
class RunTool(Request[JsonObject]):
    """To the lane: run one tool, or one step of maintenance, under a permit."""

    request: ToolRequest | UpkeepStep
    permit: Permit
    writes: bool
    actor: str | None = None
    """Who is written into history; the permit's agent unless an operator asks."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """What the lane keeps of a parked request until its need is met."""

    message: RunTool
    envelope: Envelope
    since_change: int | None = None
    verdicts: Mapping[CitationKey, Verdict] = field(default_factory=dict)
    complete: Complete | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """To the lane itself: a helper has answered for a parked request."""

    parked: Prepare
    reply: Reply[int] | Reply[Mapping[CitationKey, Verdict]] | Reply[Found] | Reply[Complete] | Reply[Passage]


@dataclass(frozen=True, slots=True)
class RunAgain:
    """To the lane itself: run a parked operation from its beginning, since its helper was not there yet."""

    parked: Prepare


@dataclass(frozen=True, slots=True)
class GivenUp:
    """To the lane itself: the caller of a parked request wants no answer any more. Nothing of it was done."""

    envelope: Envelope


@dataclass(frozen=True, slots=True)
class CatchUp(Request[int]):
    """To the indexer: bring a partition's index to this catalogue change; answers the change reached."""

    partition: Partition
    change: int


@dataclass(frozen=True, slots=True)
class IndexChanged:
    """To the indexer: a partition's catalogue changed; catch up and merge when idle."""

    partition: Partition


@dataclass(frozen=True, slots=True)
class IndexDamaged:
    """To the indexer: a search met damage in a partition's index; begin a new one."""

    partition: Partition


@dataclass(frozen=True, slots=True)
class VerifyEvidence(Request[Mapping[CitationKey, Verdict]]):
    """To the verifier: check these citations against their retained files."""

    partition: Partition
    citations: tuple[EvidenceCitation, ...]
    fresh: bool = False
    excerpts: bool = True


@dataclass(frozen=True, slots=True)
class SyncFiles(Request[Synced]):
    """To the file-sync helper: make what the cut names durable.

    ``after_loss``: the answer to the request before never arrived, and a failed sync in it must not be forgotten.
    """

    cut: Cut
    after_loss: bool = False


@dataclass(frozen=True, slots=True)
class FilesSynced:
    """To the lane itself: the file sync has answered."""

    reply: Reply[Synced]


@dataclass(frozen=True, slots=True)
class WriteCheckpoints(Request[Outcome]):
    """To the Git queue: put these publications into commits. ``more``: others wait behind them; ``restores``: they are
    what somebody else's commit took back."""

    checkpoints: tuple[Checkpoint, ...]
    whole_history: bool
    look_back: bool
    more: bool
    restores: bool = False


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """To the lane itself: the Git queue has answered."""

    reply: Reply[Outcome]


@dataclass(frozen=True, slots=True)
class IndexSynced:
    """To the lane: how the repository's index was left for a person's ``git status``."""

    state: IndexState


@dataclass(frozen=True, slots=True)
class LookAtFiles(Request[tuple[str, ...]]):
    """To the auditor: one slice of the slow look; answers the paths whose files are not as expected."""

    partition: Partition
    files: tuple[CataloguedFile, ...]


@dataclass(frozen=True, slots=True)
class LookedAtFiles:
    """To the lane itself: a slice of the slow look has been answered."""

    partition: Partition
    reply: Reply[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class DeriveStanding(Request[JsonObject]):
    """To the historian: the standing index of a session that began then, as ``{"index": text or null}``.

    ``at_ms`` is the moment that counts: the session's start, unless that is still to come.
    """

    partition: Partition
    started_at_ms: int
    at_ms: int
    ontology: Ontology


@dataclass(frozen=True, slots=True)
class StandingDerived:
    """To the lane itself: the historian has answered."""

    work: DeriveStanding
    reply: Reply[JsonObject]


@dataclass(frozen=True, slots=True)
class StandingOverdue:
    """To the lane itself: this request has waited long enough for its standing index."""

    parked: Prepare


@dataclass(frozen=True, slots=True)
class FilesChanged:
    """To the lane: the watch has something to read."""


@dataclass(frozen=True, slots=True)
class Tick:
    """To the lane from its own timer: sync, checkpoint, retry what is pending."""


class OwnedDescriptor:
    """A descriptor that is closed when nobody wants or holds it any more: its message may be lost on the way."""

    __slots__ = ("__weakref__", "_close", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self._close = weakref.finalize(self, os.close, number)

    def close(self) -> None:
        """Idempotent."""
        self._close()


@dataclass(frozen=True, slots=True)
class WatchWanted:
    """To the lane from its watcher: send a descriptor to wait for."""


@dataclass(frozen=True, slots=True)
class WatchDescriptor:
    """To the watcher: a descriptor that is its own to poll and to close."""

    descriptor: OwnedDescriptor
