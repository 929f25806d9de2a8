"""``knowledge_merge`` and ``knowledge_unmerge``: two pages of one thing, and back (decisions.md section 5).

Claims and relationships keep naming the source; reads follow the redirect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, TypeVar

from actors.store.operations.context import OperationContext, Outcome, check_fences, earlier_receipt
from actors.store.operations.drafts import Drafts
from actors.store.operations.fences import fenced_target
from actors.store.operations.lifecycle import changed
from actors.store.operations.page_drafts import in_line_ends_of
from messages.errors import InvalidArgument, LimitExceeded
from messages.json_types import JsonObject, JsonValue
from messages.tools import MergeRequest, UnmergeRequest
from messages.vocabulary import LIST_ARGUMENT_MAX_ITEMS
from storage.ontology import validate_page
from storage.records import ParsedRecord, Record, normalise_name, parse_record
from storage.state import history
from storage.state.catalogue_reader import REDIRECTS_MAX, Entry

Stayed: TypeAlias = Literal["edited_since", "destination_not_active", "history_missing"]

_EDITED: Final = "edited_since"


def merge(context: OperationContext, request: MergeRequest) -> Outcome:
    """The source becomes a redirect; the destination gains names, tags, evidence and the fields that it lacks."""
    earlier = earlier_receipt(context, request, "merge")
    if earlier is not None:
        return earlier
    check_fences(context, request)
    source, destination = (
        fenced_target(
            context, fence.id, fence.expected_revision, fence.expected_hash, kind="page", at=f"{name}."
        )
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
    items = [restored.to_item()]
    kept: list[JsonObject] = []
    destination = context.catalogue.one(source.merged_into)
    merge_of = _merge_of(context, before, source.merged_into)
    if destination is None or destination.kind != "page" or destination.lifecycle != "active":
        kept.append(_stayed("everything", "destination_not_active"))
    elif merge_of is None:
        kept.append(_stayed("everything", "history_missing"))
    else:
        now = drafts.load(destination)
        after, body, kept = _without_what_was_given(now, merge_of)
        if after != now or body is not None:
            # An unmerge is never limited: it gives back what was there.
            items.append(drafts.revise(destination, after, body, budgeted=False).to_item())
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
        evidence=_united(taker.evidence, given.evidence),
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
class _Merge:
    """What a merge made of its destination."""

    before: Record
    after: Record


def _merge_of(context: OperationContext, source: Record, destination: str) -> _Merge | None:
    """The destination before and after the merge that made the source a redirect, as history has them."""
    change = source.lifecycle_change
    if change is None:
        return None
    db = context.session.store.publisher.db
    found = history.mutation(db, context.partition, change.request_id)
    for row in () if found is None else found[1]:
        if row.record_id == destination and row.operation == "merge" and row.before and row.hash:
            before, after = (_record(history.text(db, name), row.path) for name in (row.before, row.hash))
            if before is not None and after is not None:
                return _Merge(before, after)
    return None


def _record(data: bytes | None, path: str) -> Record | None:
    parsed = None if data is None else parse_record(data, path)
    return parsed.record if isinstance(parsed, ParsedRecord) else None


def _without_what_was_given(now: Record, merge_of: _Merge) -> tuple[Record, str | None, list[JsonObject]]:
    """The destination without the merge's gifts, its body where that goes back too, and what stayed."""
    before, after = merge_of.before, merge_of.after
    kept: list[JsonObject] = []
    fields = dict(now.fields)
    for name in after.fields.keys() - before.fields.keys():
        if name in fields and fields[name] == after.fields[name]:
            del fields[name]
        elif name in fields:
            kept.append(_stayed(f"fields.{name}", _EDITED))
    body = None
    if after.body != before.body:
        if now.body == after.body:
            body = before.body
        else:
            kept.append(_stayed("body", _EDITED))
    rest = replace(
        now,
        aliases=_less(now.aliases, after.aliases, before.aliases),
        tags=_less(now.tags, after.tags, before.tags),
        evidence=_less(now.evidence, after.evidence, before.evidence),
        fields=fields,
    )
    return rest, body, kept


T = TypeVar("T")


def _united(first: Iterable[T], second: Iterable[T]) -> tuple[T, ...]:
    result = list(first)
    result += [item for item in second if item not in result]
    return tuple(result)


def _less(now: tuple[T, ...], after: tuple[T, ...], before: tuple[T, ...]) -> tuple[T, ...]:
    """What is there now without what the merge added."""
    return tuple(item for item in now if item in before or item not in after)


def _stayed(what: str, why: Stayed) -> JsonObject:
    return {"what": what, "why": why}
