"""The local decision model, on the vectors of the real package."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

import pytest

from host_bridge.config import parse_configuration
from host_bridge.decisions import DecisionProviders
from host_bridge.decisions.local import FITTED, Features, LocalModel, load_vectors, look_at
from messages.envelope import Deadline
from messages.json_types import JsonValue
from messages.provider.decision import (
    BooleanAnswer,
    BooleanQuestion,
    ChoiceQuestion,
    Decision,
    DecisionRequest,
    DecisionUnavailable,
    Question,
    ScoreQuestion,
)
from stress.recall import gate_fit
from stress.recall.corpus import SHIPPED, read_corpus

installed = pytest.mark.skipif(
    LocalModel().problem() is not None, reason="needs wordllama, which the extras local and dev install"
)

MESSAGE = "who repairs the boiler?"
PAGES = (
    "Bob the plumber\n\nFixed the boiler valve in November, cash only.\n\nLives in Mill Street.",
    "Heron\n\nA release is planned for spring.",
)


def request_of(state: JsonValue = MESSAGE, questions: Mapping[str, Question] | None = None) -> DecisionRequest:
    asked = {f"page-{place}": BooleanQuestion(text, "yes", "no") for place, text in enumerate(PAGES)}
    return DecisionRequest(state, asked if questions is None else questions, "test", "1")


def providers(model: str = "local") -> DecisionProviders:
    configuration = parse_configuration(f"agents: {{defaults: {{decisionModel: {model}}}}}\n")
    return DecisionProviders(lambda: configuration)


def ask(request: DecisionRequest, *, seconds: float = 60, model: str = "local") -> Decision:
    found = providers(model).for_agent("main")
    assert found is not None
    return found.evaluate(request, deadline=Deadline.after(seconds), before_dispatch=lambda: None)


def probability(decision: Decision, key: str) -> float:
    answer = decision.answers[key]
    assert isinstance(answer, BooleanAnswer)
    assert answer.probability_true is not None
    assert answer.value == (answer.probability_true >= 0.5)
    return answer.probability_true


def test_without_the_extra_it_is_not_ready_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = providers().for_agent("main")
    assert found is not None
    assert not found.is_ready()
    assert "knowledge-runtime[local]" in providers().problems()["main"]
    with pytest.raises(DecisionUnavailable) as caught:
        ask(request_of())
    assert caught.value.reason == "not-configured"
    assert "knowledge-runtime[local]" in caught.value.message


def test_files_that_cannot_be_loaded_are_a_provider_error() -> None:
    def broken() -> None:
        raise OSError("/secret/path")

    with pytest.raises(DecisionUnavailable) as caught:
        LocalModel(broken).answer(request_of(), Deadline.after(60), lambda: None)  # type: ignore[arg-type]
    assert caught.value.reason == "provider-error"
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("features", [Features(-1, 0, 0.004), Features(0, 0, 1), Features(1, 1, 1)])
def test_the_logistic_gives_a_probability_that_rises_with_each_feature(features: Features) -> None:
    here = FITTED.probability(features)
    assert 0 < here < 1
    for name in Features._fields:
        assert FITTED.probability(features._replace(**{name: getattr(features, name) + 0.1})) > here


@installed
@pytest.mark.parametrize("model", ["local", "local/wordllama"])
def test_a_page_that_answers_is_likelier_than_one_that_does_not(model: str) -> None:
    decision = ask(request_of(), model=model)
    assert probability(decision, "page-0") > 0.5
    assert probability(decision, "page-1") < 0.25


@installed
def test_the_best_passage_of_a_page_counts() -> None:
    vectors = load_vectors()
    title, *passages = PAGES[0].split("\n\n")
    whole, alone, other = look_at(
        vectors, MESSAGE, [PAGES[0], f"{title}\n\n{passages[0]}", f"{title}\n\n{passages[1]}"], Deadline.after(60)
    )
    assert whole.cosine == pytest.approx(alone.cosine)
    assert whole.cosine > other.cosine
    assert [whole.place, alone.place, other.place] == [1, 1 / 2, 1 / 3]


@installed
@pytest.mark.parametrize("text", ["", " ", "\n\n", "x", "🎉", "牛奶", "word " * 20_000, "x" * 50_000, "\ud800"[:0]])
def test_any_text_gets_a_probability(text: str) -> None:
    asked = {"a": BooleanQuestion(text, "", ""), "b": BooleanQuestion("title\n\n" + text, "", "")}
    for state in (text, MESSAGE):
        decision = ask(request_of(state, asked))
        for key in asked:
            assert 0 <= probability(decision, key) <= 1


@installed
@pytest.mark.parametrize(
    "request_",
    [
        request_of({"message": "x"}),
        request_of(None),
        request_of(questions={"a": BooleanQuestion(None, "", "")}),
        request_of(questions={"a": ChoiceQuestion("x", {"a": "", "b": ""})}),
        request_of(questions={"a": ScoreQuestion("x", ("a", "b"))}),
    ],
)
def test_what_it_cannot_answer_is_rejected(request_: DecisionRequest) -> None:
    with pytest.raises(DecisionUnavailable) as caught:
        ask(request_)
    assert caught.value.reason == "unsupported-input"


@installed
def test_it_stops_at_its_deadline() -> None:
    vectors = load_vectors()
    with pytest.raises(DecisionUnavailable) as caught:
        list(look_at(vectors, "word " * 5_000, [], Deadline.after(-1)))
    assert caught.value.reason == "deadline"


@installed
def test_before_dispatch_is_called_and_stops_it() -> None:
    class Revoked(Exception):
        pass

    def revoked() -> None:
        raise Revoked

    with pytest.raises(Revoked):
        LocalModel().answer(request_of(), Deadline.after(60), revoked)


@installed
def test_the_shipped_weights_are_those_that_the_fit_finds() -> None:
    turns, _ = gate_fit.look(read_corpus(SHIPPED), load_vectors())
    found = gate_fit.report(turns)
    assert found["fitted"] == found["shipped"]
    rows = {row["threshold"]: row for row in found["thresholds"] if isinstance(row, dict)}  # type: ignore[union-attr]
    precision, gold = rows[0.5]["precision"], rows[0.5]["turnsWithTheirPage"]
    assert isinstance(precision, float)
    assert isinstance(gold, float)
    assert precision > 0.85
    assert gold > 0.7
