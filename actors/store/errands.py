"""What an operation lacks, asked of the helper that can do it while the request is parked.

A helper is asked, never told: its crash is an answer too, so no request waits for ever. The answers come back to the
lane as :class:`~actors.store.messages.Prepared`. One thread: the lane's.

Source: DESIGN.md (One request, The tree).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, assert_never

from actors.store.messages import CatchUp, GivenUp, Prepare, Prepared, RunAgain, VerifyEvidence
from actors.store.needs import Need, NeedEvidence, NeedIndex, NeedPassage, NeedSource, NeedStanding, NeedUpkeep
from actors.store.operations.context import Prepared as PreparedFacts
from actors.store.sources import Complete, Passage
from actors.store.upkeep import Found, LookThroughRepository, MergeSegments, UpkeepWork
from actors.supervision import ActorContext, ActorHandle, Envelope
from messages.envelope import Deadline
from messages.errors import InternalError, NotFound, Restarting

HELPER_MARGIN_SECONDS: Final = 0.15
HELPER_MARGIN_SHARE: Final = 4
"""A helper's answer must leave time for the operation that waits for it, a quarter where there is little."""
HELPER_RETRY_SECONDS: Final = 0.05


class Errands:
    """The lane's errands to its helpers, which are its siblings below the store's supervisor."""

    def __init__(self, context: ActorContext) -> None:
        self._context = context
        self._indexer = context.ask_handle("helpers/indexer")
        self._verifier = context.ask_handle("helpers/evidence verifier")
        self._source_keeper = context.ask_handle("helpers/source keeper")
        self._git_queue = context.ask_handle("helpers/git queue")
        self._auditor = context.ask_handle("helpers/auditor")

    def send(self, parked: Prepare, need: Need) -> None:
        """Ask for what the parked request needs; its deadline, fairness and cancellation go along.

        A caller that cancels meanwhile is answered at once, whatever the helper does.
        """
        envelope = parked.envelope
        envelope.cancellation.add_callback(lambda: self._give_up(envelope))
        partition = parked.message.permit.partition
        deadline = self._for_a_helper(envelope)
        cancellation, correlation_id, fairness_key = (
            envelope.cancellation,
            envelope.correlation_id,
            envelope.fairness_key,
        )
        match need:
            case NeedIndex(change):
                waiting = replace(parked, since_change=change)
                # Others wait for the same index: one caller who gives up must not end it for all.
                caught_up = self._indexer.ask(
                    CatchUp(partition, change),
                    deadline=deadline,
                    correlation_id=correlation_id,
                    fairness_key=fairness_key,
                )
                self._context.pipe(caught_up, lambda done: Prepared(waiting, done), envelope)
            case NeedEvidence(citations, fresh, excerpts):
                verified = self._verifier.ask(
                    VerifyEvidence(partition, citations, fresh, excerpts),
                    deadline=deadline,
                    correlation_id=correlation_id,
                    fairness_key=fairness_key,
                )
                self._context.pipe(verified, lambda done: Prepared(parked, done), envelope)
            case NeedUpkeep(work):
                looked_after = self._helper_of(work).ask(
                    work,
                    deadline=deadline,
                    correlation_id=correlation_id,
                    fairness_key=fairness_key,
                    cancellation=cancellation,
                )
                self._context.pipe(looked_after, lambda done: Prepared(parked, done), envelope)
            case NeedSource(source_work):
                kept = self._source_keeper.ask(
                    source_work,
                    deadline=deadline,
                    correlation_id=correlation_id,
                    fairness_key=fairness_key,
                    cancellation=cancellation,
                )
                self._context.pipe(kept, lambda done: Prepared(parked, done), envelope)
            case NeedPassage(passage_work):
                read = self._verifier.ask(
                    passage_work,
                    deadline=deadline,
                    correlation_id=correlation_id,
                    fairness_key=fairness_key,
                    cancellation=cancellation,
                )
                self._context.pipe(read, lambda done: Prepared(parked, done), envelope)
            case NeedStanding():
                raise InternalError("A standing index is asked for by StandingErrands.")
            case _:
                assert_never(need)

    def asks_again_soon(self, prepared: Prepared) -> bool:
        """Whether the helper was only being started and the request can wait for it: after a lane it comes up a moment
        later. The lane is told to run the request again then."""
        envelope = prepared.parked.envelope
        left = self._for_a_helper(envelope).remaining(self._context.clock.monotonic)
        if not isinstance(prepared.reply.error(), NotFound | Restarting) or left <= HELPER_RETRY_SECONDS:
            return False
        self._context.start_timer(HELPER_RETRY_SECONDS, RunAgain(prepared.parked), envelope)
        return True

    def facts_of(self, prepared: Prepared) -> tuple[Prepare, PreparedFacts]:
        """The request with what is kept of earlier errands, and the facts for its next run.

        An index that is not ready is a fact. Any other helper's error is raised: it is the request's answer.
        """
        parked = prepared.parked
        facts = kept_facts(parked)
        error = prepared.reply.error()
        if parked.since_change is not None:
            problem = None if error is None else f"the keyword index is not ready: {error.code}"
            return parked, replace(facts, index_change=parked.since_change, index_problem=problem)
        if error is not None:
            raise error
        answer = prepared.reply.result(0)
        assert not isinstance(answer, int)
        if isinstance(answer, Found):
            return parked, replace(facts, found=answer)
        if isinstance(answer, Complete):
            return replace(parked, complete=answer), replace(facts, complete=answer)
        if isinstance(answer, Passage):
            return parked, replace(facts, passage=answer)
        verdicts = {**parked.verdicts, **answer}
        return replace(parked, verdicts=verdicts), replace(facts, verdicts=verdicts)

    def _for_a_helper(self, envelope: Envelope) -> Deadline:
        left = envelope.deadline.remaining(self._context.clock.monotonic)
        return Deadline(envelope.deadline.at - min(HELPER_MARGIN_SECONDS, left / HELPER_MARGIN_SHARE))

    def _give_up(self, envelope: Envelope) -> None:
        if envelope.reply is not None and not envelope.reply.done():
            self._context.tell_self(GivenUp(envelope))

    def _helper_of(self, work: UpkeepWork) -> ActorHandle:
        match work:
            case LookThroughRepository():
                return self._git_queue
            case MergeSegments():
                return self._indexer
            case _:
                return self._auditor


def kept_facts(parked: Prepare) -> PreparedFacts:
    """What earlier errands of the request found."""
    return PreparedFacts(verdicts=parked.verdicts, complete=parked.complete)
