"""``knowledge_save_page``: create a page, or edit one behind its fences (tools.md, Pages and body edits)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from actors.store.needs import NeedEvidence
from actors.store.operations.context import (
    OperationContext,
    Outcome,
    check_fences,
    earlier_receipt,
    next_instant,
)
from actors.store.operations.evidence import attached, unverified
from actors.store.operations.fences import fenced_target
from actors.store.operations.filing import Filing
from actors.store.operations.page_writes import in_line_ends_of, publish_page
from actors.store.operations.validity import require_valid_page
from messages.errors import InvalidArgument
from messages.json_types import JsonValue
from messages.tools import ExistingPage, SavePageRequest, same_title_rejection
from storage.records import (
    EvidenceCitation,
    Record,
    Scope,
    changes_between,
    format_instant,
    normalise_name,
    render_new,
    rewrite,
)
from storage.state.catalogue_reader import Entry

BROKEN_FILES_LOOKED_AT_MAX: Final = 100


def save_page(context: OperationContext, request: SavePageRequest) -> Outcome:
    """Create or edit; a create never overwrites and never quietly doubles a page."""
    earlier = earlier_receipt(context, request, "save_page")
    if earlier is not None:
        return earlier
    check_fences(context, request)
    evidence = attached(context, request.attachments or ())
    missing = unverified(context, evidence)
    if missing:
        return NeedEvidence(missing)
    if request.id is None:
        return _create(context, request, evidence)
    return _edit(context, request, evidence)


def _create(context: OperationContext, request: SavePageRequest, evidence: tuple[EvidenceCitation, ...]) -> Outcome:
    fields = _given_fields(request)
    page_type = require_valid_page(context, request.type, fields)
    existing = None if request.allow_same_title else _same_title(context, request.title, page_type)
    if existing is not None:
        return same_title_rejection(
            ExistingPage(id=existing.id, title=existing.title, revision=existing.revision, hash=existing.hash)
        )
    if not request.allow_same_title:
        _require_no_unreadable_page(context, request.title)
    _require_known(context, request.dependencies or ())
    recorded = next_instant(context)
    at = format_instant(recorded)
    record = Record(
        id=context.new_id(),
        kind="page",
        title=request.title,
        recorded_at=at,
        updated_at=at,
        scope=Scope(context.partition.kind, context.partition.session_id),
        body=request.body,
        type=page_type,
        fields=fields,
        aliases=request.aliases or (),
        tags=request.tags or (),
        dependencies=request.dependencies or (),
        evidence=evidence,
    )
    filing = Filing(context)
    filing.require_room(1)
    known = context.session.ontology.page_type(page_type)
    path = filing.path_for(record, at, page_folder="" if known is None else known.folder)
    return publish_page(context, request, path, None, render_new(record), record, recorded)


def _edit(context: OperationContext, request: SavePageRequest, evidence: tuple[EvidenceCitation, ...]) -> Outcome:
    assert request.id is not None
    entry = fenced_target(context, request.id, request.expected_revision, request.expected_hash, kind="page")
    original = context.session.source(entry)
    before = context.session.load(entry)
    fields = before.fields if request.fields is None else _given_fields(request)
    page_type = require_valid_page(context, request.type, fields)
    if request.dependencies is not None:
        _require_known(context, request.dependencies)
    updated = next_instant(context)
    after = replace(
        before,
        revision=entry.revision + 1,
        updated_at=format_instant(updated),
        title=request.title,
        type=before.type if _same_type(context, before.type, page_type) else page_type,
        fields=fields,
        aliases=before.aliases if request.aliases is None else request.aliases,
        tags=before.tags if request.tags is None else request.tags,
        dependencies=before.dependencies if request.dependencies is None else request.dependencies,
        evidence=(*before.evidence, *(item for item in evidence if item not in before.evidence)),
    )
    body = in_line_ends_of(original, before.body, request.body)
    data = rewrite(original, changes_between(before, after), body)
    return publish_page(context, request, entry.path, entry.hash, data, after, updated)


def _given_fields(request: SavePageRequest) -> Mapping[str, JsonValue]:
    """The fields of the request; a null clears its field."""
    return {name: value for name, value in (request.fields or {}).items() if value is not None}


def _same_title(context: OperationContext, title: str, page_type: str) -> Entry | None:
    """An active page of the type whose title or alias is this title under lookup's normalisation."""
    wanted = normalise_name(title)
    for _, entry in context.catalogue.by_names((wanted,)):
        if entry.lifecycle == "active" and entry.type == page_type:
            return entry
    return None


def _require_no_unreadable_page(context: OperationContext, title: str) -> None:
    """Refuse a create while a page of this name lies in a file that cannot be read just now.

    A person in the middle of an edit must not find two pages when they are done.
    """
    wanted = normalise_name(title)
    for path in context.session.broken_files(BROKEN_FILES_LOOKED_AT_MAX):
        earlier = context.session.last_readable(path)
        if earlier is not None and wanted in map(normalise_name, (earlier.title, *earlier.aliases)):
            raise InvalidArgument(
                f"A page with this title lies in {path}, which cannot be read just now. Ask the person to repair that "
                "file, or send allowSameTitle: true to create another page.",
                field="title",
                reason="unreadable_page",
                path=path,
            )


def _same_type(context: OperationContext, written: str | None, canonical: str) -> bool:
    known = None if written is None else context.session.ontology.page_type(written)
    return known is not None and known.name == canonical


def _require_known(context: OperationContext, dependencies: tuple[str, ...]) -> None:
    for index, record_id in enumerate(dependencies):
        if not context.catalogue.by_id(record_id):
            raise InvalidArgument(
                f"dependencies[{index}] names no record of this partition.",
                field=f"dependencies[{index}]",
                reason="unknown_record",
            )
