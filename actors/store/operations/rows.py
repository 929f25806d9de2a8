"""List rows from catalogue entries: what every list of a response is made of (tools.md, Agent response shapes)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from actors.store.operations.context import OperationContext, pages_among
from messages.errors import SnapshotChanged
from messages.json_types import JsonObject
from messages.tools import ROWS_MAX_BYTES, ClaimRow, PageRow, RelationshipRow, Row, Shown
from messages.vocabulary import TAG_MAX_CHARS, TITLE_MAX_CHARS
from storage.records import Record, format_instant, utf16
from storage.state.catalogue_reader import Entry


def list_row(listed: Listed, entry: Entry, /, *, titled: bool = False) -> Row:
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
            record = listed.record(entry)
            return ClaimRow(
                id=entry.id,
                revision=entry.revision,
                hash=entry.hash,
                claim_kind=record.claim_kind or "",
                day=record.occurred_at.day if record.occurred_at else format_instant(entry.recorded_at)[:10],
                text=record.text,
                pages=pages_among(record.entities, listed.named),
                source_page=record.source_page,
                title=utf16.clip(entry.title, TITLE_MAX_CHARS) if titled else None,
                lifecycle=entry.lifecycle,
                assertion_origin=record.assertion_origin or "source",
            )
        case "relationship":
            record = listed.record(entry)
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

    def __call__(self, listed: Listed, entry: Entry, /, *, titled: bool = False) -> Shown: ...


@dataclass(frozen=True, slots=True)
class Shape:
    """What the caller of a list gets: agents just what they need, operators complete cards.

    ``names`` are the roles in which a record names what its row shows; ``complete`` rows show what is wrong with a
    record too, and need the text of pages.
    """

    row: ShowRecord
    max_bytes: int
    names: Collection[str]
    complete: bool = False


AGENT: Final = Shape(list_row, ROWS_MAX_BYTES, ("entity", "owner"))


@dataclass(frozen=True, slots=True)
class Listed:
    """The records of one list, read together: as many statements for fifty rows as for one.

    ``named`` has the record that each id leads to which one of them names.
    """

    context: OperationContext
    shape: Shape
    named: Mapping[str, Entry]
    findings: Mapping[str, Sequence[JsonObject]]
    _records: Mapping[int, Record]

    @classmethod
    def of(cls, context: OperationContext, shape: Shape, entries: Collection[Entry], *, texts: bool = False) -> Listed:
        """``texts``: the text of pages is needed whatever their rows show."""
        statements = [entry for entry in entries if entry.kind != "page"]  # a page names nothing that a row shows
        return cls(
            context,
            shape,
            context.catalogue.ends_named([entry.row for entry in statements], shape.names),
            context.catalogue.findings_of([entry.path for entry in entries]) if shape.complete else {},
            context.session.load_all(entries if texts or shape.complete else statements),
        )

    def record(self, entry: Entry) -> Record:
        """The record of one of the entries."""
        found = self._records.get(entry.row)
        return self.context.session.load(entry) if found is None else found

    def row(self, entry: Entry, *, titled: bool = False) -> Shown:
        """How it is shown."""
        return self.shape.row(self, entry, titled=titled)


def coverage_of(context: OperationContext) -> JsonObject | None:
    """How many files a list does not cover, by why; ``None`` when it covers all of them."""
    return dict(context.session.uncovered()) or None


def current_snapshot(context: OperationContext, sent: str | None) -> str:
    """The snapshot that a page of a list is read from. Raises ``SnapshotChanged`` when ``sent`` is another one."""
    return same_snapshot(context.catalogue.snapshot(context.now_ms), sent)


def same_snapshot(snapshot: str, sent: str | None) -> str:
    """``snapshot``. Raises ``SnapshotChanged`` when ``sent`` is another one."""
    if sent is not None and sent != snapshot:
        raise SnapshotChanged("Records changed since the first page; start again from offset 0.", snapshot=snapshot)
    return snapshot
