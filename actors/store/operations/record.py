"""``knowledge_record``: one record in full, in windows of its text (tools.md, Reading records)."""

from __future__ import annotations

from actors.store.needs import CitationKey, NeedEvidence
from actors.store.operations.context import OperationContext, Outcome
from actors.store.operations.validity import issues_of
from messages.tools import EvidenceView, PageRef, RecordRequest, RecordView, record_response
from messages.tools.records import EVIDENCE_PER_RESPONSE
from storage.records import EvidenceCitation, Record
from storage.state.catalogue_reader import Entry


def record(context: OperationContext, request: RecordRequest) -> Outcome:
    """The record of an id; ``record: null`` when it is missing or when several files bear the id.

    Citations come with excerpts only when their retained file was verified for this very read.
    """
    entry = context.catalogue.one(request.id)
    if entry is None:
        return record_response(None, request)
    found = context.session.load(entry)
    evidence: list[EvidenceView] = []
    if request.include_evidence:
        window = slice(request.evidence_offset, request.evidence_offset + EVIDENCE_PER_RESPONSE)
        wanted = found.evidence[window]
        missing = tuple(citation for citation in wanted if CitationKey.of(citation) not in context.prepared.verdicts)
        if missing:
            return NeedEvidence(missing)
        evidence = [_evidence(context, citation) for citation in found.evidence]
    return record_response(view(context, entry, found), request, evidence=evidence)


def view(context: OperationContext, entry: Entry, found: Record) -> RecordView:
    """Everything that a single read may show of a record."""
    return RecordView(
        id=entry.id,
        revision=entry.revision,
        hash=entry.hash,
        kind=entry.kind,
        body=found.text if entry.kind == "claim" else found.body,
        title=found.title if entry.kind != "claim" else None,
        type=entry.type if entry.kind == "page" else None,
        lifecycle=entry.lifecycle,
        assertion_origin=found.assertion_origin or "source",
        aliases=found.aliases,
        tags=found.tags,
        dependencies=found.dependencies,
        fields=found.fields,
        pages=context.page_refs(found.entities),
        claim_kind=found.claim_kind,
        occurred_at=None if found.occurred_at is None else found.occurred_at.text,
        due_at=None if found.due_at is None else found.due_at.text,
        expires_at=None if found.expires_at is None else found.expires_at.text,
        owner=_owner(context, found),
        source_page=found.source_page,
        attribution=found.attribution,
        subject_hint=found.subject_hint,
        relationship_source=found.from_id,
        relationship_target=found.to_id,
        label=found.label,
        supersedes=found.supersedes,
        superseded_by=found.superseded_by,
        merged_into=found.merged_into,
        identity_uncertainty=found.identity_uncertainty,
        issues=issues_of(context, entry, found),
    )


def _owner(context: OperationContext, found: Record) -> PageRef | None:
    if found.owner is None:
        return None
    return next(iter(context.page_refs((found.owner,))), PageRef(found.owner, ""))


def _evidence(context: OperationContext, citation: EvidenceCitation) -> EvidenceView:
    verdict = context.prepared.verdicts.get(CitationKey.of(citation))
    return EvidenceView(
        path=citation.path,
        sha256=citation.sha256,
        attribution=citation.attribution,
        filename=citation.filename,
        media_type=citation.media_type,
        start_line=citation.start_line,
        end_line=citation.end_line,
        quote=citation.quote,
        excerpt=None if verdict is None else verdict.excerpt,
    )
