"""What is wrong with a record beside the other records: references are judged when a record is read or written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from actors.store.operations.context import OperationContext
from actors.store.operations.recall import recall_findings
from messages.errors import InvalidArgument
from messages.json_types import JsonObject, JsonValue
from storage.ontology import Resolve, validate_page, validate_relationship
from storage.records import Finding, Record
from storage.state.catalogue_reader import Entry

ISSUES_SHOWN_MAX = 20


def page_type_of_id(context: OperationContext, record_id: str) -> str | None:
    """The type of the current page with this id, merge redirects followed (:data:`storage.ontology.Resolve`)."""
    entry = context.catalogue.one(record_id)
    page = None if entry is None else context.catalogue.follow_merges(entry)
    if page is None or page.kind != "page" or page.lifecycle == "withdrawn":
        return None
    return page.type


def issues_of(context: OperationContext, entry: Entry, record: Record) -> Sequence[JsonObject]:
    """The findings of one record: of its file, of its references, of an approval that does not count; at most 20."""
    shown = list(context.catalogue.findings(entry.path))
    known = {(issue["code"], issue["field"]) for issue in shown}
    shown.extend(
        {"code": finding.code, "field": finding.field, "message": finding.message}
        for finding in (*judged_beside_others(context, entry, record), *recall_findings(context, entry, record))
        if (finding.code, finding.field) not in known
    )
    return shown[:ISSUES_SHOWN_MAX]


def judged_beside_others(context: OperationContext, entry: Entry, record: Record) -> list[Finding]:
    """What the ontology says against the record, its references included."""
    ontology = context.session.ontology

    def resolve(record_id: str) -> str | None:
        return page_type_of_id(context, record_id)

    match record.kind:
        case "page":
            return validate_page(ontology, entry.type or None, record.fields, resolve)
        case "relationship":
            return validate_relationship(ontology, record.label, record.from_id, record.to_id, record.fields, resolve)
        case "claim":
            named: dict[str, str | None] = {f"entities[{index}]": page for index, page in enumerate(record.entities)}
            named |= {"owner": record.owner, "source_page": record.source_page}
            return [
                Finding("reference_missing", field, "names no existing page", "note")
                for field, page in named.items()
                if page is not None and resolve(page) is None
            ]


def require_valid_page(
    context: OperationContext,
    page_type: str,
    fields: Mapping[str, JsonValue],
    type_of: Resolve | None = None,
    at: str = "",
) -> str:
    """The canonical type of a page that is about to be saved; raises ``InvalidArgument`` naming every problem.

    ``type_of`` resolves the pages that fields name, by default among those that are stored.
    """
    ontology = context.session.ontology
    resolve = type_of or (lambda found: page_type_of_id(context, found))
    _require_none(validate_page(ontology, page_type, fields, resolve), at)
    known = ontology.page_type(page_type)
    assert known is not None, "a type without findings exists"
    return known.name


def require_valid_relationship(context: OperationContext, record: Record, type_of: Resolve, at: str = "") -> None:
    """Refuse a relationship whose label, ends or fields the ontology does not allow, naming every problem.

    ``at`` is the path of its arguments in the request.
    """
    ontology = context.session.ontology
    findings = validate_relationship(ontology, record.label, record.from_id, record.to_id, record.fields, type_of)
    _require_none(findings, at)


def _require_none(findings: Sequence[Finding], at: str = "") -> None:
    if findings:
        first = findings[0]
        raise InvalidArgument(
            first.message,
            field=f"{at}{first.field}",
            reason=first.code,
            problems=[
                {"field": f"{at}{found.field}", "reason": found.code, "message": found.message} for found in findings
            ],
        )
