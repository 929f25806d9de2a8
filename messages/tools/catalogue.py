"""The catalogue: every tool's name, request, right, and the words that teach a model when and how to use it.

Descriptions are ASCII and at most 600 characters; their first sentence carries the words a search would use. The
order is fixed, so that a tool list is byte-identical between runs (HOSTS.md sections 0, 2 and 5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from messages.tools._base import ToolRequest
from messages.tools.batch import PublishBatchRequest
from messages.tools.connections import ConnectionsRequest
from messages.tools.evidence import (
    AttachFileRequest,
    AttachmentRequest,
    AttachRequest,
    EvidenceReadRequest,
    ReconcileEvidenceRequest,
)
from messages.tools.extract import ExtractSectionRequest
from messages.tools.history import HistoryRequest, MutationRequest, ResumeRequest, RevisionRequest
from messages.tools.lifecycle import CorrectRequest, MergeRequest, UnmergeRequest, WithdrawRequest
from messages.tools.ontology import OntologyRequest
from messages.tools.pages import EditBodyRequest, SavePageRequest
from messages.tools.recall import RecallRequest
from messages.tools.records import RecordRequest, RecordsRequest
from messages.tools.remember import RememberRequest
from messages.tools.search import GrepRequest, LookupRequest
from messages.tools.source_check import SourceCheckRequest
from messages.tools.statements import AnnotateRequest, CreateClaimRequest, CreateRelationshipRequest
from messages.tools.status import StatusRequest
from messages.tools.timeline import ChronicleDayRequest, ChronicleDaysRequest, ChronicleDueRequest, TimelineRequest
from messages.tools.verify import VerifyRequest

Action: TypeAlias = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class Annotations:
    """MCP's hints to hosts: may run in parallel, may destroy, may be repeated, reaches beyond this machine."""

    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """One tool. ``action`` is the right it needs; ``core`` tools are in the default profile."""

    name: str
    request: type[ToolRequest]
    action: Action
    description: str
    annotations: Annotations
    core: bool = False

    @property
    def schema_version(self) -> int:
        return self.request.schema_version

    @property
    def operation(self) -> str:
        """The name without its prefix, as receipts and history carry it."""
        return self.name.removeprefix("knowledge_")


_READ: Final = Annotations(read_only=True, destructive=False, idempotent=True)
_ADD: Final = Annotations(read_only=False, destructive=False, idempotent=True)
_REPLACE: Final = Annotations(read_only=False, destructive=True, idempotent=True)


def _read(request: type[ToolRequest], description: str, *, core: bool = False) -> ToolSpec:
    return ToolSpec(
        name=request.tool, request=request, action="read", description=description, annotations=_READ, core=core
    )


def _write(request: type[ToolRequest], description: str, annotations: Annotations, *, core: bool = False) -> ToolSpec:
    return ToolSpec(
        name=request.tool, request=request, action="write", description=description, annotations=annotations, core=core
    )


_SPECS: Final = (
    _read(
        StatusRequest,
        "Show the state of your knowledge memory: vault ID, partition, whether saving is possible, record counts, "
        "unfinished publications, Git and index. Call it when a save or search fails, or when a write needs the vault "
        "ID; a search does not need it first.",
        core=True,
    ),
    _read(
        OntologyRequest,
        "Show the page types, relationship labels and fields that knowledge pages may use, and the ontology "
        'fingerprint. Call it before the first knowledge_save_page: view "definitions" with a name lists that type\'s '
        "fields and allowed values. A fingerprint from here or from the last receipt stays good until a write says "
        "ontology_changed.",
        core=True,
    ),
    _read(
        LookupRequest,
        "Find the one page, claim or relationship that has exactly this ID, title or alias. Use it to check whether a "
        "person, project or other page exists before you create or link one. state is found, ambiguous or missing: "
        "with ambiguous, ask or compare the hits, never take the first. For words inside records use knowledge_grep.",
        core=True,
    ),
    _read(
        GrepRequest,
        "Search memory by keywords: titles, aliases and text of saved pages and claims, best matches first. Search "
        "once for each name or earlier topic in a task before you plan or answer. Plain words only; mode any widens, "
        "phrase narrows. total null means the search failed, not that nothing is known. Open a hit with "
        "knowledge_record; for an exact name use knowledge_lookup.",
        core=True,
    ),
    _read(
        RecordRequest,
        "Read one saved page, claim or relationship in full, by ID: text, fields, links, hash and revision. Long text "
        "comes in windows: follow nextOffset with the same id, and start again if the hash changes. Never save a page "
        "from an incomplete body. Set includeEvidence to see the sources. record null means missing or not unique.",
        core=True,
    ),
    _read(
        RecordsRequest,
        "List saved records completely, page by page, filtered by kind, type, part of a title, date or origin. Use it "
        'for "all ..." questions, where ranked search proves nothing about what is missing. Follow nextOffset with '
        "unchanged filters and send snapshot back. For a topic use knowledge_grep.",
    ),
    _read(
        ConnectionsRequest,
        "Show what one record is connected with: incoming and outgoing relationships, dependents (records that declare "
        "it as a dependency), claims about or owned by a page, links in its text, and backlinks from others. Use it "
        "after knowledge_record to look around, and before a correction to see what rests on it. One row per "
        "connection, with its direction; follow nextOffset with unchanged filters and send snapshot back. historical "
        "adds superseded records.",
    ),
    _read(
        TimelineRequest,
        "List current records by date, latest first: what happened, was recorded, updated or is due in a time span, "
        "about one subject or of one owner. Use it for when and in what order. A partial date such as 2026-09 covers "
        "all of it; since is inclusive, until exclusive; each row has its date. Follow nextOffset with unchanged "
        "filters and send snapshot back. For one day use knowledge_chronicle_day.",
    ),
    _read(
        ChronicleDaysRequest,
        "Count saved records per day and kind in a time span of at most a year, to see when something happened. Days "
        "(UTC) without records are left out; a record dated by month or year counts on each of its days. With "
        "nextSince, ask again from there. Then read a day with knowledge_chronicle_day.",
    ),
    _read(
        ChronicleDayRequest,
        "Read one day: every current record that happened on it, or was recorded on it where nothing says when it "
        "happened, earliest first. Give date as YYYY-MM-DD (UTC) and follow nextOffset. For spans and filters use "
        "knowledge_timeline.",
    ),
    _read(
        ChronicleDueRequest,
        "List open commitments with their due dates and owners: overdue, due and upcoming, seen from today or from "
        "asOf. Use it for what is late or comes next. totals counts all of them; where a list shows fewer, page "
        "through knowledge_timeline with timeField due and claimKind commitment. A commitment that was kept stays "
        "listed until it is corrected or withdrawn.",
    ),
    _write(
        RememberRequest,
        "Remember decisions, preferences, corrections, commitments and facts from the conversation: save 1-20 claims "
        "in one call, before your final reply, without being asked. Quote the supporting passage in excerpt and word "
        "no claim more broadly than it. Set subject to an existing page's exact title, or describe it in about. Never "
        "save secrets or your own conclusions. Example item: "
        '{"text":"Chose option B because it ships sooner.","kind":"decision","subject":"Garden Pilot"}',
        _ADD,
        core=True,
    ),
    _write(
        SavePageRequest,
        "Create a page for a person, project or other lasting subject, or replace one. Look the title up first. To "
        "edit, read all of the page with knowledge_record, then send id, expectedRevision, expectedHash and the "
        "complete new body. A result with state rejected saved nothing: do what its message says. For single facts "
        "use knowledge_remember.",
        _REPLACE,
        core=True,
    ),
    _write(
        EditBodyRequest,
        "Change one range of a long page without sending it again: replace, insert (start equals end) or delete (empty "
        "replacement). start and end are UTF-16 offsets over the full body, as knowledge_record windows count them, at "
        "exactly the revision and hash you read; nothing is searched or shifted. For a whole new text use "
        "knowledge_save_page.",
        _REPLACE,
    ),
    _write(
        ExtractSectionRequest,
        "Move one heading section of a page to another page when a write is rejected with reason budget, or a page "
        "covers several subjects. The text moves unchanged; the heading stays with your summary and a link. Give "
        "sectionStart from the rejection's sections, and as destination a listed candidate (id and fences) or title "
        "and type of a new page. A refusal names a link that would lead elsewhere: rewrite that first with "
        "knowledge_edit_body.",
        _REPLACE,
    ),
    _write(
        CreateClaimRequest,
        "Save one claim with full control: kind, origin, attribution, entities, owner, dates, dependencies, and cited "
        "evidence that is checked against its source. Use it when ingesting documents; for facts from the "
        "conversation knowledge_remember is simpler. Resolve every page first; leave unknown owners and dates out. "
        "agent_inference marks your own conclusion.",
        _ADD,
    ),
    _write(
        CreateRelationshipRequest,
        "Connect two pages by a typed relationship such as works_at or part_of, with evidence. Look both pages up and "
        "read the label with knowledge_ontology: it says which page types may stand at each end and which fields it "
        "has. An existing relationship is never overwritten; another one with its own evidence may join the same "
        "pages. To replace a wrong one use knowledge_correct.",
        _ADD,
    ),
    _write(
        PublishBatchRequest,
        "Save up to 50 pages, claims and relationships of one source together, all or none, with one receipt. Use it "
        "when ingesting a document or meeting. Give an item a ref and call it $ref wherever another item needs its id, "
        "also as [[$ref|label]] in a page's body. An item with id edits that page. Errors name items[n].",
        _REPLACE,
    ),
    _write(
        AnnotateRequest,
        "Add metadata to a saved record without touching its words or lifecycle: source page, doubts about identity, "
        "confidence in who said it, links to what it continues, a test-data mark, more evidence, or the entities a "
        "claim is about. Read the record first. To change what a claim says use knowledge_correct.",
        _REPLACE,
    ),
    _write(
        CorrectRequest,
        "Replace a wrong claim or relationship by a right one: the original stays as superseded, the replacement is a "
        "new record with its own evidence. Use it when the user corrects something that was saved. Send the complete "
        "replacement, of the same kind. impact lists what rests on the old one and pages that still repeat its words: "
        "look at them. Page prose is edited with knowledge_save_page or knowledge_edit_body.",
        _REPLACE,
    ),
    _write(
        WithdrawRequest,
        "Retract one page, claim or relationship that should not count any more, keeping its history. There is no "
        "undo: a new record would be needed. Nothing else changes; impact lists what depends on it, names it or "
        "repeats it. If something else is true instead, use knowledge_correct.",
        _REPLACE,
    ),
    _write(
        MergeRequest,
        "Merge two pages about the same person or thing: the source becomes a redirect to the destination, which gains "
        "its names, tags, evidence and missing fields. Read both pages first and be sure; they must be of one type. "
        "Send body to combine their texts. knowledge_unmerge takes it back.",
        _REPLACE,
    ),
    _write(
        UnmergeRequest,
        "Undo a merge of pages that turned out to be different: the merged page is active again and the other one "
        "loses what it was given, unless that was edited since; kept lists what stayed. Use the merged page's id.",
        _REPLACE,
    ),
    _write(
        RecallRequest,
        "Approve one saved page or user_belief claim for automatic recall, or clear the approval. Use it only when the "
        "user asks to be reminded of it by itself: summary is all that will be shown, triggers and projects say when. "
        "Read the record first and send its id, expectedRevision and expectedHash. Source and inferred claims cannot "
        "be approved; a correction needs a new approval.",
        _REPLACE,
    ),
    _read(
        VerifyRequest,
        "Check saved records and their links after writing: schema, ontology, evidence against its hash, links that "
        "lead nowhere, redirects, duplicates. Send ids of what you wrote, and expectedLinks (from, to) for links that "
        "must be there: each is present, missing or ambiguous. state ok means that nothing is structurally wrong, not "
        "that the statement is true. Follow nextOffset with the same arguments. It changes nothing.",
    ),
    _read(
        SourceCheckRequest,
        "Compare a list of sources (files, feeds, messages) with the saved pages of type source: new, unchanged, "
        "changed, and with complete also gone. Use it before ingesting again, so that only what changed is read. Send "
        "each source's key with sha256, or size and modified; differs says what changed, and is empty where nothing "
        "could be compared. It changes nothing: update the source page yourself after reading.",
    ),
    _write(
        AttachRequest,
        "Retain an original file as evidence: upload its bytes in order, as base64 chunks of at most 48 KiB, all with "
        "one requestId, filename, mediaType and attribution; final true with the last. Repeat a chunk after an "
        "interruption; a refusal names received, where to go on. The last answer's evidence goes into attachments of "
        "knowledge_save_page or evidence of a claim. Pipe bytes in code; for a file of the workspace use "
        "knowledge_attach_file.",
        _ADD,
    ),
    _write(
        AttachFileRequest,
        "Retain a file of the host's workspace as evidence without sending its bytes: give its path, the SHA-256 that "
        "you observed, a filename and an attribution. Plain files only, no links. To retry, repeat the identical call; "
        "the file must not change meanwhile. The answer's evidence goes into attachments of knowledge_save_page or "
        "evidence of a claim.",
        _ADD,
    ),
    _read(
        AttachmentRequest,
        "Download an original that a record cites, in base64 chunks of 32 KiB: id of the record, path and sha256 from "
        "its evidence. Follow nextOffset until it is null. For text use knowledge_evidence_read.",
    ),
    _read(
        EvidenceReadRequest,
        "Read the passage of a source that a record cites, as text with its line range: id of the record, path and "
        "sha256 from its evidence. Narrow it with startLine and endLine inside the cited lines; while there is a "
        "nextCursor, send it back with the same id, path and hash. A source that another claim cites is read through "
        "that claim's id; binary files with knowledge_attachment.",
    ),
    _write(
        ReconcileEvidenceRequest,
        "Replace the whole evidence set of a page: send every citation it is to have, after reading its evidence with "
        "knowledge_record, at exactly the revision and hash you read. Use it to move a page to a better source or to "
        "drop one that does not hold. To add evidence only, use attachments of knowledge_save_page.",
        _REPLACE,
    ),
    _read(
        HistoryRequest,
        "List past saves and outside edits, newest first: operation, record, revision, hash, time and author. Use it "
        "to see how a record changed or to find the request ID of an uncertain write; read an old text with "
        "knowledge_revision.",
    ),
    _read(
        RevisionRequest,
        "Read an earlier revision of a record, as it was saved. Take sequence from knowledge_history; follow "
        "nextOffset with the same sequence. For the current text use knowledge_record.",
    ),
    _read(
        MutationRequest,
        "Inspect one write by its request ID: the complete receipt, and the texts before, proposed and displaced. Use "
        "it after an uncertain or conflicting write to see what was kept; includeFiles false gives the receipt only. "
        "To finish a pending write use knowledge_resume.",
    ),
    _write(
        ResumeRequest,
        "Finish an interrupted write or retry its Git checkpoint, with the original request ID. Use it when a receipt "
        "says pending. It never overwrites a conflict: after one, read the record and send a new write.",
        _ADD,
    ),
)

CATALOGUE: Final[Mapping[str, ToolSpec]] = MappingProxyType({spec.name: spec for spec in _SPECS})
