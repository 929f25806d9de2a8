"""``knowledge_source_check``: which sources of a manifest are new, unchanged, changed or gone.

Source: tools.md (Ingestion and dates), decisions.md section 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from messages.arguments import Arguments
from messages.json_types import JsonObject
from messages.pieces import Bool, InstantText, Integer, Items, Sha256, Text, refused
from messages.tools._base import REVISION_MAX, Offset, Snapshot, ToolRequest
from messages.tools._rows import paging, rows_within, short_hash

SourceState: TypeAlias = Literal["new", "unchanged", "changed", "gone"]
SOURCE_STATES: Final = ("new", "unchanged", "changed", "gone")
SOURCES_MAX: Final = 200
SOURCE_KEY_MAX_CHARS: Final = 1_000


class SourceArgument(Arguments):
    """One source as the caller sees it now. What is left out is not compared."""

    key: Annotated[str, Text(max_units=SOURCE_KEY_MAX_CHARS, one_line=True)] = Field(
        description="The stable name that the source page keeps in its field key."
    )
    sha256: Sha256 | None = Field(default=None, description="Hash of its bytes; where known it decides alone.")
    size: Annotated[int, Integer(0, REVISION_MAX)] | None = Field(default=None, description="Number of bytes.")
    modified: InstantText | None = Field(default=None, description="When it was last changed, RFC 3339 with a zone.")


class SourceCheckRequest(ToolRequest):
    """A manifest, or a part of one; ``complete`` says that every source that there still is stands in it."""

    tool: ClassVar[str] = "knowledge_source_check"

    sources: Annotated[tuple[SourceArgument, ...], Items(minimum=1, maximum=SOURCES_MAX)] = Field(
        description="What you see now, each key once."
    )
    complete: Bool = Field(default=False, description="true: the list is whole; source pages not in it are gone.")
    offset: Offset = Field(default=0, description="nextOffset of the previous page, with the same sources.")
    snapshot: Snapshot | None = Field(default=None, description="snapshot of the previous page.")

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        seen: set[str] = set()
        for index, source in enumerate(self.sources):
            if source.key in seen:
                raise refused("duplicate", "repeats an earlier key", "each key once", field=f"sources[{index}].key")
            seen.add(source.key)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """One source beside the page that keeps it. ``differs`` are the members that do; ``also`` other pages of the key.

    A change without a difference means that there was nothing to compare.
    """

    key: str
    state: SourceState
    id: str | None = None
    revision: int | None = None
    hash: str | None = None
    differs: Sequence[str] = ()
    also: Sequence[str] = ()

    def to_json(self) -> JsonObject:
        row: JsonObject = {"state": self.state}
        if self.id is not None:
            row["id"] = self.id
        if self.state in ("changed", "gone"):
            row["revision"] = self.revision
            row["hash"] = None if self.hash is None else short_hash(self.hash)
        if self.state == "changed":
            row["differs"] = list(self.differs)
        if self.also:
            row["also"] = list(self.also)
        row["key"] = self.key
        return row


def source_check_response(
    rows: Sequence[SourceRow], *, offset: int, snapshot: str, coverage: JsonObject | None = None
) -> JsonObject:
    """One page of the rows, cut to 24 KiB; the counts are of all of them."""
    counted = {state: sum(row.state == state for row in rows) for state in SOURCE_STATES}
    shown = rows_within(row.to_json() for row in rows[offset:])
    answer: JsonObject = {
        "total": len(rows),
        "counts": {state: number for state, number in counted.items() if number},
        **paging(offset=offset, returned=len(shown), total=len(rows), snapshot=snapshot),
    }
    if coverage:
        answer["coverage"] = coverage
    return {**answer, "sources": shown}
