"""The records of one publication before it is accepted: new ones and new revisions, judged together.

A draft is seen by what is judged after it: a relationship of a batch may join pages of the same batch. Nothing is
stored before :meth:`Drafts.publish`, and then all of it or nothing. The lane's thread.

Source: WRITE-PATH.md section 2; tools.md, Claims and relationships.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from actors.store.operations.budget import BodyWrite, over_budget
from actors.store.operations.context import OperationContext, fixed_receipt, next_instant, publish
from actors.store.operations.filing import Filing
from actors.store.operations.validity import page_type_of_id
from messages.errors import InvalidArgument, LimitExceeded
from messages.json_types import JsonObject
from messages.tools import WriteRequest, tool_spec
from messages.vocabulary import RECORD_MAX_BYTES, RecordKind
from storage.publication import FileChange
from storage.records import (
    Record,
    Scope,
    changes_between,
    content_hash,
    format_instant,
    render_new,
    rewrite,
    text_problem,
)
from storage.state.catalogue_reader import Entry


@dataclass(frozen=True, slots=True)
class Draft:
    """One record as it would be published. ``before`` is the hash of the file that it replaces, if any."""

    path: str
    before: str | None
    data: bytes
    record: Record

    @property
    def hash(self) -> str:
        return content_hash(self.data)

    def to_item(self) -> JsonObject:
        """Its line among the items of a receipt."""
        return {"id": self.record.id, "revision": self.record.revision, "hash": self.hash}


@dataclass(frozen=True, slots=True)
class Announced:
    """A record of this publication that is still to be drafted, for those that name it before."""

    kind: RecordKind
    title: str = ""
    type: str | None = None


class Drafts:
    """Collects the drafts of one publication, in the order in which they are made.

    What every write must keep is kept here: the size of a record, the room of the partition, the budgets of pages.
    """

    def __init__(self, context: OperationContext) -> None:
        self._context = context
        self._filing = Filing(context)
        self._at = next_instant(context)
        self._drafts: dict[str, Draft] = {}
        self._announced: dict[str, Announced] = {}
        self._bodies: list[BodyWrite] = []
        self._places: dict[str, str] = {}
        self._created = 0

    @property
    def at_ms(self) -> int:
        """When the publication says it was made."""
        return self._at

    @property
    def instant(self) -> str:
        """:attr:`at_ms` as records write it."""
        return format_instant(self._at)

    # --- making ---------------------------------------------------------------------------------------------

    def announce(self, record_id: str, record: Announced) -> None:
        """Let records that are drafted before this one name it. The caller drafts it, or publishes nothing."""
        self._announced[record_id] = record

    def create(self, record: Record) -> Draft:
        """A new record; its times and scope are filled in here, each a millisecond after the one before."""
        path = self.place(record)
        at = format_instant(self._at + self._created)
        partition = self._context.partition
        new = replace(
            record,
            revision=1,
            recorded_at=at,
            updated_at=at,
            scope=Scope(partition.kind, partition.session_id),
        )
        self._created += 1
        if new.kind == "page":
            self._bodies.append(BodyWrite(entry=None, title=new.title, path=path, before="", after=new.body))
        return self._keep(Draft(path, None, render_new(new), new))

    def place(self, record: Record) -> str:
        """The path at which :meth:`create` will put the record, for what must know it before the body is complete."""
        path = self._places.get(record.id)
        if path is None:
            known = None if record.type is None else self._context.session.ontology.page_type(record.type)
            folder = "" if known is None else known.folder
            path = self._filing.path_for(record, format_instant(self._at + self._created), page_folder=folder)
            self._places[record.id] = path
        return path

    def revise(
        self,
        entry: Entry,
        after: Record,
        body: str | None = None,
        *,
        budgeted: bool = True,
        line_end_added: bool = False,
    ) -> Draft:
        """A new revision of a record that :meth:`load` gave; ``body`` only where it changes.

        Only the lines whose keys change are touched. A record that is drafted already is revised further, and stays
        one revision. A page's new body is held to its budget unless ``budgeted`` is false; ``line_end_added`` is
        :class:`BodyWrite`'s.
        """
        before = self._drafts.get(entry.id)
        original = self._context.session.source(entry) if before is None else before.data
        old = self._context.session.load(entry) if before is None else before.record
        updated = format_instant(self._at + self._created)
        new = replace(after, revision=entry.revision + 1, updated_at=updated)
        if body is not None:
            _require_storable(body)
            new = replace(new, body=body)
            if entry.kind == "page" and budgeted:
                self._bodies.append(
                    BodyWrite(
                        entry=entry,
                        title=new.title,
                        path=entry.path,
                        before=old.body,
                        after=body,
                        line_end_added=line_end_added,
                    )
                )
        if before is None or before.before is not None:
            data = rewrite(original, changes_between(old, new), body)
        else:
            new = replace(new, revision=1)
            data = render_new(new)
        return self._keep(Draft(entry.path, entry.hash if before is None else before.before, data, new))

    def load(self, entry: Entry) -> Record:
        """The record as this publication has it so far."""
        draft = self._drafts.get(entry.id)
        return self._context.session.load(entry) if draft is None else draft.record

    # --- looking --------------------------------------------------------------------------------------------

    def get(self, record_id: str) -> Draft | None:
        """The draft of a record, if this publication has one."""
        return self._drafts.get(record_id)

    def page(self, record_id: str, field: str) -> str:
        """The id of the active page that an argument names, merge redirects followed. Raises ``InvalidArgument``."""
        drafted = self._drafts.get(record_id)
        if drafted is not None and drafted.record.kind == "page" and drafted.record.lifecycle == "active":
            return record_id
        announced = self._announced.get(record_id)
        if announced is not None and announced.kind == "page":
            return record_id
        entry = self._context.catalogue.one(record_id)
        page = None if entry is None else self._context.catalogue.follow_merges(entry)
        if page is None or page.kind != "page" or page.lifecycle != "active":
            raise InvalidArgument(
                f"{field} names no active page of this partition; look the page up first.",
                field=field,
                reason="unknown_page",
            )
        return page.id

    def pages(self, record_ids: Iterable[str], field: str) -> tuple[str, ...]:
        """:meth:`page` for a list, each page once."""
        found = (self.page(record_id, f"{field}[{index}]") for index, record_id in enumerate(record_ids))
        return tuple(dict.fromkeys(found))

    def others(self, of: str, record_ids: Iterable[str], field: str) -> tuple[str, ...]:
        """The ids of other records that exist here or are drafted. Raises ``InvalidArgument`` for one that does not,
        and for that of the record itself."""
        found = tuple(dict.fromkeys(record_ids))
        for index, record_id in enumerate(found):
            if record_id == of:
                raise InvalidArgument(
                    f"{field}[{index}] names the record itself; leave it out.",
                    field=f"{field}[{index}]",
                    reason="itself",
                    allowed="other records",
                )
            known = record_id in self._drafts or record_id in self._announced
            if not known and not self._context.catalogue.by_id(record_id):
                raise InvalidArgument(
                    f"{field}[{index}] names no record of this partition.",
                    field=f"{field}[{index}]",
                    reason="unknown_record",
                )
        return found

    def title_of(self, page_id: str) -> str:
        """The title of a page that :meth:`page` gave."""
        drafted, announced = self._drafts.get(page_id), self._announced.get(page_id)
        if drafted is not None:
            return drafted.record.title
        return announced.title if announced is not None else self._context.catalogue.title_of(page_id) or ""

    def type_of(self, record_id: str) -> str | None:
        """The type of the current page with this id (:data:`storage.ontology.Resolve`)."""
        drafted = self._drafts.get(record_id)
        if drafted is not None:
            return drafted.record.type if drafted.record.kind == "page" else None
        announced = self._announced.get(record_id)
        if announced is not None:
            return announced.type if announced.kind == "page" else None
        return page_type_of_id(self._context, record_id)

    # --- publishing -----------------------------------------------------------------------------------------

    def publish(
        self,
        request: WriteRequest,
        *,
        main: Draft | None = None,
        items: Sequence[JsonObject] = (),
        target_id: str | None = None,
        impact: JsonObject | None = None,
        kept: Sequence[JsonObject] = (),
        reason: str | None = None,
        before: Sequence[FileChange] = (),
        operation: str | None = None,
    ) -> JsonObject:
        """Publish every draft as one publication, after the other files of ``before``; the agent's view of the receipt.

        ``main`` is what the receipt names at its top, ``operation`` its name where that is not the tool's. The
        answer is a rejection when a page's body grew beyond its budget: nothing is published then.
        """
        rejected = over_budget(self._context, *self._bodies)
        if rejected is not None:
            return rejected
        self._filing.require_room(self._created + len(before))
        operation = operation or tool_spec(request.tool).operation
        receipt = fixed_receipt(
            self._context,
            operation,
            at_ms=self._at,
            id=None if main is None else main.record.id,
            revision=None if main is None else main.record.revision,
            hash=None if main is None else main.hash,
            path=None if main is None else main.path,
            items=items,
            target_id=target_id,
            impact=impact,
            kept=kept,
            reason=reason,
        )
        changes = tuple(
            FileChange(d.path, d.before, d.data, d.record.id, d.record.revision, d.record.lifecycle)
            for d in self._drafts.values()
        )
        return publish(self._context, request, operation, (*before, *changes), receipt)

    def _keep(self, draft: Draft) -> Draft:
        """The draft, within the size of a record."""
        if len(draft.data) > RECORD_MAX_BYTES:
            raise LimitExceeded(
                f"The complete record would have {len(draft.data)} bytes, more than {RECORD_MAX_BYTES}.",
                field="body",
                reason="record_too_large",
                allowed=f"at most {RECORD_MAX_BYTES} UTF-8 bytes with its frontmatter",
            )
        self._drafts[draft.record.id] = draft
        return draft


def _require_storable(body: str) -> None:
    """A file written by hand may hold what cannot be written back."""
    problem = text_problem(body)
    if problem is not None:
        raise InvalidArgument(
            "The page's text holds a character that cannot be stored, such as NUL; a person must remove it from the "
            "file first, or send a complete new body with knowledge_save_page.",
            field="body",
            reason=problem,
        )
