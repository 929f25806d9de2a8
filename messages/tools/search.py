"""``knowledge_grep`` and ``knowledge_lookup``: ranked words, and exact identity (tools.md, Search and lookup)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from messages.json_types import JsonObject
from messages.pieces import Choice, DateText, Integer, Text, refused
from messages.tools._base import (
    Kind,
    Lifecycles,
    Offset,
    Snapshot,
    Tag,
    TimeFields,
    ToolRequest,
    TypeName,
    check_interval,
)
from messages.tools._rows import ROWS_MAX_BYTES, Found, Shown, paging, rows_within
from messages.vocabulary import GREP_QUERY_MAX_CHARS, GREP_QUERY_MAX_WORDS, LOOKUP_QUERY_MAX_CHARS

GrepMode: TypeAlias = Literal["all", "any", "phrase"]

AGENT_LIMIT: Final = 10
GREP_OFFSET_MAX: Final = 500

_Limit: TypeAlias = Annotated[int, Integer(1, 50)]


class GrepRequest(ToolRequest):
    """Ranked keyword search over titles, aliases and bodies."""

    tool: ClassVar[str] = "knowledge_grep"

    query: Annotated[str, Text(max_units=GREP_QUERY_MAX_CHARS)] = Field(
        description="1-64 words. Plain words, no operators."
    )
    mode: Annotated[GrepMode, Choice("all", "any", "phrase")] = Field(
        default="all", description="all (default): every word; any: at least one; phrase: in this order."
    )
    kind: Kind | None = Field(default=None, description="Only this kind of record.")
    type: TypeName | None = Field(default=None, description="Only pages of this ontology type.")
    tag: Tag | None = Field(default=None, description="Only pages with this tag.")
    lifecycle: Lifecycles = Field(default="active", description="active (default), superseded, or all.")
    time_field: TimeFields | None = Field(
        default=None, description="Date that since and until test: default occurred, else recorded."
    )
    since: DateText | None = Field(default=None, description="First day, inclusive: YYYY, YYYY-MM or YYYY-MM-DD.")
    until: DateText | None = Field(default=None, description="End, exclusive.")
    limit: _Limit = Field(default=AGENT_LIMIT, description="Hits per page, default 10.")
    offset: Annotated[int, Integer(0, GREP_OFFSET_MAX)] = Field(
        default=0, description="nextOffset of the previous page."
    )
    snapshot: Snapshot | None = Field(default=None, description="snapshot of the previous page.")

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if len(self.query.split()) > GREP_QUERY_MAX_WORDS:
            limit = f"1 to {GREP_QUERY_MAX_WORDS} words"
            raise refused("too_long", f"must have {limit}", limit, field="query", code="limit_exceeded")
        check_interval(self.since, self.until)
        return self


class LookupRequest(ToolRequest):
    """Exact resolution of an id, a full title or an alias."""

    tool: ClassVar[str] = "knowledge_lookup"

    query: Annotated[str, Text(max_units=LOOKUP_QUERY_MAX_CHARS)] = Field(
        description="An exact record ID, full title or alias."
    )
    kind: Kind | None = Field(default=None, description="Only this kind of record.")
    type: TypeName | None = Field(default=None, description="Only pages of this ontology type.")
    tag: Tag | None = Field(default=None, description="Only pages with this tag.")
    lifecycle: Lifecycles = Field(default="active", description="active (default), superseded, or all.")
    limit: _Limit = Field(default=AGENT_LIMIT, description="Hits per page, default 10.")
    offset: Offset = Field(default=0, description="nextOffset of the previous page.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A row with its excerpt; ``via`` names the superseded record whose words matched."""

    row: Shown
    snippet: str
    via: str | None = None

    def to_json(self) -> JsonObject:
        shown = self.row.to_json()
        text: JsonObject = {key: shown.pop(key) for key in ("truncated", "text") if key in shown}
        if self.via is not None:
            shown["via"] = self.via
        return {**shown, "snippet": self.snippet, **text}


def grep_response(
    hits: Sequence[SearchHit],
    *,
    total: int,
    offset: int,
    snapshot: str,
    replacements: int = 0,
    coverage: JsonObject | None = None,
    max_bytes: int = ROWS_MAX_BYTES,
) -> JsonObject:
    """A search that was answered, cut to ``max_bytes``. ``total`` counts direct matches; replacement rows are extra.

    ``replacements`` is how many rows follow the direct matches in all; offsets run on into them. ``coverage`` only
    where something could not be searched.
    """
    rows = rows_within((hit.to_json() for hit in hits), max_bytes)
    page = paging(
        offset=offset,
        returned=len(rows),
        total=total + replacements,
        snapshot=snapshot,
        offset_max=GREP_OFFSET_MAX,
    )
    return {"total": total, **page, **({"coverage": coverage} if coverage else {}), "hits": rows}


def grep_unavailable(reason: str) -> JsonObject:
    """A search that could not be answered: never to be read as zero matches."""
    return {"index": {"state": "unavailable", "reason": reason}, "total": None, "hits": []}


def lookup_response(
    rows: Sequence[Shown],
    *,
    total: int,
    offset: int = 0,
    snapshot: str | None = None,
    coverage: JsonObject | None = None,
    max_bytes: int = ROWS_MAX_BYTES,
) -> JsonObject:
    """One page of the matches, cut to ``max_bytes``. ``state`` speaks of all ``total`` of them, not of this page.

    ``coverage`` only where something could not be looked at: a name that is missing may stand there.
    """
    state: Found = "missing" if total == 0 else "found" if total == 1 else "ambiguous"
    hits = rows_within((row.to_json() for row in rows), max_bytes)
    page = paging(offset=offset, returned=len(hits), total=total, snapshot=snapshot)
    return {"state": state, "total": total, **page, **({"coverage": coverage} if coverage else {}), "hits": hits}
