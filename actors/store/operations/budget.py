"""Page budgets: what a page's body may grow to, by what it costs to read (tools.md, Page budgets).

Every write of a page's body calls :func:`over_budget` with what it would make of each body, on the snapshot on which it
publishes. The degree that counts is the one before the write. Nothing is recounted: the catalogue keeps degrees.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from actors.store.operations.context import OperationContext
from messages.json_types import JsonObject
from messages.tools import budget_rejection
from messages.vocabulary import HUB_BUDGET_CHARS, HUB_MIN_DEGREE, HUB_MIN_PAGES, PAGE_BUDGET_CHARS
from storage.records import normalise_name, utf16
from storage.records.link_keys import key_of
from storage.records.links import Markdown, Section, parse
from storage.state.catalogue_reader import Entry
from storage.state.page_graph import PageGraph, Standing, is_current_page

SECTIONS_SHOWN: Final = 6
CANDIDATES_SHOWN: Final = 3
CONNECTED_LOOKED_AT_MAX: Final = 500
"""Pages beyond these are not looked for in a section; a rejection is answered in bounded time."""
_WORD: Final = re.compile(r"\w")


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyWrite:
    """What a write would make of one page's body. ``entry`` is the page as it is, ``None`` for one to be created."""

    entry: Entry | None
    title: str
    path: str
    before: str
    after: str
    """As it would be stored."""
    line_end_added: bool = False
    """Whether the last line end is ours and not the caller's: it counts as growth, and is not held against him."""

    @property
    def attempted(self) -> int:
        added = self.after.endswith(("\n", "\r")) if self.line_end_added else False
        return utf16.length(self.after) - (2 if added and self.after.endswith("\r\n") else int(added))

    @property
    def grows(self) -> bool:
        return utf16.length(self.after) > utf16.length(self.before)


@dataclass(frozen=True, slots=True)
class Budget:
    """What one page may have, and why."""

    chars: int
    hub: bool
    standing: Standing


def over_budget(context: OperationContext, *writes: BodyWrite) -> JsonObject | None:
    """The rejection of a write that would make a body larger than it was and larger than its budget, or ``None``.

    A body that keeps its size or gets smaller is never rejected. The first page over its budget is the target that
    the rejection names.
    """
    over: list[tuple[BodyWrite, Budget]] = []
    for write in writes:
        # No budget is smaller than a hub's: most writes need no look at the page's standing.
        if not write.grows or write.attempted <= HUB_BUDGET_CHARS:
            continue
        budget = budget_of(context, write.entry)
        if write.attempted > budget.chars:
            over.append((write, budget))
    if not over:
        return None
    first, budget = over[0]
    entry = first.entry
    return budget_rejection(
        message=_message(first, budget),
        pages=[_page(context, write, found) for write, found in over],
        id="" if entry is None else entry.id,
        path="" if entry is None else entry.path,
        revision=0 if entry is None else entry.revision,
        hash="" if entry is None else entry.hash,
    )


def budget_of(context: OperationContext, entry: Entry | None) -> Budget:
    """The budget of a page as it stands now; ``None`` for one that is to be created."""
    standing = PageGraph(context.catalogue).standing(None if entry is None else entry.row)
    hub = (
        standing.pages >= HUB_MIN_PAGES
        and standing.degree >= HUB_MIN_DEGREE
        and standing.percentile >= context.hub_percentile
    )
    return Budget(HUB_BUDGET_CHARS if hub else PAGE_BUDGET_CHARS, hub, standing)


def connected(context: OperationContext, entry: Entry, limit: int = CONNECTED_LOOKED_AT_MAX) -> Sequence[Entry]:
    """Up to ``limit`` current pages connected to a page: by a link of either body, or by a typed relationship."""
    found = {page.row: page for page in PageGraph(context.catalogue).neighbours(entry.row, limit)}
    for page in related(context, entry):
        if len(found) >= limit:
            break
        found.setdefault(page.row, page)
    return list(found.values())


def related(context: OperationContext, entry: Entry) -> Sequence[Entry]:
    """The current pages at the other end of a page's current relationships, each once."""
    catalogue = context.catalogue
    found: dict[int, Entry] = {}
    for record_id in (entry.id, *catalogue.merged_away(entry.id)):
        for relationship in catalogue.naming(record_id, ("from", "to")):
            if not relationship.current(context.now_ms):
                continue
            for end in (*catalogue.named_by(relationship.row, "from"), *catalogue.named_by(relationship.row, "to")):
                other = catalogue.one(end)
                page = None if other is None else catalogue.follow_merges(other)
                if page is not None and page.row != entry.row and is_current_page(page):
                    found.setdefault(page.row, page)
    return list(found.values())


# --- the rejection --------------------------------------------------------------------------------------------------


def _message(write: BodyWrite, budget: Budget) -> str:
    what = "a hub, a page that much other prose links to," if budget.hub else "a page"
    how = (
        "Move a section to a page that it is about with knowledge_extract_section (budget.pages lists sections and "
        "candidates), or to a new page, then retry with fresh revision and hash."
        if write.entry is not None
        else "Put a part of it on another page and link to it."
    )
    return (
        f"Nothing was saved: the body would have {write.attempted} characters, more than the {budget.chars} of {what} "
        f"and more than before. {how} A single fact can always be saved with knowledge_remember."
    )


def _page(context: OperationContext, write: BodyWrite, budget: Budget) -> JsonObject:
    entry, standing = write.entry, budget.standing
    shown = write.before if entry is not None else write.after
    markdown = parse(shown)
    pages = _linked(context, write, markdown) if entry is None else connected(context, entry)
    return {
        "id": "" if entry is None else entry.id,
        "title": write.title,
        "currentChars": utf16.length(write.before),
        "attemptedChars": write.attempted,
        "budgetChars": budget.chars,
        "hub": {
            "hub": budget.hub,
            "degree": standing.degree,
            "percentile": round(standing.percentile, 2),
            "hubPercentile": context.hub_percentile,
            "minPages": HUB_MIN_PAGES,
            "minDegree": HUB_MIN_DEGREE,
        },
        "sectionsOf": "current" if entry is not None else "attempted",
        "sections": [
            _section(context, write, shown, markdown, section, pages)
            for section in sorted(markdown.sections, key=lambda one: (one.start - one.end, one.start))[:SECTIONS_SHOWN]
        ],
    }


def _linked(context: OperationContext, write: BodyWrite, markdown: Markdown) -> Sequence[Entry]:
    """The pages that a new page would be connected to."""
    graph = PageGraph(context.catalogue)
    keys = dict.fromkeys(key for link in markdown.links if (key := key_of(link, write.path)) is not None)
    found = (graph.page_of(key) for key in list(keys)[:CONNECTED_LOOKED_AT_MAX])
    return list({page.row: page for page in found if page is not None}.values())


def _section(
    context: OperationContext,
    write: BodyWrite,
    body: str,
    markdown: Markdown,
    section: Section,
    pages: Sequence[Entry],
) -> JsonObject:
    below = [one for one in markdown.sections if section.start < one.start < section.end]
    return {
        "heading": section.heading,
        "level": section.level,
        "start": section.start,
        "end": section.end,
        "chars": section.end - section.start,
        "subsections": len(below),
        "candidates": [
            {
                "id": page.id,
                "title": page.title,
                "revision": page.revision,
                "hash": page.hash,
                "headroomChars": headroom,
            }
            for page, headroom in _candidates(context, write, body, markdown, section, pages)
        ],
    }


def _candidates(
    context: OperationContext,
    write: BodyWrite,
    body: str,
    markdown: Markdown,
    section: Section,
    pages: Sequence[Entry],
) -> list[tuple[Entry, int]]:
    """The connected pages that a section links to, then those that it names, those with most room first."""
    if not pages:
        return []
    graph, offsets = PageGraph(context.catalogue), utf16.Offsets(body)
    start, end = offsets.to_points(section.start), offsets.to_points(section.end)
    keys = {key_of(link, write.path) for link in markdown.links if start <= link.start < end}
    leads = {page.row for key in keys if key is not None and (page := graph.page_of(key)) is not None}
    text = normalise_name(body[start:end])
    found = [
        (page.row not in leads, budget_of(context, page).chars - page.body_size, page)
        for page in pages
        if page.row in leads or _names(context, text, page)
    ]
    found.sort(key=lambda one: (one[0], -one[1], one[2].row))
    return [(page, max(0, headroom)) for _, headroom, page in found[:CANDIDATES_SHOWN]]


def _names(context: OperationContext, text: str, page: Entry) -> bool:
    """Whether a text, normalised as names are, has one of a page's names as whole words."""
    return any(_has_words(text, name) for name in context.catalogue.names_of(page.row))


def _has_words(text: str, name: str) -> bool:
    if not name:
        return False
    # Only a word's own edge needs another word to end there: "C++" is named before a letter, "C" is not.
    before = r"(?<!\w)" if _WORD.match(name[0]) else ""
    after = r"(?!\w)" if _WORD.match(name[-1]) else ""
    return re.search(before + re.escape(name) + after, text) is not None
