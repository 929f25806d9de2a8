"""What the recall gate asks a store: pages that a message may need, with passages; the label index; page beginnings.

Current pages only, but for sources and artifacts, and none whose title reads like an instruction or contains markup.
Where the index cannot answer, the refusal says so: it never means that no page matched.

Source: memory-provider.md (Recall gate, steps 1 and 3), decisions.md section 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, assert_never

from actors.store.needs import NeedIndex
from actors.store.operations.context import OperationContext, Outcome
from actors.store.operations.labels import hidden_types, label_is_safe, label_of
from actors.store.operations.unindexed import Unindexed
from messages.errors import IndexUnavailable
from messages.json_types import JsonObject
from messages.provider.gate import GateCandidatesRequest, GatePage, GatePagesRequest, pages_to_json
from messages.text import utf16_length
from messages.vocabulary import TITLE_MAX_CHARS
from storage.search import PASSAGE_GAP, POOL, beginning, clip_message, message_words, passages
from storage.state.catalogue_reader import Entry
from storage.state.page_labels import PageLabels

LABELS_TOGETHER: Final = 50
"""Labels whose names are looked up in one statement."""


def gate_candidates(context: OperationContext, request: GateCandidatesRequest) -> Outcome:
    """The candidates of a message, best first (``keyword``), or every label that fits, most connected first."""
    match request.mode:
        case "keyword":
            return _by_words(context, request)
        case "model":
            return pages_to_json(list(_labels(context, request)))
        case _:
            assert_never(request.mode)


def gate_pages(context: OperationContext, request: GatePagesRequest) -> JsonObject:
    """The beginning of each of these pages that may still be shown, in their order."""
    found = (context.catalogue.one(page_id) for page_id in request.ids)
    considered = _Considered(context)
    shown = [entry for entry in found if entry is not None and considered.may_show(entry)]
    texts = [beginning(context.session.load(entry).body, request.page_chars) for entry in shown]
    return pages_to_json(_pages(context, shown, texts))


def _by_words(context: OperationContext, request: GateCandidatesRequest) -> Outcome:
    prepared = context.prepared
    if prepared.index_problem is not None:
        raise IndexUnavailable(f"The gate finds no candidates: {prepared.index_problem}.", reason="not_ready")
    if prepared.index_change is None:
        return NeedIndex(context.catalogue.change)
    words = message_words(clip_message(request.message))
    considered = _Considered(context)
    try:
        index = context.open_index()
        late = Unindexed.after(context, index.position())
        if late is None:
            return NeedIndex(context.catalogue.change)
        page = index.candidates(
            words.message, at_least=prepared.index_change, without_types=considered.without, limit=POOL
        )
        ranked = [candidate.rowid for candidate in page.candidates if candidate.rowid not in late.rows]
        entries: list[Entry] = []
        # Nearly always the first ones may all be shown: more are fetched only where some may not.
        for start in range(0, len(ranked), request.limit):
            found = context.catalogue.of_rows(ranked[start : start + request.limit])
            entries += [entry for entry in found if considered.may_show(entry)]
            if len(entries) >= request.limit:
                break
    except IndexUnavailable as error:
        context.index_failed(error)
        raise
    # What was written since is judged by what it says now, and follows behind what the index ranks.
    entries += late.matching(words.query, considered.may_show)
    entries = entries[: request.limit]
    together = context.session.bodies(entries)
    texts = []
    for entry in entries:
        context.check()
        body = together[entry.row] if entry.row in together else context.session.load(entry).body
        quoted = passages(body, words, most=request.excerpts, chars=request.excerpt_chars, total=request.page_chars)
        texts.append(PASSAGE_GAP.join(quoted))
    return pages_to_json(_pages(context, entries, texts))


def _labels(context: OperationContext, request: GateCandidatesRequest) -> Iterator[GatePage]:
    """Labels until the next one would not fit into ``max_index_chars``."""
    considered = _Considered(context)
    room = request.max_index_chars
    ranked = PageLabels(context.catalogue).most_connected(context.now_ms, considered.without)
    safe = (entry for entry in ranked if label_is_safe(entry.title))
    while some := list(islice(safe, LABELS_TOGETHER)):
        for page in _pages(context, some, [""] * len(some)):
            room -= utf16_length(page.label) + 1
            if room < 0:
                return
            yield page


class _Considered:
    """Which records the gate considers."""

    def __init__(self, context: OperationContext) -> None:
        self.without = hidden_types(context.session.ontology)
        self._now_ms = context.now_ms

    def may_show(self, entry: Entry) -> bool:
        return (
            entry.kind == "page"
            and entry.current(self._now_ms)
            and entry.type not in self.without
            and label_is_safe(entry.title)
        )


def _pages(context: OperationContext, entries: Sequence[Entry], texts: Sequence[str]) -> list[GatePage]:
    """These pages with their texts, in their order."""
    names = PageLabels(context.catalogue).own_names(entries)
    return [_page(entry, names[entry.row], text) for entry, text in zip(entries, texts, strict=True)]


def _page(entry: Entry, names: Sequence[tuple[str, bool]], text: str) -> GatePage:
    title = label_of(entry.title)
    alias = next((name for name, is_title in names if not is_title and _may_be_named(name)), None)
    own_title = any(is_title for _, is_title in names) and _may_be_named(title) and title == entry.title
    return GatePage(
        id=entry.id,
        title=title,
        name=title if own_title else alias or entry.id,
        type=entry.type,
        alias=None if alias is None else label_of(alias),
        text=text,
    )


def _may_be_named(name: str) -> bool:
    """Whether a name can stand between quotation marks in a line of the block."""
    return label_is_safe(name) and '"' not in name and utf16_length(name) <= TITLE_MAX_CHARS
