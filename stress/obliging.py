"""A decision model without a model: it finds everything helpful, after a moment, so that the recall gate has work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from messages.envelope import Deadline
from messages.provider.decision import (
    Answer,
    BooleanAnswer,
    BooleanQuestion,
    ChoiceAnswer,
    ChoiceQuestion,
    Decision,
    DecisionRequest,
    ScoreAnswer,
)

THINKING_SECONDS: Final = 0.02


class Obliging:
    """Says yes to every question. Any thread."""

    def is_ready(self) -> bool:
        return True

    def evaluate(
        self, request: DecisionRequest, *, deadline: Deadline, before_dispatch: Callable[[], None]
    ) -> Decision:
        before_dispatch()
        time.sleep(max(0.0, min(THINKING_SECONDS, deadline.remaining())))
        answers: dict[str, Answer] = {}
        for key, question in request.questions.items():
            match question:
                case BooleanQuestion():
                    answers[key] = BooleanAnswer(True, 0.95)
                case ChoiceQuestion():
                    answers[key] = ChoiceAnswer(next(iter(question.criteria)), None)
                case _:
                    answers[key] = ScoreAnswer(float(len(question.criteria) - 1), None)
        return Decision(answers)
