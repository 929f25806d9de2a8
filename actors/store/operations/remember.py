"""``knowledge_remember``: discrete claims with the excerpt that supports them, as one publication (tools.md)."""

from __future__ import annotations

from collections.abc import Sequence

from actors.store.operations.claim_titles import claim_title
from actors.store.operations.context import (
    OperationContext,
    Outcome,
    check_fences,
    earlier_receipt,
)
from actors.store.operations.drafts import Drafts
from actors.store.operations.names import PageNames, subject_of
from actors.store.operations.subjects import Subject
from messages.tools import RememberedItem, RememberItem, RememberRequest, all_duplicates
from messages.tools import Subject as ShownSubject
from storage.layout import EXCERPT_NAME, excerpt_path
from storage.publication import FileChange
from storage.records import (
    EvidenceCitation,
    Record,
    content_hash,
    parse_date,
)
from storage.state.catalogue import claim_key


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
    drafts = Drafts(context)
    names = PageNames(context)
    shown: list[RememberedItem] = []
    new_keys: dict[str, RememberedItem] = {}
    for item in request.items:
        subject = subject_of(context, names, item)
        entities = () if subject.page_id is None else (subject.page_id,)
        key = claim_key(item.text, item.kind, entities)
        repeated = _repeated(context, item, key, subject) or _again(new_keys.get(key), subject)
        if repeated is not None:
            shown.append(repeated)
            continue
        claim = drafts.create(_claim(context.new_id(), request, item, entities, citation))
        new_keys[key] = RememberedItem(id=claim.record.id, revision=1, hash=claim.hash, subject=_shown(subject))
        shown.append(new_keys[key])
    if not new_keys:
        return all_duplicates(shown, ontology_fingerprint=context.fingerprint)
    retained = FileChange(citation.path, None, excerpt)
    return drafts.publish(request, items=[item.to_json() for item in shown], before=(retained,))


def _claim(
    record_id: str,
    request: RememberRequest,
    item: RememberItem,
    entities: Sequence[str],
    citation: EvidenceCitation,
) -> Record:
    return Record(
        id=record_id,
        kind="claim",
        title=claim_title(item.text),
        recorded_at="",
        updated_at="",
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
