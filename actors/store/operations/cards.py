"""The complete card of a record: what every list of an operator is made of.

Source: tools.md (Agent response shapes, Listing and connections), knowledge-more-facts.md section 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from actors.store.operations.context import OperationContext
from actors.store.operations.rows import Listed, Shape
from messages.json_types import JsonObject, JsonValue
from messages.text import one_line, without_html_comments
from messages.tools import claim_text
from messages.tools.cards import CARD_EVIDENCE_SHOWN, CARD_MAX_VALUES, PREVIEW_MAX_CHARS, Card
from messages.tools.operator_reads import CARDS_MAX_BYTES
from messages.vocabulary import TAG_MAX_CHARS, TITLE_MAX_CHARS
from storage.records import EvidenceCitation, Record, citation_value, format_instant, utf16
from storage.state.catalogue_reader import Entry


def card(listed: Listed, entry: Entry, /, *, titled: bool = False) -> Card:
    """Everything of a record that a list can show: its state, its dates, whom it names, and the first citations.

    ``titled`` changes nothing: a card always has its title.
    """
    record = listed.record(entry)
    evidence: list[JsonValue] = [citation_value(citation) for citation in record.evidence[:CARD_EVIDENCE_SHOWN]]
    return Card(
        {
            "id": entry.id,
            "revision": entry.revision,
            "hash": entry.hash,
            "kind": entry.kind,
            **state_of(listed.context, entry),
            "title": utf16.clip(entry.title, TITLE_MAX_CHARS),
            **_of_kind(listed.named, entry, record),
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
            "issues": list(listed.findings.get(entry.path, ())) or None,
            "evidenceTotal": len(record.evidence),
            "evidence": evidence or None,
        }
    )


OPERATOR: Final = Shape(card, CARDS_MAX_BYTES, ("entity", "owner", "source_page", "from", "to"), complete=True)


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
    return None if record_id is None else _reference(record_id, context.catalogue.ends_of((record_id,)))


def _reference(record_id: str | None, ends: Mapping[str, Entry]) -> JsonObject | None:
    if record_id is None:
        return None
    target = ends.get(record_id)
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


def _of_kind(ends: Mapping[str, Entry], entry: Entry, record: Record) -> JsonObject:
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
            # As many as a card cannot show: then it is a summary without them.
            pages: list[JsonValue] = [_reference(page, ends) for page in record.entities[:CARD_MAX_VALUES]]
            return {
                "claimKind": record.claim_kind,
                "assertionOrigin": record.assertion_origin,
                "day": record.occurred_at.day if record.occurred_at else format_instant(entry.recorded_at)[:10],
                "attribution": record.attribution,
                "subjectHint": record.subject_hint,
                "occurredAt": None if record.occurred_at is None else record.occurred_at.text,
                "dueAt": None if record.due_at is None else record.due_at.text,
                "expiresAt": None if record.expires_at is None else record.expires_at.text,
                "owner": _reference(record.owner, ends),
                "pages": pages or None,
                "sourcePage": _reference(record.source_page, ends),
                **claim_text(record.text),
            }
        case "relationship":
            return {
                "from": _reference(record.from_id, ends),
                "label": utf16.clip(record.label or "", TAG_MAX_CHARS),
                "to": _reference(record.to_id, ends),
                "assertionOrigin": record.assertion_origin,
                "attribution": record.attribution,
            }
