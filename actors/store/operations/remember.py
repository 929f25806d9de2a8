"""``knowledge_remember``: discrete claims with the excerpt that supports them, as one publication (tools.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from actors.store.operations.claim_titles import claim_title
from actors.store.operations.context import (
    OperationContext,
    Outcome,
    check_fences,
    earlier_receipt,
    fixed_receipt,
    next_instant,
    publish,
)
from actors.store.operations.filing import Filing
from actors.store.operations.names import subject_of
from actors.store.operations.subjects import Subject
from messages.tools import RememberedItem, RememberItem, RememberRequest, all_duplicates
from messages.tools import Subject as ShownSubject
from storage.layout import EXCERPT_NAME, excerpt_path
from storage.publication import FileChange
from storage.records import (
    EvidenceCitation,
    Record,
    Scope,
    content_hash,
    format_instant,
    parse_date,
    render_new,
)
from storage.state.catalogue import claim_key


@dataclass(frozen=True, slots=True)
class _NewClaim:
    path: str
    data: bytes
    record: Record


def remember(context: OperationContext, request: RememberRequest) -> Outcome:
    """Link, deduplicate and publish the items; an excerpt is retained only when something is new."""
    earlier = earlier_receipt(context, request, "remember")
    if earlier is not None:
        return earlier
    check_fences(context, request)
    excerpt = request.excerpt.encode("utf-8")
    citation = EvidenceCitation(
        path=excerpt_path(request.request_id),
        sha256=content_hash(excerpt),
        attribution=request.attribution,
        filename=EXCERPT_NAME,
        media_type="text/plain",
        size=len(excerpt),
        start_line=1,
        # Lines as evidence counts them: only LF ends one, whatever else Unicode calls a line break.
        end_line=excerpt.count(b"\n") + (not excerpt.endswith(b"\n")),
    )
    filing = Filing(context)
    recorded = next_instant(context)
    claims: list[_NewClaim] = []
    shown: list[RememberedItem] = []
    new_keys: dict[str, RememberedItem] = {}
    for item in request.items:
        subject = subject_of(context, item)
        entities = () if subject.page_id is None else (subject.page_id,)
        key = claim_key(item.text, item.kind, entities)
        repeated = _repeated(context, item, key, subject) or _again(new_keys.get(key), subject)
        if repeated is not None:
            shown.append(repeated)
            continue
        claim = _claim(context, filing, request, item, entities, citation, recorded + len(claims))
        claims.append(claim)
        new_keys[key] = RememberedItem(
            id=claim.record.id, revision=1, hash=content_hash(claim.data), subject=_shown(subject)
        )
        shown.append(new_keys[key])
    if not claims:
        return all_duplicates(shown, ontology_fingerprint=context.fingerprint)
    filing.require_room(len(claims))
    changes = (
        FileChange(citation.path, None, excerpt),
        *(FileChange(c.path, None, c.data, c.record.id, 1, "active") for c in claims),
    )
    receipt = fixed_receipt(context, "remember", at_ms=recorded, items=[item.to_json() for item in shown])
    return publish(context, request, "remember", changes, receipt)


def _claim(
    context: OperationContext,
    filing: Filing,
    request: RememberRequest,
    item: RememberItem,
    entities: Sequence[str],
    citation: EvidenceCitation,
    recorded: int,
) -> _NewClaim:
    record_id = context.new_id()
    at = format_instant(recorded)
    record = Record(
        id=record_id,
        kind="claim",
        title=claim_title(item.text),
        recorded_at=at,
        updated_at=at,
        scope=Scope(context.partition.kind, context.partition.session_id),
        body=item.text.strip(),
        claim_kind=item.kind,
        assertion_origin=item.origin,
        attribution=request.attribution,
        subject_hint=item.about,
        entities=tuple(entities),
        occurred_at=None if item.occurred_at is None else parse_date(item.occurred_at),
        due_at=None if item.due_at is None else parse_date(item.due_at),
        expires_at=None if item.expires_at is None else parse_date(item.expires_at),
        evidence=(citation,),
    )
    return _NewClaim(filing.path_for(record, at), render_new(record), record)


def _repeated(context: OperationContext, item: RememberItem, key: str, subject: Subject) -> RememberedItem | None:
    """The existing claim that the item repeats exactly; one about a page that was merged into the subject counts."""
    keys = [key]
    if subject.page_id is not None:
        earlier = context.catalogue.merged_away(subject.page_id)
        keys += [claim_key(item.text, item.kind, (page_id,)) for page_id in earlier]
    existing = next((entry for entry in context.catalogue.repeats(keys) if entry.current(context.now_ms)), None)
    if existing is None:
        return None
    return RememberedItem(
        id=existing.id, revision=existing.revision, hash=existing.hash, subject=_shown(subject), duplicate=True
    )


def _again(earlier: RememberedItem | None, subject: Subject) -> RememberedItem | None:
    if earlier is None:
        return None
    return RememberedItem(
        id=earlier.id, revision=earlier.revision, hash=earlier.hash, subject=_shown(subject), duplicate=True
    )


def _shown(subject: Subject) -> ShownSubject:
    return ShownSubject(subject.state, subject.page_id)
