"""``knowledge_publish_batch``: the records of one source in one publication (decisions.md section 5).

Pages are drafted first, so that statements can be about pages of the same batch; the receipt keeps the input order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from actors.store.needs import CitationKey, NeedEvidence
from actors.store.operations.context import OperationContext, Outcome, check_fences, earlier_receipt
from actors.store.operations.drafts import Announced, Draft, Drafts
from actors.store.operations.evidence import attached, unverified
from actors.store.operations.page_drafts import draft_page
from actors.store.operations.statements import draft_claim, draft_relationship
from messages.errors import InvalidArgument
from messages.json_types import JsonObject, JsonValue
from messages.tools import (
    BatchContent,
    BatchItem,
    ClaimArguments,
    PageArguments,
    PublishBatchRequest,
    RelationshipArguments,
    UnknownRef,
    id_of_ref,
)
from storage.ontology import FieldType
from storage.records import EvidenceCitation, normalise_name
from storage.records.wikilinks import fill_wikilinks


def publish_batch(context: OperationContext, request: PublishBatchRequest) -> Outcome:
    """All of the items or none, as one publication with one receipt; errors name ``items[n]``."""
    earlier = earlier_receipt(context, request, "publish_batch")
    if earlier is not None:
        return earlier
    check_fences(context, request)
    ids = [item.id or context.new_id() for item in request.items]
    refs = {item.ref: record_id for item, record_id in zip(request.items, ids, strict=True) if item.ref is not None}
    contents = [_content(context, item, refs, index) for index, item in enumerate(request.items)]
    evidence: list[tuple[EvidenceCitation, ...]] = []
    missing: list[EvidenceCitation] = []
    for index, content in enumerate(contents):
        cited, field = _evidence(context, content, f"items[{index}].")
        evidence.append(cited)
        missing += unverified(context, cited, field=field)
    if missing:
        return NeedEvidence(tuple({CitationKey.of(citation): citation for citation in missing}.values()))
    _require_titles_apart(context, contents)
    drafts = Drafts(context)
    for record_id, content in zip(ids, contents, strict=True):
        drafts.announce(record_id, _announced(context, content))
    drafted: dict[int, Draft] = {}
    for index in sorted(range(len(contents)), key=lambda index: not isinstance(contents[index], PageArguments)):
        draft = _draft(context, drafts, contents[index], evidence[index], ids[index], f"items[{index}].")
        if not isinstance(draft, Draft):
            return {**draft, "item": index}
        drafted[index] = draft
    return drafts.publish(request, items=[drafted[index].to_item() for index in range(len(contents))])


def _content(context: OperationContext, item: BatchItem, refs: Mapping[str, str], index: int) -> BatchContent:
    """The item's arguments with every ``$ref`` replaced."""
    at = f"items[{index}]."
    try:
        content = item.content(refs)
        match content:
            case PageArguments():
                known = context.session.ontology.page_type(content.type)
                fields = _filled(content.fields, {} if known is None else known.fields, refs)
                body = _filled_body(content.body, refs)
                return content.model_copy(update={"fields": fields, "body": body})
            case RelationshipArguments():
                label = context.session.ontology.relationship_type(content.label)
                fields = _filled(content.fields, {} if label is None else label.fields, refs)
                return content.model_copy(update={"fields": fields})
            case ClaimArguments():
                return content
            case _:
                assert_never(content)
    except UnknownRef as error:
        raise InvalidArgument(
            f"{at}{error.field} names ${error.ref}, and no item of the batch has that ref.",
            field=f"{at}{error.field}",
            reason="unknown_ref",
            allowed=sorted(f"${ref}" for ref in refs),
        ) from None


def _filled(
    fields: Mapping[str, JsonValue] | None, types: Mapping[str, FieldType], refs: Mapping[str, str]
) -> Mapping[str, JsonValue] | None:
    """The fields with refs replaced where the ontology says that a page is named."""
    if fields is None:
        return None
    return {name: _filled_value(value, types.get(name), refs, f"fields.{name}") for name, value in fields.items()}


def _filled_value(value: JsonValue, kind: FieldType | None, refs: Mapping[str, str], at: str) -> JsonValue:
    if kind is None:
        return value
    if kind.type == "list" and isinstance(value, list):
        return [_filled_value(item, kind.element, refs, f"{at}[{index}]") for index, item in enumerate(value)]
    return id_of_ref(value, refs, at) if kind.type == "page" and isinstance(value, str) else value


def _filled_body(body: str, refs: Mapping[str, str]) -> str:
    try:
        return fill_wikilinks(body, refs)
    except KeyError as error:
        raise UnknownRef(str(error.args[0]), "body") from None


def _evidence(context: OperationContext, content: BatchContent, at: str) -> tuple[tuple[EvidenceCitation, ...], str]:
    """The citations of an item, and the path of the argument that has them."""
    if isinstance(content, PageArguments):
        field = f"{at}attachments"
        return attached(context, content.attachments or (), field=field), field
    field = f"{at}evidence"
    return attached(context, content.evidence, field=field), field


def _announced(context: OperationContext, content: BatchContent) -> Announced:
    match content:
        case PageArguments():
            known = context.session.ontology.page_type(content.type)
            return Announced("page", content.title, content.type if known is None else known.name)
        case ClaimArguments():
            return Announced("claim")
        case RelationshipArguments():
            return Announced("relationship")
        case _:
            assert_never(content)


def _draft(
    context: OperationContext,
    drafts: Drafts,
    content: BatchContent,
    evidence: tuple[EvidenceCitation, ...],
    record_id: str,
    at: str,
) -> Draft | JsonObject:
    match content:
        case PageArguments():
            return draft_page(context, drafts, content, evidence, record_id=record_id, at=at)
        case ClaimArguments():
            return draft_claim(drafts, content, evidence, record_id=record_id, at=at)
        case RelationshipArguments():
            return draft_relationship(context, drafts, content, evidence, record_id=record_id, at=at)
        case _:
            assert_never(content)


def _require_titles_apart(context: OperationContext, contents: list[BatchContent]) -> None:
    """Refuse a new page whose title another page item of its type has after the batch, as a second create would be.

    Edited pages count with the names that they get, wherever in the batch they stand; what they are called already
    is found as for every create.
    """
    pages = [(index, one) for index, one in enumerate(contents) if isinstance(one, PageArguments)]
    taken: dict[tuple[str, str], int] = {}
    for index, content in sorted(pages, key=lambda page: page[1].id is None):
        known = context.session.ontology.page_type(content.type)
        page_type = content.type if known is None else known.name
        other = taken.get((page_type, normalise_name(content.title)))
        if other is not None and content.id is None and not content.allow_same_title:
            raise InvalidArgument(
                f"items[{index}] has the title or an alias of items[{other}]; make them one page, or send "
                "allowSameTitle: true.",
                field=f"items[{index}].title",
                reason="same_title",
            )
        entry = None if content.id is None else context.catalogue.one(content.id)
        borne = () if entry is None else context.catalogue.names_of(entry.row)
        for name in map(normalise_name, (content.title, *(content.aliases or ()))):
            if name not in borne:
                taken.setdefault((page_type, name), index)
