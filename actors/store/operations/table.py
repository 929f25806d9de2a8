"""The table of operations: one plain function for each tool."""

from __future__ import annotations

from actors.store.operations.adopt import adopt
from actors.store.operations.attach import attach
from actors.store.operations.attach_file import attach_file
from actors.store.operations.connections import connections
from actors.store.operations.context import OperationContext, Outcome
from actors.store.operations.edit_body import edit_body
from actors.store.operations.extract_section import extract_section
from actors.store.operations.gate_candidates import gate_candidates, gate_pages
from actors.store.operations.grep import grep
from actors.store.operations.history import history, mutation, resume, revision
from actors.store.operations.lifecycle import correct, withdraw
from actors.store.operations.looking_after import accept_deletions, operator_diagnostics, operator_status
from actors.store.operations.lookup import lookup
from actors.store.operations.maintenance import maintain
from actors.store.operations.merging import merge, unmerge
from actors.store.operations.ontology import ontology
from actors.store.operations.operator_reads import read as operator_read
from actors.store.operations.prompt_build import prompt_build
from actors.store.operations.provider_reads import memory_read, memory_status
from actors.store.operations.provider_search import memory_search
from actors.store.operations.publish_batch import publish_batch
from actors.store.operations.recall import recall
from actors.store.operations.recall_candidates import memory_candidates
from actors.store.operations.reconcile_evidence import reconcile_evidence
from actors.store.operations.record import record
from actors.store.operations.records import records
from actors.store.operations.remember import remember
from actors.store.operations.save_page import save_page
from actors.store.operations.source_check import source_check
from actors.store.operations.source_reads import attachment, evidence_read
from actors.store.operations.statements import annotate, create_claim, create_relationship
from actors.store.operations.status import status
from actors.store.operations.timeline import chronicle_day, chronicle_days, chronicle_due, timeline
from actors.store.operations.verify import verify
from actors.store.upkeep import UpkeepStep
from messages.operator import (
    AcceptDeletionsRequest,
    AdoptNotesRequest,
    OperatorDiagnosticsRequest,
    OperatorStatusRequest,
)
from messages.provider import (
    MemoryCandidatesRequest,
    MemoryReadRequest,
    MemorySearchRequest,
    MemoryStatusRequest,
    PromptBuildRequest,
)
from messages.provider.gate import GateCandidatesRequest, GatePagesRequest
from messages.tools import (
    AnnotateRequest,
    AttachFileRequest,
    AttachmentRequest,
    AttachRequest,
    ChronicleDayRequest,
    ChronicleDaysRequest,
    ChronicleDueRequest,
    ConnectionsRequest,
    CorrectRequest,
    CreateClaimRequest,
    CreateRelationshipRequest,
    EditBodyRequest,
    EvidenceReadRequest,
    ExtractSectionRequest,
    GrepRequest,
    HistoryRequest,
    LookupRequest,
    MergeRequest,
    MutationRequest,
    OntologyRequest,
    PublishBatchRequest,
    RecallRequest,
    ReconcileEvidenceRequest,
    RecordRequest,
    RecordsRequest,
    RememberRequest,
    ResumeRequest,
    RevisionRequest,
    SavePageRequest,
    SourceCheckRequest,
    StatusRequest,
    TimelineRequest,
    ToolRequest,
    UnmergeRequest,
    VerifyRequest,
    WithdrawRequest,
)
from messages.tools.operator_reads import OperatorRead


def run(context: OperationContext, request: ToolRequest | UpkeepStep) -> Outcome:
    """Run the operation of ``request``; the lane's thread, on a fresh snapshot."""
    match request:
        case UpkeepStep():
            return maintain(context, request)
        # Before the tools: an operator's read has the arguments of a tool, and is one to `isinstance`.
        case _ if isinstance(request, OperatorRead):
            return operator_read(context, request)
        case StatusRequest():
            return status(context, request)
        case OntologyRequest():
            return ontology(context, request)
        case LookupRequest():
            return lookup(context, request)
        case GrepRequest():
            return grep(context, request)
        case RecordRequest():
            return record(context, request)
        case RecordsRequest():
            return records(context, request)
        case ConnectionsRequest():
            return connections(context, request)
        case TimelineRequest():
            return timeline(context, request)
        case ChronicleDaysRequest():
            return chronicle_days(context, request)
        case ChronicleDayRequest():
            return chronicle_day(context, request)
        case ChronicleDueRequest():
            return chronicle_due(context, request)
        case RememberRequest():
            return remember(context, request)
        case SavePageRequest():
            return save_page(context, request)
        case EditBodyRequest():
            return edit_body(context, request)
        case CreateClaimRequest():
            return create_claim(context, request)
        case CreateRelationshipRequest():
            return create_relationship(context, request)
        case PublishBatchRequest():
            return publish_batch(context, request)
        case AnnotateRequest():
            return annotate(context, request)
        case CorrectRequest():
            return correct(context, request)
        case WithdrawRequest():
            return withdraw(context, request)
        case MergeRequest():
            return merge(context, request)
        case UnmergeRequest():
            return unmerge(context, request)
        case RecallRequest():
            return recall(context, request)
        case VerifyRequest():
            return verify(context, request)
        case SourceCheckRequest():
            return source_check(context, request)
        case ExtractSectionRequest():
            return extract_section(context, request)
        case AttachRequest():
            return attach(context, request)
        case AttachFileRequest():
            return attach_file(context, request)
        case AttachmentRequest():
            return attachment(context, request)
        case EvidenceReadRequest():
            return evidence_read(context, request)
        case ReconcileEvidenceRequest():
            return reconcile_evidence(context, request)
        case HistoryRequest():
            return history(context, request)
        case RevisionRequest():
            return revision(context, request)
        case MutationRequest():
            return mutation(context, request)
        case ResumeRequest():
            return resume(context, request)
        case MemoryStatusRequest():
            return memory_status(context, request)
        case MemorySearchRequest():
            return memory_search(context, request)
        case MemoryReadRequest():
            return memory_read(context, request)
        case MemoryCandidatesRequest():
            return memory_candidates(context, request)
        case PromptBuildRequest():
            return prompt_build(context, request)
        case GateCandidatesRequest():
            return gate_candidates(context, request)
        case GatePagesRequest():
            return gate_pages(context, request)
        case OperatorStatusRequest():
            return operator_status(context, request)
        case OperatorDiagnosticsRequest():
            return operator_diagnostics(context, request)
        case AdoptNotesRequest():
            return adopt(context, request)
        case AcceptDeletionsRequest():
            return accept_deletions(context, request)
        case _:
            raise NotImplementedError(f"no operation for {type(request).__name__}")
