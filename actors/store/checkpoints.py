"""What waits for the Git checkpoint, and how the repository is: plain state of the lane, no thread of its own.

Source: decisions.md section 4 (Git, Receipts), DESIGN.md (The tree: Git queue).
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from actors.store.messages import Checkpoint, Checkpointed
from messages.tools import GitState
from storage.session import StoreSession
from storage.state import git_queue, history

JOBS_PER_RUN: Final = 256
BYTES_PER_RUN: Final = 16 * 1024 * 1024
LATE_AFTER_NS: Final = 5_000_000_000
FAILURES_SHOWN: Final = 1


class Checkpoints:
    """One run at a time; a lost or failed run is tried again at the next tick."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._running = False
        self._last = GitState("current")

    def state(self, session: StoreSession) -> GitState:
        """``pending`` counts publications without a checkpoint; a message stands only for a failure or a delay."""
        if not self._enabled:
            return GitState("unavailable", message="Git is off for this store; its history is kept in the database.")
        waiting = git_queue.count(session.publisher.db)
        if self._last.state == "unavailable":
            return replace(self._last, pending=waiting)
        oldest = git_queue.oldest(session.publisher.db)
        if oldest is None:
            return GitState("current")
        accepted_ns, attempts, error = oldest
        if attempts >= FAILURES_SHOWN and error:
            return GitState("pending", waiting, error)
        if time.time_ns() - accepted_ns > LATE_AFTER_NS:
            return GitState("pending", waiting, "The Git checkpoint is late; the save itself is safe.")
        return GitState("pending", waiting)

    def next(self, session: StoreSession) -> Checkpoint | None:
        """The next run, unless one is under way or nothing waits."""
        if not self._enabled or self._running:
            return None
        jobs = git_queue.jobs(session.publisher.db, JOBS_PER_RUN)
        if not jobs:
            return None
        texts: dict[str, bytes] = {}
        size = 0
        taken = []
        for job in jobs:
            for change in job.changes:
                if change.hash is not None and change.hash not in texts:
                    text = history.text(session.publisher.db, change.hash)
                    if text is not None:
                        texts[change.hash] = text
                        size += len(text)
            taken.append(job)
            if size > BYTES_PER_RUN:
                break
        self._running = True
        return Checkpoint(tuple(taken), texts)

    def lost(self) -> None:
        """The run never reached the helper."""
        self._running = False

    def finished(self, session: StoreSession, message: Checkpointed) -> None:
        """Take the rows of what is durable in Git out of the queue, or note why it is not."""
        self._running = False
        self._last = message.state
        with session.publisher.transaction(full=False, point="git.queue"):
            if message.done:
                git_queue.done(session.publisher.db, message.done)
            if message.failed and message.state.message:
                git_queue.failed(session.publisher.db, message.failed, message.state.message)
