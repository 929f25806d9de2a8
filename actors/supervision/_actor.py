"""The guarded actor: a pykka actor whose callers always get an answer and whose every ending is announced.

Source: DESIGN.md rules 1, 2, 4, 6 and 7.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import assert_never

import pykka

from actors.supervision._clock import Timer
from actors.supervision._context import ActorContext
from actors.supervision._defects import log_defect
from actors.supervision._health import Quarantine
from actors.supervision._inbox import Inbox, Refusal
from actors.supervision._messages import (
    PARKED,
    Again,
    Control,
    Corruption,
    Deliver,
    Drain,
    Drained,
    DrainExpired,
    Ended,
    EndReason,
    Envelope,
    Finish,
    ForeignStop,
    Idle,
    Quiesce,
    Quiesced,
    Ready,
    Transient,
)
from actors.supervision._refusals import cancelled, defect, quarantined, restarting, stopping
from actors.supervision._reply import Phase
from messages.errors import InternalError, KnowledgeError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ending:
    """Why this incarnation ends; ``culprit`` is the request whose handling did it."""

    reason: EndReason
    error: KnowledgeError | None = None
    summary: str = ""
    culprit: Envelope | None = None


class GuardedActor(pykka.ThreadingActor):
    """Every request gets one typed answer, every ending unregisters, closes the mailbox and tells the parent.

    Subclasses override the hooks; all of them run on the actor's own thread, one at a time. Raising a
    ``KnowledgeError`` answers the request; :class:`Corruption` ends the actor in quarantine; any other exception,
    ``SystemExit`` included, is a defect: the actor ends and is started again by its parent.
    """

    use_daemon_thread = True

    def __init__(self, context: ActorContext) -> None:
        """Runs on the parent's thread: keep arguments, open nothing."""
        self.context = context
        self._inbox: Inbox = context.inbox
        self._ending: Ending | None = None
        self._draining: Drain | None = None
        self._drained = False
        self._drain_timer: Timer | None = None
        self._foreign_stops: list[ForeignStop] = []
        super().__init__()

    @property
    def draining(self) -> bool:
        """Whether the actor works off what it was sent and will then end: what nobody waits for need not begin."""
        return self._draining is not None

    # --- hooks ------------------------------------------------------------------------------------------------

    def on_ready(self) -> None:
        """Open resources, prove identity; returning is the proof of a start, raising a failed one (typed)."""

    def on_ask(self, message: object, envelope: Envelope) -> object:
        """The answer to ``message``, or ``PARKED`` when ``envelope.reply`` will be completed later."""
        raise NotImplementedError(f"{type(self).__name__} answers no {type(message).__name__}")

    def on_tell(self, message: object) -> None:
        """Handle a one-way message: told, piped, or from a timer."""
        raise NotImplementedError(f"{type(self).__name__} takes no {type(message).__name__}")

    def on_drained(self) -> None:
        """Orderly end: the mailbox is drained and closed to requests, resources are still open."""

    def on_ended(self) -> None:
        """Release resources: the last hook of every ending, after a crash and a failed start too."""

    def end(self) -> None:
        """End in order after the current message, whose answer still counts: a normal ending."""
        self._inbox.refuse(self._refusal(stopping))
        self._inbox.control(Finish())

    # --- life -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Live on the calling thread until the end."""
        with closing(self.turns()) as turns:
            for _ in turns:
                self.wait()

    def wait(self) -> None:
        """Block until the mailbox has something to give; who waits for more than that sees to it here."""
        self._inbox.wait()

    def turns(self) -> Generator[None, None, None]:
        """The whole life; suspends whenever it needs a message, to be resumed when the mailbox has one.

        Whatever happens inside or to whoever drives it, the ending runs: that is the one ``finally`` of an actor.
        """
        try:
            self._begin()
            while self._ending is None:
                yield
                self._turn()
        finally:
            ending = self._ending
            self._end(Ending("crashed", summary="its thread was ended from outside") if ending is None else ending)

    def _create_actor_inbox(self) -> Inbox:  # type: ignore[override]  # pykka's is static; ours depends on the slot
        return self.context.inbox

    def _start_actor_loop(self) -> None:
        self.context.environment.launch(self)

    def _begin(self) -> None:
        self.context.slot.live = True
        try:
            self.on_ready()
        except Corruption as corruption:
            self._begin_ending(Ending("corrupt", corruption.error, "corruption found at the start"))
        except InternalError as error:
            self._begin_ending(Ending("start_failed", error, error.code))
        except KnowledgeError as error:
            self._begin_ending(Ending("start_refused", error, error.code))
        except BaseException as error:  # noqa: BLE001 - SystemExit in on_start would leave callers hanging
            self._begin_ending(Ending("start_failed", summary=self._log_defect("start failed", error)))
        else:
            if self._ending is None:
                self.context.tell_parent(Ready(self.context.name, self.context.incarnation))

    def _turn(self) -> None:
        item = self._inbox.take()
        if item is None:
            if self._inbox.closed:
                self._begin_ending(Ending("stopped", summary="its mailbox was closed"))
            return
        slot = self.context.slot
        observe = self.context.environment.observe
        if observe is not None:
            observe(slot.name, self.context.incarnation, _type_name(item))
        slot.busy_since = self.context.clock.monotonic()
        try:
            if isinstance(item, Envelope):
                self._handle(item)
            else:
                self._control(item)
        except BaseException as error:  # noqa: BLE001 - a defect of the kit itself still ends in order
            self._begin_ending(Ending("crashed", summary=self._log_defect("turn failed", error)))
        finally:
            slot.busy_since = None
            slot.handled += 1

    def _handle(self, envelope: Envelope) -> None:
        reply = envelope.reply
        if reply is None:
            self._attempt_message(envelope, 1)
            return
        slot = self.context.slot
        if envelope.cancellation.requested:
            if reply.fail(cancelled()):
                slot.dead_letter(envelope.message, "cancelled", envelope.correlation_id)
        elif envelope.deadline.passed(self.context.clock.monotonic):
            reply.fail_by_phase(slot.overdue)
        elif reply.begin(self.context.incarnation):
            self._attempt_message(envelope, 1)

    def _attempt_message(self, envelope: Envelope, attempt: int) -> None:
        def handle() -> None:
            try:
                if envelope.reply is None:
                    self.on_tell(envelope.message)
                elif not envelope.reply.done():
                    self._answer(envelope)
            except Transient as transient:
                if not self._retry_later(envelope, attempt):
                    raise transient.error from None

        self._guard(handle, None if envelope.reply is None else envelope, envelope.correlation_id)

    def _retry_later(self, envelope: Envelope, attempt: int) -> bool:
        """Whether another attempt begins before the deadline; the mailbox's other messages come in between."""
        settings, clock, inbox = self.context.settings, self.context.clock, self._inbox
        delay = min(1.0, settings.retry_delay * 2.0 ** (attempt - 1))
        if attempt >= settings.retry_attempts or clock.monotonic() + delay >= envelope.deadline.at:
            return False
        clock.call_later(delay, lambda: inbox.control(Again(envelope, attempt + 1)))
        return True

    def _answer(self, envelope: Envelope) -> None:
        assert envelope.reply is not None
        answer = self.on_ask(envelope.message, envelope)
        if answer is not PARKED and not envelope.reply.succeed(answer):
            self.context.slot.dead_letter(None, "late_answer", envelope.correlation_id)

    def _guard(self, handler: Callable[[], None], request: Envelope | None, correlation_id: str) -> None:
        """Run a handler; what it raises becomes an answer, an ending, or both."""
        try:
            handler()
        except Corruption as corruption:
            logger.error("corruption found", extra=self._ids(correlation_id) | {"code": corruption.error.code})
            if request is not None and request.reply is not None:
                request.reply.fail(_bare(corruption.error))
            self._begin_ending(Ending("corrupt", corruption.error, "corruption found"))
        except KnowledgeError as error:
            if isinstance(error, InternalError):
                self._log_defect("handler failed", error, correlation_id)
                self._begin_ending(Ending("crashed", error, error.code, request))
            elif request is None or request.reply is None or not request.reply.fail(_bare(error)):
                logger.warning("outcome without a caller", extra=self._ids(correlation_id) | {"code": error.code})
        except BaseException as error:  # noqa: BLE001 - SystemExit in a handler would stop every actor of the process
            summary = self._log_defect("handler failed", error, correlation_id)
            self._begin_ending(Ending("crashed", summary=summary, culprit=request))

    def _control(self, message: Control) -> None:
        match message:
            case Deliver():
                if message.incarnation not in (0, self.context.incarnation):
                    self.context.slot.dead_letter(message.message, "stale")
                    return
                correlation_id = "" if message.request is None else message.request.correlation_id
                self._guard(lambda: self.on_tell(message.message), message.request, correlation_id)
            case Again():
                self._attempt_message(message.envelope, message.attempt)
            case Drain():
                self._drain(message)
            case Idle():
                self._drain_done()
            case DrainExpired():
                self._inbox.fail_unanswered(self._refusal(stopping))
                self._drain_done()
            case Finish():
                self._finish()
            case ForeignStop():
                self._foreign_stops.append(message)
                self._finish()
            case Quiesce():
                self.context.tell_parent(Quiesced(self.context.name, self.context.incarnation))
            case _:
                assert_never(message)

    # --- ending -----------------------------------------------------------------------------------------------

    def _drain(self, drain: Drain) -> None:
        first = self._draining is None
        self._draining = drain
        if self._drain_timer is not None:
            self._drain_timer.cancel()
        if first:
            self._inbox.refuse(self._refusal(stopping))
        elif self._drained:
            self._drained = False
            self._drain_done()
            return
        delay = drain.until - self.context.clock.monotonic()
        if delay <= 0:
            self._control(DrainExpired())
            return
        inbox = self._inbox
        self._drain_timer = self.context.clock.call_later(delay, lambda: _expire(inbox))

    def _drain_done(self) -> None:
        if self._draining is None or self._drained:
            return
        self._drained = True
        if self._drain_timer is not None:
            self._drain_timer.cancel()
        if self._draining.finish:
            self._finish()
        else:
            self.context.tell_parent(Drained(self.context.name, self.context.incarnation))

    def _finish(self) -> None:
        refusal = self._refusal(stopping)
        self._inbox.refuse(refusal)
        self._inbox.fail_unanswered(refusal)
        try:
            self.on_drained()
        except Corruption as corruption:
            self._begin_ending(Ending("corrupt", corruption.error, "corruption found at the end"))
        except BaseException as error:  # noqa: BLE001 - it ends anyway; only the parent's record differs
            self._log_defect("drain failed", error)
        self._begin_ending(Ending("stopped"))

    def _begin_ending(self, ending: Ending) -> None:
        """Leave the loop after this turn; the first reason stands."""
        if self._ending is None:
            self._ending = ending

    def _end(self, ending: Ending) -> None:
        """The one way out. Each step runs whatever the others do; the parent hears of it last."""
        context = self.context
        slot = context.slot
        if ending.error is not None:
            _bare(ending.error)
            slot.last_error = ending.error.code
        elif ending.reason in ("crashed", "start_failed"):
            slot.last_error = InternalError.code
        if ending.reason in ("crashed", "start_failed"):
            slot.crashes += 1
        # From here on new requests meet the next mailbox, not this one.
        self._attempt("vacate", lambda: slot.vacate(context.incarnation))
        self._attempt("answer the culprit", lambda: self._answer_culprit(ending))
        self._attempt("close the mailbox", lambda: self._close_inbox(ending))
        self._attempt("stop timers", lambda: self._drain_timer.cancel() if self._drain_timer is not None else None)
        self._attempt("release resources", self.on_ended)
        self._attempt("unregister", lambda: pykka.ActorRegistry.unregister(self.actor_ref))
        self.actor_stopped.set()
        slot.live = False
        for stop in self._foreign_stops:
            if stop.reply_to is not None:
                self._attempt("answer a stop", partial(_tell_stopped, stop))
        self._attempt(
            "tell the parent",
            lambda: context.tell_parent(
                Ended(context.name, context.incarnation, ending.reason, ending.error, ending.summary)
            ),
        )
        logger.info("actor ended", extra=self._ids() | {"reason": ending.reason, "summary": ending.summary})

    def _answer_culprit(self, ending: Ending) -> None:
        culprit = ending.culprit
        if culprit is None or culprit.reply is None:
            return
        if culprit.request_key:
            self.context.slot.blame(culprit.request_key)
        error = ending.error if ending.error is not None else defect(self.context.slot.label, culprit.correlation_id)
        culprit.reply.fail(error)

    def _close_inbox(self, ending: Ending) -> None:
        tells, control = self._inbox.close(self._refusal_after(ending))
        for envelope in tells:
            self.context.slot.dead_letter(envelope.message, "closed", envelope.correlation_id)
        for item in control:
            if isinstance(item, ForeignStop):
                self._foreign_stops.append(item)
            elif isinstance(item, Deliver):
                self.context.slot.dead_letter(item.message, "closed")

    def _refusal_after(self, ending: Ending) -> Refusal:
        if ending.reason == "stopped":
            return self._inbox.refusal or self._refusal(stopping)
        if ending.reason == "corrupt":
            found = Quarantine(ending.summary, self.context.clock.utc(), ending.error)
            return self._refusal(lambda name, phase: quarantined(name, phase, found))
        refused = ending.error
        if ending.reason == "start_refused" and refused is not None:
            return lambda phase: type(refused)(refused.message, retry=refused.retry, **refused.fields)
        return self._refusal(restarting)

    def _refusal(self, make: Callable[[str, Phase], KnowledgeError]) -> Refusal:
        slot = self.context.slot
        return lambda phase: make(slot.label, phase)

    def _attempt(self, what: str, step: Callable[[], object]) -> None:
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - the next step must run
            self._log_defect(f"ending: could not {what}", error)

    # --- log --------------------------------------------------------------------------------------------------

    def _ids(self, correlation_id: str = "") -> dict[str, str | int]:
        return {
            "actor": self.context.name,
            "incarnation": self.context.incarnation,
            "correlation_id": correlation_id,
        }

    def _log_defect(self, what: str, error: BaseException, correlation_id: str = "") -> str:
        """Log where it happened, under the actor's ids. Returns type and place."""
        return log_defect(logger, what, error, self._ids(correlation_id))


def _bare(error: KnowledgeError) -> KnowledgeError:
    """Without frames: an error may be kept for long, and frames would keep the dead actor's resources with it."""
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


def _type_name(item: Envelope | Control) -> str:
    return type(item.message if isinstance(item, Envelope | Deliver) else item).__name__


def _expire(inbox: Inbox) -> None:
    inbox.control(DrainExpired())


def _tell_stopped(stop: ForeignStop) -> None:
    if stop.reply_to is not None:
        stop.reply_to.set(None)
