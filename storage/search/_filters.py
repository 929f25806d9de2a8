"""Filters as SQL conditions on the rows that a full-text match yields, before they are scored or counted.

Source: knowledge-more-facts.md section 6, decisions.md sections 2 (eligible, dates) and 5.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from messages.vocabulary import RECORD_KINDS
from storage.search._documents import IndexDocument, SearchFilters, TimeField
from storage.state.connection import SqlValue

SLOT_BITS: Final = 40
ROW_MASK: Final = (1 << SLOT_BITS) - 1

# A text's rowid is (slot << 40) + row and a slot is (state << 2) + kind, so the usual filters on lifecycle are ranges
# that FTS5 skips by itself, and those on kind are arithmetic: neither looks at another table.
_CURRENT, _SUPERSEDED, _INELIGIBLE, _HIDDEN = 0, 1, 2, 3
_STATE_BITS: Final = SLOT_BITS + 2
PAGE_SLOT: Final = (_CURRENT << 2) + RECORD_KINDS.index("page")
"""The slot of current pages."""

_ROW: Final = f"(text.rowid & {ROW_MASK})"
# CROSS JOIN keeps the match outermost: the other order would run it once a document.
_JOIN: Final = f" CROSS JOIN document ON document.row = {_ROW}"
_INTERVALS: Final[dict[TimeField | None, tuple[str, str]]] = {
    None: (
        "coalesce(document.occurred_from, document.recorded_at)",
        "coalesce(document.occurred_until, document.recorded_at + 1)",
    ),
    "occurred": ("document.occurred_from", "document.occurred_until"),
    "recorded": ("document.recorded_at", "document.recorded_at + 1"),
    "updated": ("document.updated_at", "document.updated_at + 1"),
    "due": ("document.due_from", "document.due_until"),
}

_EXPIRED: Final = "expires_at <= ? AND slot < 4"  # and current otherwise
ANY_EXPIRED: Final = f"EXISTS (SELECT 1 FROM document WHERE {_EXPIRED})"
"""Whether some document has expired at the one parameter; most partitions hold none."""

LISTED: Final = "SELECT value FROM json_each(?)"
"""A set of values passed as one parameter, made by :func:`listed`."""


@dataclass(frozen=True, slots=True)
class Where:
    """``FROM text`` is followed by ``join``, ``WHERE text MATCH ?`` by ``condition`` with its ``parameters``."""

    join: str
    condition: str
    parameters: tuple[SqlValue, ...]


def slot_of(document: IndexDocument) -> int:
    """The range of rowids that the document's text belongs to. What depends on the time of day is no part of it."""
    if document.lifecycle not in ("active", "superseded"):
        state = _HIDDEN
    elif not document.valid or document.fixture:
        state = _INELIGIBLE
    else:
        state = _CURRENT if document.lifecycle == "active" else _SUPERSEDED
    return (state << 2) + RECORD_KINDS.index(document.kind)


def rowid_of(slot: int, row: int) -> int:
    """The rowid of a text; ``ValueError`` for a row that does not fit."""
    if not 0 < row <= ROW_MASK:
        raise ValueError(f"not a catalogue row: {row}")
    return (slot << SLOT_BITS) + row


def listed(values: Collection[int] | Collection[str]) -> str:
    """The parameter for :data:`LISTED`."""
    return json.dumps(sorted(values), ensure_ascii=False)


def compile_filters(
    filters: SearchFilters,
    *,
    expired: bool = True,
    among: Collection[int] | None = None,
    without: Collection[int] = (),
) -> Where:
    """The conditions of ``filters``; ``expired``: there may be such documents.

    ``among`` are the only rows wanted, ``without`` those that are not.
    """
    on_text: list[str] = []
    on_document: list[str] = []
    text_values: list[SqlValue] = []
    values: list[SqlValue] = []
    if filters.eligible_at is not None:
        first = _SUPERSEDED if filters.lifecycle == "superseded" else _CURRENT
        last = _CURRENT if filters.lifecycle == "active" else _SUPERSEDED
        on_text.append(f"text.rowid >= {first << _STATE_BITS} AND text.rowid < {(last + 1) << _STATE_BITS}")
        if expired and first == _CURRENT:
            # Superseded records are history already, and their wording still leads to the current one.
            on_text.append(f"text.rowid NOT IN (SELECT (slot << {SLOT_BITS}) + row FROM document WHERE {_EXPIRED})")
            text_values.append(filters.eligible_at)
    else:
        on_text.append(f"text.rowid < {_HIDDEN << _STATE_BITS}")
        if filters.lifecycle != "all":
            on_document.append("document.lifecycle = ?")
            values.append(filters.lifecycle)
    if among is not None:
        on_text.append(f"{_ROW} IN ({LISTED})")
        text_values.append(listed(among))
    if without:
        on_text.append(f"{_ROW} NOT IN ({LISTED})")
        text_values.append(listed(without))
    if filters.kind is not None:
        on_text.append(f"(text.rowid >> {SLOT_BITS}) & 3 = {RECORD_KINDS.index(filters.kind)}")
    if filters.types is not None:
        on_document.append(f"document.type IN ({LISTED})")
        values.append(listed(filters.types))
    if filters.tag is not None:
        on_text.append(f"EXISTS (SELECT 1 FROM tag WHERE tag.row = {_ROW} AND tag.tag = ?)")
        text_values.append(filters.tag)
    begins, ends = _INTERVALS[filters.time_field]
    if filters.since is not None:
        on_document.append(f"{ends} > ?")
        values.append(filters.since)
    if filters.until is not None:
        on_document.append(f"{begins} < ?")
        values.append(filters.until)
    condition = "".join(f" AND {one}" for one in (*on_text, *on_document))
    return Where(_JOIN if on_document else "", condition, (*text_values, *values))
