"""Which text may be stored: any Unicode text without NUL and without lone surrogates (decisions.md section 5)."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

TextProblem: TypeAlias = Literal["nul_character", "lone_surrogate"]

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def text_problem(text: str) -> TextProblem | None:
    """The first thing that forbids storing ``text``, or ``None``."""
    if "\x00" in text:
        return "nul_character"
    if not text.isascii() and _SURROGATE.search(text):
        return "lone_surrogate"
    return None
