"""The proof that a moved section reads in the destination as it read in the source, and that all else stays as it was.

Complete parses are compared as event streams, each event with its place, its text and, for links, its target. Comparing
links alone would miss lost headings and text that became code.

Source: MARKDOWN.md (Extraction proof, step 5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage.records.events import Event, Heading, events, headings
from storage.records.links import parse, resolve
from storage.records.section_move import (
    NotExtractable,
    PageText,
    SectionMove,
    clip,
    heading_of,
    signature,
    target_of,
)


def check_destination(move: SectionMove, after: PageText, begin: int) -> None:
    """Steps 5a and 5b: what the destination had reads as before, and the section reads as it did in the source."""
    stream = events(after.body)
    move.refuse_doubt(after, "destination")
    had = [event for event in stream if event.start < begin]
    come = [event for event in stream if event.start >= begin]
    here = [event for event in move.stream if move.inside(event.start)]
    place = move.places(begin)
    expected = [move.expected(event, place) for event in here]
    if expected != _read_alike(come, after):
        raise _changed_section(move, here, come, after, place)
    if _read_alike(move.destination_stream, after) != _read_alike(had, after):
        raise _changed(move.destination_stream, had, move.destination, after, "destination")
    _check_anchors(move, headings(stream), place)


def check_source(move: SectionMove, after: PageText, length: int, pointer_at: int, pointer: str) -> None:
    """Steps 5c and 5d: the rest of the source reads as before, and the pointer is one."""
    stream = events(after.body)
    move.refuse_doubt(after, "summary")
    end = move.start + length
    shift = end - move.end

    def kept(stream: Sequence[Event], first: int, last: int, by: int) -> list[tuple[object, ...]]:
        rest = [event for event in stream if event.start < first or event.start >= last]
        return [signature(event, target_of(event, after.path), lambda p: p + by if p >= last else p) for event in rest]

    middle = [event for event in stream if move.start <= event.start < end]
    at = move.start + pointer_at
    points = [
        event for event in middle if event.link is not None and (event.start, event.end) == (at, at + len(pointer))
    ]
    tops = [event for event in middle if event.name == "Heading" and event.edge == "start" and event.depth == 0]
    if len(tops) != 1 or [one.depth for one in points] != [0]:
        raise NotExtractable(
            "summary", "The summary must be plain paragraphs: it would begin a section, or hide the link after it."
        )
    assert points[0].link is not None
    if points[0].link.kind != "wikilink":
        raise NotExtractable("summary", "The summary would change what the link after it is.")
    heading = [event for event in move.stream if move.start <= event.start < move.heading_end]
    stays = [event for event in middle if event.start < move.heading_end]
    if _read_alike(heading, after) != _read_alike(stays, after):
        raise _changed(heading, stays, move.source, after, "source")
    if kept(move.stream, move.start, move.end, shift) != kept(stream, move.start, end, 0):
        before = [event for event in move.stream if not move.inside(event.start)]
        rest = [event for event in stream if not move.start <= event.start < end]
        raise _changed(before, rest, move.source, after, "source")
    _check_source_anchors(move, headings(stream), end)


def _read_alike(stream: Sequence[Event], page: PageText) -> list[tuple[object, ...]]:
    return [signature(event, target_of(event, page.path)) for event in stream]


def _check_anchors(move: SectionMove, after: Sequence[Heading], place: Callable[[int], int]) -> None:
    """An anchor that moves must not be another heading's in the destination."""
    for link in move.links:
        target = resolve(link, move.source.path)
        meant = move.heading_meant(target.rest) if target.kind == "self" else None
        if meant is None:
            continue
        found = next((one for one in after if one.anchor == meant.anchor), None)
        if found is None or found.start != place(meant.start):
            shown = move.shown(link)
            raise NotExtractable(
                "link_would_change", f"The link {shown} would lead to another heading of the destination.", shown
            )


def _check_source_anchors(move: SectionMove, after: Sequence[Heading], end: int) -> None:
    """An anchor that the rest of the source links to must still be the same heading's."""
    for link in parse(move.source.body).links:
        target = resolve(link, move.source.path)
        before = None if target.kind != "self" or move.inside(link.start) else heading_of(move.headings, target.rest)
        if before is None:
            continue
        place = before.start if before.start < move.end else before.start + end - move.end
        stays = before.start == move.heading.start or not move.inside(before.start)
        now = heading_of(after, target.rest)
        if not stays or now is None or now.start != place:
            shown = move.shown(link)
            raise NotExtractable(
                "link_would_change",
                f"The link {shown} of the source would lead to no or another heading after the move. Write it as "
                "an [[id|label]] link to the destination, or remove it, first.",
                shown,
            )


def _changed_section(
    move: SectionMove, here: Sequence[Event], come: Sequence[Event], after: PageText, place: Callable[[int], int]
) -> NotExtractable:
    ours = [event for event in here if event.link is not None]
    theirs = [event for event in come if event.link is not None]
    for index, event in enumerate(ours):
        other = theirs[index] if index < len(theirs) else None
        if other is None or move.expected(event, place) != signature(other, target_of(other, after.path)):
            shown = clip(move.source.body[event.start : event.end])
            return NotExtractable(
                "link_would_change",
                f"The link {shown} would lead elsewhere in the destination, or not be a link there. Write it as an "
                "inline or [[id|label]] link first, or close what the destination leaves open at its end.",
                shown,
            )
    if len(theirs) > len(ours):
        shown = clip(after.body[theirs[len(ours)].start : theirs[len(ours)].end])
        return NotExtractable("link_would_change", f"{shown} would become a link in the destination.", shown)
    return NotExtractable(
        "structure",
        "The section would not read the same in the destination, for example because the destination ends inside "
        "an open code or HTML block. Close it first.",
    )


def _changed(
    before: Sequence[Event], now: Sequence[Event], was: PageText, after: PageText, which: str
) -> NotExtractable:
    """What was outside the section and would read otherwise."""
    old = [event for event in before if event.link is not None]
    new = [event for event in now if event.link is not None]
    shown: str | None = None
    for index in range(max(len(old), len(new))):
        one = old[index] if index < len(old) else None
        other = new[index] if index < len(new) else None
        if one is None or other is None or target_of(one, was.path) != target_of(other, after.path):
            shown = clip(
                after.body[other.start : other.end]
                if one is None and other is not None
                else was.body[one.start : one.end]
                if one is not None
                else ""
            )
            break
    if shown is None:
        return NotExtractable(
            "structure",
            f"The rest of the {which} would not read the same after the move; close what is open in it.",
        )
    return NotExtractable(
        "link_would_change",
        f"The link {shown} of the {which} would lead elsewhere after the move. Write it as an inline or "
        "[[id|label]] link first.",
        shown,
    )
