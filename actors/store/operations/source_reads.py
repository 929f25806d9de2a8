"""``knowledge_attachment`` and ``knowledge_evidence_read``: a retained source, as bytes or as text.

Each call finds the citation anew and has the source verified anew; a verdict holds only for the file's stamp.

Source: tools.md (Attachments, Reading records).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from actors.store.needs import CitationKey, NeedEvidence, NeedPassage
from actors.store.operations.context import OperationContext, Outcome
from actors.store.sources import ReadPassage
from messages.errors import Ambiguous, EvidenceInvalid, InvalidArgument, NotFound
from messages.tools import (
    ATTACHMENT_CHUNK_BYTES,
    AttachmentRequest,
    EvidenceReadRequest,
    PassageCursor,
    attachment_response,
    passage_response,
)
from storage.evidence import NoWindow, Point, Verdict, read_piece, unchanged
from storage.publication.store import reported
from storage.records import EvidenceCitation

READ_THROUGH_MAX: Final = 5


def attachment(context: OperationContext, request: AttachmentRequest) -> Outcome:
    """One chunk of the original."""
    _citations(context, request)
    verdict = _verified(context, request)
    if isinstance(verdict, NeedEvidence):
        return verdict
    if request.offset > verdict.size:
        raise InvalidArgument(
            f"offset lies beyond the original, which has {verdict.size} bytes.",
            field="offset",
            reason="out_of_range",
            allowed=f"0 to {verdict.size}",
        )
    root = context.session.root_fd
    assert root is not None
    assert verdict.stamp is not None
    with reported("read the original"):
        data = read_piece(root, request.path, verdict.stamp, request.offset, ATTACHMENT_CHUNK_BYTES)
    if data is None:
        raise _changing()
    return attachment_response(data, offset=request.offset, size=verdict.size)


def evidence_read(context: OperationContext, request: EvidenceReadRequest) -> Outcome:
    """The cited passage, or the wanted lines of it, window by window."""
    cursor = PassageCursor.decode(request, context.catalogue.origin)
    lines = _lines(_citations(context, request), request, cursor)
    verdict = _verified(context, request)
    if isinstance(verdict, NeedEvidence):
        return verdict
    assert verdict.stamp is not None
    read = context.prepared.passage
    if read is None:
        point = None if cursor is None else Point(cursor.offset, cursor.line)
        return NeedPassage(ReadPassage(context.partition, request.path, verdict.stamp, lines, point, request.max_chars))
    window = read.found
    if isinstance(window, NoWindow):
        raise _no_window(window, request)
    following = window.following
    place = None if following is None else PassageCursor(following.offset, following.line, *lines)
    return passage_response(
        window.text,
        None if window.start_line is None or window.end_line is None else (window.start_line, window.end_line),
        None if place is None else place.encode(request, context.catalogue.origin),
    )


def _citations(
    context: OperationContext, request: AttachmentRequest | EvidenceReadRequest
) -> Sequence[EvidenceCitation]:
    """The record's own citations of exactly this source; a source that only another record cites is refused."""
    found = context.catalogue.by_id(request.id)
    if not found:
        raise NotFound("No record with this id is in this partition; look it up again.", field="id", id=request.id)
    if len(found) > 1:
        raise Ambiguous("Several files carry this id, so none of them is read.", field="id", id=request.id)
    evidence = context.session.load(found[0]).evidence
    cited = [one for one in evidence if (one.path, one.sha256) == (request.path, request.sha256)]
    if cited:
        return cited
    others = [entry.id for entry in context.catalogue.citing(request.path, request.sha256)[:READ_THROUGH_MAX]]
    raise EvidenceInvalid(
        "This record does not cite that source under that hash."
        + (" Read it through the id of a record that does." if others else ""),
        field="path",
        reason="not_cited",
        readThrough=others,
    )


def _verified(context: OperationContext, request: AttachmentRequest | EvidenceReadRequest) -> Verdict | NeedEvidence:
    """The verdict on the whole source, fresh; raises ``EvidenceInvalid`` when it is not what was cited."""
    whole = EvidenceCitation(path=request.path, sha256=request.sha256)
    verdict = context.prepared.verdicts.get(CitationKey.of(whole))
    root = context.session.root_fd
    if verdict is None or root is None or not (verdict.problem or unchanged(whole, verdict, root)):
        return NeedEvidence((whole,), excerpts=False)
    if verdict.problem is not None:
        raise EvidenceInvalid(f"The source is not given out: {verdict.message}.", field="path", reason=verdict.problem)
    return verdict


def _lines(
    cited: Sequence[EvidenceCitation], request: EvidenceReadRequest, cursor: PassageCursor | None
) -> tuple[int | None, int | None]:
    """The lines to read: those wanted, inside one citation; without a wish the first citation's, or all.

    A record that cites the whole source, whatever else it cites, may be asked for any lines.
    """
    ranges = [_range(one) for one in cited]
    if cursor is not None:
        wanted = (cursor.start_line, cursor.end_line)
    elif request.start_line is None and request.end_line is None:
        return (None, None) if (None, None) in ranges else ranges[0]
    else:
        wanted = (request.start_line, request.end_line)
    for start, end in ranges:
        first = start or 1 if wanted[0] is None else wanted[0]
        last = end if wanted[1] is None else wanted[1]
        inside = first >= (start or 1) and (end is None or (last is not None and last <= end))
        if inside and (last is None or first <= last):
            return (None, None) if (start, end, *wanted) == (None,) * 4 else (first, last)
    shown = [f"{start}-{end}" for start, end in ranges]
    raise InvalidArgument(
        f"The record cites lines {', '.join(shown[:20])} of this source, not these. The whole original is read with "
        "knowledge_attachment.",
        field="cursor" if cursor is not None else "endLine" if request.start_line is None else "startLine",
        reason="out_of_range",
        allowed=shown[:20],
    )


def _range(citation: EvidenceCitation) -> tuple[int | None, int | None]:
    start = citation.end_line if citation.start_line is None else citation.start_line
    return start, start if citation.end_line is None else citation.end_line


def _no_window(window: NoWindow, request: EvidenceReadRequest) -> EvidenceInvalid | InvalidArgument:
    match window.problem:
        case "binary":
            return EvidenceInvalid(
                "The source is no UTF-8 text; download it with knowledge_attachment.", field="path", reason="binary"
            )
        case "out_of_range":
            return InvalidArgument(
                f"startLine lies beyond the source, which has {window.lines} lines.",
                field="startLine",
                reason="out_of_range",
                allowed=f"1 to {window.lines}",
            )
        case "offset":
            return InvalidArgument(
                "cursor does not lead into these lines; begin again without it.", field="cursor", reason="foreign",
                allowed="nextCursor of the previous response",
            )  # fmt: skip
        case "changed":
            return _changing()


def _changing() -> EvidenceInvalid:
    return EvidenceInvalid("The source changed while it was read.", field="path", reason="hash_mismatch")
