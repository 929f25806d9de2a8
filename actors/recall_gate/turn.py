"""One user's turn on its way to its one result, whoever gives it first: the turn's actor, the timer, or a failure.

Whoever comes first also writes the turn's one log line. Any thread; nothing here blocks.

Source: memory-provider.md (Recall gate, Details: one info line a turn; a failure injects nothing).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from actors.authority import Permit, PermitGate
from actors.recall_gate.settings import GateSettings
from actors.supervision import Clock, Reply
from messages.envelope import Cancellation, Deadline
from messages.errors import Busy, DeadlineExceeded, InternalError, KnowledgeError
from messages.json_types import JsonObject
from messages.provider.decision import DecisionProvider
from messages.provider.gate import LOG_PREFIX, GateMode, GateResult, Outcome, Stage

logger = logging.getLogger(__name__)


class OpenTurn:
    """Open until :meth:`settle`; what comes later is dropped. ``stage`` and the counts are the turn actor's to set,
    ``permit`` is there once access was decided."""

    def __init__(self, mode: GateMode, clock: Clock, *, correlation_id: str, turn_id: str) -> None:
        self.stage: Stage = "access"
        self.permit: Permit | None = None
        self.offered = 0
        self.shortlisted = 0
        self.correlation_id = correlation_id
        self.cancellation = Cancellation()
        """Raised when the turn is settled: nobody waits for what is under way for it."""
        self._mode = mode
        self._clock = clock
        self._turn_id = turn_id
        self._started = clock.monotonic()
        self._ending = threading.Lock()
        self._result: Reply[tuple[GateResult, JsonObject]] = Reply()

    @property
    def over(self) -> bool:
        return self._ending.locked()

    def settle(self, result: GateResult) -> bool:
        """End the turn; false, and nothing happens, where it has ended already."""
        if not self._ending.acquire(blocking=False):  # never released: a turn ends once
            return False
        latency_ms = round((self._clock.monotonic() - self._started) * 1000)
        self._log(result, latency_ms)
        self._result.succeed((result, result.to_json(latency_ms)))
        self.cancellation.cancel()
        return True

    def abandon(self) -> None:
        """End the turn without a result and without a line: its call was refused or answered otherwise."""
        self._ending.acquire(blocking=False)

    def unavailable(self, reason: str, *, stage: Stage | None = None) -> bool:
        """End the turn without a decision."""
        return self.settle(self._without("unavailable", stage or self.stage, reason))

    def fail(self, error: KnowledgeError) -> bool:
        """End the turn by a refusal, a failure or a defect on its way."""
        if isinstance(error, InternalError):
            return self.defect()
        reason = {Busy.code: "overloaded", DeadlineExceeded.code: "deadline"}.get(error.code, error.code)
        return self.unavailable(reason)

    def withdrawn(self, error: KnowledgeError) -> bool:
        """End the turn because access was lost on the way: nothing of the store is told, not even a number."""
        return self.settle(GateResult(outcome="unavailable", stage=self.stage, reason=error.code))

    def defect(self) -> bool:
        """End the turn by a defect, ours or the provider's."""
        return self.settle(self._without("error", self.stage, "internal"))

    def add_done_callback(self, callback: Callable[[GateResult, JsonObject], object]) -> None:
        """Run ``callback(result, answer)`` once the turn is over."""
        self._result.add_done_callback(lambda done: callback(*done.result(0)))

    def _without(self, outcome: Outcome, stage: Stage, reason: str) -> GateResult:
        return GateResult(
            outcome=outcome, stage=stage, reason=reason, offered=self.offered, shortlisted=self.shortlisted
        )

    def _log(self, result: GateResult, latency_ms: int) -> None:
        told = [
            f"mode={self._mode}",
            f"outcome={result.outcome}",
            f"latencyMs={latency_ms}",
            f"offered={result.offered}",
            f"shortlisted={result.shortlisted}",
            *([] if result.stage is None else [f"stage={result.stage}"]),
            *([] if result.reason is None else [f"reason={result.reason}"]),
            f"decisions={','.join(f'{one.id}:{_score(one.score)}:{one.tier}' for one in result.decisions) or '-'}",
        ]
        logger.info(
            "%s %s",
            LOG_PREFIX,
            " ".join(told),
            extra={"correlation_id": self.correlation_id, "turn": self._turn_id},
        )


class TurnWork:
    """What a turn's actor works with: fixed for the whole turn, whatever the configuration says later."""

    __slots__ = ("deadline", "message", "permit", "provider", "settings", "turn")

    def __init__(
        self,
        turn: OpenTurn,
        message: str,
        permit: Permit,
        settings: GateSettings,
        provider: DecisionProvider,
        deadline: Deadline,
    ) -> None:
        self.turn = turn
        self.message = message
        self.permit = permit
        self.settings = settings
        self.provider = provider
        self.deadline = deadline


class AccessGuard:
    """Checks access anew at every step of one turn. Once lost it stays lost for this turn."""

    def __init__(self, gate: PermitGate, permit: Permit, turn: OpenTurn) -> None:
        self._gate = gate
        self._permit = permit
        self._turn = turn
        self.lost: KnowledgeError | None = None

    def check(self) -> None:
        """Raise what took the access away, or ``DeadlineExceeded`` where the turn was answered meanwhile."""
        if self.lost is not None:
            raise self.lost
        try:
            self._gate.check(self._permit, write=False)
        except KnowledgeError as error:
            self.lost = error
            raise
        if self._turn.over:
            raise DeadlineExceeded("The turn was answered already; nothing more is asked for it.")


def _score(score: float | None) -> str:
    return "-" if score is None else f"{score:.4f}"
