"""What is wrong with a file of the knowledge base: every problem with its line, all of them in one refusal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from messages.errors import InvalidArgument
from messages.json_types import JsonObject

_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: ``entry`` is the stance's id, else its position (``[2]``), else empty; ``line`` is 1-based.

    The message names keys and rules, never the text of an answer.
    """

    entry: str
    line: int | None
    message: str

    def told(self) -> str:
        """The problem in one line."""
        where = "" if self.line is None else f"line {self.line}: "
        return f"{where}{self.entry}: {self.message}" if self.entry else f"{where}{self.message}"

    def to_json(self) -> JsonObject:
        return {"entry": self.entry, "line": self.line, "message": self.message}


def refusal(file: str, problems: Sequence[Problem], *, reason: str = "invalid") -> InvalidArgument:
    """The refusal of ``file``: its message lists the first problems in the file's order, ``problems`` has them all."""
    ordered = sorted(problems, key=lambda problem: problem.line or 0)
    lines = [problem.told() for problem in ordered[:_SHOWN]]
    if len(ordered) > _SHOWN:
        lines.append(f"and {len(ordered) - _SHOWN} more")
    count = f"{len(ordered)} problem{'' if len(ordered) == 1 else 's'}"
    told = "\n  ".join([f"{file} has {count}; nothing was built from it:", *lines])
    return InvalidArgument(told, file=file, reason=reason, problems=[problem.to_json() for problem in ordered])
