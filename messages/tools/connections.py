"""``knowledge_connections``: what one record is connected with, a row each (tools.md, Listing and connections)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import Field

from messages.json_types import JsonObject
from messages.pieces import Bool, Choice, Integer, RecordId
from messages.tools._base import Offset, Snapshot, ToolRequest
from messages.tools._rows import ROWS_MAX_BYTES, Shown, paging, rows_within

Direction: TypeAlias = Literal["incoming", "outgoing", "dependents", "claims", "links", "backlinks"]
DIRECTIONS: Final[tuple[Direction, ...]] = ("incoming", "outgoing", "dependents", "claims", "links", "backlinks")


class ConnectionsRequest(ToolRequest):
    """The neighbours of one record, page by page, in a stable order."""

    tool: ClassVar[str] = "knowledge_connections"

    id: RecordId = Field(description="Record ID from a list row.")
    direction: Annotated[Direction, Choice(*DIRECTIONS)] | None = Field(
        default=None, description="Only this direction; all by default."
    )
    historical: Bool = Field(default=False, description="Include superseded records.")
    limit: Annotated[int, Integer(1, 100)] = Field(default=20, description="Rows per page, default 20.")
    offset: Offset = Field(default=0, description="nextOffset of the previous page.")
    snapshot: Snapshot | None = Field(default=None, description="snapshot of the previous page.")


@dataclass(frozen=True, slots=True)
class Connection:
    """One connected record, and how it is connected."""

    direction: Direction
    row: Shown

    def to_json(self) -> JsonObject:
        return {"direction": self.direction, **self.row.to_json()}


def connections_response(
    rows: Sequence[Connection],
    *,
    total: int,
    offset: int,
    snapshot: str,
    merged_into: str | None = None,
    coverage: JsonObject | None = None,
    max_bytes: int = ROWS_MAX_BYTES,
) -> JsonObject:
    """One page of connections, cut to ``max_bytes``.

    ``merged_into`` is the page whose connections these are when another one was asked for; ``coverage`` only where
    something could not be read.
    """
    shown = rows_within((row.to_json() for row in rows), max_bytes)
    page: JsonObject = {"total": total, **paging(offset=offset, returned=len(shown), total=total, snapshot=snapshot)}
    if merged_into is not None:
        page["mergedInto"] = merged_into
    if coverage:
        page["coverage"] = coverage
    return {**page, "connections": shown}
