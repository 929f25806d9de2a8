"""Backups on an operator's word: every edit taken over first, then copied on a thread of its own while agents write.

One at a time. Beginning is answered at once; how it goes on is asked for. Any thread.

Source: decisions.md section 8 (no client opens a database or a vault by itself), section 4.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from actors.authority import PermitGate
from actors.authority.permit import Upkeep
from actors.directory import StoreHandle
from actors.replies import then
from actors.store.messages import RunTool
from actors.store.upkeep import ListPartitions
from actors.supervision import (
    ActorHandle,
    ActorSettings,
    ChildSpec,
    Clock,
    Envelope,
    GuardedActor,
    Reply,
    Request,
    Tree,
)
from messages.envelope import Deadline
from messages.errors import Busy, InternalError, KnowledgeError, Stopping
from messages.json_types import JsonObject
from messages.operator import BackupRequest
from messages.vocabulary import PRIVATE, Partition
from storage import backup
from storage.backup import Finding, Progress, Taken
from storage.layout import Layout

logger = logging.getLogger(__name__)

WORKER: Final = "backup"
LOOK_SECONDS: Final = 120.0
BACKUP_SECONDS: Final = 24 * 3_600.0


@dataclass(slots=True)
class Job:
    """One backup; written by whoever works on it, read by whoever asks."""

    request: BackupRequest
    findings: list[Finding] = field(default_factory=list)
    fresh: set[str] = field(default_factory=set)
    """The stores whose edits were taken over."""
    progress: Progress = field(default_factory=lambda: Progress("looking", 0, 0, 0, 0))
    stopped: bool = False
    taken: Taken | None = None
    error: KnowledgeError | None = None

    @property
    def running(self) -> bool:
        return self.taken is None and self.error is None

    def report(self, progress: Progress) -> None:
        """Hear how far it is; raises to end it."""
        self.progress = progress
        if self.stopped:
            raise Stopping("The runtime is stopping; no backup was made. Begin again.")

    def to_json(self) -> JsonObject:
        if self.error is not None:
            error: JsonObject = {"message": self.error.message, **self.error.to_data()}
            return {"state": "failed", "path": self.request.path, "error": error}
        if self.taken is None:
            return {"state": "running", "path": self.request.path, "progress": self.progress.to_json()}
        shown = self.taken.to_json()
        found = [finding.to_json() for finding in (*self.findings, *self.taken.findings)]
        return {"state": "done", "dryRun": self.request.dry_run, **shown, "findings": [*found]}


@dataclass(frozen=True, slots=True)
class TakeBackup(Request[Taken]):
    """To the worker: copy."""

    layout: Layout
    job: Job
    grants_of: dict[str, tuple[str, ...]]


class BackupWorker(GuardedActor):
    """Started for one backup."""

    def on_ask(self, message: object, envelope: Envelope) -> object:
        match message:
            case TakeBackup(layout, job, grants_of):
                target = Path(job.request.path)
                if job.request.dry_run:
                    return backup.estimate(layout, target, only=job.request.store)
                return backup.take(
                    layout, target, only=job.request.store, grants_of=grants_of, fresh=job.fresh, report=job.report
                )
            case _:
                raise InternalError(f"A backup takes no {type(message).__name__}.")


class Backups:
    """The backups of one runtime."""

    def __init__(
        self,
        layout: Layout,
        gate: PermitGate,
        tree: Tree,
        open_store: Callable[[str], Reply[StoreHandle]],
    ) -> None:
        self._layout = layout
        self._gate = gate
        self._tree = tree
        self._clock: Clock = tree.environment.clock
        self._open_store = open_store
        self._lock = threading.Lock()
        self._job: Job | None = None

    def begin(self, request: BackupRequest) -> JsonObject:
        """Begin one; its state, as :meth:`report` shows it. Raises ``Busy``, and what is wrong with the place."""
        backup.checked_target(self._layout, Path(request.path))
        job = Job(request)
        chosen = [vault_id for vault_id in self._gate.stores() if request.store in (None, vault_id)]
        with self._lock:
            if self._job is not None and self._job.running:
                raise Busy("A backup is being taken already; begin again when it is done.")
            self._job = job
        self._next_store(job, chosen, 0)
        return job.to_json()

    def report(self) -> JsonObject:
        """The last backup that this process was asked for: ``running``, ``done``, ``failed``, or ``none``."""
        job = self._job
        return {"state": "none"} if job is None else job.to_json()

    def store(self) -> str | None:
        """The one store of the last backup; ``None`` for a backup of all, or where there was none."""
        job = self._job
        return None if job is None else job.request.store

    def running(self) -> bool:
        """Whether one is being taken."""
        job = self._job
        return job is not None and job.running

    def stop(self) -> None:
        """End what is under way at its next step."""
        job = self._job
        if job is not None:
            job.stopped = True

    # --- first, every edit that was made is taken over -----------------------------------------------------

    def _next_store(self, job: Job, stores: list[str], number: int) -> None:
        if number >= len(stores):
            self._copy(job)
            return
        vault_id = stores[number]
        go_on = partial(self._next_store, job, stores, number + 1)

        def looked() -> None:
            job.fresh.add(vault_id)
            go_on()

        def failed(error: KnowledgeError) -> None:
            message = f"Edits made outside may be missing: the store did not answer ({error.code})."
            job.findings.append(Finding("not_looked_at", vault_id, message))
            go_on()

        def listed(answer: JsonObject) -> None:
            found = answer["partitions"]
            keys = [str(key) for key in found if key != PRIVATE.key] if isinstance(found, list) else []
            self._next_partition(vault_id, keys, 0, looked, failed)

        try:
            job.report(Progress("looking", number, len(stores), 0, 1))
        except KnowledgeError as error:
            job.error = error
            return
        self._look(vault_id, PRIVATE, listed, failed)

    def _next_partition(
        self,
        vault_id: str,
        keys: list[str],
        number: int,
        go_on: Callable[[], None],
        failed: Callable[[KnowledgeError], None],
    ) -> None:
        if number >= len(keys):
            go_on()
            return
        following = partial(self._next_partition, vault_id, keys, number + 1, go_on, failed)
        self._look(vault_id, Partition.parse(keys[number]), lambda _: following(), failed)

    def _look(
        self,
        vault_id: str,
        partition: Partition,
        succeed: Callable[[JsonObject], None],
        fail: Callable[[KnowledgeError], None],
    ) -> None:
        """Bring one partition up to date: the cheapest step does."""

        def opened(handle: StoreHandle) -> None:
            permit = self._gate.resolve_upkeep(Upkeep(vault_id, partition), write=False)
            message = RunTool(ListPartitions(), permit, False, actor="maintenance")
            then(handle.ask(message, deadline=self._within(LOOK_SECONDS), fairness_key=WORKER), succeed, fail)

        then(self._open_store(vault_id), opened, fail)

    # --- then it is copied ------------------------------------------------------------------------------------

    def _copy(self, job: Job) -> None:
        def fail(error: KnowledgeError) -> None:
            job.error = error
            logger.warning("backup failed", extra={"code": error.code})

        def started(worker: ActorHandle) -> None:
            only = job.request.store
            grants_of = {} if only is None else {only: self._gate.agents_of(only)}
            reply = worker.ask(TakeBackup(self._layout, job, grants_of), deadline=self._within(BACKUP_SECONDS))

            def done(answered: Reply[Taken]) -> None:
                stop = self._tree.root.stop_child(WORKER)
                stop.add_done_callback(lambda _: then(answered, taken, fail))

            reply.add_done_callback(done)

        def taken(result: Taken) -> None:
            job.taken = result
            logger.info("backup taken", extra={"stores": result.stores, "files": result.files, "bytes": result.size})

        spec = ChildSpec(WORKER, BackupWorker, restart="temporary", settings=ActorSettings(), stops_first=True)
        then(self._tree.root.start_child(spec), started, fail)

    def _within(self, seconds: float) -> Deadline:
        return Deadline.after(seconds, self._clock.monotonic)
