"""What operators read of one open store: the agents' operations in complete shapes, and what only people look at.

Nothing is saved: no store is created, no file of a vault is written. While a publication cannot be finished, operators
are answered from what is known, and the answer says so (``refusal``).

Source: tools.md (Agent response shapes), stores-and-access.md (Caller authority), knowledge-more-facts.md section 8.
"""

from __future__ import annotations

from typing import Final, assert_never

from actors.store.needs import CitationKey, NeedEvidence
from actors.store.operations.budget import budget_of
from actors.store.operations.cards import OPERATOR, reference, sources_of, state_of
from actors.store.operations.connections import connected_rows, connections
from actors.store.operations.context import OperationContext, Outcome
from actors.store.operations.filters import types_of
from actors.store.operations.grep import grep
from actors.store.operations.history import history, mutation, revision
from actors.store.operations.looking_after import findings_within, refusal
from actors.store.operations.lookup import lookup
from actors.store.operations.ontology import ontology
from actors.store.operations.recall import approved_recall
from actors.store.operations.record import view
from actors.store.operations.records import inventory_page
from actors.store.operations.rows import coverage_of, current_snapshot
from actors.store.operations.source_reads import attachment, evidence_read
from actors.store.operations.timeline import chronicle_day, chronicle_days, chronicle_due, timeline
from messages.json_types import JsonObject, JsonValue
from messages.tools import EvidenceView, paging, record_response, rows_within
from messages.tools.complete import CompleteEvidence, CompleteRecord
from messages.tools.operator_reads import (
    FIRST_FINDINGS_MAX_BYTES,
    OperatorActivityRequest,
    OperatorConnectionsRequest,
    OperatorDayRequest,
    OperatorDaysRequest,
    OperatorDueRequest,
    OperatorEvidenceRequest,
    OperatorHistoryRequest,
    OperatorLookupRequest,
    OperatorMutationRequest,
    OperatorOriginalRequest,
    OperatorRead,
    OperatorRecentRequest,
    OperatorRecordRequest,
    OperatorRecordsRequest,
    OperatorRevisionRequest,
    OperatorSearchRequest,
    OperatorTagsRequest,
    OperatorTimelineRequest,
    OperatorVocabularyRequest,
)
from messages.tools.records import EVIDENCE_PER_RESPONSE
from messages.vocabulary import LIST_ARGUMENT_MAX_ITEMS, TAG_MAX_CHARS, TITLE_MAX_CHARS
from storage.records import EvidenceCitation, Record, bound_ms, format_instant, utf16
from storage.state import activity as store_activity
from storage.state import history as store_history
from storage.state.catalogue_reader import Entry
from storage.state.connections import DIRECTIONS
from storage.state.inventory import InventoryFilters

FILES_NAMED: Final = 20
ACTIVITY_FINDINGS: Final = 100
"""How many findings the activity shows; ``operator.diagnostics`` has them all."""


def read(context: OperationContext, request: OperatorRead) -> Outcome:
    """The complete answer. Raises what the agent's tool of the same kind raises."""
    found = _read(context, request)
    if not isinstance(found, dict):
        return found
    if isinstance(request, _PAGED):
        snapshot = found.get("snapshot", current_snapshot(context, None))
        found = {**found, "nextOffset": found.get("nextOffset"), "snapshot": snapshot}
    if isinstance(request, _COVERED):
        found = {**found, "coverage": coverage_of(context) or {}}
    if context.blocked is not None:
        found["refusal"] = refusal(context.blocked.code, context.blocked.message, dict(context.blocked.fields))
    return found


_PAGED: Final = (
    OperatorRecordsRequest, OperatorRecentRequest, OperatorTagsRequest, OperatorSearchRequest, OperatorLookupRequest,
    OperatorConnectionsRequest, OperatorTimelineRequest, OperatorDayRequest,
)  # fmt: skip
_COVERED: Final = (*_PAGED, OperatorDaysRequest, OperatorDueRequest)


def _read(context: OperationContext, request: OperatorRead) -> Outcome:
    match request:
        case OperatorRecordRequest():
            return _record(context, request)
        case OperatorRecordsRequest() | OperatorRecentRequest():
            return _browse(context, request)
        case OperatorTagsRequest():
            return _tags(context, request)
        case OperatorSearchRequest():
            return grep(context, request, OPERATOR)
        case OperatorLookupRequest():
            return lookup(context, request, OPERATOR)
        case OperatorConnectionsRequest():
            return connections(context, request, OPERATOR)
        case OperatorTimelineRequest():
            return timeline(context, request, OPERATOR)
        case OperatorDaysRequest():
            return chronicle_days(context, request)
        case OperatorDayRequest():
            return chronicle_day(context, request, OPERATOR)
        case OperatorDueRequest():
            return chronicle_due(context, request, OPERATOR)
        case OperatorVocabularyRequest():
            return _vocabulary(context, request)
        case OperatorEvidenceRequest():
            return evidence_read(context, request)
        case OperatorOriginalRequest():
            return attachment(context, request)
        case OperatorHistoryRequest():
            return history(context, request, complete=True)
        case OperatorRevisionRequest():
            return revision(context, request, complete=True)
        case OperatorMutationRequest():
            return mutation(context, request)
        case OperatorActivityRequest():
            return _activity(context, request)
        case _:
            assert_never(request)


# --- lists ---------------------------------------------------------------------------------------------------


def _browse(context: OperationContext, request: OperatorRecordsRequest | OperatorRecentRequest) -> JsonObject:
    snapshot = current_snapshot(context, request.snapshot)
    asked = request if isinstance(request, OperatorRecordsRequest) else None
    since, until = (None, None) if asked is None else (asked.since, asked.until)
    filters = InventoryFilters(
        kind=request.kind,
        types=types_of(context, request.type),
        match=None if asked is None else asked.match,
        origin=None if asked is None else asked.origin,
        lifecycle=request.lifecycle,
        time_field=None if asked is None else asked.time_field,
        since=None if since is None else bound_ms(since),
        until=None if until is None else bound_ms(until),
        now_ms=context.now_ms,
        tag=request.tag,
        order="updated" if asked is None else asked.order,
        descending=True if asked is None else asked.descending,
    )
    return inventory_page(context, filters, request.limit, request.offset, snapshot, OPERATOR)


def _tags(context: OperationContext, request: OperatorTagsRequest) -> JsonObject:
    found, total = context.catalogue.tags(context.now_ms, request.limit, request.offset)
    rows: list[JsonObject] = [
        {
            "tag": utf16.clip(tag, TAG_MAX_CHARS),
            **({"truncated": True} if utf16.length(tag) > TAG_MAX_CHARS else {}),
            "counts": {"current": current, "total": in_all},
        }
        for tag, current, in_all in found
    ]
    page = paging(offset=request.offset, returned=len(rows), total=total)
    return {"total": total, **page, "tags": [*rows]}


# --- one record ----------------------------------------------------------------------------------------------


def _record(context: OperationContext, request: OperatorRecordRequest) -> Outcome:
    """The record of an id, of ``path`` where several files bear it; else why there is none."""
    bearers = context.catalogue.by_id(request.id)
    chosen = [entry for entry in bearers if request.path in (None, entry.path)]
    if len(chosen) != 1:
        files: list[JsonValue] = [entry.path for entry in bearers[:FILES_NAMED]]
        return {"record": None, "state": "ambiguous" if len(chosen) > 1 else "missing", "files": files}
    entry = chosen[0]
    found = context.session.load(entry)
    window = found.evidence[request.evidence_offset : request.evidence_offset + EVIDENCE_PER_RESPONSE]
    missing = tuple(one for one in window if CitationKey.of(one) not in context.prepared.verdicts)
    evidence: list[EvidenceView] = []
    if request.include_evidence:
        if missing:
            return NeedEvidence(missing)
        evidence = [_citation(context, citation) for citation in found.evidence]
    beside: JsonObject = {"state": "found", "evidenceTotal": len(found.evidence)}
    answer = record_response(_complete(context, entry, found), request, evidence=evidence, beside=beside)
    return {**answer, "nextOffset": answer.get("nextOffset")}


def _complete(context: OperationContext, entry: Entry, found: Record) -> CompleteRecord:
    shown = view(context, entry, found)
    counted: dict[str, int] = dict.fromkeys(DIRECTIONS, 0)
    for direction, _ in connected_rows(context, entry, DIRECTIONS, historical=False):
        counted[direction] += 1
    state = {name: value for name, value in state_of(context, entry).items() if isinstance(value, bool | str)}
    return CompleteRecord(
        **{name: getattr(shown, name) for name in shown.__dataclass_fields__},
        state=state,
        complete=_left_out(context, entry, found),
        originals=sources_of(found.evidence),
        connections=counted,
    )


def _left_out(context: OperationContext, entry: Entry, found: Record) -> JsonObject:
    """What agents are not shown of a record."""
    db = context.session.store.publisher.db
    change, recall = found.lifecycle_change, found.recall
    # One more than is shown, so that what is left out is named.
    entities = found.entities[: LIST_ARGUMENT_MAX_ITEMS + 1]
    pages: list[JsonValue] = [reference(context, page) for page in entities]
    return {
        "path": entry.path,
        "title": entry.title,
        "recordedAt": format_instant(entry.recorded_at),
        "updatedAt": format_instant(entry.updated_at),
        "bodyChars": entry.body_size,
        "pages": pages or None,
        "sourcePage": reference(context, found.source_page),
        "from": reference(context, found.from_id),
        "to": reference(context, found.to_id),
        "attributionConfidence": found.attribution_confidence,
        "continuity": list(found.continuity) or None,
        "lifecycleChange": None
        if change is None
        else {"reason": change.reason, "at": change.at, "actor": change.actor, "requestId": change.request_id},
        "recall": None
        if recall is None
        else {
            "counts": approved_recall(context, entry) is not None,
            "summary": recall.summary,
            "triggers": list(recall.triggers),
            "importance": recall.importance,
            "projects": list(recall.projects),
            "approvedBy": recall.approved_by,
            "approvedAt": recall.approved_at,
        },
        "unknownKeys": list(found.unknown) or None,
        "mergedFrom": list(context.catalogue.merged_away(entry.id)) if entry.kind == "page" else None,
        "budget": _budget(context, entry) if entry.kind == "page" else None,
        "revisions": store_history.extent(db, context.partition, record_id=entry.id).rows,
    }


def _budget(context: OperationContext, entry: Entry) -> JsonObject:
    """What the body may grow to, and how the page stands among the others (tools.md, Page budgets)."""
    budget = budget_of(context, entry)
    standing = budget.standing
    return {
        "budgetChars": budget.chars,
        "hub": budget.hub,
        "degree": standing.degree,
        "percentile": round(standing.percentile, 2),
    }


def _citation(context: OperationContext, citation: EvidenceCitation) -> CompleteEvidence:
    verdict = context.prepared.verdicts.get(CitationKey.of(citation))
    return CompleteEvidence(
        path=citation.path,
        sha256=citation.sha256,
        attribution=citation.attribution,
        filename=citation.filename,
        media_type=citation.media_type,
        start_line=citation.start_line,
        end_line=citation.end_line,
        quote=citation.quote,
        excerpt=None if verdict is None else verdict.excerpt,
        size=citation.size,
        verified=None if verdict is None else verdict.problem is None,
        problem=None if verdict is None else verdict.problem,
    )


# --- vocabulary and activity -----------------------------------------------------------------------------------


def _vocabulary(context: OperationContext, request: OperatorVocabularyRequest) -> JsonObject:
    """A view of the ontology; each type and label with the number of its current records, and of all of them."""
    answer = ontology(context, request)
    rows = answer.get("types", answer.get("definitions"))
    if isinstance(rows, list):
        counted = context.catalogue.type_counts(context.now_ms)
        known = context.session.ontology
        for row in rows:
            if isinstance(row, dict):
                kind, name = str(row["kind"]), str(row["name"])
                spelt = known.spellings(name) if kind == "page" else frozenset((name,))
                numbers = [counted.get((kind, spelling), (0, 0)) for spelling in spelt]
                row["counts"] = {
                    "current": sum(current for current, _ in numbers),
                    "total": sum(total for _, total in numbers),
                }
    return {**answer, "nextOffset": answer.get("nextOffset")}


def _activity(context: OperationContext, request: OperatorActivityRequest) -> JsonObject:
    """What was published lately, what is unfinished, where Git and the index are, and the first findings."""
    db = context.session.store.publisher.db
    found = store_activity.activity(
        db, context.partition, before=request.before, limit=request.limit + 1, conflicts=request.conflicts
    )
    rows = rows_within(_publication(context, row) for row in found[: request.limit])
    pending, conflict = context.unsettled()
    following = found[len(rows) - 1].sequence if len(rows) < len(found) else None
    return {
        "publications": {"pending": pending, "conflict": conflict},
        "git": context.git_state().to_json(),
        "index": {"state": context.index_state()},
        "diagnostics": findings_within(context, ACTIVITY_FINDINGS, FIRST_FINDINGS_MAX_BYTES),
        "nextBefore": following,
        "rows": rows,
    }


def _publication(context: OperationContext, row: store_activity.Activity) -> JsonObject:
    checkpoint: JsonObject = {"commit": row.commit, "pending": row.waiting is not None}
    if row.waiting:
        checkpoint["message"] = row.waiting
    records: list[JsonValue] = [*row.records]
    titles = [(record, context.catalogue.title_of(record)) for record in row.records]
    return {
        "sequence": row.sequence,
        "requestId": row.request_id,
        "operation": row.operation,
        "actor": row.actor,
        "state": row.state,
        "external": row.request_id is None,
        "acceptedAt": format_instant(row.accepted_at // 1_000_000),
        "settledAt": None if row.settled_at is None else format_instant(row.settled_at // 1_000_000),
        "git": checkpoint,
        "changes": row.changes,
        "records": records,
        "titles": {record: utf16.clip(title, TITLE_MAX_CHARS) for record, title in titles if title is not None},
    }
