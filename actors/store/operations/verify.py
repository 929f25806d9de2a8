"""``knowledge_verify``: whether records and their links hold (tools.md, Reading records; decisions.md section 5).

Read only. One call looks at a bounded amount of text and evidence and goes on at ``nextOffset``; retained files are
hashed by the verifier, off the lane.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from actors.store.needs import CitationKey, NeedEvidence
from actors.store.operations.context import OperationContext, Outcome
from actors.store.operations.link_targets import AuthoredLinks
from actors.store.operations.recall import recall_findings
from actors.store.operations.rows import current_snapshot
from actors.store.operations.validity import judged_beside_others
from messages.json_types import JsonObject
from messages.tools import Checked, ExpectedLink, VerifiedLink, VerifiedRecord, VerifyRequest, verify_response
from messages.tools.verify import LinkPresence, RecordState
from storage.records import EvidenceCitation, Finding, ParsedRecord
from storage.state.catalogue_reader import Entry

BODY_UNITS_PER_CALL: Final = 250_000
"""Text whose links one call parses on the lane, in UTF-16 units; a single longer record is still verified."""
CITATIONS_PER_CALL: Final = 200
"""Citations that one call verifies; a single record with more is still verified whole."""

_Item: TypeAlias = str | ExpectedLink


@dataclass(slots=True)
class _Desk:
    """The records of this call, each read and parsed once."""

    context: OperationContext
    _parsed: dict[int, ParsedRecord] = field(default_factory=dict)
    _links: dict[int, AuthoredLinks] = field(default_factory=dict)

    def parsed(self, entry: Entry) -> ParsedRecord:
        found = self._parsed.get(entry.row)
        if found is None:
            found = self._parsed[entry.row] = self.context.session.parsed(entry)
        return found

    def links(self, entry: Entry) -> AuthoredLinks:
        found = self._links.get(entry.row)
        if found is None:
            found = self._links[entry.row] = AuthoredLinks.of(self.context, entry, self.parsed(entry).record)
        return found


def verify(context: OperationContext, request: VerifyRequest) -> Outcome:
    """The records of ``ids`` in their order, then the expected links. Raises ``SnapshotChanged``."""
    snapshot = current_snapshot(context, request.snapshot)
    items: list[_Item] = [*(request.ids or ()), *(request.expected_links or ())]
    desk = _Desk(context)
    chosen = list(_within_budget(desk, items[request.offset :]))
    wanted = {
        CitationKey.of(found): found for item in chosen if isinstance(item, str) for found in _citations(desk, item)
    }
    missing = tuple(found for key, found in wanted.items() if key not in context.prepared.verdicts)
    if missing:
        return NeedEvidence(missing)
    verified = [_record(desk, item) if isinstance(item, str) else _link(desk, item) for item in chosen]
    return verify_response(verified, total=len(items), offset=request.offset, snapshot=snapshot)


def _within_budget(desk: _Desk, items: Sequence[_Item]) -> Iterator[_Item]:
    """The leading items that one call may look at; always the first, so that paging moves on."""
    units = citations = 0
    seen: set[int] = set()
    for number, item in enumerate(items):
        desk.context.check()
        entry = desk.context.catalogue.one(item if isinstance(item, str) else item.from_id)
        if entry is not None and entry.row not in seen:
            seen.add(entry.row)
            units += entry.body_size
        if number and units > BODY_UNITS_PER_CALL:
            return
        if isinstance(item, str):
            citations += len(_citations(desk, item))
        if number and citations > CITATIONS_PER_CALL:
            return
        yield item


def _citations(desk: _Desk, record_id: str) -> Sequence[EvidenceCitation]:
    entry = desk.context.catalogue.one(record_id)
    return () if entry is None else desk.parsed(entry).record.evidence


# --- one record ---------------------------------------------------------------------------------------------


def _record(desk: _Desk, record_id: str) -> VerifiedRecord:
    bearers = desk.context.catalogue.by_id(record_id)
    if not bearers:
        return VerifiedRecord(id=record_id, state="missing")
    if len(bearers) > 1:
        files = Checked([{"path": entry.path} for entry in bearers])
        return VerifiedRecord(id=record_id, state="ambiguous", aspects={"duplicates": files})
    [entry] = bearers
    parsed = desk.parsed(entry)
    ontology = [
        *judged_beside_others(desk.context, entry, parsed.record),
        *recall_findings(desk.context, entry, parsed.record),
    ]
    links = desk.links(entry).follow()
    redirect = _redirect(desk.context, entry)
    aspects = {
        "schema": Checked([_shown(finding) for finding in parsed.findings]),
        "ontology": Checked([_shown(finding) for finding in ontology]),
        "evidence": Checked(_evidence_problems(desk.context, parsed), len(parsed.record.evidence)),
        "links": Checked(
            [{"state": link.fault, "at": link.at, "target": link.target} for link in links.faulty],
            links.total,
            links.unchecked,
        ),
        "duplicates": Checked([{"id": other} for other in _repeats(desk.context, entry)]),
    }
    wrong = any(finding.severity == "error" for finding in (*parsed.findings, *ontology)) or any(
        aspects[name].problems or aspects[name].unchecked for name in ("evidence", "links", "duplicates")
    )
    broken = redirect is not None and redirect["leadsTo"] is None
    state: RecordState = "problems" if wrong or broken else "ok"
    return VerifiedRecord(
        id=entry.id,
        state=state,
        revision=entry.revision,
        hash=entry.hash,
        kind=entry.kind,
        lifecycle=entry.lifecycle,
        redirect=redirect,
        aspects=aspects,
    )


def _shown(finding: Finding) -> JsonObject:
    shown: JsonObject = {"code": finding.code, "field": finding.field, "message": finding.message}
    if finding.severity != "error":
        shown["severity"] = finding.severity
    return shown


def _evidence_problems(context: OperationContext, parsed: ParsedRecord) -> list[JsonObject]:
    problems: list[JsonObject] = []
    for index, citation in enumerate(parsed.record.evidence):
        verdict = context.prepared.verdicts[CitationKey.of(citation)]
        if verdict.problem is not None:
            problems.append(
                {"index": index, "problem": verdict.problem, "message": verdict.message, "path": citation.path}
            )
    return problems


def _redirect(context: OperationContext, entry: Entry) -> JsonObject | None:
    if entry.lifecycle == "merged":
        end = context.catalogue.follow_merges(entry)
        return {"mergedInto": entry.merged_into, "leadsTo": None if end is None else end.id}
    if entry.lifecycle == "superseded":
        end = context.catalogue.follow_supersession(entry)
        return {"supersededBy": entry.superseded_by, "leadsTo": None if end is None else end.id}
    return None


def _repeats(context: OperationContext, entry: Entry) -> list[str]:
    """Other active claims of exactly this text, kind and subjects."""
    if not entry.claim_key or entry.lifecycle != "active":
        return []
    return [other.id for other in context.catalogue.repeats((entry.claim_key,)) if other.row != entry.row]


# --- one expected link --------------------------------------------------------------------------------------


def _link(desk: _Desk, link: ExpectedLink) -> VerifiedLink:
    catalogue = desk.context.catalogue
    sources, targets = catalogue.by_id(link.from_id), catalogue.by_id(link.to_id)

    def verdict(state: LinkPresence, reason: Literal["from", "to", "link"] | None = None) -> VerifiedLink:
        return VerifiedLink(source=link.from_id, target=link.to_id, state=state, reason=reason)

    if len(sources) > 1 or len(targets) > 1:
        return verdict("ambiguous", "from" if len(sources) > 1 else "to")
    if not sources or not targets:
        return verdict("missing", "to" if sources else "from")
    end = catalogue.follow_merges(targets[0])
    if end is None:
        return verdict("missing", "to")
    same = [end, targets[0], *(catalogue.one(record_id) for record_id in catalogue.merged_away(end.id))]
    bearers = [entry for entry in same if entry is not None]
    records = [desk.parsed(entry).record for entry in bearers]
    match desk.links(sources[0]).lead_to(end, records, [entry.path for entry in bearers]):
        case "yes":
            return verdict("present")
        case "no":
            return verdict("missing")
        case "unclear":
            return verdict("ambiguous", "link")
