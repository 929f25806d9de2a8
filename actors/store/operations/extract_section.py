"""``knowledge_extract_section``: one section moves to another page, in one publication (tools.md, Extract a section).

What moves and what stays is proved by :mod:`storage.records.extraction`; here are the pages, the claims and the
evidence around it. Whatever is refused leaves every file unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from actors.store.needs import NeedEvidence
from actors.store.operations.budget import related
from actors.store.operations.context import OperationContext, Outcome, check_fences, earlier_receipt
from actors.store.operations.drafts import Draft, Drafts
from actors.store.operations.evidence import attached, unverified, with_added
from actors.store.operations.fences import fenced_target
from actors.store.operations.same_title import same_title
from actors.store.operations.validity import require_valid_page
from messages.errors import InvalidArgument, LimitExceeded
from messages.json_types import JsonObject
from messages.tools import ExtractSectionRequest
from messages.vocabulary import LIST_ARGUMENT_MAX_ITEMS
from storage.records import (
    EvidenceCitation,
    ParsedRecord,
    Record,
    normalise_name,
    parse_record,
    path_key,
)
from storage.records.extraction import Extracted, NotExtractable, PageText, extract
from storage.records.link_keys import key_of
from storage.records.links import Link, resolve, wikilink
from storage.state.catalogue_reader import Entry
from storage.state.page_graph import PageGraph

OPERATION: Final = "extract"

_FIELDS: Final = {"no_section": "sectionStart", "summary": "summary"}


@dataclass(frozen=True, slots=True)
class _Page:
    """A page on one side of the move. ``entry`` is ``None`` for one to be created; ``record`` is as it was."""

    entry: Entry | None
    path: str
    record: Record


def extract_section(context: OperationContext, request: ExtractSectionRequest) -> Outcome:
    """Move the section; the source keeps its heading, the summary and a link to where it went."""
    earlier = earlier_receipt(context, request, OPERATION)
    if earlier is not None:
        return earlier
    check_fences(context, request)
    given = request.source
    entry = fenced_target(context, given.id, given.expected_revision, given.expected_hash, kind="page", at="source.")
    source = _Page(entry, entry.path, context.session.load(entry))
    evidence = attached(context, request.evidence or (), field="evidence")
    missing = unverified(context, evidence, field="evidence")
    if missing:
        return NeedEvidence(missing)
    drafts = Drafts(context)
    destination = _destination(context, drafts, request, source)
    if not isinstance(destination, _Page):
        return destination
    moved = _moved(context, request, source, destination)
    copied = tuple(citation for citation in source.record.evidence if _appears(citation, moved.section))
    come = _with_section(drafts, destination, moved, (*copied, *evidence))
    left = drafts.revise(entry, source.record, moved.source_body)
    changed = (come, left, *_claims(context, drafts, entry, come.record.id, moved.links))
    for one in changed:
        _require_valid(context, one)
    return drafts.publish(
        request,
        main=left,
        items=[come.to_item(), left.to_item()],
        target_id=left.record.id,
        reason=request.reason,
        operation=OPERATION,
    )


# --- the destination ------------------------------------------------------------------------------------------------


def _destination(
    context: OperationContext, drafts: Drafts, request: ExtractSectionRequest, source: _Page
) -> _Page | JsonObject:
    """The page that gets the section, or the rejection of one that would double another."""
    wanted = request.destination
    if wanted.id is not None:
        entry = fenced_target(
            context, wanted.id, wanted.expected_revision, wanted.expected_hash, kind="page", at="destination."
        )
        assert source.entry is not None
        _require_connected(context, source.entry, entry)
        return _Page(entry, entry.path, context.session.load(entry))
    assert wanted.title is not None
    assert wanted.type is not None
    page_type = require_valid_page(context, wanted.type, {})
    if not wanted.allow_same_title:
        doubled = same_title(context, wanted.title, page_type, field="destination.title")
        if doubled is not None:
            return doubled
    record = Record(
        id=context.new_id(),
        kind="page",
        title=wanted.title,
        recorded_at="",
        updated_at="",
        type=page_type,
        aliases=wanted.aliases or (),
    )
    return _Page(None, drafts.place(record), record)


def _require_connected(context: OperationContext, source: Entry, destination: Entry) -> None:
    """The existing destination is another page, linked with the source by a body or by a typed relationship."""
    if destination.row == source.row:
        raise InvalidArgument(
            "The destination is the source itself.", field="destination.id", reason="same_page", allowed="another page"
        )
    if PageGraph(context.catalogue).linked(source.row, destination.row):
        return
    if any(page.row == destination.row for page in related(context, source)):
        return
    raise InvalidArgument(
        "The destination is not connected to the source: neither body links to the other, and no typed relationship "
        "joins them. Link them first, or move the section to a new page.",
        field="destination.id",
        reason="not_connected",
        allowed="a page that the source links to, that links to it, or that a typed relationship joins with it",
    )


# --- the move -------------------------------------------------------------------------------------------------------


def _moved(context: OperationContext, request: ExtractSectionRequest, source: _Page, destination: _Page) -> Extracted:
    """Both bodies after the move; raises ``InvalidArgument`` naming what is in the way."""
    try:
        moved = extract(
            PageText(source.path, source.record.body),
            request.section_start,
            PageText(destination.path, destination.record.body),
            summary=request.summary,
            pointer=wikilink(destination.record.id, destination.record.title),
        )
    except NotExtractable as refusal:
        link: JsonObject = {} if refusal.link is None else {"link": refusal.link}
        field = _FIELDS.get(refusal.reason, "source")
        raise InvalidArgument(refusal.message, retry=None, field=field, reason=refusal.reason, **link) from None
    if destination.entry is None:
        _require_names_kept(context, source, destination, moved)
    return moved


def _require_names_kept(context: OperationContext, source: _Page, destination: _Page, moved: Extracted) -> None:
    """No link of the section by a name may come to mean the new page, which bears names of its own."""
    new = destination.record
    names = {normalise_name(name) for name in (new.title, *new.aliases)}
    path = path_key(destination.path)
    graph = PageGraph(context.catalogue)
    for link in moved.links:
        key = key_of(link, source.path)
        if key is None or key.form == "path" or context.catalogue.by_id(key.written) or graph.page_of(key) is None:
            continue
        by_path = key.path in (path, path.rpartition("/")[2]) and not context.catalogue.by_names((key.name,))
        if key.name in names or by_path:
            shown = source.record.body[link.start : link.end]
            raise InvalidArgument(
                f"The link {shown} would lead elsewhere once the new page bears that name. Write it with the id of "
                "its page first.",
                field="destination.title",
                reason="link_would_change",
                link=shown,
            )


def _with_section(drafts: Drafts, destination: _Page, moved: Extracted, evidence: Sequence[EvidenceCitation]) -> Draft:
    before = destination.record
    after = replace(before, evidence=with_added(before.evidence, evidence))
    if destination.entry is not None:
        return drafts.revise(destination.entry, after, moved.destination_body)
    return drafts.create(replace(after, body=moved.destination_body))


def _appears(citation: EvidenceCitation, section: str) -> bool:
    """Whether a citation's quote, retained path or filename appears in the section; line ends do not matter."""
    text = section.replace("\r\n", "\n")
    wanted = (citation.quote, citation.path, citation.filename)
    return any(found is not None and found.strip() and found.replace("\r\n", "\n") in text for found in wanted)


# --- claims ---------------------------------------------------------------------------------------------------------


def _claims(
    context: OperationContext, drafts: Drafts, source: Entry, destination_id: str, links: Sequence[Link]
) -> Iterator[Draft]:
    """The active claims that the section links to and that name the source, with the destination as first entity."""
    sources = {source.id, *context.catalogue.merged_away(source.id)}
    seen: set[int] = set()
    for link in links:
        entry = _record_meant(context, link, source.path)
        if entry is None or entry.row in seen or entry.kind != "claim" or entry.lifecycle != "active":
            continue
        seen.add(entry.row)
        parsed = context.session.parsed(entry)
        before = parsed.record
        entities = (destination_id, *(found for found in before.entities if found != destination_id))
        if sources.isdisjoint(before.entities) or entities == before.entities:
            continue
        if parsed.read_only:
            raise InvalidArgument(
                "The section links to a claim that was written by a newer version and is read only here.",
                field="source",
                reason="newer_format",
                id=entry.id,
            )
        if len(entities) > LIST_ARGUMENT_MAX_ITEMS:
            raise LimitExceeded(
                f"The section links to a claim that would have {len(entities)} entities, more than "
                f"{LIST_ARGUMENT_MAX_ITEMS}; remove one with knowledge_annotate first.",
                field="source",
                limit=LIST_ARGUMENT_MAX_ITEMS,
                id=entry.id,
            )
        yield drafts.revise(entry, replace(before, entities=entities))


def _record_meant(context: OperationContext, link: Link, page_path: str) -> Entry | None:
    target = resolve(link, page_path)
    match target.kind:
        case "record":
            return context.catalogue.one(target.value)
        case "path":
            return context.catalogue.by_path(target.value)
        case _:
            return None


# --- together -------------------------------------------------------------------------------------------------------


def _require_valid(context: OperationContext, changed: Draft) -> None:
    """The bytes are the record that was meant, and no worse than what stands there now."""
    parsed = parse_record(changed.data, changed.path)
    bodies = (changed.record.body, f"{changed.record.body}\n") if changed.before is None else (changed.record.body,)
    known = () if changed.before is None else context.catalogue.findings(changed.path)
    codes = {(finding["code"], finding["field"]) for finding in known}
    if (
        not isinstance(parsed, ParsedRecord)
        or parsed.record.body not in bodies
        or any(found.severity == "error" and (found.code, found.field) not in codes for found in parsed.findings)
    ):
        raise InvalidArgument(
            f"{changed.path} would not be a valid record after the move; nothing was changed.",
            field="source",
            reason="invalid",
            path=changed.path,
        )
