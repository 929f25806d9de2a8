"""What the Decision model is asked, and what its answers come to (memory-provider.md, Recall gate, steps 1 and 2)."""

from __future__ import annotations

import pytest

from actors.recall_gate.questions import (
    LABELS_PER_QUESTION,
    NONE_OF_THESE,
    decisions,
    hints_at_skipping,
    scoring,
    shortlist,
    shortlisting,
)
from actors.recall_gate.settings import GateSettings
from messages.provider.decision import (
    CHOICE_LABELS,
    BooleanAnswer,
    BooleanQuestion,
    ChoiceAnswer,
    ChoiceQuestion,
    Decision,
    check_request,
)
from messages.provider.gate import GateDecision, GatePage


def pages(count: int) -> list[GatePage]:
    return [
        GatePage(id=f"id-{n}", title=f"Title {n}", name=f"Title {n}", type="project", text=f"text {n}")
        for n in range(count)
    ]


def answered(*answers: BooleanAnswer) -> Decision:
    return Decision({f"page-{place}": answer for place, answer in enumerate(answers)})


def test_one_independent_question_a_page_carries_title_and_excerpt_and_the_state_is_the_bare_message() -> None:
    request = scoring("when?", pages(2), by_label=False)
    assert request.state == "when?"
    assert [type(question) for question in request.questions.values()] == [BooleanQuestion, BooleanQuestion]
    assert [question.instructions for question in request.questions.values()] == [
        "Title 0\n\ntext 0",
        "Title 1\n\ntext 1",
    ]
    check_request(request)


def test_in_model_mode_a_question_carries_the_label_alone() -> None:
    request = scoring("when?", pages(1), by_label=True)
    assert [question.instructions for question in request.questions.values()] == ["project: Title 0"]


@pytest.mark.parametrize(("count", "questions"), [(11, 1), (254, 1), (255, 2), (508, 2), (509, 3)])
def test_one_choice_question_per_254_entries_each_with_a_none_of_these_option(count: int, questions: int) -> None:
    request = shortlisting("when?", pages(count))
    assert len(request.questions) == questions
    seen: list[str] = []
    for question in request.questions.values():
        assert isinstance(question, ChoiceQuestion)
        assert NONE_OF_THESE in question.criteria
        assert len(question.criteria) <= LABELS_PER_QUESTION + 1 == CHOICE_LABELS[1]
        seen += [text for key, text in question.criteria.items() if key != NONE_OF_THESE]
    assert seen == [page.label for page in pages(count)]
    check_request(request)


def test_the_top_entries_of_all_questions_are_the_shortlist() -> None:
    decision = Decision(
        {
            "labels-0": ChoiceAnswer(NONE_OF_THESE, {"0": 0.1, "1": 0.3, "2": 0.0, NONE_OF_THESE: 0.6}),
            "labels-254": ChoiceAnswer("3", {"3": 0.9, "4": 0.1, NONE_OF_THESE: 0.0}),
        }
    )
    assert [page.id for page in shortlist(pages(5), decision, 3)] == ["id-3", "id-1", "id-0"]
    assert [page.id for page in shortlist(pages(5), decision, 10)] == ["id-3", "id-1", "id-0", "id-4"]


def test_without_probabilities_those_that_were_chosen_are_the_shortlist() -> None:
    decision = Decision({"labels-0": ChoiceAnswer("2", None), "labels-254": ChoiceAnswer(NONE_OF_THESE, None)})
    assert [page.id for page in shortlist(pages(5), decision, 3)] == ["id-2"]


BOTH = GateSettings(mode="live", high_threshold=0.75, medium_threshold=0.5, skip_hint_below=0.2)


@pytest.mark.parametrize(
    ("probability", "medium", "tier"),
    [
        (1.0, None, "high"),
        (0.75, None, "high"),
        (0.7499, None, "none"),
        (0.7499, 0.5, "medium"),
        (0.5, 0.5, "medium"),
        (0.4999, 0.5, "none"),
        (0.0, 0.5, "none"),
        (0.8, 0.9, "high"),
    ],
)
def test_a_page_s_tier_is_by_its_own_probability_at_or_above_the_thresholds(
    probability: float, medium: float | None, tier: str
) -> None:
    settings = GateSettings(mode="live", medium_threshold=medium)
    # The label that comes with a probability decides nothing.
    for value in (True, False):
        [one] = decisions(settings, pages(1), answered(BooleanAnswer(value, probability)))
        assert (one.tier, one.score) == (tier, probability)


@pytest.mark.parametrize(
    ("value", "medium", "tier"),
    [(True, None, "none"), (True, 0.5, "medium"), (False, None, "none"), (False, 0.5, "none")],
)
def test_an_answer_true_without_a_probability_gets_the_pointer_when_medium_threshold_is_set_otherwise_nothing(
    value: bool, medium: float | None, tier: str
) -> None:
    [one] = decisions(
        GateSettings(mode="live", medium_threshold=medium), pages(1), answered(BooleanAnswer(value, None))
    )
    assert (one.tier, one.score) == (tier, None)


def test_two_pages_that_are_both_needed_both_clear_the_threshold() -> None:
    found = decisions(BOTH, pages(2), answered(BooleanAnswer(True, 0.9), BooleanAnswer(True, 0.8)))
    assert [one.tier for one in found] == ["high", "high"]


@pytest.mark.parametrize(
    ("scores", "below", "hints"),
    [
        ([0.1, 0.19], 0.2, True),
        ([0.1, 0.2], 0.2, False),
        ([0.1], None, False),
        ([], 0.2, False),
        ([0.1, None], 0.2, False),
        ([None], 1.0, False),
    ],
)
def test_the_skip_hint_needs_every_score_below_the_cutoff_and_is_never_triggered_without_a_probability(
    scores: list[float | None], below: float | None, hints: bool
) -> None:
    judged = [GateDecision(f"id-{n}", score, "none") for n, score in enumerate(scores)]
    assert hints_at_skipping(GateSettings(mode="live", skip_hint_below=below), judged) is hints
