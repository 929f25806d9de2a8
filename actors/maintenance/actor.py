"""The maintenance actor: runs by the schedule or on demand, one store after another, one short step at a time.

Asks store handles only, waits for nobody, and rests after each step as long as the step took, so that it never has
more than half of a lane. What it did and when it runs next outlives the process. Only stores that exist are opened.

Source: DESIGN.md (The tree), decisions.md section 5 (Maintenance).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from actors.authority.gate import PermitGate
from actors.authority.permit import Permit, Upkeep
from actors.directory import StoreHandle
from actors.maintenance.course import Ask, Course, course
from actors.maintenance.schedule import Schedule, next_run
from actors.store.messages import RunTool
from actors.store.upkeep import CheckDatabase, CheckIndex, CheckRepository
from actors.supervision import ActorContext, Envelope, GuardedActor, Reply, Request
from messages.envelope import Cancellation, Deadline, new_correlation_id
from messages.errors import InternalError, KnowledgeError, StoreUnavailable
from messages.json_types import JsonObject
from messages.vocabulary import PRIVATE
from storage.layout import Layout
from storage.maintenance_log import MaintenanceLog
from storage.records import format_instant

logger = logging.getLogger(__name__)

FAIRNESS_KEY: Final = "maintenance"
FAILED_KEPT: Final = 50
RETRY_AFTER: Final = timedelta(hours=1)
"""A run that its process did not survive is tried again after this long, not at every start."""
_LONG_STEPS: Final = (CheckDatabase, CheckIndex, CheckRepository)


@dataclass(frozen=True, slots=True)
class Pace:
    """Times in seconds."""

    first_look: float = 60.0
    """After the start: an overdue run does not compete with what the process was started for."""
    look: float = 30.0
    rest: float = 0.005
    """The least pause between two steps; a longer step is followed by as long a pause, up to :attr:`longest_rest`."""
    longest_rest: float = 2.0
    step: float = 120.0
    long_step: float = 1_800.0


@dataclass(frozen=True, slots=True)
class RunMaintenance(Request[JsonObject]):
    """Begin a run over these stores (``None``: all), or join the one under way. Answered at once with its start."""

    vault_ids: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class MaintenanceReport(Request[JsonObject]):
    """The schedule, the next and the last run, what runs now, and the last result of each store."""


@dataclass(slots=True, eq=False)
class _Run:
    trigger: str
    started: datetime
    vault_ids: tuple[str, ...]
    correlation_id: str = field(default_factory=new_correlation_id)
    index: int = 0
    failed: list[JsonObject] = field(default_factory=list)
    course: Course | None = None
    store_started: datetime | None = None
    ask: Ask | None = None
    asked_at: float = 0.0
    steps: int = 0
    cancellation: Cancellation = field(default_factory=Cancellation)


@dataclass(frozen=True, slots=True)
class _Look:
    """From its own timer: is a run due?"""


@dataclass(frozen=True, slots=True)
class _NextStore:
    run: _Run


@dataclass(frozen=True, slots=True)
class _Opened:
    run: _Run
    reply: Reply[StoreHandle]


@dataclass(frozen=True, slots=True)
class _Answered:
    run: _Run
    reply: Reply[JsonObject]


@dataclass(frozen=True, slots=True)
class _GoOn:
    """The rest after a step is over."""

    run: _Run
    reply: Reply[JsonObject]


class Maintenance(GuardedActor):
    """Permanent child of the root. ``open_store`` opens a store that exists; ``zone`` is whose local time counts."""

    def __init__(
        self,
        context: ActorContext,
        layout: Layout,
        gate: PermitGate,
        schedule: Callable[[], Schedule],
        open_store: Callable[[str], Reply[StoreHandle]],
        pace: Pace | None = None,
        zone: tzinfo | None = None,
    ) -> None:
        super().__init__(context)
        self._layout = layout
        self._gate = gate
        self._schedule = schedule
        self._open_store = open_store
        self._pace = pace or Pace()
        self._zone = zone
        self._log: MaintenanceLog | None = None
        self._run: _Run | None = None

    # --- life ------------------------------------------------------------------------------------------

    def on_ready(self) -> None:
        self.context.start_timer(self._pace.first_look, _Look())
        self._publish()

    def on_drained(self) -> None:
        run = self._run
        if run is not None:
            self._finish_run(run, "stopped")

    def on_ended(self) -> None:
        if self._run is not None:
            self._run.cancellation.cancel()
        if self._log is not None:
            self._log.close()

    # --- messages --------------------------------------------------------------------------------------

    def on_ask(self, message: object, envelope: Envelope) -> object:
        match message:
            case RunMaintenance(vault_ids):
                joined = self._run is not None
                if self._run is None:
                    self._start("operator", self._gate.stores() if vault_ids is None else vault_ids)
                return {"joined": joined, **self._report()}
            case MaintenanceReport():
                return self._report()
            case _:
                raise InternalError(f"Maintenance takes no {type(message).__name__}.")

    def on_tell(self, message: object) -> None:
        match message:
            case _Look():
                self.context.start_timer(self._pace.look, message)
                self._look()
            case _NextStore(run):
                if run is self._run:
                    self._next_store(run)
            case _Opened(run, reply):
                if run is self._run:
                    self._opened(run, reply)
            case _Answered(run, reply):
                if run is self._run:
                    took = self.context.clock.monotonic() - run.asked_at
                    rest = min(max(took, self._pace.rest), self._pace.longest_rest)
                    self.context.start_timer(rest, _GoOn(run, reply))
            case _GoOn(run, reply):
                if run is self._run:
                    error = reply.error()
                    self._advance(run, reply.result(0) if error is None else error)
            case _:
                raise InternalError(f"Maintenance takes no {type(message).__name__}.")

    # --- the schedule ----------------------------------------------------------------------------------

    def _look(self) -> None:
        """Start a run that is due. Where nobody vouches for access, or there is no registry yet, look again later."""
        schedule = self._schedule()
        if self._run is not None or not schedule.enabled:
            return
        try:
            log = self._opened_log()
            now = self._now()
            due = log.next_at(schedule.rule)
            if due is None:
                self._reckon(log, schedule, now)
            elif _milliseconds(now) >= due:
                self._start("schedule", self._gate.stores())
        except KnowledgeError as error:
            logger.info("maintenance waits", extra={"code": error.code})
        self._publish()

    def _reckon(self, log: MaintenanceLog, schedule: Schedule, now: datetime) -> None:
        following = next_run(schedule, now, self._zone)
        log.schedule(schedule.rule, None if following is None else _milliseconds(following))

    # --- one run ---------------------------------------------------------------------------------------

    def _start(self, trigger: str, vault_ids: tuple[str, ...]) -> None:
        log = self._opened_log()
        run = _Run(trigger, self._now(), vault_ids)
        if trigger == "schedule":
            # First: what ends this process in the middle of the run must not meet it again at once.
            log.schedule(self._schedule().rule, _milliseconds(run.started + RETRY_AFTER))
        self._run = run
        self._note_run(run, "running", finished=None)
        logger.info("maintenance begins", extra={"correlation_id": run.correlation_id, "stores": len(vault_ids)})
        self.context.tell_self(_NextStore(run))
        self._publish()

    def _next_store(self, run: _Run) -> None:
        run.ask = run.course = None
        if run.index >= len(run.vault_ids):
            self._finish_run(run, "partly" if run.failed else "done")
            return
        run.store_started = self._now()
        try:
            permit = self._permit(run, Ask(PRIVATE, CheckDatabase()))
        except KnowledgeError as error:
            self._finish_store(run, None, error)
            return
        run.course = course(writes=permit.may_write)
        self._advance(run, None)

    def _advance(self, run: _Run, outcome: JsonObject | KnowledgeError | None) -> None:
        """Give the course an answer (``None``: it begins) and ask its next step."""
        assert run.course is not None
        try:
            if isinstance(outcome, KnowledgeError):
                run.ask = run.course.throw(outcome)
            elif outcome is None:
                run.ask = next(run.course)
            else:
                run.ask = run.course.send(outcome)
        except StopIteration as done:
            result: JsonObject = done.value
            self._finish_store(run, result, None)
            return
        except KnowledgeError as error:
            self._finish_store(run, None, error)
            return
        run.steps += 1
        run.asked_at = self.context.clock.monotonic()
        self._publish()
        self.context.pipe(self._open_store(run.vault_ids[run.index]), lambda reply: _Opened(run, reply))

    def _opened(self, run: _Run, reply: Reply[StoreHandle]) -> None:
        """The store is open (it may have been stopped between two steps): ask it the step."""
        error = reply.error()
        assert run.ask is not None
        step = run.ask.step
        try:
            if error is not None:
                raise error
            permit = self._permit(run, run.ask)
        except KnowledgeError as refusal:
            self._advance(run, refusal)
            return
        seconds = self._pace.long_step if isinstance(step, _LONG_STEPS) else self._pace.step
        answer = reply.result(0).ask(
            RunTool(step, permit, step.writes),
            deadline=Deadline.after(seconds, self.context.clock.monotonic),
            fairness_key=FAIRNESS_KEY,
            cancellation=run.cancellation,
            correlation_id=run.correlation_id,
        )
        self.context.pipe(answer, lambda done: _Answered(run, done))

    def _permit(self, run: _Run, ask: Ask) -> Permit:
        return self._gate.resolve_upkeep(Upkeep(run.vault_ids[run.index], ask.partition), write=ask.step.writes)

    def _finish_store(self, run: _Run, result: JsonObject | None, error: KnowledgeError | None) -> None:
        vault_id = run.vault_ids[run.index]
        noted: JsonObject = {
            "vaultId": vault_id,
            "startedAt": _instant(run.store_started or run.started),
            "finishedAt": _instant(self._now()),
            "outcome": "done" if error is None else "failed",
        }
        if error is not None:
            noted |= {"code": error.code, "retry": error.retry, "message": error.message}
            run.failed.append({"vaultId": vault_id, "code": error.code, "retry": error.retry})
            logger.warning(
                "maintenance of a store failed",
                extra={"correlation_id": run.correlation_id, "store": vault_id, "code": error.code},
            )
        self._noting(lambda log: log.note_result(vault_id, {**noted, **(result or {})}))
        run.index += 1
        self.context.tell_self(_NextStore(run))

    def _finish_run(self, run: _Run, outcome: str) -> None:
        self._run = None
        run.cancellation.cancel()
        self._note_run(run, outcome, finished=self._now())
        schedule = self._schedule()
        if outcome != "stopped" and schedule.enabled:
            self._noting(lambda log: self._reckon(log, schedule, self._now()))
        logger.info(
            "maintenance ends",
            extra={"correlation_id": run.correlation_id, "outcome": outcome, "failed": len(run.failed)},
        )
        self._publish()

    # --- what is kept and shown ------------------------------------------------------------------------

    def _note_run(self, run: _Run, outcome: str, *, finished: datetime | None) -> None:
        noted: JsonObject = {
            "startedAt": _instant(run.started),
            "finishedAt": None if finished is None else _instant(finished),
            "trigger": run.trigger,
            "outcome": outcome,
            "stores": len(run.vault_ids),
            "failed": [*run.failed[:FAILED_KEPT]],
            "steps": run.steps,
        }
        self._noting(lambda log: log.note_run(noted))

    def _noting(self, note: Callable[[MaintenanceLog], None]) -> None:
        """What cannot be noted, on a full disk say, must not keep the run from its end."""
        try:
            note(self._opened_log())
        except KnowledgeError as error:
            logger.warning("maintenance could not note its work", extra={"code": error.code})

    def _report(self) -> JsonObject:
        schedule = self._schedule()
        shown: JsonObject = {
            "schedule": {
                "enabled": schedule.enabled,
                "everySeconds": round(schedule.every.total_seconds()),
                "at": schedule.at,
            },
            "nextRun": None,
            "running": self._progress(),
            "lastRun": None,
            "stores": [],
        }
        try:
            log = self._opened_log()
        except StoreUnavailable:
            # First use creates the registry; until then there is nothing to look after.
            return shown
        due = log.next_at(schedule.rule) if schedule.enabled else None
        if due is None:
            following = next_run(schedule, self._now(), self._zone)
            due = None if following is None else _milliseconds(following)
        last = log.last_run()
        if last is not None and last["outcome"] == "running" and self._run is None:
            # Its process ended before it did.
            last["outcome"] = "interrupted"
        shown["nextRun"] = None if due is None else format_instant(due)
        shown["lastRun"] = last
        shown["stores"] = [*log.results()]
        return shown

    def _progress(self) -> JsonObject | None:
        run = self._run
        if run is None:
            return None
        shown: JsonObject = {
            "startedAt": _instant(run.started),
            "trigger": run.trigger,
            "store": run.index,
            "stores": len(run.vault_ids),
            "steps": run.steps,
        }
        if run.ask is not None:
            shown |= {
                "vaultId": run.vault_ids[run.index],
                "step": run.ask.step.name,
                "partition": run.ask.done,
                "partitions": run.ask.of,
            }
        return shown

    def _publish(self) -> None:
        self.context.publish({"running": self._run is not None, "progress": self._progress()})

    def _opened_log(self) -> MaintenanceLog:
        """Raises ``StoreUnavailable`` while there is no registry."""
        if self._log is not None and not self._log.in_place():
            # The registry was made anew: what is noted in the old one nobody would read.
            self._log.close()
            self._log = None
        if self._log is None:
            self._log = MaintenanceLog.open(self._layout)
        return self._log

    def _now(self) -> datetime:
        return self.context.clock.utc()


def _milliseconds(at: datetime) -> int:
    return int(at.astimezone(UTC).timestamp() * 1_000)


def _instant(at: datetime) -> str:
    return format_instant(_milliseconds(at))
