"""What an operation works with: one partition's fresh snapshot, the right to publish, and what helpers prepared.

An operation is a plain function ``(context, request) -> JsonObject | Need``. It runs in the lane, touches no
mailbox and can be tested without a thread. When it returns a need, the lane parks the request, has a helper meet
it and runs the operation again from its beginning on a fresh snapshot (DESIGN.md, One request).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from actors.store.needs import CitationKey, Need
from actors.store.sources import Complete, Passage
from actors.store.upkeep import Found, UpkeepStep
from messages.errors import (
    DeletionsRefused,
    Denied,
    IndexUnavailable,
    OntologyChanged,
    PublicationPending,
    RequestIdReused,
    ScanIncomplete,
    VaultMismatch,
)
from messages.json_types import JsonObject
from messages.operator import AcceptDeletionsRequest, OperatorDiagnosticsRequest, OperatorStatusRequest
from messages.provider import MemoryStatusRequest
from messages.tools import (
    GitState,
    HistoryRequest,
    MutationRequest,
    PageRef,
    ResumeRequest,
    RevisionRequest,
    StatusRequest,
    ToolRequest,
    WriteRequest,
    agent_receipt,
    payload_hash,
)
from messages.tools import Receipt as ToolReceipt
from messages.tools.operator_reads import OPERATOR_READS
from messages.vocabulary import HUB_PERCENTILE_DEFAULT, PRIVATE, TITLE_MAX_CHARS, Partition
from storage.evidence import Verdict
from storage.publication import FileChange, Intent, Receipt
from storage.records import format_instant, utf16
from storage.search import SearchIndex
from storage.session import PartitionSession
from storage.state import uploads
from storage.state.catalogue_reader import CatalogueReader, Entry

Outcome: TypeAlias = "JsonObject | Need"
Blocked: TypeAlias = PublicationPending | DeletionsRefused | ScanIncomplete
"""Why a snapshot cannot be brought up to date."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What helpers have done for this request so far."""

    index_change: int | None = None
    """The catalogue change that the keyword index was asked to reach, and did."""
    index_problem: str | None = None
    """Why the index cannot answer."""
    verdicts: Mapping[CitationKey, Verdict] = field(default_factory=dict)
    found: Found | None = None
    """What a helper found in a step of maintenance."""
    complete: Complete | None = None
    """The source that was hashed or copied to its end."""
    passage: Passage | None = None
    """What was read of a source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationContext:
    """One run of one operation. ``now_ms`` is the wall clock of this run, UTC milliseconds."""

    session: PartitionSession
    agent: str
    now_ms: int
    fence: Callable[[], AbstractContextManager[object]]
    check: Callable[[], None]
    open_index: Callable[[], SearchIndex]
    index_state: Callable[[], str]
    git_state: Callable[[], GitState]
    unsettled: Callable[[], tuple[int, int]]
    """Publications of this partition that are not finished, and those that ended in a conflict."""
    writes_enabled: bool
    scan_entries: int
    hub_percentile: float = HUB_PERCENTILE_DEFAULT
    """From which share of current pages with a lower degree on a page is a hub, in percent."""
    workspace: Callable[[], Path | None] = lambda: None
    """The root of what ``knowledge_attach_file`` may retain, ``None`` where the host gives none."""
    prepared: Prepared = field(default_factory=Prepared)
    index_failed: Callable[[IndexUnavailable], None] = lambda error: None
    """Told when the index was there and could not answer."""
    blocked: Blocked | None = None
    """Why the snapshot may not be brought up to date: only a request that was accepted earlier is answered then."""
    new_id: Callable[[], str] = lambda: str(uuid.uuid4())

    @property
    def catalogue(self) -> CatalogueReader:
        return self.session.catalogue

    @property
    def partition(self) -> Partition:
        return self.session.partition

    @property
    def fingerprint(self) -> str:
        return self.session.ontology.fingerprint

    def page_refs(self, ids: tuple[str, ...]) -> tuple[PageRef, ...]:
        """The pages among ``ids`` that exist, with their titles; merge redirects followed, each once."""
        return pages_among(ids, self.catalogue.ends_of(ids))


def pages_among(ids: Iterable[str], ends: Mapping[str, Entry]) -> tuple[PageRef, ...]:
    """The pages that ``ids`` lead to by ``ends``, with their titles, each once."""
    found: dict[str, PageRef] = {}
    for record_id in ids:
        page = ends.get(record_id)
        if page is not None and page.kind == "page" and page.id not in found:
            found[page.id] = PageRef(page.id, utf16.clip(page.title, TITLE_MAX_CHARS))
    return tuple(found.values())


CLOCK_TOLERANCE_MS: Final = 24 * 3_600_000

_ANSWERED_WHILE_PENDING: Final = (
    StatusRequest, HistoryRequest, RevisionRequest, MutationRequest, ResumeRequest, WriteRequest,
    MemoryStatusRequest, OperatorStatusRequest, OperatorDiagnosticsRequest, AcceptDeletionsRequest, *OPERATOR_READS,
)  # fmt: skip


def refresh(session: PartitionSession, request: ToolRequest | UpkeepStep, check: Callable[[], None]) -> Blocked | None:
    """Bring the snapshot up to date for ``request``.

    While a publication cannot be finished, most of the files have vanished or a scan cannot finish, ordinary reads
    raise that refusal; status, history and recovery answer from what is known, and a write may still be the repeat of
    one that was accepted: for those the refusal is returned (decisions.md section 4, Conflict).
    """
    try:
        session.refresh(check)
    except (PublicationPending, DeletionsRefused, ScanIncomplete) as refusal:
        if not isinstance(request, _ANSWERED_WHILE_PENDING):
            raise
        return refusal
    return None


def earlier_receipt(context: OperationContext, request: WriteRequest, operation: str) -> JsonObject | None:
    """The answer to the same request accepted earlier, byte for byte. Another payload raises ``RequestIdReused``.

    A new request raises what keeps the snapshot from being brought up to date.
    """
    try:
        receipt = context.session.published(request.request_id, payload_hash(request), operation)
    except RequestIdReused as error:
        raise RequestIdReused(
            "This requestId was used for another write; send a new UUID for a new write.",
            field="requestId",
            requestId=request.request_id,
        ) from error
    if receipt is not None:
        return shown_receipt(context, receipt)
    if uploads.find(context.catalogue.database, context.partition, request.request_id) is not None:
        raise RequestIdReused(
            "This requestId was used to attach a source; send a new UUID for a new write.",
            field="requestId",
            requestId=request.request_id,
        )
    if context.blocked is not None:
        raise context.blocked
    return None


def shown_receipt(context: OperationContext, receipt: Receipt) -> JsonObject:
    """What the agent sees of a receipt; the checkpoint's state stands beside it only when it needs attention."""
    if receipt.state == "pending":
        return {
            "state": "pending",
            "requestId": receipt.request_id,
            "message": "The save was accepted and is not finished yet. Repeat the identical call, or call "
            "knowledge_resume with this requestId.",
            **({"error": receipt.body["error"]} if "error" in receipt.body else {}),
        }
    git = context.git_state()
    shown = agent_receipt(receipt.body, git if _needs_attention(git) else None)
    if receipt.state == "conflict" and "message" not in shown:
        shown["message"] = (
            "The file was saved by someone else at the same moment. Nothing of this change was applied. Read the "
            f"record again and send a new request; the text is kept under request {receipt.request_id}."
        )
    return shown


def _needs_attention(git: GitState) -> bool:
    return git.state == "unavailable" or (git.state == "pending" and git.message is not None)


def check_fences(context: OperationContext, request: WriteRequest) -> None:
    """Refuse a write that was prepared against another vault or another ontology."""
    vault_id = context.session.store.vault_id
    if request.expected_vault_id is not None and request.expected_vault_id != vault_id:
        raise VaultMismatch(
            "This call reached another vault than the one it expected; read knowledge_status again.",
            field="expectedVaultId",
            vaultId=vault_id,
        )
    expected = request.expected_ontology_fingerprint
    if expected is not None and expected != context.fingerprint:
        raise OntologyChanged(
            "The ontology has changed since it was read; read knowledge_ontology again and check the fields.",
            field="expectedOntologyFingerprint",
            ontologyFingerprint=context.fingerprint,
        )


def publish(
    context: OperationContext,
    request: WriteRequest,
    operation: str,
    changes: tuple[FileChange, ...],
    receipt: JsonObject | Callable[[int], JsonObject],
) -> JsonObject:
    """Publish ``changes`` as one publication and give the agent's view of its receipt."""
    intent = Intent(
        partition=context.partition,
        request_id=request.request_id,
        payload_hash=payload_hash(request),
        operation=operation,
        actor=context.agent,
        changes=changes,
        receipt=receipt,
    )
    done = context.session.publish(intent, fence=context.fence(), check=context.check)
    return shown_receipt(context, done)


def fixed_receipt(
    context: OperationContext,
    operation: str,
    *,
    at_ms: int,
    id: str | None = None,
    revision: int | None = None,
    hash: str | None = None,
    path: str | None = None,
    target_id: str | None = None,
    items: Sequence[JsonObject] = (),
    impact: JsonObject | None = None,
    kept: Sequence[JsonObject] = (),
    reason: str | None = None,
) -> JsonObject:
    """The part of a receipt that is known before acceptance; state and request id are the publication's to add."""
    complete = ToolReceipt(
        request_id="",
        operation=operation,
        at=format_instant(at_ms),
        ontology_fingerprint=context.fingerprint,
        id=id,
        revision=revision,
        hash=hash,
        path=path,
        items=items,
        target_id=target_id,
        impact=impact,
        kept=kept,
        reason=reason,
    ).to_json()
    return {key: value for key, value in complete.items() if key not in ("state", "requestId")}


def require_private(context: OperationContext, message: str, reason: str | None = None) -> None:
    """Raise ``Denied`` with this message outside the owner's partition."""
    if context.partition != PRIVATE:
        fields: JsonObject = {} if reason is None else {"reason": reason}
        raise Denied(message, retry=None, **fields)


def next_instant(context: OperationContext) -> int:
    """``recorded_at`` of a new record: the clock, but after every earlier record of the partition.

    A record dated more than a day ahead of the clock, by a hand or a wrong clock, does not pull later ones along.
    """
    return max(context.now_ms, context.catalogue.latest_recorded_at(context.now_ms + CLOCK_TOLERANCE_MS) + 1)
