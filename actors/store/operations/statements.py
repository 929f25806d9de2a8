"""``knowledge_create_claim``, ``knowledge_create_relationship`` and ``knowledge_annotate`` (tools.md).

The drafting functions serve every tool that makes statements: creates, corrections, batches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeVar, assert_never

from actors.store.needs import NeedEvidence
from actors.store.operations.claim_titles import claim_title
from actors.store.operations.context import OperationContext, Outcome, check_fences, earlier_receipt
from actors.store.operations.drafts import Draft, Drafts
from actors.store.operations.evidence import attached, unverified, with_added
from actors.store.operations.fences import fenced_target
from actors.store.operations.validity import require_valid_relationship
from messages.errors import InvalidArgument
from messages.text import one_line
from messages.tools import (
    AnnotateRequest,
    ClaimArguments,
    CreateClaimRequest,
    CreateRelationshipRequest,
    RelationshipArguments,
    StatementArguments,
    tool_spec,
)
from messages.vocabulary import TITLE_MAX_CHARS
from storage.records import EvidenceCitation, Interval, Record, parse_date, utf16


def create_claim(context: OperationContext, request: CreateClaimRequest) -> Outcome:
    """A new claim with verified evidence."""
    return _create(context, request)


def create_relationship(context: OperationContext, request: CreateRelationshipRequest) -> Outcome:
    """A new relationship between two pages, with verified evidence; others between them stay as they are."""
    return _create(context, request)


def annotate(context: OperationContext, request: AnnotateRequest) -> Outcome:
    """Metadata beside a record's words, as a new revision; words and lifecycle stay."""
    earlier = earlier_receipt(context, request, "annotate")
    if earlier is not None:
        return earlier
    check_fences(context, request)
    entry = fenced_target(context, request.id, request.expected_revision, request.expected_hash)
    evidence = attached(context, request.evidence or (), field="evidence")
    missing = unverified(context, evidence, field="evidence")
    if missing:
        return NeedEvidence(missing)
    drafts = Drafts(context)
    before = drafts.load(entry)
    if request.entities is not None and entry.kind == "page":
        raise InvalidArgument(
            "A page has no entities; annotate the claims about it.", field="entities", reason="wrong_kind"
        )
    source_page = None if request.source_page is None else drafts.page(request.source_page, "source_page")
    continuity = None if request.continuity is None else drafts.others(entry.id, request.continuity, "continuity")
    entities = None if request.entities is None else drafts.pages(request.entities, "entities")
    after = replace(
        before,
        source_page=_given(source_page, before.source_page),
        identity_uncertainty=_given(request.identity_uncertainty, before.identity_uncertainty),
        attribution_confidence=_given(request.attribution_confidence, before.attribution_confidence),
        continuity=_given(continuity, before.continuity),
        fixture=_given(request.fixture, before.fixture),
        entities=_given(entities, before.entities),
        evidence=with_added(before.evidence, evidence),
    )
    if after == before:
        raise InvalidArgument(
            "The record says all of this already; nothing was saved.", field="id", reason="nothing_changes"
        )
    draft = drafts.revise(entry, after)
    return drafts.publish(request, main=draft, reason=request.reason)


def evidence_of(
    context: OperationContext, arguments: StatementArguments, at: str = ""
) -> tuple[tuple[EvidenceCitation, ...], tuple[EvidenceCitation, ...]]:
    """The citations of a statement, and those of them that must still be verified."""
    field = f"{at}evidence"
    citations = attached(context, arguments.evidence, field=field)
    return citations, unverified(context, citations, field=field)


def draft_claim(
    drafts: Drafts,
    arguments: ClaimArguments,
    evidence: tuple[EvidenceCitation, ...],
    *,
    record_id: str,
    at: str = "",
    supersedes: str | None = None,
) -> Draft:
    """A new claim of these arguments; ``at`` is the path of the arguments in the request, for errors."""
    text = arguments.body.strip()
    record = replace(
        _statement(drafts, arguments, evidence, record_id=record_id, kind="claim", at=at),
        title=arguments.title or claim_title(text),
        body=text,
        claim_kind=arguments.claim_kind,
        assertion_origin=arguments.assertion_origin,
        entities=drafts.pages(arguments.entities, f"{at}entities"),
        supersedes=supersedes,
    )
    return drafts.create(record)


def draft_relationship(
    context: OperationContext,
    drafts: Drafts,
    arguments: RelationshipArguments,
    evidence: tuple[EvidenceCitation, ...],
    *,
    record_id: str,
    at: str = "",
    supersedes: str | None = None,
) -> Draft:
    """A new relationship of these arguments, its ends, label and fields judged by the ontology."""
    source, target = drafts.page(arguments.from_id, f"{at}from"), drafts.page(arguments.to_id, f"{at}to")
    if source == target:
        raise InvalidArgument(
            f"{at}from and {at}to are the same page.", field=f"{at}to", reason="same_page", allowed="another page"
        )
    known = context.session.ontology.relationship_type(arguments.label)
    label = arguments.label if known is None else known.name
    title = arguments.title or utf16.clip(
        one_line(f"{drafts.title_of(source)} {label} {drafts.title_of(target)}"), TITLE_MAX_CHARS
    )
    record = replace(
        _statement(drafts, arguments, evidence, record_id=record_id, kind="relationship", at=at),
        title=title,
        body=(arguments.body or "").strip(),
        assertion_origin=arguments.assertion_origin,
        from_id=source,
        to_id=target,
        label=label,
        fields={name: value for name, value in (arguments.fields or {}).items() if value is not None},
        supersedes=supersedes,
    )
    require_valid_relationship(context, record, drafts.type_of, at)
    return drafts.create(record)


def _create(context: OperationContext, request: CreateClaimRequest | CreateRelationshipRequest) -> Outcome:
    earlier = earlier_receipt(context, request, tool_spec(request.tool).operation)
    if earlier is not None:
        return earlier
    check_fences(context, request)
    evidence, missing = evidence_of(context, request)
    if missing:
        return NeedEvidence(missing)
    drafts = Drafts(context)
    record_id = context.new_id()
    match request:
        case CreateClaimRequest():
            draft = draft_claim(drafts, request, evidence, record_id=record_id)
        case CreateRelationshipRequest():
            draft = draft_relationship(context, drafts, request, evidence, record_id=record_id)
        case _:
            assert_never(request)
    return drafts.publish(request, main=draft)


def _statement(
    drafts: Drafts,
    arguments: StatementArguments,
    evidence: tuple[EvidenceCitation, ...],
    *,
    record_id: str,
    kind: Literal["claim", "relationship"],
    at: str,
) -> Record:
    """What claims and relationships share; title, text and times are still to come."""
    return Record(
        id=record_id,
        kind=kind,
        title="",
        recorded_at="",
        updated_at="",
        attribution=arguments.attribution,
        evidence=with_added((), evidence),
        owner=None if arguments.owner is None else drafts.page(arguments.owner, f"{at}owner"),
        occurred_at=_interval(arguments.occurred_at),
        due_at=_interval(arguments.due_at),
        expires_at=_interval(arguments.expires_at),
        source_page=None if arguments.source_page is None else drafts.page(arguments.source_page, f"{at}source_page"),
        subject_hint=arguments.subject_hint,
        dependencies=drafts.others(record_id, arguments.dependencies, f"{at}dependencies"),
    )


def _interval(date: str | None) -> Interval | None:
    return None if date is None else parse_date(date)


V = TypeVar("V")


def _given(value: V | None, kept: V) -> V:
    """The argument where there is one, else what the record has."""
    return kept if value is None else value
