"""The title of a claim that was given none (decisions.md section 5, Duplicates)."""

from __future__ import annotations

import re
from typing import Final

from messages.text import one_line
from storage.records import utf16

TITLE_UNITS: Final = 80
_SENTENCE_END: Final = re.compile(r"(?<=[.!?。！？])(?:\s|$)|(?<=[。！？])")
# "Dr.", "St.", "No.", an initial: a point that belongs to its word and ends no sentence.
_ABBREVIATION: Final = re.compile(r"(?:^|\s)[A-Z][a-z]{0,2}\.$")


def claim_title(text: str) -> str:
    """The first sentence, at most 80 units and cut at a word (decisions.md section 5, Duplicates)."""
    line = one_line(text)
    ends = (found.start() for found in _SENTENCE_END.finditer(line))
    sentence = line[: next((end for end in ends if not _ABBREVIATION.search(line, 0, end)), len(line))]
    if utf16.length(sentence) <= TITLE_UNITS:
        return sentence
    cut = utf16.clip(sentence, TITLE_UNITS - 1)
    head, space, _ = cut.rpartition(" ")
    return f"{head if space and utf16.length(head) * 2 >= TITLE_UNITS else cut}…"
