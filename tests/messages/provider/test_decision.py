"""The decision port's shared rules: limits of a request, and the check of a whole batch of answers."""

import math
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from messages.envelope import Deadline
from messages.json_types import JsonValue
from messages.provider.decision import (
    MAX_JSON_DEPTH,
    MAX_JSON_NODES,
    MAX_REQUEST_BYTES,
    Answer,
    BooleanAnswer,
    BooleanQuestion,
    ChoiceAnswer,
    ChoiceQuestion,
    Decision,
    DecisionRequest,
    DecisionUnavailable,
    Question,
    ScoreAnswer,
    ScoreQuestion,
    capped,
    check_decision,
    check_request,
)

YES_OR_NO = BooleanQuestion("A page about Ada.", "It helps.", "It does not.")
CHOICE = ChoiceQuestion(None, {"a": "first", "b": "second"})
SCORE = ScoreQuestion("How well?", ("badly", "so so", "well"))


def request_of(state: JsonValue = "who?", questions: Mapping[str, Question] | None = None) -> DecisionRequest:
    return DecisionRequest(state, {"q": YES_OR_NO} if questions is None else questions, "test", "1")


def nested(depth: int) -> JsonValue:
    value: JsonValue = 0
    for _ in range(depth):
        value = [value]
    return value


def refused(request: DecisionRequest) -> str:
    with pytest.raises(DecisionUnavailable) as caught:
        check_request(request)
    assert caught.value.reason == "unsupported-input"
    return caught.value.message


def test_a_request_tells_its_size_as_json() -> None:
    small, larger = check_request(request_of("é")), check_request(request_of("éé"))
    assert larger == small + 2


def test_a_request_may_hold_frozen_mappings_and_tuples() -> None:
    assert check_request(request_of(MappingProxyType({"a": (1, None, True, 2.5)}))) == check_request(
        request_of({"a": [1, None, True, 2.5]})
    )


def test_a_request_takes_at_most_one_mebibyte() -> None:
    room = MAX_REQUEST_BYTES - check_request(request_of(""))
    assert check_request(request_of("x" * room)) == MAX_REQUEST_BYTES
    assert str(MAX_REQUEST_BYTES) in refused(request_of("x" * (room + 1)))
    assert "bytes" in refused(request_of("é" * (room // 2 + 1)))
    assert "bytes" in refused(request_of({"x" * (MAX_REQUEST_BYTES + 1): 1}))


def test_a_request_holds_at_most_20000_json_nodes() -> None:
    # The request, its questions, and the six nodes of one boolean question stand around the state.
    around = 2 + 6
    check_request(request_of([0] * (MAX_JSON_NODES - around - 1)))
    assert "20000" in refused(request_of([0] * (MAX_JSON_NODES - around)))


def test_a_request_is_nested_at_most_32_deep() -> None:
    check_request(request_of(nested(MAX_JSON_DEPTH - 2)))
    assert "32" in refused(request_of(nested(MAX_JSON_DEPTH - 1)))
    assert "32" in refused(request_of(nested(15_000)))


def test_a_request_asks_1_to_256_questions() -> None:
    check_request(request_of(questions={str(number): YES_OR_NO for number in range(256)}))
    assert "257" in refused(request_of(questions={str(number): YES_OR_NO for number in range(257)}))
    assert "0" in refused(request_of(questions={}))


@pytest.mark.parametrize(("count", "fits"), [(1, False), (2, True), (255, True), (256, False)])
def test_a_choice_has_2_to_255_labels(count: int, fits: bool) -> None:
    request = request_of(questions={"q": ChoiceQuestion(None, {str(label): "" for label in range(count)})})
    if fits:
        check_request(request)
    else:
        assert "labels" in refused(request)


@pytest.mark.parametrize(("count", "fits"), [(1, False), (2, True), (64, True), (65, False)])
def test_a_score_has_2_to_64_anchors(count: int, fits: bool) -> None:
    request = request_of(questions={"q": ScoreQuestion(None, ("x",) * count)})
    if fits:
        check_request(request)
    else:
        assert "anchors" in refused(request)


@pytest.mark.parametrize("state", [math.nan, [math.inf], "\ud800", {1: 2}, b"x", {1}, [10**5000]])
def test_what_is_no_json_is_rejected(state: JsonValue) -> None:
    refused(request_of(state))


def test_a_refusal_holds_no_text_of_the_request() -> None:
    secret = "squirrel"
    assert secret not in refused(request_of({secret: secret * MAX_REQUEST_BYTES}))


def test_a_complete_batch_is_handed_back_as_it_is() -> None:
    request = request_of(questions={"b": YES_OR_NO, "c": CHOICE, "s": SCORE})
    decision = Decision(
        {
            "b": BooleanAnswer(True, 1),
            "c": ChoiceAnswer("b", {"a": 0.25, "b": 0.75}),
            "s": ScoreAnswer(1.5, (0, 0.5, 0.5)),
        }
    )
    assert check_decision(request, decision) is decision


def test_missing_confidence_stays_absent() -> None:
    request = request_of(questions={"b": YES_OR_NO, "c": CHOICE, "s": SCORE})
    decision = Decision(
        {"b": BooleanAnswer(False, None), "c": ChoiceAnswer("a", None), "s": ScoreAnswer(0, None)},
    )
    assert check_decision(request, decision) is decision


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (YES_OR_NO, BooleanAnswer(True, math.nan)),
        (YES_OR_NO, BooleanAnswer(True, 1.0000001)),
        (YES_OR_NO, BooleanAnswer(True, -0.0000001)),
        (YES_OR_NO, BooleanAnswer(True, True)),
        (YES_OR_NO, ChoiceAnswer("a", None)),
        (CHOICE, BooleanAnswer(True, None)),
        (CHOICE, ChoiceAnswer("c", None)),
        (CHOICE, ChoiceAnswer("a", {"a": 1})),
        (CHOICE, ChoiceAnswer("a", {"a": 1, "b": 0, "c": 0})),
        (CHOICE, ChoiceAnswer("a", {"a": 1, "b": math.inf})),
        (SCORE, ScoreAnswer(2.1, None)),
        (SCORE, ScoreAnswer(-0.1, None)),
        (SCORE, ScoreAnswer(math.nan, None)),
        (SCORE, ScoreAnswer(1, (0.5, 0.5))),
        (SCORE, ScoreAnswer(1, (0.5, 0.5, 2))),
    ],
)
def test_one_bad_answer_rejects_the_whole_batch(question: Question, answer: Answer) -> None:
    request = request_of(questions={"good": YES_OR_NO, "bad": question})
    with pytest.raises(DecisionUnavailable) as caught:
        check_decision(request, Decision({"good": BooleanAnswer(True, 0.9), "bad": answer}))
    assert caught.value.reason == "invalid-response"


@pytest.mark.parametrize("keys", [(), ("a",), ("a", "b", "c"), ("a", "c")])
def test_a_missing_answer_or_a_stranger_rejects_the_whole_batch(keys: tuple[str, ...]) -> None:
    request = request_of(questions={"a": YES_OR_NO, "b": YES_OR_NO})
    with pytest.raises(DecisionUnavailable) as caught:
        check_decision(request, Decision({key: BooleanAnswer(True, 0.9) for key in keys}))
    assert caught.value.reason == "invalid-response"


def test_every_deadline_is_capped_at_30_seconds() -> None:
    near = Deadline.after(5)
    assert capped(near) is near
    assert 29 < capped(Deadline.after(3600)).remaining() <= 30
