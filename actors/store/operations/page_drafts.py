"""Drafting a page: created, or edited behind its fences (tools.md, Pages and body edits)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from actors.store.operations.context import OperationContext
from actors.store.operations.drafts import Draft, Drafts
from actors.store.operations.evidence import with_added
from actors.store.operations.fences import fenced_target
from actors.store.operations.same_title import same_title
from actors.store.operations.validity import require_valid_page
from messages.json_types import JsonObject, JsonValue
from messages.tools import PageArguments
from storage.records import EvidenceCitation, Record


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
        doubled = same_title(context, arguments.title, page_type, field=f"{at}title")
        if doubled is not None:
            return doubled
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
        dependencies=drafts.others(record_id, arguments.dependencies or (), f"{at}dependencies"),
        evidence=with_added((), evidence),
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
    entry = fenced_target(context, record_id, arguments.expected_revision, arguments.expected_hash, kind="page", at=at)
    before = drafts.load(entry)
    fields = before.fields if arguments.fields is None else given_fields(arguments)
    page_type = require_valid_page(context, arguments.type, fields, drafts.type_of, at)
    dependencies = before.dependencies
    if arguments.dependencies is not None:
        dependencies = drafts.others(record_id, arguments.dependencies, f"{at}dependencies")
    after = replace(
        before,
        title=arguments.title,
        type=before.type if _same_type(context, before.type, page_type) else page_type,
        fields=fields,
        aliases=before.aliases if arguments.aliases is None else arguments.aliases,
        tags=before.tags if arguments.tags is None else arguments.tags,
        dependencies=dependencies,
        evidence=with_added(before.evidence, evidence),
    )
    body, line_end_added = in_line_ends_of(context.session.source(entry), before.body, arguments.body)
    return drafts.revise(entry, after, body, line_end_added=line_end_added)


def in_line_ends_of(original: bytes, before: str, body: str) -> tuple[str, bool]:
    """A complete new body in the page's own line ends, ending with one as the page did before; whether that is new.

    The body's line ends are its own, most of them where they differ; a body without any has those of the file.
    """
    windows, every = before.count("\r\n"), before.count("\n")
    newline = "\r\n" if (2 * windows > every if every else b"\r\n" in original) else "\n"
    if newline == "\r\n" and "\r" not in body:
        body = body.replace("\n", "\r\n")
    ended = not before or before.endswith(("\n", "\r"))
    added = bool(body) and ended and not body.endswith(("\n", "\r"))
    return (body + newline if added else body), added


def given_fields(arguments: PageArguments) -> Mapping[str, JsonValue]:
    """The fields of the arguments; a null clears its field."""
    return {name: value for name, value in (arguments.fields or {}).items() if value is not None}


def _same_type(context: OperationContext, written: str | None, canonical: str) -> bool:
    known = None if written is None else context.session.ontology.page_type(written)
    return known is not None and known.name == canonical
