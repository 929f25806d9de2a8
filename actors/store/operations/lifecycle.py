"""``knowledge_correct`` and ``knowledge_withdraw``: what is wrong gives way, and nothing is lost.

Source: knowledge-more-facts.md section 3, decisions.md section 5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, TypeAlias, assert_never

from actors.store.needs import NeedEvidence, NeedIndex
from actors.store.operations.context import OperationContext, Outcome, check_fences, earlier_receipt
from actors.store.operations.drafts import Draft, Drafts
from actors.store.operations.fences import fenced_target
from actors.store.operations.impact import impact_of
from actors.store.operations.statements import draft_claim, draft_relationship, evidence_of
from messages.errors import InvalidArgument, LimitExceeded
from messages.tools import ClaimArguments, CorrectRequest, MergeRequest, RelationshipArguments, WithdrawRequest
from messages.vocabulary import Lifecycle
from storage.records import EvidenceCitation, LifecycleChange, Record
from storage.state.catalogue_reader import Entry

Reasoned: TypeAlias = CorrectRequest | WithdrawRequest | MergeRequest

DEPENDENCIES_FOLLOWED_MAX: Final = 10_000

_AT: Final = "replacement."


def correct(context: OperationContext, request: CorrectRequest) -> Outcome:
    """The original becomes superseded, its replacement is new, both in one publication."""
    earlier = earlier_receipt(context, request, "correct")
    if earlier is not None:
        return earlier
    check_fences(context, request)
    entry = fenced_target(context, request.id, request.expected_revision, request.expected_hash)
    original = context.session.load(entry)
    _require_correctable(context, request, entry)
    statement = request.replacement.statement()
    evidence, missing = evidence_of(context, statement, _AT)
    if missing:
        return NeedEvidence(missing)
    _require_independent(context, entry.id, statement.dependencies)
    impact = impact_of(context, entry, original)
    if isinstance(impact, NeedIndex):
        return impact
    drafts = Drafts(context)
    replacement = _replacement(context, drafts, statement, evidence, entry.id)
    superseded = drafts.revise(
        entry,
        replace(changed(context, drafts, request, original, "superseded"), superseded_by=replacement.record.id),
    )
    return drafts.publish(
        request,
        main=replacement,
        items=[superseded.to_item(), replacement.to_item()],
        target_id=entry.id,
        impact=impact.to_json(),
        reason=request.reason,
    )


def withdraw(context: OperationContext, request: WithdrawRequest) -> Outcome:
    """The record counts no more. Nothing else changes; what may now be wrong is named."""
    earlier = earlier_receipt(context, request, "withdraw")
    if earlier is not None:
        return earlier
    check_fences(context, request)
    entry = fenced_target(context, request.id, request.expected_revision, request.expected_hash)
    original = context.session.load(entry)
    impact = impact_of(context, entry, original)
    if isinstance(impact, NeedIndex):
        return impact
    drafts = Drafts(context)
    withdrawn = drafts.revise(entry, changed(context, drafts, request, original, "withdrawn"))
    return drafts.publish(request, main=withdrawn, impact=impact.to_json(), reason=request.reason)


def changed(context: OperationContext, drafts: Drafts, request: Reasoned, record: Record, to: Lifecycle) -> Record:
    """The record in its new state, with who changed it, when and why."""
    change = LifecycleChange(request.reason, drafts.instant, context.agent, request.request_id)
    return replace(record, lifecycle=to, lifecycle_change=change)


def _replacement(
    context: OperationContext,
    drafts: Drafts,
    statement: ClaimArguments | RelationshipArguments,
    evidence: tuple[EvidenceCitation, ...],
    supersedes: str,
) -> Draft:
    record_id = context.new_id()
    match statement:
        case ClaimArguments():
            return draft_claim(drafts, statement, evidence, record_id=record_id, at=_AT, supersedes=supersedes)
        case RelationshipArguments():
            return draft_relationship(
                context, drafts, statement, evidence, record_id=record_id, at=_AT, supersedes=supersedes
            )
        case _:
            assert_never(statement)


def _require_correctable(context: OperationContext, request: CorrectRequest, entry: Entry) -> None:
    if entry.kind == "page":
        raise InvalidArgument(
            "A page is not corrected so: edit its prose with knowledge_save_page or knowledge_edit_body.",
            field="id",
            reason="wrong_kind",
            allowed=["claim", "relationship"],
        )
    if request.replacement.kind != entry.kind:
        raise InvalidArgument(
            f"The record is a {entry.kind}, so its replacement must be one.",
            field="replacement.kind",
            reason="wrong_kind",
            allowed=entry.kind,
        )
    if not entry.valid:
        raise InvalidArgument(
            f"The {entry.kind} is invalid and is not corrected; a person must repair its file first.",
            field="id",
            reason="invalid_record",
            problems=list(context.catalogue.findings(entry.path)),
        )


def _require_independent(context: OperationContext, original: str, dependencies: Iterable[str]) -> None:
    """The replacement may rest neither on the original nor on anything that rests on it, however far down."""
    ahead = list(dict.fromkeys(dependencies))
    seen = set(ahead)
    for record_id in ahead:
        if record_id == original:
            raise InvalidArgument(
                "The replacement would depend on the record that it replaces, or on one that depends on it.",
                field="replacement.dependencies",
                reason="depends_on_original",
                allowed="records that do not rest on the original",
            )
        for entry in context.catalogue.by_id(record_id):
            following = [found for found in context.catalogue.named_by(entry.row, "dependency") if found not in seen]
            seen.update(following)
            ahead += following
        if len(seen) > DEPENDENCIES_FOLLOWED_MAX:
            raise LimitExceeded(
                f"The dependencies of the replacement lead to more than {DEPENDENCIES_FOLLOWED_MAX} records.",
                field="replacement.dependencies",
                limit=DEPENDENCIES_FOLLOWED_MAX,
            )
