"""The complete card of a record: what every list of an operator is made of.

Source: tools.md (Agent response shapes, Listing and connections), knowledge-more-facts.md section 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from actors.store.operations.context import OperationContext
from actors.store.operations.rows import Shape
from messages.json_types import JsonObject, JsonValue
from messages.text import one_line, without_html_comments
from messages.tools import claim_text
from messages.tools.cards import CARD_EVIDENCE_SHOWN, CARD_MAX_VALUES, PREVIEW_MAX_CHARS, Card
from messages.tools.operator_reads import CARDS_MAX_BYTES
from messages.vocabulary import TAG_MAX_CHARS, TITLE_MAX_CHARS
from storage.records import EvidenceCitation, Record, citation_value, format_instant, utf16
from storage.state.catalogue_reader import Entry


def card(context: OperationContext, entry: Entry, record: Record, /, *, titled: bool = False) -> Card:
    """Everything of a record that a list can show: its state, its dates, whom it names, and the first citations.

    ``titled`` changes nothing: a card always has its title.
    """
    evidence: list[JsonValue] = [citation_value(citation) for citation in record.evidence[:CARD_EVIDENCE_SHOWN]]
    return Card(
        {
            "id": entry.id,
            "revision": entry.revision,
            "hash": entry.hash,
            "kind": entry.kind,
            **state_of(context, entry),
            "title": utf16.clip(entry.title, TITLE_MAX_CHARS),
            **_of_kind(context, entry, record),
            "recordedAt": format_instant(entry.recorded_at),
            "updatedAt": format_instant(entry.updated_at),
            "path": entry.path,
            "aliases": list(record.aliases) or None,
            "tags": list(record.tags) or None,
            "dependencies": list(record.dependencies) or None,
            "fields": dict(record.fields) or None,
            "supersedes": record.supersedes,
            "supersededBy": record.superseded_by,
            "mergedInto": record.merged_into,
            "issues": list(context.catalogue.findings(entry.path)) or None,
            "evidenceTotal": len(record.evidence),
            "evidence": evidence or None,
        }
    )


OPERATOR: Final = Shape(card, CARDS_MAX_BYTES)


def state_of(context: OperationContext, entry: Entry) -> JsonObject:
    """Where a record stands: ``current`` is what agents find by default, the others why they may not."""
    return {
        "lifecycle": entry.lifecycle,
        "current": entry.current(context.now_ms),
        "valid": entry.valid,
        "expired": entry.expires_at is not None and entry.expires_at <= context.now_ms,
        "fixture": entry.fixture,
    }


def reference(context: OperationContext, record_id: str | None) -> JsonObject | None:
    """A record that another one names: the id as it is written, and the title of what it leads to, if anything.

    ``mergedInto`` is where a redirect leads.
    """
    if record_id is None:
        return None
    found = context.catalogue.one(record_id)
    target = None if found is None else context.catalogue.follow_merges(found)
    if target is None:
        return {"id": record_id, "title": None}
    named: JsonObject = {"id": record_id, "title": utf16.clip(target.title, TITLE_MAX_CHARS)}
    return named if target.id == record_id else {**named, "mergedInto": target.id}


def sources_of(evidence: Sequence[EvidenceCitation]) -> list[JsonObject]:
    """The originals that citations name, each once, with how often it is cited."""
    found: dict[tuple[str, str], JsonObject] = {}
    counted: dict[tuple[str, str], int] = {}
    for citation in evidence:
        key = citation.path, citation.sha256
        counted[key] = counted.get(key, 0) + 1
        shown = found.setdefault(key, {"path": citation.path, "sha256": citation.sha256})
        for name, value in (
            ("filename", citation.filename), ("mediaType", citation.media_type), ("size", citation.size),
        ):  # fmt: skip
            if value is not None:
                shown.setdefault(name, value)
    return [{**shown, "citations": counted[key]} for key, shown in found.items()]


def _of_kind(context: OperationContext, entry: Entry, record: Record) -> JsonObject:
    match entry.kind:
        case "page":
            # One line of the beginning; four times as much is read, since white space folds.
            beginning = without_html_comments(record.body[: 4 * PREVIEW_MAX_CHARS])
            preview = utf16.clip(one_line(beginning), PREVIEW_MAX_CHARS)
            return {
                "type": utf16.clip(entry.type, TAG_MAX_CHARS),
                "bodyChars": entry.body_size,
                "preview": preview or None,
            }
        case "claim":
            owner = None if record.owner is None else reference(context, record.owner)
            # As many as a card cannot show: then it is a summary without them.
            pages: list[JsonValue] = [reference(context, page) for page in record.entities[:CARD_MAX_VALUES]]
            return {
                "claimKind": record.claim_kind,
                "assertionOrigin": record.assertion_origin,
                "day": record.occurred_at.day if record.occurred_at else format_instant(entry.recorded_at)[:10],
                "attribution": record.attribution,
                "subjectHint": record.subject_hint,
                "occurredAt": None if record.occurred_at is None else record.occurred_at.text,
                "dueAt": None if record.due_at is None else record.due_at.text,
                "expiresAt": None if record.expires_at is None else record.expires_at.text,
                "owner": owner,
                "pages": pages or None,
                "sourcePage": reference(context, record.source_page),
                **claim_text(record.text),
            }
        case "relationship":
            return {
                "from": reference(context, record.from_id),
                "label": utf16.clip(record.label or "", TAG_MAX_CHARS),
                "to": reference(context, record.to_id),
                "assertionOrigin": record.assertion_origin,
                "attribution": record.attribution,
            }
