"""``knowledge_reconcile_evidence``: the complete new evidence set of a page (tools.md, Page budgets: never limited)."""

from __future__ import annotations

from dataclasses import replace

from actors.store.needs import CitationKey, NeedEvidence
from actors.store.operations.context import OperationContext, Outcome, check_fences, earlier_receipt
from actors.store.operations.drafts import Drafts
from actors.store.operations.evidence import attached, unverified
from actors.store.operations.fences import fenced_target
from messages.tools import ReconcileEvidenceRequest


def reconcile_evidence(context: OperationContext, request: ReconcileEvidenceRequest) -> Outcome:
    """Replace the page's citations, each verified; its text and every other key stay. Repeats within the set count
    once."""
    earlier = earlier_receipt(context, request, "reconcile_evidence")
    if earlier is not None:
        return earlier
    check_fences(context, request)
    entry = fenced_target(context, request.id, request.expected_revision, request.expected_hash, kind="page")
    evidence = attached(context, request.evidence, field="evidence")
    missing = unverified(context, evidence, field="evidence")
    if missing:
        return NeedEvidence(missing)
    drafts = Drafts(context)
    distinct = {(CitationKey.of(one), one.attribution): one for one in evidence}
    draft = drafts.revise(entry, replace(drafts.load(entry), evidence=tuple(distinct.values())))
    return drafts.publish(request, main=draft, reason=request.reason)
