"""Drafting a page: created, or edited behind its fences (tools.md, Pages and body edits)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from actors.store.operations.context import OperationContext
from actors.store.operations.drafts import Draft, Drafts
from actors.store.operations.fences import fenced_target
from actors.store.operations.validity import require_valid_page
from messages.errors import InvalidArgument
from messages.json_types import JsonObject, JsonValue
from messages.tools import ExistingPage, PageArguments, same_title_rejection
from storage.records import EvidenceCitation, Record, normalise_name
from storage.state.catalogue_reader import Entry

BROKEN_FILES_LOOKED_AT_MAX: Final = 100


def draft_page(
    context: OperationContext,
    drafts: Drafts,
    arguments: PageArguments,
    evidence: tuple[EvidenceCitation, ...],
    *,
    record_id: str,
    at: str = "",
) -> Draft | JsonObject:
    """The page as it would be published, or the rejection that is the answer.

    A new page gets ``record_id``. ``at`` is the path of the arguments in the request, for errors. A create never
    overwrites and never quietly doubles a page.
    """
    if arguments.id is not None:
        return _edited(context, drafts, arguments, evidence, arguments.id, at)
    return _created(context, drafts, arguments, evidence, record_id, at)


def _created(
    context: OperationContext,
    drafts: Drafts,
    arguments: PageArguments,
    evidence: tuple[EvidenceCitation, ...],
    record_id: str,
    at: str,
) -> Draft | JsonObject:
    fields = given_fields(arguments)
    page_type = require_valid_page(context, arguments.type, fields, drafts.type_of, at)
    if not arguments.allow_same_title:
        existing = _same_title(context, arguments.title, page_type)
        if existing is not None:
            return same_title_rejection(
                ExistingPage(id=existing.id, title=existing.title, revision=existing.revision, hash=existing.hash)
            )
        _require_no_unreadable_page(context, arguments.title, at)
    record = Record(
        id=record_id,
        kind="page",
        title=arguments.title,
        recorded_at="",
        updated_at="",
        body=arguments.body,
        type=page_type,
        fields=fields,
        aliases=arguments.aliases or (),
        tags=arguments.tags or (),
        dependencies=drafts.records(arguments.dependencies or (), f"{at}dependencies"),
        evidence=evidence,
    )
    return drafts.create(record)


def _edited(
    context: OperationContext,
    drafts: Drafts,
    arguments: PageArguments,
    evidence: tuple[EvidenceCitation, ...],
    record_id: str,
    at: str,
) -> Draft:
    entry = fenced_target(
        context, record_id, arguments.expected_revision, arguments.expected_hash, kind="page", at=at
    )
    before = drafts.load(entry)
    fields = before.fields if arguments.fields is None else given_fields(arguments)
    page_type = require_valid_page(context, arguments.type, fields, drafts.type_of, at)
    dependencies = before.dependencies
    if arguments.dependencies is not None:
        dependencies = drafts.records(arguments.dependencies, f"{at}dependencies")
    after = replace(
        before,
        title=arguments.title,
        type=before.type if _same_type(context, before.type, page_type) else page_type,
        fields=fields,
        aliases=before.aliases if arguments.aliases is None else arguments.aliases,
        tags=before.tags if arguments.tags is None else arguments.tags,
        dependencies=dependencies,
        evidence=(*before.evidence, *(item for item in evidence if item not in before.evidence)),
    )
    body, line_end_added = in_line_ends_of(context.session.source(entry), before.body, arguments.body)
    return drafts.revise(entry, after, body, line_end_added=line_end_added)


def in_line_ends_of(original: bytes, before: str, body: str) -> tuple[str, bool]:
    """A complete new body in the page's own line ends, ending with one as the page did before; whether that is new."""
    newline = "\r\n" if b"\r\n" in original else "\n"
    if newline == "\r\n" and "\r" not in body:
        body = body.replace("\n", "\r\n")
    ended = not before or before.endswith(("\n", "\r"))
    added = bool(body) and ended and not body.endswith(("\n", "\r"))
    return (body + newline if added else body), added


def given_fields(arguments: PageArguments) -> Mapping[str, JsonValue]:
    """The fields of the arguments; a null clears its field."""
    return {name: value for name, value in (arguments.fields or {}).items() if value is not None}


def _same_title(context: OperationContext, title: str, page_type: str) -> Entry | None:
    """An active page of the type whose title or alias is this title under lookup's normalisation."""
    wanted = normalise_name(title)
    for _, entry in context.catalogue.by_names((wanted,)):
        if entry.lifecycle == "active" and entry.type == page_type:
            return entry
    return None


def _require_no_unreadable_page(context: OperationContext, title: str, at: str) -> None:
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
                field=f"{at}title",
                reason="unreadable_page",
                path=path,
            )


def _same_type(context: OperationContext, written: str | None, canonical: str) -> bool:
    known = None if written is None else context.session.ontology.page_type(written)
    return known is not None and known.name == canonical
