"""The tools: what may be asked of Knowledge, and the shapes of the answers.

One module a family, request and response beside each other; :data:`CATALOGUE` lists them all. A request exists only
validated and frozen (:func:`parse_arguments`). Responses are built from plain values and leave out what tools.md
says is left out.
"""

from messages.tools._base import LifecycleFilter, TimeField, ToolRequest, WriteRequest
from messages.tools._requests import (
    canonical_payload,
    flush_request_id,
    parse_arguments,
    payload_hash,
    tool_spec,
)
from messages.tools._rows import (
    ClaimRow,
    Found,
    PageRef,
    PageRow,
    RelationshipRow,
    Row,
    claim_text,
    json_bytes,
    paging,
    rows_within,
    short_hash,
)
from messages.tools.batch import BatchContent, BatchItem, PublishBatchRequest
from messages.tools.catalogue import CATALOGUE, Action, Annotations, ToolSpec
from messages.tools.extract import DestinationPage, ExtractSectionRequest
from messages.tools.history import (
    ContentField,
    HistoryRequest,
    HistoryRow,
    MutationFile,
    MutationRequest,
    ResumeRequest,
    RevisionRequest,
    history_response,
    mutation_response,
    revision_response,
)
from messages.tools.lifecycle import CorrectRequest, MergeRequest, Replacement, UnmergeRequest, WithdrawRequest
from messages.tools.ontology import OntologyRequest, OntologyView
from messages.tools.pages import EditBodyRequest, EvidenceArgument, PageArguments, SavePageRequest
from messages.tools.recall import RecallRequest
from messages.tools.receipts import (
    ExistingPage,
    Receipt,
    RejectionReason,
    agent_receipt,
    budget_rejection,
    same_title_rejection,
)
from messages.tools.records import (
    EvidenceView,
    RecordRequest,
    RecordsRequest,
    RecordView,
    record_response,
    records_response,
)
from messages.tools.remember import (
    RememberedItem,
    RememberItem,
    RememberRequest,
    Subject,
    all_duplicates,
)
from messages.tools.search import (
    GrepMode,
    GrepRequest,
    LookupRequest,
    SearchHit,
    grep_response,
    grep_unavailable,
    lookup_response,
)
from messages.tools.source_check import SourceArgument, SourceCheckRequest, SourceRow, source_check_response
from messages.tools.statements import (
    AnnotateRequest,
    ClaimArguments,
    CreateClaimRequest,
    CreateRelationshipRequest,
    RelationshipArguments,
    StatementArguments,
)
from messages.tools.status import GitState, StatusRequest, StatusResponse
from messages.tools.verify import Checked, ExpectedLink, VerifiedLink, VerifiedRecord, VerifyRequest, verify_response

__all__ = [
    "CATALOGUE",
    "Action",
    "AnnotateRequest",
    "Annotations",
    "BatchContent",
    "BatchItem",
    "Checked",
    "ClaimArguments",
    "ClaimRow",
    "ContentField",
    "CorrectRequest",
    "CreateClaimRequest",
    "CreateRelationshipRequest",
    "DestinationPage",
    "EditBodyRequest",
    "EvidenceArgument",
    "EvidenceView",
    "ExistingPage",
    "ExpectedLink",
    "ExtractSectionRequest",
    "Found",
    "GitState",
    "GrepMode",
    "GrepRequest",
    "HistoryRequest",
    "HistoryRow",
    "LifecycleFilter",
    "LookupRequest",
    "MergeRequest",
    "MutationFile",
    "MutationRequest",
    "OntologyRequest",
    "OntologyView",
    "PageArguments",
    "PageRef",
    "PageRow",
    "PublishBatchRequest",
    "RecallRequest",
    "Receipt",
    "RecordRequest",
    "RecordView",
    "RecordsRequest",
    "RejectionReason",
    "RelationshipArguments",
    "RelationshipRow",
    "RememberItem",
    "RememberRequest",
    "RememberedItem",
    "Replacement",
    "ResumeRequest",
    "RevisionRequest",
    "Row",
    "SavePageRequest",
    "SearchHit",
    "SourceArgument",
    "SourceCheckRequest",
    "SourceRow",
    "StatementArguments",
    "StatusRequest",
    "StatusResponse",
    "Subject",
    "TimeField",
    "ToolRequest",
    "ToolSpec",
    "UnmergeRequest",
    "VerifiedLink",
    "VerifiedRecord",
    "VerifyRequest",
    "WithdrawRequest",
    "WriteRequest",
    "agent_receipt",
    "all_duplicates",
    "budget_rejection",
    "canonical_payload",
    "claim_text",
    "flush_request_id",
    "grep_response",
    "grep_unavailable",
    "history_response",
    "json_bytes",
    "lookup_response",
    "mutation_response",
    "paging",
    "parse_arguments",
    "payload_hash",
    "record_response",
    "records_response",
    "revision_response",
    "rows_within",
    "same_title_rejection",
    "short_hash",
    "source_check_response",
    "tool_spec",
    "verify_response",
]
