"""List rows from catalogue entries: what every list of a response is made of (tools.md, Agent response shapes)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from actors.store.operations.context import OperationContext
from messages.errors import SnapshotChanged
from messages.json_types import JsonObject
from messages.tools import ROWS_MAX_BYTES, ClaimRow, PageRow, RelationshipRow, Row, Shown
from messages.vocabulary import TAG_MAX_CHARS, TITLE_MAX_CHARS
from storage.records import Record, format_instant, utf16
from storage.state.catalogue_reader import Entry


def list_row(context: OperationContext, entry: Entry, record: Record, *, titled: bool = False) -> Row:
    """The list row of one record; ``titled`` lets a claim carry the title that its text does not repeat."""
    match entry.kind:
        case "page":
            return PageRow(
                id=entry.id,
                revision=entry.revision,
                hash=entry.hash,
                title=utf16.clip(entry.title, TITLE_MAX_CHARS),
                type=utf16.clip(entry.type, TAG_MAX_CHARS),
                lifecycle=entry.lifecycle,
            )
        case "claim":
            return ClaimRow(
                id=entry.id,
                revision=entry.revision,
                hash=entry.hash,
                claim_kind=record.claim_kind or "",
                day=record.occurred_at.day if record.occurred_at else format_instant(entry.recorded_at)[:10],
                text=record.text,
                pages=context.page_refs(record.entities),
                source_page=record.source_page,
                title=utf16.clip(entry.title, TITLE_MAX_CHARS) if titled else None,
                lifecycle=entry.lifecycle,
                assertion_origin=record.assertion_origin or "source",
            )
        case "relationship":
            return RelationshipRow(
                id=entry.id,
                revision=entry.revision,
                hash=entry.hash,
                source=record.from_id or "",
                target=record.to_id or "",
                label=utf16.clip(record.label or "", TAG_MAX_CHARS),
                lifecycle=entry.lifecycle,
                assertion_origin=record.assertion_origin or "source",
            )


class ShowRecord(Protocol):
    """How one record of a list is shown; ``titled`` as in :func:`list_row`."""

    def __call__(
        self, context: OperationContext, entry: Entry, record: Record, /, *, titled: bool = False
    ) -> Shown: ...


@dataclass(frozen=True, slots=True)
class Shape:
    """What the caller of a list gets: agents just what they need, operators complete cards."""

    row: ShowRecord
    max_bytes: int


AGENT: Final = Shape(list_row, ROWS_MAX_BYTES)


def coverage_of(context: OperationContext) -> JsonObject | None:
    """How many files a list does not cover, by why; ``None`` when it covers all of them."""
    return dict(context.session.uncovered()) or None


def current_snapshot(context: OperationContext, sent: str | None) -> str:
    """The snapshot that a page of a list is read from. Raises ``SnapshotChanged`` when ``sent`` is another one."""
    snapshot = f"{context.partition.kind}-{context.catalogue.change}"
    if sent is not None and sent != snapshot:
        raise SnapshotChanged("Records changed since the first page; start again from offset 0.", snapshot=snapshot)
    return snapshot
