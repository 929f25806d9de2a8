"""``knowledge_merge`` and ``knowledge_unmerge``: two pages of one thing, and back (decisions.md section 5).

Claims and relationships keep naming the source; reads follow the redirect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, TypeVar

from actors.store.operations.context import OperationContext, Outcome, check_fences, earlier_receipt
from actors.store.operations.drafts import Drafts
from actors.store.operations.evidence import identity, with_added
from actors.store.operations.fences import fenced_target
from actors.store.operations.lifecycle import changed
from actors.store.operations.page_drafts import in_line_ends_of
from messages.errors import InvalidArgument, LimitExceeded
from messages.json_types import JsonObject, JsonValue
from messages.tools import MergeRequest, UnmergeRequest
from messages.vocabulary import LIST_ARGUMENT_MAX_ITEMS
from storage.ontology import validate_page
from storage.records import EvidenceCitation, ParsedRecord, Record, normalise_name, parse_record
from storage.state import history
from storage.state.catalogue_reader import REDIRECTS_MAX, Entry

Stayed: TypeAlias = Literal["edited_since", "destination_not_active", "history_missing", "newer_format"]

_EDITED: Final = "edited_since"


def merge(context: OperationContext, request: MergeRequest) -> Outcome:
    """The source becomes a redirect; the destination gains names, tags, evidence and the fields that it lacks."""
    earlier = earlier_receipt(context, request, "merge")
    if earlier is not None:
        return earlier
    check_fences(context, request)
    source, destination = (
        fenced_target(context, fence.id, fence.expected_revision, fence.expected_hash, kind="page", at=f"{name}.")
        for name, fence in (("source", request.source), ("destination", request.destination))
    )
    _require_one_type(context, source, destination)
    _require_short_chain(context, source)
    drafts = Drafts(context)
    given, taker = drafts.load(source), drafts.load(destination)
    merged = _with_what_it_lacks(context, given, taker, destination.type)
    body, line_end_added = None, False
    if request.body is not None:
        body, line_end_added = in_line_ends_of(context.session.source(destination), taker.body, request.body)
    redirect = drafts.revise(
        source, replace(changed(context, drafts, request, given, "merged"), merged_into=destination.id)
    )
    kept = drafts.revise(destination, merged, body, line_end_added=line_end_added)
    return drafts.publish(
        request,
        main=kept,
        items=[redirect.to_item(), kept.to_item()],
        target_id=source.id,
        reason=request.reason,
    )


def unmerge(context: OperationContext, request: UnmergeRequest) -> Outcome:
    """The source is active again; the destination loses what the merge gave it unless it was edited since.

    ``kept`` in the receipt lists what stayed, and why.
    """
    earlier = earlier_receipt(context, request, "unmerge")
    if earlier is not None:
        return earlier
    check_fences(context, request)
    source = fenced_target(
        context, request.id, request.expected_revision, request.expected_hash, kind="page", lifecycle="merged"
    )
    drafts = Drafts(context)
    before = drafts.load(source)
    restored = drafts.revise(source, replace(before, lifecycle="active", merged_into=None, lifecycle_change=None))
    changed_too, kept = _taken_back(context, drafts, source, before)
    items = [restored.to_item(), *changed_too]
    return drafts.publish(
        request, main=restored, items=items if len(items) > 1 else (), kept=kept, reason=request.reason
    )


# --- merging ------------------------------------------------------------------------------------------------------


def _with_what_it_lacks(context: OperationContext, given: Record, taker: Record, page_type: str) -> Record:
    names = {normalise_name(name) for name in (taker.title, *taker.aliases)}
    aliases = list(taker.aliases)
    for name in (given.title, *given.aliases):
        if normalise_name(name) not in names:
            names.add(normalise_name(name))
            aliases.append(name)
    fields = dict(taker.fields)
    for name, value in given.fields.items():
        # What the destination's type does not know stays with the source.
        if name not in fields and not _unfit(context, page_type, taker.fields, name, value):
            fields[name] = value
    merged = replace(
        taker,
        aliases=tuple(aliases),
        tags=_united(taker.tags, given.tags),
        evidence=with_added(taker.evidence, given.evidence),
        fields=fields,
    )
    for name, values in (("aliases", merged.aliases), ("tags", merged.tags)):
        if len(values) > LIST_ARGUMENT_MAX_ITEMS:
            raise LimitExceeded(
                f"The destination would have {len(values)} {name}, more than {LIST_ARGUMENT_MAX_ITEMS}; clear some "
                "with knowledge_save_page first.",
                field=name,
                limit=LIST_ARGUMENT_MAX_ITEMS,
            )
    return merged


def _unfit(
    context: OperationContext, page_type: str, fields: Mapping[str, JsonValue], name: str, value: JsonValue
) -> bool:
    """Whether the field would be wrong on a page of this type."""
    found = validate_page(context.session.ontology, page_type, {**fields, name: value}, lambda _: None)
    return any(
        finding.field.split("[")[0] == f"fields.{name}" and not finding.code.startswith("reference")
        for finding in found
    )


def _require_one_type(context: OperationContext, source: Entry, destination: Entry) -> None:
    ontology = context.session.ontology
    if source.type == destination.type or (
        ontology.is_a(source.type, destination.type) or ontology.is_a(destination.type, source.type)
    ):
        return
    raise InvalidArgument(
        f"A {source.type} and a {destination.type} are not merged: one type must be the other or lie above it. Change "
        "the type of one page first if it is wrong.",
        field="source.id",
        reason="types_differ",
        allowed="two pages of one type",
    )


def _require_short_chain(context: OperationContext, source: Entry) -> None:
    """Redirects are followed over sixteen pages at most, so no chain may become longer."""
    ends, depth = [source.id], 0
    while ends:
        depth += 1
        if depth > REDIRECTS_MAX:
            raise LimitExceeded(
                f"Pages were merged into the source over {REDIRECTS_MAX} steps already; merge the destination into it "
                "instead.",
                field="source.id",
                limit=REDIRECTS_MAX,
            )
        ends = [
            entry.id
            for end in ends
            for entry in context.catalogue.naming(end, ("merged_into",))
            if entry.lifecycle == "merged"
        ]


# --- unmerging ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Gifts:
    """What a merge added to its destination. ``body``: that it wrote one too."""

    body: bool
    aliases: tuple[str, ...]
    tags: tuple[str, ...]
    evidence: tuple[EvidenceCitation, ...]
    fields: Mapping[str, JsonValue]

    def that_went_on(self, later: _Gifts) -> _Gifts:
        """Those of these that a later merge gave to the next destination."""
        return _Gifts(
            self.body,
            _common(self.aliases, later.aliases),
            _common(self.tags, later.tags),
            _common(self.evidence, later.evidence),
            {name: value for name, value in later.fields.items() if name in self.fields and self.fields[name] == value},
        )


@dataclass(frozen=True, slots=True)
class _Merge:
    """What a merge made of its destination."""

    before: Record
    after: Record

    @property
    def gifts(self) -> _Gifts:
        before, after = self.before, self.after
        return _Gifts(
            before.body != after.body,
            _added(before.aliases, after.aliases),
            _added(before.tags, after.tags),
            _added(before.evidence, after.evidence),
            {name: value for name, value in after.fields.items() if name not in before.fields},
        )


def _taken_back(
    context: OperationContext, drafts: Drafts, entry: Entry, source: Record
) -> tuple[list[JsonObject], list[JsonObject]]:
    """Draft the destination without the merge's gifts; the items of what changed, and what stayed.

    Where the destination was merged on, it and every page after it lose what came to them from the source by these
    merges: else the source's names would mean two pages.
    """
    items: list[JsonObject] = []
    kept: list[JsonObject] = []
    seen = {entry.id}
    given: _Gifts | None = None
    while True:
        destination = context.catalogue.one(entry.merged_into)
        there = destination is not None and destination.kind == "page" and destination.id not in seen
        if destination is None or not there or destination.lifecycle not in ("active", "merged"):
            return items, [*kept, _stayed("everything", "destination_not_active")]
        merge_of = _merge_of(context, source, destination.id)
        if merge_of is None:
            return items, [*kept, _stayed("everything", "history_missing")]
        if context.session.parsed(destination).read_only:
            return items, [*kept, _stayed("everything", "newer_format")]
        now = drafts.load(destination)
        given = merge_of.gifts if given is None else given.that_went_on(merge_of.gifts)
        after, body, stayed = _without_what_was_given(now, merge_of, given)
        kept += [one for one in stayed if one not in kept]
        if after != now or body is not None:
            # An unmerge is never limited: it gives back what was there.
            items.append(drafts.revise(destination, after, body, budgeted=False).to_item())
        if destination.lifecycle == "active":
            return items, kept
        seen.add(destination.id)
        entry, source = destination, now


def _merge_of(context: OperationContext, source: Record, destination: str) -> _Merge | None:
    """The destination before and after the merge that made the source a redirect, as history has them.

    A file cannot vouch for itself: the request that it names must be one that merged this very page.
    """
    change = source.lifecycle_change
    if change is None:
        return None
    db = context.session.store.publisher.db
    found = history.mutation(db, context.partition, change.request_id)
    if found is None or all(row.record_id != source.id for row in found[1]):
        return None
    for row in found[1]:
        if row.record_id == destination and row.operation == "merge" and row.before and row.hash:
            before, after = (_record(history.text(db, name), row.path) for name in (row.before, row.hash))
            if before is not None and after is not None:
                return _Merge(before, after)
    return None


def _record(data: bytes | None, path: str) -> Record | None:
    parsed = None if data is None else parse_record(data, path)
    return parsed.record if isinstance(parsed, ParsedRecord) else None


def _without_what_was_given(
    now: Record, merge_of: _Merge, given: _Gifts
) -> tuple[Record, str | None, list[JsonObject]]:
    """A destination without these gifts, its body where that goes back too, and what stayed."""
    kept: list[JsonObject] = []
    fields = dict(now.fields)
    for name, value in given.fields.items():
        if name in fields and fields[name] == value:
            del fields[name]
        elif name in fields:
            kept.append(_stayed(f"fields.{name}", _EDITED))
    body = None
    if given.body and merge_of.gifts.body:
        # The body of a later merge was written for more than this source, and stays.
        if now.body == merge_of.after.body and given == merge_of.gifts:
            body = merge_of.before.body
        else:
            kept.append(_stayed("body", _EDITED))
    rest = replace(
        now,
        aliases=_less(now.aliases, given.aliases),
        tags=_less(now.tags, given.tags),
        evidence=_less(now.evidence, given.evidence),
        fields=fields,
    )
    return rest, body, kept


T = TypeVar("T", str, EvidenceCitation)


def _united(first: Iterable[T], second: Iterable[T]) -> tuple[T, ...]:
    result = list(first)
    result += [item for item in second if item not in result]
    return tuple(result)


def _added(before: tuple[T, ...], after: tuple[T, ...]) -> tuple[T, ...]:
    return _less(after, before)


def _common(first: tuple[T, ...], second: tuple[T, ...]) -> tuple[T, ...]:
    known = set(map(_key, second))
    return tuple(item for item in first if _key(item) in known)


def _less(items: tuple[T, ...], others: tuple[T, ...]) -> tuple[T, ...]:
    known = set(map(_key, others))
    return tuple(item for item in items if _key(item) not in known)


def _key(item: str | EvidenceCitation) -> str:
    return item if isinstance(item, str) else identity(item)


def _stayed(what: str, why: Stayed) -> JsonObject:
    return {"what": what, "why": why}
