"""What waits for the Git checkpoint, and how the repository is: plain state of the lane, no thread of its own.

Source: decisions.md section 4 (Git, Receipts), DESIGN.md (The tree: Git queue).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from actors.store.messages import Checkpointed, WriteCheckpoints
from messages.tools import GitState
from messages.vocabulary import PRIVATE, Partition
from storage.git import Checkpoint, Committed, IndexState, Rebuild, Unavailable, Waiting
from storage.git.ownership import is_missing
from storage.session import StoreSession
from storage.state import git_queue, history
from storage.state.catalogue_reader import CatalogueReader
from storage.state.git_history import first_publication, jobs_from_history
from storage.state.git_queue import GitJob

JOBS_PER_RUN: Final = 256
BYTES_PER_RUN: Final = 16 * 1024 * 1024
LATE_AFTER_NS: Final = 5_000_000_000
NOBODY: Final = "knowledge-runtime"


@dataclass(frozen=True, slots=True)
class _Run:
    """One run under way: its entries by publication id, whether they rebuild the repository, the paths it restores."""

    entries: dict[str, int]
    rebuilds: bool
    restores: tuple[str, ...] = ()


class Checkpoints:
    """One run at a time; what a run did not commit is tried again at the next tick."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._run: _Run | None = None
        self._look_back = True
        self._looked = False
        self._rebuilt_to: int | None = None
        self._unavailable: str | None = None
        self._index = IndexState("current")
        self._differing: tuple[str, ...] = ()

    def index_synced(self, state: IndexState) -> None:
        """How the index was left the last time that nobody waited for the repository."""
        self._index = state
        self._differing += state.differing

    def state(self, session: StoreSession, partition: Partition) -> GitState:
        """``pending`` counts the partition's publications without a checkpoint; a message stands only for a failure or
        a delay."""
        if not self._enabled:
            return GitState("unavailable", message="Git is off for this store; its history is kept in the database.")
        db = session.publisher.db
        oldest = git_queue.oldest(db, partition)
        if self._unavailable is not None:
            return GitState("unavailable", 0 if oldest is None else git_queue.count(db, partition), self._unavailable)
        if oldest is None:
            # Every save has its commit; what a person sees with ``git status`` may be behind.
            return GitState("current", message=self._index.message or None)
        accepted_ns, attempts, error = oldest
        waiting = git_queue.count(db, partition)
        if attempts and error:
            return GitState("pending", waiting, error)
        if time.time_ns() - accepted_ns > LATE_AFTER_NS:
            return GitState("pending", waiting, "The Git checkpoint is late; the save itself is safe.")
        return GitState("pending", waiting)

    def next(self, session: StoreSession) -> WriteCheckpoints | None:
        """The next run, unless one is under way or nothing waits."""
        if not self._enabled or self._run is not None:
            return None
        db = session.publisher.db
        rebuilds = self._rebuilt_to is not None
        if self._rebuilt_to is not None:
            jobs = jobs_from_history(db, self._rebuilt_to, JOBS_PER_RUN)
        else:
            jobs = git_queue.jobs(db, JOBS_PER_RUN)
            if not jobs and self._is_gone(session):
                # An erasure took the repository: what history has left is committed anew, without waiting for a save.
                self._rebuilt_to, rebuilds = 0, True
                jobs = jobs_from_history(db, 0, JOBS_PER_RUN)
        if not jobs:
            self._rebuilt_to = None
            return self._restoring(session)
        whole = jobs[0].publication == first_publication(db) and self._rebuilt_to in (None, 0)
        checkpoints = _with_texts(session, jobs)
        self._run = _Run({job.publication_id: job.publication for job in jobs[: len(checkpoints)]}, rebuilds)
        return WriteCheckpoints(tuple(checkpoints), whole, self._look_back, more=len(jobs) == JOBS_PER_RUN)

    def _restoring(self, session: StoreSession) -> WriteCheckpoints | None:
        """What somebody else's commit took back of the records: they are in Git as they are in the store."""
        paths, self._differing = self._differing, ()
        changes = tuple(_as_recorded(session, paths))
        if not changes:
            return None
        self._run = _Run({}, rebuilds=False, restores=paths)
        now = time.time_ns() // 1_000_000_000
        checkpoint = Checkpoint(str(uuid.uuid4()), "restore", None, NOBODY, now, (), changes)
        return WriteCheckpoints((checkpoint,), False, False, more=False, restores=True)

    def _is_gone(self, session: StoreSession) -> bool:
        """Whether there is a history and no repository: looked at once, at the first idle moment."""
        looked, self._looked = self._looked, True
        return not looked and first_publication(session.publisher.db) is not None and is_missing(session.layout.vault)

    def finished(self, session: StoreSession, message: Checkpointed) -> None:
        """Take what is durable in Git out of the queue, or note why it is not."""
        run, self._run = self._run, None
        if run is None:
            return
        error = message.reply.error()
        outcome = Waiting("failed", f"The Git queue failed: {error.message}") if error else message.reply.result(0)
        self._unavailable = None
        if not isinstance(outcome, Committed):
            self._differing += run.restores
        # A run that failed may have moved main all the same: at its time limit, or in a folder that comes back.
        self._look_back = not isinstance(outcome, Committed)
        match outcome:
            case Committed(commits):
                done = {run.entries[name]: commit for name, commit in commits.items() if name in run.entries}
                if run.rebuilds and done:
                    self._rebuilt_to = max(done)
                with session.publisher.transaction(full=False, point="git.queue"):
                    git_queue.done(session.publisher.db, done)
            case Waiting(_, reason):
                with session.publisher.transaction(full=False, point="git.queue"):
                    git_queue.failed(session.publisher.db, list(run.entries.values()), reason)
            case Unavailable(reason):
                self._unavailable = reason
            case Rebuild():
                self._rebuilt_to = 0
            case _:
                assert_never(outcome)


def _as_recorded(session: StoreSession, paths: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
    """Each path of the vault that history knows, with the text that it has now; what is only a person's is left out."""
    db = session.publisher.db
    for path in dict.fromkeys(paths):
        parts = path.split("/")
        depth = 1 if parts[0] == PRIVATE.key else 2
        try:
            partition = Partition.parse("/".join(parts[:depth]))
        except ValueError:
            continue  # a folder of a person's own beside the partitions
        inside = "/".join(parts[depth:])
        known = CatalogueReader(db, partition).file(inside)
        if known is not None and known.hash:
            yield path, history.text(db, known.hash)
        elif known is None and any(True for _ in history.texts_of_path(db, partition, inside, 1)):
            yield path, None


def _with_texts(session: StoreSession, jobs: Sequence[GitJob]) -> list[Checkpoint]:
    """As many of the jobs as one run holds, with their texts from history."""
    db = session.publisher.db
    taken: list[Checkpoint] = []
    size = 0

    def text(digest: str) -> bytes:
        found = history.text(db, digest)
        assert found is not None, "every text of a settled publication is in history"
        return found

    for job in jobs:
        checkpoint = Checkpoint.of(job, text)
        size += checkpoint.size
        if taken and size > BYTES_PER_RUN:
            break
        taken.append(checkpoint)
    return taken
