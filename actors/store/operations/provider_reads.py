"""``memory.status`` and ``memory.read`` (memory-provider.md, Shared memory reads; decisions.md section 7)."""

from __future__ import annotations

import re
from typing import Final

from actors.store.operations.context import OperationContext
from messages.errors import Ambiguous, NotFound, ReferenceChanged
from messages.json_types import JsonObject
from messages.provider import MemoryReadRequest, MemoryReference, MemoryStatusRequest
from messages.provider.reads import EvidenceLocator, MemoryHealth, read_response
from messages.provider.references import PROVIDER, foreign_reference, reference
from messages.text import one_line
from messages.vocabulary import ATTRIBUTION_MAX_CHARS, TITLE_MAX_CHARS
from storage.records import EvidenceCitation, Record, utf16
from storage.state.catalogue_reader import Entry

# What ends a line in a text file. U+2028, U+2029, U+0085, form feeds and vertical tabs are characters of their line.
_LINE_END: Final = re.compile(r"\r\n|\n|\r")


def memory_status(context: OperationContext, request: MemoryStatusRequest) -> JsonObject:
    """The health of the caller's partition: whether its files and its ontology are as they should be.

    Answered from what is known where the partition cannot be brought up to date, and then it says why.
    """
    _, findings = context.session.diagnostics(0)
    return MemoryHealth(
        partition=context.partition.kind,
        records=sum(sum(states.values()) for states in context.catalogue.counts().values()),
        findings=findings,
        ontology_fingerprint=context.fingerprint,
        ontology_findings=len(context.session.activation.issues),
        index_state=context.index_state(),
        blocked=None if context.blocked is None else context.blocked.code,
    ).to_json()


def memory_read(context: OperationContext, request: MemoryReadRequest) -> JsonObject:
    """Lines of the one current record at exactly the revision and hash of a reference.

    Raises as :func:`_referenced` does.
    """
    entry = _referenced(context, request.ref)
    record = context.session.load(entry)
    return read_response(
        ref=reference(context.session.store.vault_id, entry.id, entry.revision, entry.hash),
        kind=entry.kind,
        rendered=rendered(record),
        start_line=request.start_line,
        lines=request.lines,
        evidence=[_locator(citation) for citation in record.evidence],
    )


def rendered(record: Record) -> list[str]:
    """A record as lines of text: its title, for a statement who is behind it, and its body as it is stored.

    CRLF, LF and CR each end a line; nothing else does, and an end of the last line begins no further one.
    """
    lines = [f"# {one_line(record.title)}"]
    if record.kind != "page":
        lines.append(f"Attribution: {one_line(record.attribution or '')} ({record.assertion_origin or 'source'})")
    elif record.attribution is not None:
        lines.append(f"Attribution: {one_line(record.attribution)}")
    body = _LINE_END.split(record.text if record.kind == "claim" else record.body)
    if not body[-1]:
        body.pop()
    return [*lines, "", *body] if body else lines


def _referenced(context: OperationContext, ref: MemoryReference) -> Entry:
    """The record of a reference.

    Raises ``ReferenceForeign``; ``NotFound`` for a record that the partition does not have, whether or not another one
    does; ``Ambiguous``; and ``ReferenceChanged`` with a ``reason``: ``changed``, or why it is not current any more.
    """
    if ref.provider != PROVIDER:
        raise foreign_reference("ref.provider")
    if ref.store != context.session.store.vault_id:
        raise foreign_reference("ref.store")
    found = context.catalogue.by_id(ref.id)
    if not found:
        raise NotFound("This audience's memory has no record with this id; search again.", field="ref.id")
    if len(found) > 1:
        raise Ambiguous(
            "Several files carry this id, so none of them is read; a person must give one another id.", field="ref.id"
        )
    [entry] = found
    ended = _why_not_current(entry, context.now_ms)
    if ended is not None:
        raise ReferenceChanged(
            f"The record is {ended}; only current records are read so. Its history is there for the exact tools.",
            field="ref",
            reason=ended,
        )
    if (entry.revision, entry.hash) != (ref.revision, ref.hash):
        raise ReferenceChanged(
            "The record has changed since the reference was given; search again.", field="ref", reason="changed"
        )
    return entry


def _why_not_current(entry: Entry, now_ms: int) -> str | None:
    if entry.lifecycle != "active":
        return entry.lifecycle
    if not entry.valid:
        return "invalid"
    if entry.fixture:
        return "fixture"
    return None if entry.current(now_ms) else "expired"


def _locator(citation: EvidenceCitation) -> EvidenceLocator:
    return EvidenceLocator(
        path=citation.path,
        sha256=citation.sha256,
        attribution=_clipped(citation.attribution, ATTRIBUTION_MAX_CHARS),
        filename=_clipped(citation.filename, TITLE_MAX_CHARS),
        media_type=_clipped(citation.media_type, TITLE_MAX_CHARS),
        size=citation.size,
        start_line=citation.start_line,
        end_line=citation.end_line,
    )


def _clipped(text: str | None, max_chars: int) -> str | None:
    return None if text is None else utf16.clip(text, max_chars)
