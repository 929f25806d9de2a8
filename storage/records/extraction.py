"""Moving one heading section to another page, and the proof that it reads there as it read here.

Guaranteed: the section's bytes stay as they are but for the destinations of relative inline links; a complete parse of
both pages before and after finds the same blocks, texts and link targets in what moved and in what stayed. What cannot
be proved is refused, with the link that is in the way where there is one. Pure functions.

Source: tools.md (Extract a section), MARKDOWN.md (Extraction proof).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from storage.records.links import Link
from storage.records.section_move import NotExtractable, PageText, SectionMove
from storage.records.section_proof import check_destination, check_source

__all__ = ["Extracted", "NotExtractable", "PageText", "extract"]

_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_BLANK_AT_END: Final = re.compile(r"(?:\A|(?>\r\n|\n|\r))[ \t]*(?>\r\n|\n|\r)\Z")


@dataclass(frozen=True, slots=True)
class Extracted:
    """Both bodies after the move. ``section`` is the moved text as it stood in the source, ``links`` its links with
    their places there, ``moved`` the text as it stands in the destination."""

    source_body: str
    destination_body: str
    section: str
    moved: str
    heading: str
    links: tuple[Link, ...]


def extract(source: PageText, section_start: int, destination: PageText, *, summary: str, pointer: str) -> Extracted:
    """The section whose heading line begins at a UTF-16 offset, moved to the end of the destination's body.

    The heading line stays, followed by ``summary`` and ``pointer``, a wikilink to the destination. Raises
    :class:`NotExtractable`.
    """
    move = SectionMove(source, section_start, destination)
    moved = move.rewritten()
    prefix = _joined(destination.body, moved)
    after = PageText(destination.path, prefix + moved)
    middle, pointer_at = _left_behind(move, summary, pointer)
    stays = source.body[: move.start] + middle + source.body[move.end :]
    check_destination(move, after, len(prefix))
    check_source(move, PageText(source.path, stays), len(middle), pointer_at, pointer)
    return Extracted(stays, after.body, source.body[move.start : move.end], moved, move.heading.text, move.links)


def _joined(body: str, moved: str) -> str:
    """What stands before the section in the destination: its body, and a blank line in its own line ends."""
    if not body:
        return ""
    newline = _newline(body, moved)
    if not body.endswith(("\n", "\r")):
        body += newline
    return body if _BLANK_AT_END.search(body) else body + newline


def _left_behind(move: SectionMove, summary: str, pointer: str) -> tuple[str, int]:
    """The heading line, the summary and the pointer as the source keeps them, and where the pointer begins."""
    newline = _newline(move.source.body)
    heading = move.source.body[move.start : move.heading_end]
    if not heading.endswith(("\n", "\r")):
        heading += newline
    said = newline.join(_LINE_END.split(summary.strip()))
    before = f"{heading}{newline}{said}{newline}{newline}"
    return f"{before}{pointer}{newline}" + (newline if move.end < len(move.source.body) else ""), len(before)


def _newline(*bodies: str) -> str:
    for body in bodies:
        found = _LINE_END.search(body)
        if found is not None:
            return found[0]
    return "\n"
