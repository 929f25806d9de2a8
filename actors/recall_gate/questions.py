"""What the gate asks the Decision model, and what its answers come to. Pure.

Two kinds of requests. A shortlist is drawn from labels by ``choice`` questions; every page of it is scored by a
``boolean`` question of its own, so that two pages that are both needed can both clear the threshold.

Source: memory-provider.md (Recall gate, steps 1 and 2, Details), knowledge-more-facts.md section 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from actors.recall_gate.settings import GateSettings
from messages.provider.decision import (
    BooleanAnswer,
    BooleanQuestion,
    ChoiceAnswer,
    ChoiceQuestion,
    Decision,
    DecisionRequest,
)
from messages.provider.gate import GateDecision, GatePage, Tier

PURPOSE: Final = "recall-gate"
RUBRIC_VERSION: Final = "recall-gate-1"
LABELS_PER_QUESTION: Final = 254
NONE_OF_THESE: Final = "None of these"

_CHOOSE: Final = "Which of these stored pages would best help answer the message?"
_HELPS: Final = "This page would help answer the message."
_HELPS_NOT: Final = "This page would not help answer the message."


def scoring(message: str, pages: Sequence[GatePage], *, by_label: bool) -> DecisionRequest:
    """One independent question a page, under its place in ``pages``; the state is the bare message.

    The instructions are the document that a reranker is given: title and excerpt, or the label alone (``by_label``).
    """
    return DecisionRequest(
        state=message,
        questions={
            f"page-{place}": BooleanQuestion(page.label if by_label else _document(page), _HELPS, _HELPS_NOT)
            for place, page in enumerate(pages)
        },
        purpose=PURPOSE,
        rubric_version=RUBRIC_VERSION,
    )


def shortlisting(message: str, labels: Sequence[GatePage]) -> DecisionRequest:
    """One question for every 254 labels; a label's key is its place in ``labels``."""
    questions = {}
    for start in range(0, len(labels), LABELS_PER_QUESTION):
        criteria = {
            str(start + place): page.label for place, page in enumerate(labels[start : start + LABELS_PER_QUESTION])
        }
        criteria[NONE_OF_THESE] = "None of these pages would help answer the message."
        questions[f"labels-{start}"] = ChoiceQuestion(_CHOOSE, criteria)
    return DecisionRequest(state=message, questions=questions, purpose=PURPOSE, rubric_version=RUBRIC_VERSION)


def shortlist(labels: Sequence[GatePage], decision: Decision, most: int) -> Sequence[GatePage]:
    """The best ``most`` labels by probability, ties in their order. Without probabilities: those that were chosen."""
    likely: dict[int, float] = {}
    for answer in decision.answers.values():
        assert isinstance(answer, ChoiceAnswer)
        found = {answer.choice: 1.0} if answer.probabilities is None else answer.probabilities
        likely |= {int(key): value for key, value in found.items() if key != NONE_OF_THESE and value > 0}
    ranked = sorted(likely, key=lambda place: (-likely[place], place))
    return [labels[place] for place in ranked[:most]]


def decisions(settings: GateSettings, pages: Sequence[GatePage], decision: Decision) -> Sequence[GateDecision]:
    """What the model says of each page, in the order of ``pages``."""
    judged = []
    for place, page in enumerate(pages):
        answer = decision.answers[f"page-{place}"]
        assert isinstance(answer, BooleanAnswer)
        judged.append(GateDecision(page.id, answer.probability_true, _tier(settings, answer)))
    return judged


def _tier(settings: GateSettings, answer: BooleanAnswer) -> Tier:
    medium = settings.medium_threshold
    score = answer.probability_true
    if score is None:
        # A label without a probability is no reason to inject text.
        return "medium" if answer.value and medium is not None else "none"
    if score >= settings.high_threshold:
        return "high"
    return "medium" if medium is not None and score >= medium else "none"


def hints_at_skipping(settings: GateSettings, judged: Sequence[GateDecision]) -> bool:
    """Whether the model scored pages, and every one of them below the cutoff for the hint."""
    below = settings.skip_hint_below
    if below is None or not judged:
        return False
    return all(one.score is not None and one.score < below for one in judged)


def _document(page: GatePage) -> str:
    return f"{page.title}\n\n{page.text}" if page.text else page.title
