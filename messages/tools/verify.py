"""``knowledge_verify``: whether records and the links between them hold, structurally.

It says what is wrong and changes nothing; that a statement is true it cannot say. Source: tools.md (Reading records,
Ingestion and dates), decisions.md section 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from messages.arguments import Arguments
from messages.json_types import JsonObject
from messages.pieces import Items, RecordId, refused
from messages.tools._base import Offset, Snapshot, ToolRequest
from messages.tools._rows import (
    ROWS_MAX_BYTES,
    json_bytes,
    paging,
    rows_within,
    short_hash,
)

LinkPresence: TypeAlias = Literal["present", "missing", "ambiguous"]
RecordState: TypeAlias = Literal["ok", "problems", "missing", "ambiguous"]

VERIFY_IDS_MAX: Final = 100
EXPECTED_LINKS_MAX: Final = 200
# How many problems of one kind a row shows: fewer where they are so long that the row alone would fill the response.
_SHOWN: Final = (20, 10, 5, 2, 1, 0)


class ExpectedLink(Arguments):
    """A link that should stand in the text of one record and lead to another."""

    from_id: RecordId = Field(alias="from", description="The record whose text should have the link.")
    to_id: RecordId = Field(alias="to", description="The record it should lead to.")


class VerifyRequest(ToolRequest):
    """Some records, some links that should be there, or both; paged over the records first, then the links."""

    tool: ClassVar[str] = "knowledge_verify"

    ids: Annotated[tuple[RecordId, ...], Items(minimum=1, maximum=VERIFY_IDS_MAX)] | None = Field(
        default=None, description="The records to verify."
    )
    expected_links: Annotated[tuple[ExpectedLink, ...], Items(minimum=1, maximum=EXPECTED_LINKS_MAX)] | None = Field(
        default=None, description="Links that should be there, each from one record to another."
    )
    offset: Offset = Field(default=0, description="nextOffset of the previous page, with the same ids and links.")
    snapshot: Snapshot | None = Field(default=None, description="snapshot of the previous page.")

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.ids is None and self.expected_links is None:
            raise refused("missing", "is required, or expectedLinks", ["ids", "expectedLinks"], field="ids")
        return self


@dataclass(frozen=True, slots=True)
class Checked:
    """One aspect of a record: what is wrong, how many things there are, where they are counted, and how many of them
    were too many to look at."""

    problems: Sequence[JsonObject] = ()
    total: int = 0
    unchecked: int = 0

    def to_json(self, shown: int) -> JsonObject:
        counts = {"checked": self.total - self.unchecked, "unchecked": self.unchecked}
        members: JsonObject = {name: number for name, number in counts.items() if number}
        if self.problems:
            members["problems"] = list(self.problems[:shown])
        if len(self.problems) > shown:
            members["more"] = len(self.problems) - shown
        return members


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRecord:
    """One record of the answer. ``aspects`` stand in their order: schema, ontology, evidence, links, duplicates.

    ``redirect`` says where a merged or superseded record leads; an ambiguous id has its files as ``duplicates``.
    """

    id: str
    state: RecordState
    revision: int | None = None
    hash: str | None = None
    kind: str | None = None
    lifecycle: str = "active"
    redirect: JsonObject | None = None
    aspects: Mapping[str, Checked] = field(default_factory=dict)

    def to_json(self, shown: int) -> JsonObject:
        row: JsonObject = {"id": self.id, "state": self.state}
        if self.hash is not None:
            row |= {"revision": self.revision, "hash": short_hash(self.hash), "kind": self.kind}
            if self.lifecycle != "active":
                row["lifecycle"] = self.lifecycle
        if self.redirect is not None:
            row["redirect"] = self.redirect
        for name, aspect in self.aspects.items():
            members = aspect.to_json(shown)
            if members:
                row[name] = members
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedLink:
    """One expected link. ``reason`` says which record is missing or ambiguous, or that a ``link`` of the text could
    mean this record or another."""

    source: str
    target: str
    state: LinkPresence
    reason: Literal["from", "to", "link"] | None = None

    def to_json(self) -> JsonObject:
        row: JsonObject = {"from": self.source, "to": self.target, "state": self.state}
        if self.reason is not None:
            row["reason"] = self.reason
        return row


def verify_response(
    verified: Sequence[VerifiedRecord | VerifiedLink], *, total: int, offset: int, snapshot: str
) -> JsonObject:
    """One page, cut to 24 KiB. ``verified`` begins at ``offset`` of ``total`` records and links."""
    rows = rows_within(_row(item) for item in verified)
    shown: JsonObject = {"total": total, **paging(offset=offset, returned=len(rows), total=total, snapshot=snapshot)}
    records = [row for row, item in zip(rows, verified, strict=False) if isinstance(item, VerifiedRecord)]
    links = rows[len(records) :]
    return {**shown, **({"records": records} if records else {}), **({"links": links} if links else {})}


def _row(item: VerifiedRecord | VerifiedLink) -> JsonObject:
    """The row, with as many problems of each kind as fit into a response of its own."""
    if isinstance(item, VerifiedLink):
        return item.to_json()
    row: JsonObject = {}
    for shown in _SHOWN:
        row = item.to_json(shown)
        if json_bytes(row) <= ROWS_MAX_BYTES:
            break
    return row
