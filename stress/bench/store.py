"""A store at the bench: made by the runtime, filled with a cached vault, and worked without threads.

:class:`Desk` runs operations as the lane does, and the helpers' parts (index, syncing, Git) when it is told to, so that
what is timed is the caller's path and nothing else.
"""

from __future__ import annotations

import random
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from actors.store.needs import CitationKey, NeedEvidence, NeedIndex
from actors.store.operations import table
from actors.store.operations.context import OperationContext, Prepared
from host_bridge.bridge import KnowledgeBridge
from host_bridge.config import Configuration, parse_configuration
from messages.audience import OwnerPrivate
from messages.json_types import JsonObject
from messages.tools import GitState, ToolRequest, parse_arguments
from messages.vocabulary import PRIVATE
from storage import files
from storage.evidence import VerdictCache, verify
from storage.git import Checkpoint, Committed, commit
from storage.index_feed import IndexFeed
from storage.layout import Layout, StoreLayout
from storage.publication import sync_files
from storage.records import parse_instant
from storage.search import SearchIndex
from storage.session import PartitionSession, StoreSession, no_fence
from storage.state import git_queue, history
from storage.state.catalogue import catalogue_identity
from storage.vault import ScanLimits
from stress.bench import notes

SCAN_ENTRIES: Final = 400_000
CONFIGURATION: Final = f"limits:\n  scanEntries: {SCAN_ENTRIES}\n"
MAIN: Final = OwnerPrivate("main")
LIMITS: Final = ScanLimits(entries=SCAN_ENTRIES)
JOBS_PER_RUN: Final = 256
NOW_MS: Final = parse_instant("2026-11-02T12:00:00Z") or 0


def configuration() -> Configuration:
    """What the bench runs with: the defaults, with room for 100,000 records."""
    return parse_configuration(CONFIGURATION)


@dataclass(frozen=True, slots=True)
class BenchStore:
    """One state directory with one store in it."""

    state_dir: Path
    layout: StoreLayout
    size: int
    seed: int

    @property
    def private(self) -> Path:
        return self.layout.partition(PRIVATE)

    def words(self) -> notes.Words:
        return notes.Words(self.seed)


def make_store(state_dir: Path, cache: Path, *, seed: int, size: int, progress: Callable[[int], None]) -> BenchStore:
    """A new store whose vault holds the cached notes; it has not been opened since."""
    source = notes.cached_notes(cache, seed, size, progress)
    state_dir.mkdir(parents=True)
    (state_dir / "knowledge.yaml").write_text(CONFIGURATION, "utf-8")
    with KnowledgeBridge(state_dir) as knowledge:
        knowledge.call("knowledge_status", {}, MAIN)
    [root] = Layout(state_dir).stores.iterdir()
    store = BenchStore(state_dir, StoreLayout(root), size, seed)
    # An empty store's index and database know nothing of the notes: the next opening is a cold one.
    shutil.rmtree(store.layout.search, ignore_errors=True)
    notes.copy_notes(source, store.private)
    return store


class Desk:
    """One open store and the operations on it. One thread; a context manager."""

    def __init__(self, store: BenchStore) -> None:
        self.store = store
        self.session = StoreSession.open(store.layout, limits=LIMITS)
        self.partition: PartitionSession = self.session.partition(PRIVATE)
        self.prepared = Prepared()
        self._index: SearchIndex | None = None
        self._feed: IndexFeed | None = None
        self._verdicts = VerdictCache()
        self._now_ms = NOW_MS
        self._ids = random.Random(store.seed)

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, *, clean: bool = True) -> None:
        """Close everything; ``clean=False`` leaves the store as a killed process does."""
        if self._index is not None:
            self._index.close()
        if self._feed is not None:
            self._feed.close()
        self.session.close(clean=clean)

    # --- the caller's path -----------------------------------------------------------------------------

    def run(self, request: ToolRequest, *, fresh: bool = True) -> JsonObject:
        """What the lane does for a request; ``fresh=False`` leaves the look at the vault out."""
        self._now_ms += 1_000
        prepared = self.prepared
        while True:
            if fresh:
                self.partition.refresh(_unchecked)
            outcome = table.run(self._context(prepared), request)
            match outcome:
                case NeedIndex(change):
                    self.catch_up()
                    prepared = replace(prepared, index_change=change)
                case NeedEvidence(citations):
                    root = files.open_root(self.store.private, at="evidence.folder")
                    try:
                        found = {CitationKey.of(c): verify(c, root, self._verdicts, _unchecked) for c in citations}
                    finally:
                        files.close(root)
                    prepared = replace(prepared, verdicts={**prepared.verdicts, **found})
                case dict():
                    return outcome
                case _:
                    raise RuntimeError(f"the bench does not measure what needs {type(outcome).__name__}")

    def _context(self, prepared: Prepared) -> OperationContext:
        return OperationContext(
            session=self.partition,
            agent="main",
            now_ms=self._now_ms,
            fence=no_fence,
            check=_unchecked,
            open_index=lambda: self.index,
            index_state=lambda: "current",
            git_state=lambda: GitState("current"),
            unsettled=lambda: (0, 0),
            writes_enabled=True,
            scan_entries=SCAN_ENTRIES,
            prepared=prepared,
            # The id decides the folder: the same ones at every size, so that what is counted is the same.
            new_id=lambda: str(uuid.UUID(int=self._ids.getrandbits(128), version=4)),
        )

    # --- the helpers' parts ----------------------------------------------------------------------------

    @property
    def index(self) -> SearchIndex:
        """The keyword index, open for writing."""
        if self._index is None:
            self._index = SearchIndex.open(
                self.store.layout.search_index(PRIVATE),
                vault_id=self.session.vault_id,
                partition=PRIVATE.key,
                catalogue=catalogue_identity(self.session.publisher.db),
            )
        return self._index

    def catch_up(self) -> None:
        """Bring the index to the catalogue's change, and merge what that left."""
        if self._feed is None:
            self._feed = IndexFeed(self.store.layout.state_database)
        position = self.index.position()
        while True:
            found = self._feed.after(PRIVATE, position)
            if found.position == position:
                return
            self.index.apply(found.changes, found.position)
            position = found.position

    def merge(self) -> None:
        """Join the index's segments, as an idle indexer does."""
        while self.index.merge_step():
            pass

    def sync(self) -> None:
        """The background step, all of it."""
        publisher = self.session.publisher
        cut = publisher.sync_cut()
        if cut is not None:
            publisher.prune(sync_files(cut), minimum_age_ns=0)

    def checkpoints(self) -> list[Checkpoint]:
        """The waiting Git checkpoints, as many as one run takes."""
        db = self.session.publisher.db

        def text(digest: str) -> bytes:
            found = history.text(db, digest)
            assert found is not None
            return found

        return [Checkpoint.of(job, text) for job in git_queue.jobs(db, JOBS_PER_RUN)]

    def commit(self, checkpoints: list[Checkpoint], *, whole_history: bool = False) -> Mapping[str, str]:
        """One run of the Git queue: the commits by publication id. A long run writes some of them, one at least."""
        outcome = commit(self.store.layout.vault, checkpoints, whole_history=whole_history, look_back=False)
        if not isinstance(outcome, Committed) or not outcome.commits:
            raise RuntimeError(f"no checkpoint was written: {type(outcome).__name__}")
        return outcome.commits

    def committed(self, commits: Mapping[str, str]) -> None:
        """Take these out of the queue: what the lane does after a run."""
        db = self.session.publisher.db
        done = {
            job.publication: commits[job.publication_id]
            for job in git_queue.jobs(db, JOBS_PER_RUN)
            if job.publication_id in commits
        }
        with self.session.publisher.transaction(full=False, point="git.queue"):
            git_queue.done(db, done)

    def commit_all(self) -> None:
        """Bring Git up to the store."""
        first = not (self.store.layout.git / "HEAD").exists()
        while waiting := self.checkpoints():
            self.committed(self.commit(waiting, whole_history=first))
            first = False


def lookup(number: int) -> ToolRequest:
    """A look-up of the n-th page by its title."""
    return parse_arguments("knowledge_lookup", {"query": notes.title_of_page(number)})


def grep(words: list[str]) -> ToolRequest:
    """A search for any of the words."""
    return parse_arguments("knowledge_grep", {"query": " ".join(words), "mode": "any"})


def remember(number: int, claims: int = 1) -> ToolRequest:
    """A new request to remember some new claims."""
    return parse_arguments("knowledge_remember", remembering(number, claims))


def remembering(number: int, claims: int = 1) -> JsonObject:
    """The arguments of :func:`remember`: texts that no vault of the bench has yet, each time others."""
    unique = uuid.uuid4().hex
    texts = [f"Measurement {unique} of turn {number}, claim {claim}, was written down." for claim in range(claims)]
    return {
        "requestId": str(uuid.uuid4()),
        "attribution": f"the bench, turn {number}",
        "excerpt": "".join(f"User: {text}\n" for text in texts),
        "items": [{"text": text, "kind": "fact"} for text in texts],
    }


def _unchecked() -> None: ...
