"""The decision port: questions about one state that a model answers, and the rules that every provider shares.

A request holds one ``state`` and up to 256 questions; every question sees the same state and no other answer. A request
beyond a limit is rejected, never truncated or split. An answer leaves only as part of a whole batch that was checked.

Source: knowledge-more-facts.md section 10 (decision models); memory-provider.md (Recall gate).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias, assert_never, get_args

from messages.envelope import Deadline
from messages.json_types import JsonValue

MAX_REQUEST_BYTES: Final = 1024 * 1024
MAX_JSON_NODES: Final = 20_000
MAX_JSON_DEPTH: Final = 32
MAX_QUESTIONS: Final = 256
CHOICE_LABELS: Final = (2, 255)
SCORE_ANCHORS: Final = (2, 64)
MAX_DEADLINE_SECONDS: Final = 30.0

UnavailableReason: TypeAlias = Literal[
    "disabled",  # decisions are off for this agent
    "not-configured",  # no such provider or model, or something that it needs is missing
    "unsupported-input",  # the request is beyond a limit, or of a kind that this provider cannot answer
    "overloaded",  # no place became free, or the endpoint says that it has too much to do
    "deadline",  # no answer in time
    "invalid-response",  # the endpoint answered something that is no valid batch of answers
    "provider-error",  # the endpoint could not be reached, refused the request or failed
]
UNAVAILABLE_REASONS: Final[tuple[UnavailableReason, ...]] = get_args(UnavailableReason)


@dataclass(frozen=True, slots=True)
class BooleanQuestion:
    """Yes or no; ``true`` and ``false`` describe when each holds."""

    instructions: JsonValue
    true: str
    false: str


@dataclass(frozen=True, slots=True)
class ChoiceQuestion:
    """One of 2 to 255 labels; ``criteria`` maps a label to its description."""

    instructions: JsonValue
    criteria: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ScoreQuestion:
    """A place on a scale of 2 to 64 ordered anchors, the first one being 0."""

    instructions: JsonValue
    criteria: tuple[str, ...]


Question: TypeAlias = BooleanQuestion | ChoiceQuestion | ScoreQuestion


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """One batch. ``purpose`` and ``rubric_version`` say who asks and with which wording; no model sees them."""

    state: JsonValue
    questions: Mapping[str, Question]
    purpose: str
    rubric_version: str


@dataclass(frozen=True, slots=True)
class BooleanAnswer:
    """``probability_true`` is absent where the provider gave only a label: certainty is never made up."""

    value: bool
    probability_true: float | None


@dataclass(frozen=True, slots=True)
class ChoiceAnswer:
    """The label chosen, and each label's probability where the provider gave them."""

    choice: str
    probabilities: Mapping[str, float] | None


@dataclass(frozen=True, slots=True)
class ScoreAnswer:
    """A fractional, zero-based place on the scale, and each anchor's probability where the provider gave them."""

    score: float
    probabilities: tuple[float, ...] | None


Answer: TypeAlias = BooleanAnswer | ChoiceAnswer | ScoreAnswer


@dataclass(frozen=True, slots=True)
class Decision:
    """One answer for every question of the batch, under the question's key."""

    answers: Mapping[str, Answer]


class DecisionUnavailable(Exception):
    """No decision, and why. The message holds no text of the request, no key and no address."""

    def __init__(self, reason: UnavailableReason, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason: UnavailableReason = reason
        self.message = message or reason


class DecisionProvider(Protocol):
    """Something that answers decision requests; safe to call from several threads at once."""

    def is_ready(self) -> bool:
        """Whether it has what it needs to be asked. At once, and without the network."""
        ...

    def evaluate(
        self, request: DecisionRequest, *, deadline: Deadline, before_dispatch: Callable[[], None]
    ) -> Decision:
        """The whole checked batch; blocks the calling thread, at most until ``deadline`` and never beyond 30 s.

        ``before_dispatch`` is called immediately before every dispatch and every retry, on any thread; it must not
        block. What it raises stops the request and reaches the caller as it is.

        Raises:
            DecisionUnavailable: there is no decision; nothing is retried elsewhere.
        """
        ...


def check_request(request: DecisionRequest) -> int:
    """The bytes that the request takes as JSON, once it is known to be within every limit.

    Counted are the state and the questions, as one JSON object (depth 1); each value is a node.

    Raises:
        DecisionUnavailable: ``unsupported-input``, with the limit that it is beyond.
    """
    if not 1 <= len(request.questions) <= MAX_QUESTIONS:
        raise _unsupported(f"a request asks 1 to {MAX_QUESTIONS} questions; this one asks {len(request.questions)}")
    for question in request.questions.values():
        _check_question(question)
    whole: JsonValue = {
        "state": request.state,
        "questions": {key: _question_as_json(question) for key, question in request.questions.items()},
    }
    _check_shape(whole)
    try:
        size = len(json.dumps(whole, ensure_ascii=False, separators=(",", ":"), default=_plain).encode("utf-8"))
    except (TypeError, ValueError):  # a lone surrogate has no UTF-8, and neither has an integer too long to write
        raise _unsupported("the request cannot be written as JSON") from None
    if size > MAX_REQUEST_BYTES:
        raise _unsupported(f"the request takes {size} bytes as JSON, more than {MAX_REQUEST_BYTES}")
    return size


def check_decision(request: DecisionRequest, decision: Decision) -> Decision:
    """The same decision, once every question has a valid answer and nothing else is in it.

    Raises:
        DecisionUnavailable: ``invalid-response``; no answer of the batch may be used.
    """
    if decision.answers.keys() != request.questions.keys():
        raise _invalid("the answers are not exactly those that were asked for")
    for key, question in request.questions.items():
        _check_answer(question, decision.answers[key])
    return decision


def is_probability(value: object) -> bool:
    """Whether ``value`` is a finite number from 0 to 1; a boolean is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def capped(deadline: Deadline) -> Deadline:
    """The deadline, or 30 s from now where that comes first."""
    return min(deadline, Deadline.after(MAX_DEADLINE_SECONDS), key=lambda each: each.at)


def _check_question(question: Question) -> None:
    match question:
        case BooleanQuestion():
            return
        case ChoiceQuestion(criteria=labels):
            _check_count("a choice has", len(labels), CHOICE_LABELS, "labels")
        case ScoreQuestion(criteria=anchors):
            _check_count("a score has", len(anchors), SCORE_ANCHORS, "anchors")
        case _:
            assert_never(question)


def _check_count(what: str, count: int, bounds: tuple[int, int], unit: str) -> None:
    if not bounds[0] <= count <= bounds[1]:
        raise _unsupported(f"{what} {bounds[0]} to {bounds[1]} {unit}; this one has {count}")


def _question_as_json(question: Question) -> JsonValue:
    match question:
        case BooleanQuestion(instructions=instructions, true=true, false=false):
            return {"type": "boolean", "instructions": instructions, "criteria": {"true": true, "false": false}}
        case ChoiceQuestion(instructions=instructions, criteria=labels):
            return {"type": "choice", "instructions": instructions, "criteria": labels}
        case ScoreQuestion(instructions=instructions, criteria=anchors):
            return {"type": "score", "instructions": instructions, "criteria": list(anchors)}
        case _:
            assert_never(question)


def _check_shape(whole: JsonValue) -> None:
    """Walks without recursion and stops at the first limit, so that no input costs more than the limits allow."""
    waiting: list[tuple[object, int]] = [(whole, 1)]
    nodes = characters = 0
    while waiting:
        value, depth = waiting.pop()
        nodes += 1
        if depth > MAX_JSON_DEPTH:
            raise _unsupported(f"the request is nested deeper than {MAX_JSON_DEPTH}")
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, Mapping):
            if not all(isinstance(key, str) for key in value):
                raise _unsupported("a key of the request is not a text")
            characters += sum(map(len, value))
            waiting.extend((each, depth + 1) for each in value.values())
        elif isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
            waiting.extend((each, depth + 1) for each in value)
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise _unsupported("a number of the request is not finite")
        elif value is not None and not isinstance(value, int):
            raise _unsupported("a value of the request is not JSON")
        if nodes + len(waiting) > MAX_JSON_NODES:
            raise _unsupported(f"the request has more than {MAX_JSON_NODES} JSON nodes")
        if characters > MAX_REQUEST_BYTES:
            raise _unsupported(f"the request takes more than {MAX_REQUEST_BYTES} bytes as JSON")


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError


def _check_answer(question: Question, answer: Answer) -> None:
    match question, answer:
        case BooleanQuestion(), BooleanAnswer(value=value, probability_true=probability):
            if not isinstance(value, bool):
                raise _invalid("a boolean answer is neither true nor false")
            if probability is not None:
                _check_probabilities([probability])
        case ChoiceQuestion(criteria=labels), ChoiceAnswer(choice=choice, probabilities=by_label):
            if choice not in labels:
                raise _invalid("a choice is none of its labels")
            if by_label is not None:
                if by_label.keys() != labels.keys():
                    raise _invalid("the probabilities of a choice are not exactly those of its labels")
                _check_probabilities(by_label.values())
        case ScoreQuestion(criteria=anchors), ScoreAnswer(score=score, probabilities=by_anchor):
            if not isinstance(score, (int, float)) or isinstance(score, bool) or not 0 <= score <= len(anchors) - 1:
                raise _invalid("a score lies outside its scale")
            if by_anchor is not None:
                if len(by_anchor) != len(anchors):
                    raise _invalid("the probabilities of a score are not exactly those of its anchors")
                _check_probabilities(by_anchor)
        case _:
            raise _invalid("an answer is of another kind than its question")


def _check_probabilities(values: Iterable[object]) -> None:
    if not all(is_probability(value) for value in values):
        raise _invalid("a probability is not a finite number from 0 to 1")


def _unsupported(message: str) -> DecisionUnavailable:
    return DecisionUnavailable("unsupported-input", message)


def _invalid(message: str) -> DecisionUnavailable:
    return DecisionUnavailable("invalid-response", message)
