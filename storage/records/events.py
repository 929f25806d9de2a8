"""The parser's whole event stream of a body, in code points: what two parses are compared by.

Everything that the parser sees is an :class:`Event`: blocks, text, code, raw HTML, links, footnotes. Pure functions.

Source: MARKDOWN.md (Extraction proof, step 5).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import pyromark

from storage.records.links import OPTIONS, Link, LinkKind, code_points, link_kind

Edge: TypeAlias = Literal["start", "end", "leaf"]

_CONTAINERS: Final = frozenset(("BlockQuote", "List", "Item", "FootnoteDefinition"))


@dataclass(frozen=True, slots=True)
class Event:
    """One event. ``[start, end)`` is the whole element, at its end too. ``link`` stands at the start of a link or image
    and has no place of its destination; ``depth`` counts the quotes, lists and footnotes around."""

    edge: Edge
    name: str
    start: int
    end: int
    text: str
    depth: int
    link: Link | None = None


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading wherever it stands, with the anchor by which ``#anchor`` leads to it."""

    start: int
    end: int
    depth: int
    text: str
    anchor: str


def events(text: str) -> tuple[Event, ...]:
    """The events of a text, in the parser's order."""
    raw = list(pyromark.events_with_range(text, options=OPTIONS))
    points = code_points(text, (offset for _, place in raw for offset in (place["start"], place["end"])))
    return tuple(_walk(raw, points))


def headings(stream: Sequence[Event]) -> tuple[Heading, ...]:
    """The headings of a stream in order. The second of two equal anchors gets ``-1``, as readers on the web do it."""
    found: list[Heading] = []
    given: dict[str, int] = {}
    opened: Event | None = None
    words = ""
    for event in stream:
        if event.name == "Heading" and event.edge == "start":
            opened, words = event, ""
        elif event.name == "Heading" and event.edge == "end" and opened is not None:
            plain = anchor_of(words)
            number = given.get(plain, 0)
            given[plain] = number + 1
            anchor = f"{plain}-{number}" if number else plain
            found.append(Heading(opened.start, opened.end, opened.depth, words.strip(), anchor))
            opened = None
        elif opened is not None and event.edge == "leaf":
            words += " " if event.name in ("SoftBreak", "HardBreak") else event.text
    return tuple(found)


def anchor_of(heading: str) -> str:
    """The anchor of a heading's text: lower case, blanks become ``-``, other punctuation goes."""
    kept = (
        character
        for character in heading.strip().lower()
        if character in "-_ " or unicodedata.category(character)[0] in "LNM"
    )
    return "".join(kept).replace(" ", "-")


def footnotes(stream: Sequence[Event]) -> frozenset[str]:
    """The labels that are defined or used."""
    return frozenset(
        event.text
        for event in stream
        if event.name == "FootnoteReference" or (event.name == "FootnoteDefinition" and event.edge == "start")
    )


def _walk(raw: Sequence[tuple[Any, Any]], points: Mapping[int, int]) -> Iterator[Event]:
    depth = 0
    for found, place in raw:
        start, end = points[place["start"]], points[place["end"]]
        if isinstance(found, str):
            yield Event("leaf", found, start, end, "", depth)
            continue
        # The parser's events are typed case by case; here they are walked by name.
        tagged: Mapping[str, Any] = found
        ((kind, payload),) = tagged.items()
        if kind not in ("Start", "End"):
            yield Event("leaf", kind, start, end, str(payload), depth)
            continue
        name, detail = (payload, "") if isinstance(payload, str) else next(iter(payload.items()), ("", ""))
        edge: Edge = "start" if kind == "Start" else "end"
        depth -= edge == "end" and name in _CONTAINERS
        link = _link(detail, name, start, end) if isinstance(detail, dict) and name in ("Link", "Image") else None
        yield Event(edge, name, start, end, "" if link is not None else str(detail), depth, link)
        depth += edge == "start" and name in _CONTAINERS


def _link(tag: Mapping[str, Any], name: str, start: int, end: int) -> Link:
    kind: LinkKind = link_kind(tag["link_type"])
    return Link(kind, str(tag["dest_url"]), start, end, name == "Image", title=str(tag["title"]), label=str(tag["id"]))
