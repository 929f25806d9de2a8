"""Maintenance of one partition, step by step: plain functions that the lane runs like any other operation.

Answers hold counts, ids and where to go on; never a text or a file's name. What a step finds wrong it reports; only
linking publishes, and only a claim of which exactly one page can be meant.

Source: decisions.md section 5 (Maintenance), tools.md (Remembering claims, steps 1 to 3).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from actors.store.needs import CitationKey, NeedEvidence, NeedUpkeep
from actors.store.operations.context import OperationContext, Outcome, fixed_receipt, next_instant
from actors.store.operations.names import PageNames
from actors.store.operations.subjects import infer_subject
from actors.store.upkeep import (
    CheckDatabase,
    CheckIndex,
    CheckRepository,
    CompareFiles,
    LinkClaims,
    ListPartitions,
    LookThroughDatabase,
    LookThroughIndex,
    LookThroughRepository,
    MergeIndex,
    MergeSegments,
    ReadFiles,
    Report,
    Survey,
    UpkeepStep,
    UpkeepWork,
    VerifyRecords,
)
from messages.errors import IndexUnavailable
from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import RECORD_MAX_BYTES
from storage.publication import FileChange, Intent
from storage.records import EvidenceCitation, changes_between, content_hash, format_instant, rewrite
from storage.state.catalogue import claim_key
from storage.state.catalogue_reader import Entry
from storage.state.connection import StorageCorrupt
from storage.state.upkeep import citing_records, files_after, partitions, unlinked_claims

CLAIMS_PER_STEP: Final = 4
"""A step holds the lane no longer than an ordinary save does, so that no lookup waits longer for it."""
RECORDS_PER_STEP: Final = 8
EVIDENCE_BYTES_PER_STEP: Final = 32 * 1024 * 1024
FILES_PER_STEP: Final = 128
FILE_BYTES_PER_STEP: Final = 8 * 1024 * 1024
LINK_BYTES_MAX: Final = 1024 * 1024
"""Claims this large were not saved by remembering; they are left alone."""
OPERATION: Final = "link"


@dataclass(frozen=True, slots=True)
class _Link:
    entry: Entry
    page_id: str
    data: bytes


def maintain(context: OperationContext, step: UpkeepStep) -> Outcome:
    """Run one step; the lane's thread, on a fresh snapshot."""
    match step:
        case ListPartitions():
            return {"partitions": [each.key for each in partitions(context.catalogue.database)]}
        case LinkClaims(after):
            return _link(context, after)
        case VerifyRecords(after):
            return _verify(context, after)
        case CompareFiles(after):
            return _compare(context, after)
        case CheckIndex():
            return _check_index(context)
        case MergeIndex():
            return _found(context, MergeSegments(context.partition))
        case Report():
            return _report(context)
        case CheckDatabase():
            return _found(context, LookThroughDatabase())
        case CheckRepository(tidy):
            return _found(context, LookThroughRepository(tidy))
        case _:
            raise NotImplementedError(f"no step {type(step).__name__}")


# --- linking --------------------------------------------------------------------------------------------------------


def _link(context: OperationContext, after: int) -> JsonObject:
    """Find the subject of some unlinked claims and publish those that have one, all in one publication."""
    window = unlinked_claims(context.catalogue, after, CLAIMS_PER_STEP)
    names = PageNames(context)
    left = {"ambiguous": 0, "missing": 0, "duplicate": 0, "unchangeable": 0}
    links: list[_Link] = []
    taken: set[str] = set()
    at_ms = next_instant(context)
    for entry in window.entries:
        context.check()
        found = _linked(context, names, entry, taken, at_ms)
        if isinstance(found, _Link):
            links.append(found)
        else:
            left[found] += 1
    answer: JsonObject = {"next": window.next, "linked": [], "conflict": False, "left": {**left}}
    if links:
        answer["conflict"] = not _publish(context, links, at_ms)
        answer["linked"] = [] if answer["conflict"] else [link.entry.id for link in links]
    return answer


def _linked(context: OperationContext, names: PageNames, entry: Entry, taken: set[str], at_ms: int) -> _Link | str:
    """The claim with its one subject, or why it is left as it is."""
    if not entry.current(context.now_ms) or context.catalogue.one(entry.id) is None:
        return "unchangeable"
    parsed = context.session.parsed(entry)
    record = parsed.record
    if parsed.read_only or record.entities:
        return "unchangeable"
    subject = infer_subject(record.subject_hint, record.text, names)
    if subject.page_id is None:
        return subject.state
    # The repeat of a claim that has its subject already would become an exact duplicate of it.
    pages = (subject.page_id, *context.catalogue.merged_away(subject.page_id))
    keys = [claim_key(record.text, record.claim_kind or "", (page_id,)) for page_id in pages]
    if keys[0] in taken or any(found.current(context.now_ms) for found in context.catalogue.repeats(keys)):
        return "duplicate"
    linked = replace(record, entities=(subject.page_id,), revision=entry.revision + 1, updated_at=format_instant(at_ms))
    data = rewrite(context.session.source(entry), changes_between(record, linked))
    if len(data) > min(LINK_BYTES_MAX, RECORD_MAX_BYTES):
        return "unchangeable"
    taken.add(keys[0])
    return _Link(entry, subject.page_id, data)


def _publish(context: OperationContext, links: Collection[_Link], at_ms: int) -> bool:
    """Publish the links as one publication; whether they are there now, or will be when it is finished."""
    changes = tuple(
        FileChange(link.entry.path, link.entry.hash, link.data, link.entry.id, link.entry.revision + 1, "active")
        for link in links
    )
    items: list[JsonObject] = [
        {
            "id": link.entry.id,
            "revision": link.entry.revision + 1,
            "hash": content_hash(link.data),
            "subject": {"state": "found", "id": link.page_id},
        }
        for link in links
    ]
    payload = "\n".join(f"{link.entry.id} {link.entry.hash} {link.page_id}" for link in links)
    intent = Intent(
        partition=context.partition,
        request_id=context.new_id(),
        payload_hash=hashlib.sha256(payload.encode()).hexdigest(),
        operation=OPERATION,
        actor=context.agent,
        changes=changes,
        receipt=fixed_receipt(context, OPERATION, at_ms=at_ms, items=items),
    )
    return context.session.publish(intent, fence=context.fence(), check=context.check).state != "conflict"


# --- evidence -------------------------------------------------------------------------------------------------------


def _verify(context: OperationContext, after: int) -> Outcome:
    """Verify the citations of some records; the verifier reads the sources, whatever it found earlier."""
    window = citing_records(context.catalogue, after, RECORDS_PER_STEP)
    cited: list[tuple[Entry, tuple[EvidenceCitation, ...]]] = []
    sizes: dict[str, int] = {}
    following = window.next
    for entry in window.entries:
        context.check()
        evidence = context.session.load(entry).evidence
        sizes |= {citation.path: citation.size or 0 for citation in evidence}
        if cited and sum(sizes.values()) > EVIDENCE_BYTES_PER_STEP:
            following = cited[-1][0].row
            break
        cited.append((entry, evidence))
    verdicts = context.prepared.verdicts
    every = {CitationKey.of(citation): citation for _, evidence in cited for citation in evidence}
    missing = tuple(citation for key, citation in every.items() if key not in verdicts)
    if missing:
        return NeedEvidence(missing, fresh=True)
    failed: list[JsonValue] = []
    for entry, evidence in cited:
        problem = next((found for one in evidence if (found := verdicts[CitationKey.of(one)].problem)), None)
        if problem is not None:
            failed.append({"id": entry.id, "reason": problem})
    return {"next": following, "records": len(cited), "citations": len(every), "failed": failed}


# --- files, index, reports ------------------------------------------------------------------------------------------


def _compare(context: OperationContext, after: str) -> Outcome:
    """Compare some files' bytes; one that changed without a trace is taken over like any edit of a person."""
    some = files_after(context.catalogue, after, limit=FILES_PER_STEP, most_bytes=FILE_BYTES_PER_STEP)
    if not some.files:
        return {"next": None, "files": 0, "changed": [], "changedTotal": 0, "lost": []}
    facts = _found(context, ReadFiles(context.partition, some.files))
    if isinstance(facts, NeedUpkeep):
        return facts
    hashes = {file.path: file.hash for file in some.files}
    changed = [path for path in _texts(facts, "changed") if _is_still(context, path, hashes.get(path))]
    lost = [path for path in _texts(facts, "lost") if _is_still(context, path, hashes.get(path))]
    lost_ids = _ids(context, lost)
    if changed:
        context.session.read_again(changed, context.check)
    return {
        "next": some.next,
        "files": len(some.files),
        "changed": _ids(context, changed),
        "changedTotal": len(changed),
        "lost": lost_ids,
    }


def _check_index(context: OperationContext) -> Outcome:
    """Whether the keyword index is whole. What is derived is built anew, not mended."""
    facts = _found(context, LookThroughIndex(context.partition))
    if isinstance(facts, NeedUpkeep):
        return facts
    if facts.get("sound") is False:
        context.index_failed(IndexUnavailable("Maintenance found the keyword index damaged.", reason="corrupt"))
    return facts


def _report(context: OperationContext) -> Outcome:
    facts = _found(context, Survey(context.partition, context.now_ms))
    if isinstance(facts, NeedUpkeep):
        return facts
    return {**facts, "entries": context.session.entries, "entriesLimit": context.scan_entries}


def _found(context: OperationContext, work: UpkeepWork) -> JsonObject | NeedUpkeep:
    """What a helper found, or the need to ask one. Raises :class:`StorageCorrupt` when it met a damaged database."""
    found = context.prepared.found
    if found is None:
        return NeedUpkeep(work)
    if found.facts.get("sound") is False and not isinstance(work, LookThroughIndex | LookThroughRepository):
        raise StorageCorrupt("maintenance found the store's database damaged")
    return found.facts


def _texts(facts: JsonObject, key: str) -> list[str]:
    found = facts.get(key)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _is_still(context: OperationContext, path: str, digest: str | None) -> bool:
    """Whether the catalogue says of a file what it said when the auditor was asked."""
    known = context.catalogue.file(path)
    return known is not None and known.hash == digest


def _ids(context: OperationContext, paths: Collection[str]) -> list[JsonValue]:
    """The ids of the records among these files; a file that is no record has none to give."""
    return [entry.id for path in paths if (entry := context.catalogue.by_path(path)) is not None]
