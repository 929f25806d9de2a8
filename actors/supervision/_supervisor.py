"""The supervisor: starts children, proves their start, restarts, quarantines, releases and stops them.

Source: DESIGN.md ("The tree", rules 3-7). It does no work of its own and never sleeps: every wait is a timer message,
and every decision is taken in one place (:meth:`Supervisor._reconcile`) from the state of its children.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, TypeAlias

import pykka

from actors.supervision._actor import Ending, GuardedActor
from actors.supervision._child import Child, ChildSpec, RestartHistory
from actors.supervision._commands import (
    QuarantineChild,
    ReleaseChild,
    RestartDue,
    StartChild,
    StartOverdue,
    StopChild,
    StopOverdue,
)
from actors.supervision._context import ActorContext
from actors.supervision._handle import ActorHandle
from actors.supervision._health import Quarantine
from actors.supervision._messages import (
    PARKED,
    ChildStuck,
    Control,
    Drain,
    Drained,
    Ended,
    Envelope,
    Finish,
    ForeignStop,
    Quiesce,
    Quiesced,
    Ready,
)
from actors.supervision._refusals import quarantined, stuck
from actors.supervision._reply import Phase
from messages.errors import InvalidArgument, KnowledgeError, NotFound, Unavailable

logger = logging.getLogger(__name__)

Strategy: TypeAlias = Literal["one_for_one", "rest_for_one"]


class Supervisor(GuardedActor):
    """Children are started in order and stopped in reverse; what fails is restarted, quarantined or escalated.

    ``one_for_one`` starts all at once and restarts a failed child alone. ``rest_for_one`` starts each after the
    one before has proven itself, and stops and restarts those after a failed child with it. A supervisor is up as
    soon as its own thread runs; whether its children are is theirs to publish.
    """

    def __init__(self, context: ActorContext, strategy: Strategy, children: Sequence[ChildSpec] = ()) -> None:
        super().__init__(context)
        self._strategy: Strategy = strategy
        self._children: list[Child] = []
        self._steps: Iterator[Callable[[], bool]] | None = None
        self._condition: Callable[[], bool] | None = None
        self._after: Ending | None = None
        self._quiesced: Callable[[], bool] | None = None
        names = [spec.name for spec in children]
        if len(set(names)) != len(names):
            raise ValueError(f"children of {context.name} share a name")
        for spec in children:
            self._add(spec, static=True)

    # --- hooks of the guarded actor ---------------------------------------------------------------------------

    def on_ready(self) -> None:
        self._reconcile()

    def on_ask(self, message: object, envelope: Envelope) -> object:
        match message:
            case StartChild(spec):
                return self._start_child(spec)
            case StopChild(name, drain):
                return self._stop_child(self._find(name), drain, envelope)
            case QuarantineChild(name, reason):
                child = self._find(name)
                return self._quarantine(child, reason, None, envelope)
            case ReleaseChild(name, spec):
                return self._release(self._find(name), spec)
            case _:
                raise InvalidArgument(
                    f"{self.context.name} is a supervisor and takes no {type(message).__name__}.", field="message"
                )

    def on_tell(self, message: object) -> None:
        match message:
            case Ready() | Ended() | Drained() | Quiesced() | ChildStuck() | StartOverdue() | StopOverdue():
                child = self._current(message.name, message.incarnation)
                if child is not None:
                    self._on_notice(child, message)
            case RestartDue():
                pass  # only wakes the reconciliation
            case _:
                raise InvalidArgument(f"{self.context.name} takes no {type(message).__name__}.", field="message")
        self._reconcile()

    # --- the commands -----------------------------------------------------------------------------------------

    def _start_child(self, spec: ChildSpec) -> ActorHandle:
        child = next((child for child in self._children if child.spec.name == spec.name), None)
        if child is None:
            child = self._add(spec, static=False)
        elif child.slot.quarantine is not None:
            raise quarantined(child.slot.label, Phase.QUEUED, child.slot.quarantine)
        elif child.stuck:
            raise stuck(child.slot.label, Phase.QUEUED)
        elif not child.wanted:
            child.spec = spec
            child.wanted = True
            child.history = RestartHistory(spec.settings.restarts)
            if not child.alive:
                child.slot.await_start(spec.settings, keeps_requests=False)
        self._reconcile()
        return ActorHandle(child.slot)

    def _stop_child(self, child: Child, drain: float | None, envelope: Envelope) -> object:
        child.wanted = False
        self._demand_stop(child, child.spec.settings.drain if drain is None else drain)
        child.waiters.append(envelope)
        self._reconcile()
        return PARKED

    def _quarantine(
        self,
        child: Child,
        reason: str,
        cause: KnowledgeError | None,
        envelope: Envelope | None = None,
        *,
        detail: str = "",
    ) -> object:
        quarantine = Quarantine(reason, self.context.clock.utc(), cause, detail)
        child.slot.set_quarantined(quarantine)
        logger.error(
            "actor quarantined", extra=self._ids() | {"child": child.slot.name, "reason": reason, "detail": detail}
        )
        self._demand_stop(child, 0.0)
        self._stop_dependants(child)
        if envelope is None:
            return True
        child.waiters.append(envelope)
        self._reconcile()
        return PARKED

    def _release(self, child: Child, spec: ChildSpec | None) -> bool:
        if child.slot.quarantine is None:
            return False
        if spec is not None:
            child.spec = spec
        child.slot.quarantine = None
        child.history.clear()
        child.wanted = True
        child.due_at = 0.0
        if child.stuck:
            child.slot.set_stuck()
        else:
            child.slot.await_start(child.spec.settings, keeps_requests=child.slot.keeps_requests)
        self._reconcile()
        return True

    # --- notices ----------------------------------------------------------------------------------------------

    def _current(self, name: str, incarnation: int) -> Child | None:
        """The child a notice is about; notices of earlier incarnations are dropped (DESIGN.md rule 7)."""
        for child in self._children:
            if child.slot.name == name and child.alive and child.slot.incarnation == incarnation:
                return child
        return None

    def _on_notice(
        self, child: Child, notice: Ready | Ended | Drained | Quiesced | ChildStuck | StartOverdue | StopOverdue
    ) -> None:
        match notice:
            case Ready():
                if not child.stuck:
                    child.cancel_timers()
                    child.ready_since = self.context.clock.monotonic()
                    child.slot.mark_ready(notice.incarnation)
                    if child.stop_sent:
                        self._arm_stop(child, self.context.clock.monotonic() + child.stop_drain)
            case Ended():
                self._on_ended(child, notice)
            case Drained():
                child.drained = True
            case Quiesced():
                child.quiesced = True
            case ChildStuck():
                self._call_stuck(child)
            case StartOverdue():
                if child.ready_since is None and not child.stuck:
                    child.slot.last_error = "start_timeout"
                    self._call_stuck(child)
                    child.start_overdue = child.stop_sent = True
                    child.send(Drain(self.context.clock.monotonic()))
                    self._stop_dependants(child)
            case StopOverdue():
                self._call_stuck(child)

    def _call_stuck(self, child: Child) -> None:
        """The thread does not end: nothing else may be started in its place until it does (DESIGN.md rule 6)."""
        if child.stuck or not child.alive:
            return
        child.stuck = True
        if child.slot.quarantine is None:
            child.slot.set_stuck()
        logger.error("actor is stuck", extra=self._ids() | {"child": child.slot.name})
        error = stuck(child.slot.label, Phase.RUNNING)
        self._answer_waiters(child, error)
        if self._steps is not None:
            self.context.tell_parent(ChildStuck(self.context.name, self.context.incarnation))

    def _on_ended(self, child: Child, ended: Ended) -> None:
        now = self.context.clock.monotonic()
        asked_to_stop = child.stop_sent and not child.start_overdue
        ready_since = child.ready_since
        child.reset()
        if ended.reason == "corrupt":
            self._give_up(child, ended.summary or "corruption found", ended.error, "corrupt")
        elif child.slot.quarantine is not None:
            child.slot.set_quarantined(child.slot.quarantine)
        elif self._steps is not None or not child.wanted:
            self._set_down(child)
        elif ended.reason == "stopped" and not asked_to_stop and child.spec.restart != "permanent":
            child.wanted = False
            child.slot.set_stopped()
        elif not asked_to_stop:
            self._on_failure(child, ended, now, ready_since)
        self._answer_waiters(child, None)
        if not child.wanted and child.spec.restart != "permanent" and self._steps is None:
            self._forget(child)

    def _on_failure(self, child: Child, ended: Ended, now: float, ready_since: float | None) -> None:
        if child.spec.restart == "temporary":
            child.wanted = False
            child.slot.set_stopped()
            return
        error = ended.error
        if ended.reason == "start_refused" and error is not None and not isinstance(error, Unavailable):
            self._give_up(child, error.message, error, "gave_up")
            return
        delay = child.history.next_delay(now, ready_since, self.context.random)
        if delay is None:
            policy = child.spec.settings.restarts
            reason = f"{policy.restarts} restarts in {policy.within:g} s were not enough"
            self._give_up(child, reason, error, "gave_up", detail=ended.summary)
            return
        child.due_at = now + delay
        child.slot.await_restart(child.due_at)
        if delay > 0:
            child.timers.append(self.context.start_timer(delay, RestartDue(child.slot.name)))
        logger.warning(
            "actor restarts",
            extra=self._ids() | {"child": child.slot.name, "reason": ended.summary, "delay": round(delay, 3)},
        )
        self._stop_dependants(child)

    def _give_up(
        self,
        child: Child,
        reason: str,
        cause: KnowledgeError | None,
        how: Literal["corrupt", "gave_up"],
        *,
        detail: str = "",
    ) -> None:
        if child.spec.on_give_up == "escalate" and self._steps is None:
            self._begin_ending(Ending(how, cause, f"{reason} ({detail})" if detail else reason))
            self._set_down(child)
            return
        self._quarantine(child, reason, cause, detail=detail)

    def _stop_dependants(self, child: Child) -> None:
        if self._strategy == "rest_for_one":
            for later in self._children[self._children.index(child) + 1 :]:
                if later.alive and not later.must_stop:
                    self._demand_stop(later, 0.0)
                    if later.slot.quarantine is None and not later.stuck and later.wanted:
                        later.slot.await_restart(child.due_at)

    def _demand_stop(self, child: Child, drain: float) -> None:
        child.must_stop = child.alive
        child.stop_drain = drain

    # --- the one place that acts ------------------------------------------------------------------------------

    def _reconcile(self) -> None:
        """Bring the children nearer to what is wanted; called after everything that may have changed it."""
        if self._ending is not None:
            return  # what was started now would be left without a parent
        if self._quiesced is not None and self._quiesced():
            self._quiesced = None
            self.context.tell_parent(Quiesced(self.context.name, self.context.incarnation))
        if self._steps is not None:
            self._advance()
            return
        for child in reversed(self._children):
            if child.must_stop and not child.gone:
                if not child.stop_sent:
                    self._send_stop(child, self.context.clock.monotonic() + child.stop_drain)
                if self._strategy == "rest_for_one":
                    return  # newest first, one after another
        for child in [child for child in self._children if not child.alive and child.waiters]:
            if not child.wanted and child.slot.quarantine is None:
                child.slot.set_stopped()
            self._answer_waiters(child, None)
        now = self.context.clock.monotonic()
        for child in tuple(self._children):
            if child.wanted and not child.alive and child.slot.quarantine is None and child.due_at <= now:
                self._start(child)
            if self._strategy == "rest_for_one" and child.wanted and (child.ready_since is None or child.stuck):
                return

    def _start(self, child: Child) -> None:
        spec, slot = child.spec, child.slot
        slot.await_start(spec.settings, keeps_requests=slot.keeps_requests)
        context = ActorContext(slot, self._inbox.control)
        child.context = context
        child.alive = True
        overdue = StartOverdue(slot.name, context.incarnation)
        child.timers.append(self.context.start_timer(spec.settings.start_timeout, overdue))
        actor: GuardedActor | None = None
        try:
            actor = spec.start(context)
            child.is_supervisor = isinstance(actor, Supervisor)
            pykka.ActorRegistry.register(actor.actor_ref)
            actor._start_actor_loop()  # what pykka's own start() does after the constructor
        except BaseException as error:  # noqa: BLE001 - a child that cannot be made is a failed start
            summary = self._log_defect("child could not be made", error)
            if actor is not None:
                pykka.ActorRegistry.unregister(actor.actor_ref)
            slot.vacate(context.incarnation)
            context.inbox.close(slot.overdue)
            self.context.tell_self(Ended(slot.name, context.incarnation, "start_failed", None, summary))

    def _send_stop(self, child: Child, until: float) -> None:
        child.stop_sent = True
        if child.slot.quarantine is None and not child.stuck and (self._steps is not None or not child.wanted):
            if self._comes_back(child):
                child.slot.await_restart()
            else:
                child.slot.stop_admitting()
        child.send(Finish() if child.drained else Drain(until))
        self._arm_stop(child, until)

    def _arm_stop(self, child: Child, until: float) -> None:
        now = self.context.clock.monotonic()
        # A supervisor reports stuck descendants by itself; its own limit only covers its own thread.
        grace = child.spec.settings.stop_grace * (4 if child.is_supervisor else 1)
        message = StopOverdue(child.slot.name, child.slot.incarnation)
        child.timers.append(self.context.start_timer(max(0.0, until - now) + grace, message))

    # --- shutdown ---------------------------------------------------------------------------------------------

    def _control(self, message: Control) -> None:
        match message:
            case Drain():
                self._stop_all(message.until, Ending("stopped"))
            case Finish() | ForeignStop():
                if isinstance(message, ForeignStop):
                    self._foreign_stops.append(message)
                self._stop_all(self.context.clock.monotonic() + self.context.settings.drain, Ending("stopped"))
            case Quiesce():
                self._begin_quiesce()
            case _:
                super()._control(message)

    def _begin_ending(self, ending: Ending) -> None:
        """A supervisor never ends before its children: two lanes on the same files would be the price."""
        if self._steps is None:
            self._after = ending
        if self._steps is not None or not any(child.alive for child in self._children):
            super()._begin_ending(ending)
            return
        self._stop_all(self.context.clock.monotonic(), ending)

    def _stop_all(self, until: float, ending: Ending) -> None:
        if self._steps is not None:
            return
        self._after = ending
        self._inbox.refuse(self._refusal_after(ending))
        for child in self._children:
            if not child.alive and child.slot.quarantine is None:
                self._set_down(child)
        self._steps = self._shutdown(until)
        self._advance()

    def _advance(self) -> None:
        steps = self._steps
        while steps is not None and self._ending is None:
            if self._condition is not None and not self._condition():
                return
            self._condition = next(steps, None)
            if self._condition is None:
                for child in self._children:
                    child.cancel_timers()
                if self._after is not None and self._after.reason == "stopped":
                    self._attempt("drain", self.on_drained)
                super()._begin_ending(self._after or Ending("stopped"))

    def _shutdown(self, until: float) -> Iterator[Callable[[], bool]]:
        """Refuse, first stoppers, drain, then everything in reverse order; each step gives what it waits for."""
        children = [child for child in self._children if child.alive]
        draining = [child for child in children if child.spec.drains_first and not child.stop_sent]
        for child in draining:
            child.slot.stop_admitting()
        yield self._quiesce()
        for child in draining:
            if not child.gone:
                child.send(Drain(until, finish=False))
                self._arm_stop(child, until)
        yield lambda: all(child.drained or child.gone for child in draining)
        for child in draining:
            child.cancel_timers()
        for child in reversed(children):
            if child.alive and not child.stop_sent:
                self._send_stop(child, max(until, self.context.clock.monotonic()))
            yield partial(_is_gone, child)
        yield lambda: not any(child.alive for child in children)

    def _begin_quiesce(self) -> None:
        """Stop the first stoppers below here and report; asked for by the stopping parent."""
        self._quiesced = self._quiesce()
        self._reconcile()

    def _quiesce(self) -> Callable[[], bool]:
        now = self.context.clock.monotonic()
        firsts = [child for child in self._children if child.alive and child.spec.stops_first]
        nested = [child for child in self._children if child.alive and child.is_supervisor and child not in firsts]
        for child in firsts:
            child.wanted = False
            if not child.stop_sent:
                self._send_stop(child, now)
        for child in nested:
            child.send(Quiesce())
        return lambda: all(child.gone for child in firsts) and all(child.gone or child.quiesced for child in nested)

    def _comes_back(self, child: Child) -> bool:
        """Whether the supervisor is ending by a failure after which its parent will bring this child back."""
        after = self._after
        failed = after is not None and after.reason in ("crashed", "gave_up")
        return failed and child.slot.keeps_requests and child.wanted

    def _set_down(self, child: Child) -> None:
        if self._comes_back(child):
            child.slot.await_restart()
        else:
            child.slot.set_stopped()

    # --- small things -----------------------------------------------------------------------------------------

    def _add(self, spec: ChildSpec, *, static: bool) -> Child:
        slot = self.context.environment.slot(f"{self.context.name}/{spec.name}")
        slot.await_start(spec.settings, keeps_requests=static)
        child = Child(spec, slot)
        self._children.append(child)
        return child

    def _forget(self, child: Child) -> None:
        self._children.remove(child)
        self.context.environment.forget(child.slot.name)

    def _find(self, name: str) -> Child:
        for child in self._children:
            if child.spec.name == name:
                return child
        raise NotFound(f"{self.context.name} has no child {name}.", name=name)

    def _answer_waiters(self, child: Child, error: KnowledgeError | None) -> None:
        waiters, child.waiters = child.waiters, []
        for envelope in waiters:
            if envelope.reply is not None:
                if error is None:
                    envelope.reply.succeed(True)
                else:
                    envelope.reply.fail(error)


def _is_gone(child: Child) -> bool:
    return child.gone
