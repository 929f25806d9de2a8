"""The actor of one user turn: candidates from the store, one or two Decision requests, the block. Then it ends.

It has a thread of its own, since asking a provider blocks. Whatever goes wrong in here ends this turn and no other; the
turn's timer answers on time even while a provider does not return, and what it says then is dropped.

Source: memory-provider.md (Recall gate), DESIGN.md (The tree).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from actors.authority import PermitGate
from actors.lanes import Errand, Lanes
from actors.recall_gate.block import SKIP_HINT, block
from actors.recall_gate.places import Place
from actors.recall_gate.questions import decisions, hints_at_skipping, scoring, shortlist, shortlisting
from actors.recall_gate.turn import AccessGuard, TurnWork
from actors.supervision import PARKED, ActorContext, Envelope, GuardedActor, Reply, Request, log_defect
from messages.errors import Busy, InternalError, KnowledgeError
from messages.json_types import JsonObject
from messages.provider.decision import (
    UNAVAILABLE_REASONS,
    Decision,
    DecisionRequest,
    DecisionUnavailable,
    check_decision,
)
from messages.provider.gate import (
    INDEX_CHARS_MAX,
    GateCandidatesRequest,
    GateDecision,
    GatePage,
    GatePagesRequest,
    GateResult,
    Outcome,
    Stage,
    pages_from_json,
)
from messages.tools import ToolRequest
from storage.search import clip_message

logger = logging.getLogger(__name__)


Proceed: TypeAlias = Callable[[tuple[GatePage, ...]], None]
"""The step that goes on with what a lane answered."""

BUSY_RETRY_SECONDS: Final = 0.02
"""Turns that begin together ask the lane together; who finds its mailbox full asks again until the budget is used."""


@dataclass(frozen=True, slots=True)
class RunTurn(Request[bool]):
    """Do the turn; answered when it is over."""


@dataclass(frozen=True, slots=True)
class _Answered:
    """To the actor itself: the lane has answered; ``proceed`` goes on with the pages."""

    request: ToolRequest
    reply: Reply[JsonObject]
    proceed: Proceed


@dataclass(frozen=True, slots=True)
class _AskAgain:
    """To the actor itself: the lane's mailbox was full a moment ago."""

    request: ToolRequest
    proceed: Proceed


class TurnActor(GuardedActor):
    """A temporary child: one turn, then the end. Its place among the turns is free once its thread has ended."""

    def __init__(self, context: ActorContext, work: TurnWork, lanes: Lanes, gate: PermitGate, place: Place) -> None:
        super().__init__(context)
        self._work = work
        self._open = work.turn
        self._lanes = lanes
        self._access = AccessGuard(gate, work.permit, work.turn)
        self._place = place
        self._envelope: Envelope | None = None

    # --- life ------------------------------------------------------------------------------------------

    def on_ask(self, message: object, envelope: Envelope) -> object:
        match message:
            case RunTurn():
                self._envelope = envelope
                self._step(self._first)
                return PARKED
            case _:
                raise InternalError(f"A turn takes no {type(message).__name__}.")

    def on_tell(self, message: object) -> None:
        match message:
            case _Answered(request, reply, proceed):
                if isinstance(reply.error(), Busy):
                    self.context.start_timer(BUSY_RETRY_SECONDS, _AskAgain(request, proceed), self._envelope)
                else:
                    self._step(lambda: proceed(pages_from_json(_value(reply))))
            case _AskAgain(request, proceed):
                self._step(lambda: self._ask(request, proceed))
            case _:
                raise InternalError(f"A turn takes no {type(message).__name__}.")

    def on_ended(self) -> None:
        self._place.release()

    # --- the steps -------------------------------------------------------------------------------------

    def _first(self) -> None:
        self._enter("provider")
        if not self._work.provider.is_ready():
            raise DecisionUnavailable("not-configured")
        self._enter("candidates")
        settings = self._work.settings
        by_words = settings.candidates == "keyword"
        request = GateCandidatesRequest.model_validate(
            {
                "mode": settings.candidates,
                "message": clip_message(self._work.message) if by_words else "",
                "limit": settings.max_candidates,
                "excerpts": settings.excerpts,
                "excerptChars": settings.excerpt_chars,
                "pageChars": settings.page_chars,
                "maxIndexChars": min(settings.max_index_chars, INDEX_CHARS_MAX),
            }
        )
        self._ask(request, self._score if by_words else self._shortlist)

    def _shortlist(self, labels: tuple[GatePage, ...]) -> None:
        """Have the model pick from the labels, where they are more than can be scored."""
        self._open.offered = len(labels)
        most = self._work.settings.max_candidates
        if len(labels) <= most:
            self._score(labels)
            return
        self._enter("shortlist")
        self._score(tuple(shortlist(labels, self._decide(shortlisting(self._work.message, labels)), most)))

    def _score(self, pages: tuple[GatePage, ...]) -> None:
        self._open.offered = self._open.offered or len(pages)
        self._open.shortlisted = len(pages)
        if not pages:
            self._publish(self._result((), "none"))
            return
        self._enter("score")
        settings = self._work.settings
        by_label = settings.candidates == "model"
        found = self._decide(scoring(self._work.message, pages, by_label=by_label))
        judged = decisions(settings, pages, found)
        high = [page for page, one in zip(pages, judged, strict=True) if one.tier == "high"]
        if settings.mode != "live":
            self._publish(self._result(judged, "shadow"))
        elif by_label and high:
            self._enter("pages")
            request = GatePagesRequest.model_validate(
                {"ids": [page.id for page in high], "pageChars": settings.page_chars}
            )
            self._ask(request, lambda texts: self._compose(pages, judged, texts))
        else:
            self._compose(pages, judged, high)

    def _compose(self, pages: Sequence[GatePage], judged: Sequence[GateDecision], high: Sequence[GatePage]) -> None:
        """Build the block from the pages with their texts and those that are only named."""
        settings = self._work.settings
        place = {one.id: (-(one.score or 0.0), number) for number, one in enumerate(judged)}
        medium = [page for page, one in zip(pages, judged, strict=True) if one.tier == "medium"]
        shown = block(
            sorted(high, key=lambda page: place[page.id]),
            sorted(medium, key=lambda page: place[page.id]),
            settings.page_chars,
        )
        if shown:
            self._publish(self._result(judged, "injected", shown))
        elif hints_at_skipping(settings, judged):
            self._publish(self._result(judged, "skip-hint", SKIP_HINT))
        else:
            self._publish(self._result(judged, "none"))

    def _publish(self, result: GateResult) -> None:
        self._enter("publish")
        self._settle(lambda: self._open.settle(result))

    def _result(self, judged: Sequence[GateDecision], outcome: Outcome, shown: str = "") -> GateResult:
        return GateResult(
            outcome=outcome,
            block=shown,
            offered=self._open.offered,
            shortlisted=self._open.shortlisted,
            decisions=tuple(judged),
        )

    # --- inside ----------------------------------------------------------------------------------------

    def _enter(self, stage: Stage) -> None:
        """Go on to a stage, with access as it is now."""
        self._open.stage = stage
        self._access.check()

    def _ask(self, request: ToolRequest, proceed: Proceed) -> None:
        self._access.check()
        work = self._work
        errand = Errand(
            request=request,
            permit=work.permit,
            deadline=work.deadline,
            size=len(request.message) if isinstance(request, GateCandidatesRequest) else 0,
            cancellation=self._open.cancellation,
            correlation_id=self._open.correlation_id,
            share="recall gate:",
        )
        self.context.pipe(self._lanes.ask(errand), lambda reply: _Answered(request, reply, proceed), self._envelope)

    def _decide(self, request: DecisionRequest) -> Decision:
        """The checked answers to one request. Blocks this thread."""
        self._access.check()
        work = self._work
        found = work.provider.evaluate(request, deadline=work.deadline, before_dispatch=self._access.check)
        self._access.check()
        return check_decision(request, found)

    def _step(self, step: Callable[[], None]) -> None:
        """Do one step; whatever goes wrong in it ends the turn, and is told without its text."""
        turn = self._open
        try:
            step()
        except DecisionUnavailable as unavailable:
            # It is logged and told: what a provider calls its reason otherwise may be a text.
            reason = unavailable.reason if unavailable.reason in UNAVAILABLE_REASONS else "provider-error"
            self._settle(lambda: turn.unavailable(reason))
        except KnowledgeError as error:
            refusal = error
            self._settle(lambda: turn.fail(refusal))
        except Exception as defect:  # noqa: BLE001 - a provider is foreign code; this turn goes on without it
            ids = {"correlation_id": turn.correlation_id, "stage": turn.stage}
            log_defect(logger, "a turn of the recall gate failed", defect, ids)
            self._settle(turn.defect)

    def _settle(self, settle: Callable[[], object]) -> None:
        lost = self._access.lost
        if lost is not None:
            # Whatever the provider made of it: what was stopped stays stopped.
            self._open.withdrawn(lost)
        else:
            settle()
        if self._envelope is not None and self._envelope.reply is not None:
            self._envelope.reply.succeed(True)
        self.end()


def _value(reply: Reply[JsonObject]) -> JsonObject:
    error = reply.error()
    if error is not None:
        raise error
    return reply.result(0)
