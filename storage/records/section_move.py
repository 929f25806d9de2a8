"""One heading section on its way to another page: what it is, how its links are written there, what may not move.

Source: tools.md (Extract a section), MARKDOWN.md (Extraction proof, steps 1-3 and 6).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from storage.records import utf16
from storage.records.events import Event, Heading, events, footnotes, headings
from storage.records.html_links import relative_references
from storage.records.links import Link, Markdown, Section, Target, parse, resolve
from storage.records.rewriting import destination_for
from storage.records.text import text_problem

LINK_SHOWN_UNITS: Final = 200

_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_RAW_END: Final = re.compile(r"</(?:pre|script|style|textarea)\b", re.IGNORECASE)
_MARKS_BEFORE: Final = re.compile(r"(?:[ \t>]|[-+*][ \t]|[0-9]{1,9}[.)][ \t])*")


class NotExtractable(ValueError):
    """The section cannot be moved. ``reason`` is a stable word, ``link`` the link in the way as it is written."""

    def __init__(self, reason: str, message: str, link: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.link = link


@dataclass(frozen=True, slots=True)
class PageText:
    """A page as it is read: its path relative to the partition, and its body."""

    path: str
    body: str


@dataclass(frozen=True, slots=True)
class _Edit:
    start: int
    end: int
    text: str


class SectionMove:
    """One section of one page on its way to another."""

    def __init__(self, source: PageText, section_start: int, destination: PageText) -> None:
        for page in (source, destination):
            if text_problem(page.body) is not None:
                raise NotExtractable("unstorable", f"{page.path} holds a character that cannot be stored; remove it.")
        self.source, self.destination = source, destination
        markdown = parse(source.body)
        section = _section_at(markdown, source.body, section_start)
        offsets = utf16.Offsets(source.body)
        self.start, self.end = offsets.to_points(section.start), offsets.to_points(section.end)
        self.stream = events(source.body)
        self.headings = headings(self.stream)
        # The section begins with it.
        self.heading = next(one for one in self.headings if one.depth == 0 and self.inside(one.start))
        self.heading_end = _line_end_after(source.body, self.heading.end)
        self.links = tuple(link for link in markdown.links if self.inside(link.start))
        self._edits: list[_Edit] = []
        self._same_folder = _folder(source.path) == _folder(destination.path)
        self.destination_stream = events(destination.body)
        self._refuse_what_is_read_in_two_ways(markdown)
        self._refuse_shared_footnotes()

    def rewritten(self) -> str:
        """The section with its relative inline links written for the destination's folder."""
        self._refuse_relative_html()
        for link in self.links:
            target = resolve(link, self.source.path)
            if not self._needs_rewriting(link, target):
                continue
            shown = self.shown(link)
            if link.kind != "inline" or link.dest_start is None or link.dest_end is None:
                raise NotExtractable(
                    "link_would_change",
                    f"The link {shown} would lead elsewhere from the destination and is no inline link that can be "
                    "rewritten. Write it as an inline or [[id|label]] link first.",
                    shown,
                )
            written = self.source.body[link.dest_start : link.dest_end]
            text = destination_for(written, self.source.path, self.destination.path, to_source=target.kind == "self")
            if text is None:
                raise NotExtractable(
                    "link_would_change",
                    f"The link {shown} leads out of this partition and cannot be rewritten for the destination's "
                    "folder. Write it as an absolute or [[id|label]] link first.",
                    shown,
                )
            self._edits.append(_Edit(link.dest_start, link.dest_end, text))
        self._edits.sort(key=lambda edit: edit.start)
        pieces, position = [], self.start
        for edit in self._edits:
            pieces += [self.source.body[position : edit.start], edit.text]
            position = edit.end
        return "".join([*pieces, self.source.body[position : self.end]])

    # --- what refuses before anything is moved ----------------------------------------------------------

    def _refuse_what_is_read_in_two_ways(self, markdown: Markdown) -> None:
        for start, end in markdown.doubtful:
            if start < self.end and end > self.start:
                shown = clip(self.source.body[start:end])
                raise NotExtractable(
                    "doubtful", f"The section holds {shown}, which not every reader takes for the same.", shown
                )
        self.refuse_doubt(self.source, "source")
        self.refuse_doubt(self.destination, "destination")
        for stream, text in ((self.stream, self.source.body), (self.destination_stream, self.destination.body)):
            for event in stream:
                # At the beginning of a line such an end may begin a raw block, or be text.
                if event.name == "InlineHtml" and _RAW_END.match(event.text) and _begins_line(text, event.start):
                    raise NotExtractable(
                        "doubtful",
                        f"{clip(event.text)} at the beginning of a line is not read the same by every reader.",
                        clip(event.text),
                    )

    def refuse_doubt(self, page: PageText, which: str) -> None:
        """A raw HTML block that another tag's end closes: where it ends is read in two ways."""
        for start, end in parse(page.body).doubtful:
            if page.body[start:end].lstrip(" ").startswith("<"):
                raise NotExtractable(
                    "doubtful", f"The {which} has a raw HTML block that another tag's end closes; put it right first."
                )

    def _refuse_shared_footnotes(self) -> None:
        own = footnotes([event for event in self.stream if self.inside(event.start)])
        outside = footnotes([event for event in self.stream if not self.inside(event.start)])
        for label in sorted(own & (outside | footnotes(self.destination_stream))):
            raise NotExtractable(
                "footnote",
                f"The footnote [^{label}] of the section is also used outside it, or in the destination.",
                f"[^{label}]",
            )

    def _refuse_relative_html(self) -> None:
        html = [event for event in self.stream if self.inside(event.start) and event.name in ("Html", "InlineHtml")]
        text = "".join(event.text for event in html)
        for reference in relative_references(text):
            own = reference.startswith(("#", "?")) or not reference
            if own or not self._same_folder:
                shown = clip(reference)
                raise NotExtractable(
                    "html_link",
                    f"The raw HTML link {shown!r} would lead elsewhere from the destination. Write it as an inline or "
                    "[[id|label]] link first.",
                    shown,
                )

    # --- targets ----------------------------------------------------------------------------------------

    def inside(self, position: int) -> bool:
        return self.start <= position < self.end

    def _needs_rewriting(self, link: Link, target: Target) -> bool:
        match target.kind:
            case "self":
                return self.heading_meant(target.rest) is None
            case "path":
                return not self._same_folder and not unquote(link.url).startswith("/")
            case "outside":
                return not self._same_folder
            case _:
                return False

    def heading_meant(self, rest: str) -> Heading | None:
        """The heading of the section that ``#anchor`` leads to: it moves, so the link follows it."""
        meant = heading_of(self.headings, rest)
        return meant if meant is not None and self.inside(meant.start) else None

    def expected(self, event: Event, place: Callable[[int], int]) -> tuple[object, ...]:
        """How an event of the section must read in the destination."""
        target = target_of(event, self.source.path)
        if target is not None and target.kind == "self":
            follows = self.heading_meant(target.rest) is not None
            target = Target("self" if follows else "path", self._kept_path(follows), target.rest)
        return signature(event, target, place)

    def _kept_path(self, follows: bool) -> str:
        return self.destination.path if follows else self.source.path

    def places(self, begin: int) -> Callable[[int], int]:
        """Where a place of the section lies in the destination."""
        ends = [edit.end for edit in self._edits]
        grown = [0]
        for edit in self._edits:
            grown.append(grown[-1] + len(edit.text) - (edit.end - edit.start))
        return lambda position: begin + position - self.start + grown[bisect_right(ends, position)]

    def shown(self, link: Link) -> str:
        return clip(self.source.body[link.start : link.end])


def _section_at(markdown: Markdown, body: str, unit: int) -> Section:
    for section in markdown.sections:
        if section.start == unit:
            return section
    starts = [section.start for section in markdown.sections]
    raise NotExtractable(
        "no_section",
        f"No section begins at {unit}. sectionStart is the offset of a heading line; sections begin at "
        f"{', '.join(map(str, starts[:20])) or 'no offset of this page'}.",
    )


def _line_end_after(body: str, position: int) -> int:
    """The end of the line in which a heading ends, its line end included."""
    if body[position - 1 : position] == "\r" and body[position : position + 1] == "\n":
        return position + 1
    if body[position - 1 : position] in ("\n", "\r"):
        return position
    found = _LINE_END.search(body, position)
    return len(body) if found is None else found.end()


def _begins_line(text: str, position: int) -> bool:
    line = max(text.rfind("\n", 0, position), text.rfind("\r", 0, position)) + 1
    return _MARKS_BEFORE.fullmatch(text, line, position) is not None


def heading_of(anchors: Sequence[Heading], rest: str) -> Heading | None:
    """The heading that ``#anchor`` leads to."""
    if not rest.startswith("#") or rest == "#":
        return None
    anchor = unquote(rest[1:]).casefold()
    return next((one for one in anchors if one.anchor == anchor), None)


def target_of(event: Event, path: str) -> Target | None:
    return None if event.link is None else resolve(event.link, path)


def signature(
    event: Event, target: Target | None, place: Callable[[int], int] = lambda position: position
) -> tuple[object, ...]:
    """What must be the same of an event in both parses. The end of a block depends on what follows it; a link's not."""
    text = event.text.rstrip("\r\n")
    if event.link is None:
        return (event.edge, event.name, place(event.start), text, event.depth)
    link = event.link
    return (event.name, place(event.start), place(event.end), link.kind, target, link.title, link.label, event.depth)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def clip(text: str) -> str:
    return utf16.clip(text, LINK_SHOWN_UNITS)
