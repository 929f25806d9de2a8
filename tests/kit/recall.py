"""The recall gate for tests: providers with a mind of their own, and a runtime on virtual threads, clock and chance."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from actors.authority import Policy
from actors.calls import PendingCall
from actors.recall_gate import GateSettings
from actors.runtime import Runtime, RuntimeSettings
from messages.audience import Audience, AudienceToken
from messages.envelope import Call, Deadline
from messages.errors import KnowledgeError
from messages.json_types import JsonObject, JsonValue
from messages.provider import ProviderCall, RecallGateRequest
from messages.provider.decision import (
    Answer,
    BooleanAnswer,
    BooleanQuestion,
    ChoiceAnswer,
    ChoiceQuestion,
    Decision,
    DecisionProvider,
    DecisionRequest,
)
from storage.layout import Layout
from tests.kit.scheduler import VirtualScheduler
from tests.kit.store import MAIN, NOON, request_id

LIVE = GateSettings(mode="live")


def document(question: object) -> str:
    """What a boolean question asks about."""
    assert isinstance(question, BooleanQuestion)
    assert isinstance(question.instructions, str)
    return question.instructions


@dataclass
class Judge:
    """A provider that scores a page by what its document begins with; ``default`` for every other.

    ``None`` is an answer ``true`` without a probability. ``during`` runs between two dispatches of one request, as a
    response that is under way; ``broken`` is raised instead of an answer.
    """

    scores: Mapping[str, float | None] = field(default_factory=dict)
    default: float | None = 0.0
    ready: bool = True
    dispatches: int = 1
    during: Callable[[], object] = lambda: None
    broken: BaseException | None = None
    answers: Mapping[str, Answer] | None = None
    requests: list[DecisionRequest] = field(default_factory=list)
    sent: list[DecisionRequest] = field(default_factory=list)
    deadlines: list[Deadline] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def is_ready(self) -> bool:
        return self.ready

    def evaluate(
        self, request: DecisionRequest, *, deadline: Deadline, before_dispatch: Callable[[], None]
    ) -> Decision:
        with self.lock:
            self.requests.append(request)
            self.deadlines.append(deadline)
        for _ in range(self.dispatches):
            before_dispatch()
            with self.lock:
                self.sent.append(request)
            self.during()
        if self.broken is not None:
            raise self.broken
        if self.answers is not None:
            return Decision(self.answers)
        return Decision({key: self._answer(question) for key, question in request.questions.items()})

    def _answer(self, question: object) -> Answer:
        if isinstance(question, ChoiceQuestion):
            likely = {label: self._score(text) or 0.0 for label, text in question.criteria.items()}
            return ChoiceAnswer(max(likely, key=lambda label: likely[label]), likely)
        score = self._score(document(question))
        return BooleanAnswer(score is None or score >= 0.5, score)

    def _score(self, text: str) -> float | None:
        return next((score for begins, score in self.scores.items() if text.startswith(begins)), self.default)


@dataclass
class RecallHouse:
    """A runtime whose threads, clock and chance are virtual, with one provider for every agent."""

    folder: Path
    provider: DecisionProvider | None
    gate: GateSettings = LIVE
    policy: Policy = field(default_factory=Policy)
    scheduler: VirtualScheduler = field(default_factory=lambda: VirtualScheduler(seed=5))
    asked_for: list[str] = field(default_factory=list)
    settings: RuntimeSettings = field(default_factory=lambda: RuntimeSettings(git=False))

    def __post_init__(self) -> None:
        self.runtime = Runtime(
            Layout(self.folder),
            policy=lambda: self.policy,
            settings=self.settings,
            now_ms=lambda: NOON + round(self.scheduler.clock.monotonic() * 1000),
            environment=self.scheduler.environment,
            recall_gate=lambda: self.gate,
            decisions=self._provider_of,
        )
        self._requests = 0

    def _provider_of(self, agent: str) -> DecisionProvider | None:
        self.asked_for.append(agent)
        return self.provider

    def begin(
        self,
        message: str,
        audience: Audience | AudienceToken | None = MAIN,
        *,
        seconds: float = 30.0,
        **more: JsonValue,
    ) -> PendingCall:
        request = RecallGateRequest.model_validate({"message": message, "turnId": "turn-1", **more})
        return self.runtime.provide(ProviderCall(request, audience, self.scheduler.deadline(seconds)))

    def turn(
        self,
        message: str,
        audience: Audience | AudienceToken | None = MAIN,
        *,
        seconds: float = 30.0,
        **more: JsonValue,
    ) -> JsonObject:
        return self.answer(self.begin(message, audience, seconds=seconds, **more))

    def answer(self, pending: PendingCall) -> JsonObject:
        self.scheduler.run_until(pending.done)
        answers: list[JsonObject] = []
        pending.deliver(answers.append)
        return answers[0]

    def refusal(self, pending: PendingCall) -> KnowledgeError:
        self.scheduler.run_until(pending.done)
        with pytest.raises(KnowledgeError) as raised:
            pending.deliver(lambda _: None)
        return raised.value

    def call(self, tool: str, arguments: JsonObject, audience: Audience = MAIN) -> JsonObject:
        return self.answer(
            self.runtime.submit(Call(f"knowledge_{tool}", arguments, audience, self.scheduler.deadline(30)))
        )

    def page(self, title: str, body: str, type: str = "project", **more: JsonValue) -> str:
        """Save a page; its id."""
        self._requests += 1
        arguments: JsonObject = {"title": title, "type": type, "body": body, "requestId": request_id(self._requests)}
        return str(self.call("save_page", {**arguments, **more})["id"])

    def close(self) -> None:
        closed = self.runtime.close()
        assert closed.stuck == ()
        assert self.scheduler.alive() == []


def blocks(answer: JsonObject) -> str:
    """The block of an answer."""
    found = answer["block"]
    assert isinstance(found, str)
    return found
