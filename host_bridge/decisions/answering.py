"""What stands behind every provider: what it needs, how it answers, and the checks, the places and the log around it.

Source: knowledge-more-facts.md section 10 (limits, in flight, deadlines, logs).
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from messages.envelope import Deadline
from messages.provider.decision import (
    BooleanQuestion,
    Decision,
    DecisionRequest,
    DecisionUnavailable,
    capped,
    check_decision,
    check_request,
)

_log = logging.getLogger("decisions")
TRUE_FROM: Final = 0.5
"""From this probability on a boolean answer is yes."""
_HASH_CHARACTERS: Final = 12


class Answerer(Protocol):
    """A model at the far end, safe to call from several threads at once."""

    def problem(self) -> str | None:
        """What keeps it from being asked, in words for an operator; ``None`` when nothing does. No network."""
        ...

    def answer(self, request: DecisionRequest, deadline: Deadline, before_dispatch: Callable[[], None]) -> Decision:
        """Its answers, not yet checked. Raises ``DecisionUnavailable``."""
        ...

    async def prepare(self) -> None:
        """Load, once, what the first answer would have to wait for. Sends nothing; what goes wrong is for that answer
        to say. On the thread of the decisions' loop, which it may hold up as a first request would."""
        ...


class Places:
    """Room for so many requests at once; who waits, waits against its own deadline."""

    def __init__(self, count: int) -> None:
        self._free = threading.BoundedSemaphore(count)

    def take(self, deadline: Deadline) -> None:
        """Returns with a place. Raises ``overloaded`` where none became free in time."""
        if not self._free.acquire(timeout=max(0.0, deadline.remaining())):
            raise DecisionUnavailable("overloaded", "no place became free before the deadline")

    def give_back(self) -> None:
        self._free.release()


class Provider:
    """One agent's decision provider: the checks, the places and the log that are the same for every answerer."""

    def __init__(self, name: str, agent: str, answerer: Answerer, places: Places) -> None:
        """``name`` is the selector ``provider/model``; only its hash and that of the agent are ever logged."""
        self._name = name
        self._agent = agent
        self._answerer = answerer
        self._places = places

    def is_ready(self) -> bool:
        """Whether it has what it needs to be asked. At once, and without the network."""
        return self._answerer.problem() is None

    def evaluate(
        self, request: DecisionRequest, *, deadline: Deadline, before_dispatch: Callable[[], None]
    ) -> Decision:
        """As ``DecisionProvider.evaluate`` says."""
        began = time.monotonic()
        size = 0
        outcome = "stopped"  # by what before_dispatch raised
        try:
            size = check_request(request)
            decision = self._checked(request, capped(deadline), before_dispatch)
            outcome = "answered"
            return decision
        except DecisionUnavailable as unavailable:
            outcome = unavailable.reason
            raise
        finally:
            _log.debug(
                "decision request",
                extra={
                    "outcome": outcome,
                    "elapsed_ms": round((time.monotonic() - began) * 1000),
                    "questions": len(request.questions),
                    "json_bytes": size,
                    "provider": hashed(self._name),
                    "agent": hashed(self._agent),
                    "purpose": hashed(request.purpose),
                },
            )

    def _checked(self, request: DecisionRequest, deadline: Deadline, before_dispatch: Callable[[], None]) -> Decision:
        problem = self._answerer.problem()
        if problem is not None:
            raise DecisionUnavailable("not-configured", problem)
        if deadline.passed():
            raise DecisionUnavailable("deadline", "the deadline had passed before the request was sent")
        self._places.take(deadline)
        try:
            decision = self._answerer.answer(request, deadline, before_dispatch)
        finally:
            self._places.give_back()
        return check_decision(request, decision)


class NotConfigured:
    """Stands where a selector names nothing that is there, and says what is missing."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def problem(self) -> str:
        return self._problem

    def answer(self, request: DecisionRequest, deadline: Deadline, before_dispatch: Callable[[], None]) -> Decision:
        raise DecisionUnavailable("not-configured", self._problem)

    async def prepare(self) -> None:
        pass


def texts_of(request: DecisionRequest, who: str) -> tuple[str, list[str]]:
    """The state and each question's instructions, for a model that compares texts; ``who`` it is, for a refusal.

    Raises:
        DecisionUnavailable: ``unsupported-input``; something of it is no text, or no boolean question.
    """
    if not isinstance(request.state, str):
        raise DecisionUnavailable("unsupported-input", f"{who} needs a text as the state")
    documents: list[str] = []
    for question in request.questions.values():
        if not isinstance(question, BooleanQuestion):
            raise DecisionUnavailable("unsupported-input", f"{who} answers boolean questions only")
        if not isinstance(question.instructions, str):
            raise DecisionUnavailable("unsupported-input", f"{who} needs a text as a question's instructions")
        documents.append(question.instructions)
    return request.state, documents


def hashed(identifier: str) -> str:
    """Twelve hex characters that tell identifiers apart in a log without naming them."""
    return hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARACTERS]
