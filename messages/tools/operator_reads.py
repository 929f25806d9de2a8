"""What operators read: the requests, each with the arguments of the tool beside it, and how large an answer may get.

Same operations as the agents' tools, complete shapes: whole hashes, paths, states and times are shown, and nothing is
left out because it is usual. Only what a single record shows is cut, by the limits of what a tool can save. Pure.

Source: tools.md (Agent response shapes, Listing and connections), stores-and-access.md (Caller authority), decisions.md
section 7 (``operator.*``).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import model_validator

from messages.arguments import Arguments
from messages.pieces import Bool, Choice, DateText, Integer, Text, refused
from messages.tools._base import (
    Kind,
    Offset,
    Origin,
    Snapshot,
    Tag,
    TimeFields,
    ToolRequest,
    TypeName,
    check_interval,
)
from messages.tools.connections import ConnectionsRequest
from messages.tools.evidence import AttachmentRequest, EvidenceReadRequest
from messages.tools.history import HistoryRequest, MutationRequest, RevisionRequest
from messages.tools.ontology import OntologyRequest
from messages.tools.records import RecordRequest
from messages.tools.search import GrepRequest, LookupRequest
from messages.tools.timeline import (
    ChronicleDayRequest,
    ChronicleDaysRequest,
    ChronicleDueRequest,
    TimelineRequest,
)
from messages.vocabulary import TITLE_MAX_CHARS

BrowseState: TypeAlias = Literal["active", "superseded", "withdrawn", "merged", "expired", "invalid", "fixture", "all"]
BROWSE_STATES: Final[tuple[BrowseState, ...]] = (
    "active", "superseded", "withdrawn", "merged", "expired", "invalid", "fixture", "all",
)  # fmt: skip
"""``active`` is current and eligible, as everywhere; ``all`` is whatever lies in the partition."""

BrowseOrder: TypeAlias = Literal["recorded", "updated", "title"]
BROWSE_ORDERS: Final[tuple[BrowseOrder, ...]] = ("recorded", "updated", "title")

SEARCH_LIMIT: Final = 20
"""Rows of a search or a lookup by default: agents get ten (tools.md, Search and lookup)."""
CARDS_MAX_BYTES: Final = 256 * 1024
"""What the cards of one list may take."""
FINDINGS_MAX_BYTES: Final = 512 * 1024
"""What the findings of one answer may take, however few they are."""
FIRST_FINDINGS_MAX_BYTES: Final = 48 * 1024
"""The same where findings stand beside other things."""
PUBLICATIONS_LIMIT: Final = 50

_SearchLimit: TypeAlias = Annotated[int, Integer(1, 50)]
_State: TypeAlias = Annotated[BrowseState, Choice(*BROWSE_STATES)]
_Limit: TypeAlias = Annotated[int, Integer(1, 100)]
_Path: TypeAlias = Annotated[str, Text(max_units=4_096)]


class OperatorRecordRequest(RecordRequest):
    """One record as a whole. ``path`` chooses among several files that bear the id."""

    tool: ClassVar[str] = "operator.record"

    include_evidence: Bool = True
    path: _Path | None = None


class _Browsing(Arguments):
    """What narrows a list of records, and where it goes on."""

    kind: Kind | None = None
    type: TypeName | None = None
    tag: Tag | None = None
    lifecycle: _State = "active"
    limit: _Limit = 50
    offset: Offset = 0
    snapshot: Snapshot | None = None


class OperatorRecordsRequest(_Browsing, ToolRequest):
    """Browse: every record that passes, by when it was recorded or updated or by title."""

    tool: ClassVar[str] = "operator.records"

    match: Annotated[str, Text(max_units=TITLE_MAX_CHARS)] | None = None
    origin: Origin | None = None
    time_field: TimeFields | None = None
    since: DateText | None = None
    until: DateText | None = None
    order: Annotated[BrowseOrder, Choice(*BROWSE_ORDERS)] = "recorded"
    descending: Bool = False

    @model_validator(mode="after")
    def _interval(self) -> Self:
        check_interval(self.since, self.until)
        if self.origin is not None and self.kind == "page":
            raise refused("conflict", "does not apply to pages", "claims and relationships", field="origin")
        return self


class OperatorRecentRequest(_Browsing, ToolRequest):
    """Recent: what was updated last, first."""

    tool: ClassVar[str] = "operator.recent"


class OperatorTagsRequest(ToolRequest):
    """The tags that records have, most used first: what to browse by."""

    tool: ClassVar[str] = "operator.tags"

    limit: _Limit = 100
    offset: Offset = 0


class OperatorSearchRequest(GrepRequest):
    """Search: ranked words with excerpts."""

    tool: ClassVar[str] = "operator.search"

    limit: _SearchLimit = SEARCH_LIMIT


class OperatorLookupRequest(LookupRequest):
    """Exact identity."""

    tool: ClassVar[str] = "operator.lookup"

    limit: _SearchLimit = SEARCH_LIMIT


class OperatorConnectionsRequest(ConnectionsRequest):
    """What a record is connected with; claims come with their evidence."""

    tool: ClassVar[str] = "operator.connections"


class OperatorTimelineRequest(TimelineRequest):
    """Current records by a date."""

    tool: ClassVar[str] = "operator.timeline"


class OperatorDaysRequest(ChronicleDaysRequest):
    """Records per day and kind."""

    tool: ClassVar[str] = "operator.chronicleDays"


class OperatorDayRequest(ChronicleDayRequest):
    """Everything of one day."""

    tool: ClassVar[str] = "operator.chronicleDay"


class OperatorDueRequest(ChronicleDueRequest):
    """Commitments that are overdue, due or coming."""

    tool: ClassVar[str] = "operator.chronicleDue"


class OperatorVocabularyRequest(OntologyRequest):
    """Vocabulary: the effective ontology with the number of records of each type."""

    tool: ClassVar[str] = "operator.vocabulary"


class OperatorEvidenceRequest(EvidenceReadRequest):
    """A retained passage."""

    tool: ClassVar[str] = "operator.evidence"


class OperatorOriginalRequest(AttachmentRequest):
    """A chunk of a retained original."""

    tool: ClassVar[str] = "operator.original"


class OperatorHistoryRequest(HistoryRequest):
    """Revisions of the partition or of one record, outside edits and removals included."""

    tool: ClassVar[str] = "operator.history"


class OperatorRevisionRequest(RevisionRequest):
    """The text of one retained revision."""

    tool: ClassVar[str] = "operator.revision"


class OperatorMutationRequest(MutationRequest):
    """One publication's complete receipt and its texts."""

    tool: ClassVar[str] = "operator.mutation"


class OperatorActivityRequest(ToolRequest):
    """Activity and issues: what was published, what is unfinished, the Git checkpoint, and what is wrong."""

    tool: ClassVar[str] = "operator.activity"

    limit: _Limit = PUBLICATIONS_LIMIT
    before: Annotated[int, Integer(1, 2**53 - 1)] | None = None
    """Only publications before this sequence: ``nextBefore`` of the previous answer."""
    conflicts: Bool = False
    """Only writes that were rolled back because a person's edit got in between."""


OperatorRead: TypeAlias = (
    OperatorRecordRequest
    | OperatorRecordsRequest
    | OperatorRecentRequest
    | OperatorTagsRequest
    | OperatorSearchRequest
    | OperatorLookupRequest
    | OperatorConnectionsRequest
    | OperatorTimelineRequest
    | OperatorDaysRequest
    | OperatorDayRequest
    | OperatorDueRequest
    | OperatorVocabularyRequest
    | OperatorEvidenceRequest
    | OperatorOriginalRequest
    | OperatorHistoryRequest
    | OperatorRevisionRequest
    | OperatorMutationRequest
    | OperatorActivityRequest
)
"""Reads of one store: they run in its lane, save nothing, and are answered while a publication is unfinished."""

OPERATOR_READS: Final[tuple[type[OperatorRead], ...]] = (
    OperatorRecordRequest,
    OperatorRecordsRequest,
    OperatorRecentRequest,
    OperatorTagsRequest,
    OperatorSearchRequest,
    OperatorLookupRequest,
    OperatorConnectionsRequest,
    OperatorTimelineRequest,
    OperatorDaysRequest,
    OperatorDayRequest,
    OperatorDueRequest,
    OperatorVocabularyRequest,
    OperatorEvidenceRequest,
    OperatorOriginalRequest,
    OperatorHistoryRequest,
    OperatorRevisionRequest,
    OperatorMutationRequest,
    OperatorActivityRequest,
)
