"""List rows and paging: the shapes that every list of an agent response is made of.

Ids, hashes and offsets come first and long text last, since some hosts cut the end of a result off. What a page
says is left out is left out here (tools.md, Agent response shapes; decisions.md section 5, Rows and Result keys).
Plain values in, JSON objects out; any thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from messages.json_types import JsonObject, JsonValue
from messages.text import clip_utf16, utf16_length, without_html_comments
from messages.tools._base import OFFSET_MAX
from messages.vocabulary import CLAIM_TEXT_MAX_CHARS, HASH_PREFIX_MIN_CHARS

LIST_RESPONSE_MAX_BYTES: Final = 24 * 1024
# What stands around the rows of a list: totals, offsets, a snapshot of at most 200 characters, coverage.
LIST_FRAME_BYTES: Final = 1024
ROWS_MAX_BYTES: Final = LIST_RESPONSE_MAX_BYTES - LIST_FRAME_BYTES
"""What the rows of an agent's list may take."""
# What `"truncated":true,"text":,` and `"pages":[],` take beside their values.
_TEXT_KEYS_BYTES: Final = 32
_PAGES_KEY_BYTES: Final = 16

_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

Found: TypeAlias = Literal["found", "ambiguous", "missing"]


@dataclass(frozen=True, slots=True)
class PageRef:
    """A page named beside another record: enough to say what it is and to open it."""

    id: str
    title: str

    def to_json(self) -> JsonObject:
        return {"id": self.id, "title": self.title}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRow:
    """One page of a list."""

    id: str
    revision: int
    hash: str
    title: str
    type: str
    lifecycle: str = "active"

    def to_json(self) -> JsonObject:
        return {**_head(self, "page"), "title": self.title, "type": self.type}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRow:
    """One claim of a list. ``day`` is its occurrence, else the day it was recorded; ``text`` is the stored body.

    ``title`` is given by searches only, and shown only where the text does not repeat it.
    """

    id: str
    revision: int
    hash: str
    claim_kind: str
    day: str
    text: str
    pages: Sequence[PageRef] = ()
    source_page: str | None = None
    title: str | None = None
    lifecycle: str = "active"
    assertion_origin: str = "source"

    def to_json(self) -> JsonObject:
        row = _head(self, "claim")
        row["claimKind"] = self.claim_kind
        row["day"] = self.day
        if self.assertion_origin != "source":
            row["assertionOrigin"] = self.assertion_origin
        if self.pages:
            row["pages"] = [page.to_json() for page in self.pages]
        if self.source_page is not None:
            row["sourcePage"] = self.source_page
        if self.title is not None and not _repeats(self.text, self.title):
            row["title"] = self.title
        row.update(claim_text(self.text))
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationshipRow:
    """One typed relationship of a list; ``source`` and ``target`` are page ids, shown as ``from`` and ``to``."""

    id: str
    revision: int
    hash: str
    source: str
    target: str
    label: str
    lifecycle: str = "active"
    assertion_origin: str = "source"

    def to_json(self) -> JsonObject:
        row = _head(self, "relationship")
        if self.assertion_origin != "source":
            row["assertionOrigin"] = self.assertion_origin
        row.update({"from": self.source, "label": self.label, "to": self.target})
        return row


Row: TypeAlias = PageRow | ClaimRow | RelationshipRow


class Shown(Protocol):
    """A record as one kind of caller sees it in a list."""

    def to_json(self) -> JsonObject: ...


def short_hash(full: str) -> str:
    """The first 16 characters: what list rows carry, and what fences a write."""
    return full[:HASH_PREFIX_MIN_CHARS]


def claim_text(text: str) -> JsonObject:
    """``text`` without HTML comments, and ``truncated`` where it is longer than 4,000 UTF-16 units."""
    shown = without_html_comments(text)
    if utf16_length(shown) <= CLAIM_TEXT_MAX_CHARS:
        return {"text": shown}
    return {"truncated": True, "text": clip_utf16(shown, CLAIM_TEXT_MAX_CHARS)}


def paging(
    *, offset: int, returned: int, total: int, snapshot: str | None = None, offset_max: int = OFFSET_MAX
) -> JsonObject:
    """``nextOffset`` while another page remains that may be asked for; ``snapshot`` while paging, the last page too."""
    shown: JsonObject = {}
    following = offset + returned
    if returned and following < total and following <= offset_max:
        shown["nextOffset"] = following
    if snapshot is not None and (offset > 0 or shown):
        shown["snapshot"] = snapshot
    return shown


def json_bytes(value: JsonValue) -> int:
    """The size of ``value`` as compact UTF-8 JSON, which is how every door sends it."""
    return len(_encode(value).encode())


def rows_within(rows: Iterable[JsonObject], max_bytes: int = ROWS_MAX_BYTES) -> list[JsonObject]:
    """The leading rows that fit into ``max_bytes``, by default a 24 KiB response's; always the first, so that paging
    moves on.

    A first row that would not fit alone has its text shortened (``truncated``) and then its later pages left out, as
    ``omitted`` says: read the record itself.
    """
    kept: list[JsonObject] = []
    size = 2
    for row in rows:
        fitting = row if kept else _shortened(row, max_bytes - size - 1)
        size += json_bytes(fitting) + 1
        if kept and size > max_bytes:
            break
        kept.append(fitting)
    return kept


def _shortened(row: JsonObject, max_bytes: int) -> JsonObject:
    if json_bytes(row) <= max_bytes:
        return row
    shown: JsonObject = {key: value for key, value in row.items() if key not in ("pages", "truncated", "text")}
    pages, text = row.get("pages"), row.get("text")
    if isinstance(pages, list):
        shown["omitted"] = ["pages"]
    room = max_bytes - json_bytes(shown)
    cut = text
    if isinstance(cut, str):
        while json_bytes(cut) > room - _TEXT_KEYS_BYTES and cut:
            cut = clip_utf16(cut, utf16_length(cut) * 7 // 8)
        room -= json_bytes(cut) + _TEXT_KEYS_BYTES
    if isinstance(pages, list):
        named: list[JsonValue] = []
        room -= _PAGES_KEY_BYTES
        for page in pages:
            room -= json_bytes(page) + 1
            if room < 0:
                break
            named.append(page)
        if len(named) == len(pages):
            del shown["omitted"]
        shown["pages"] = named
    if isinstance(cut, str):
        if cut != text or row.get("truncated"):
            shown["truncated"] = True
        shown["text"] = cut
    return shown


def _head(row: Row, kind: str) -> JsonObject:
    head: JsonObject = {"id": row.id, "revision": row.revision, "hash": short_hash(row.hash), "kind": kind}
    if row.lifecycle != "active":
        head["lifecycle"] = row.lifecycle
    return head


def _repeats(text: str, title: str) -> bool:
    return " ".join(title.split()).rstrip("…. ").casefold() in " ".join(text.split()).casefold()
