"""``memory.candidates``: the summaries that an owner approved (memory-provider.md, Automatic recall).

Begins with what history says was approved, never with what files say of themselves, so its cost follows the number of
approvals that were ever given and nothing else of the store.
"""

from __future__ import annotations

from typing import assert_never

from actors.store.operations.context import OperationContext
from actors.store.operations.recall import approved_recall
from messages.json_types import JsonObject
from messages.provider import MemoryCandidatesRequest
from messages.provider.reads import Candidate, candidates_response
from messages.provider.references import reference
from messages.vocabulary import PRIVATE
from storage.records import Recall
from storage.state.history import ever_approved


def memory_candidates(context: OperationContext, request: MemoryCandidatesRequest) -> JsonObject:
    """The candidates of one kind, the most important first, then by record id. None outside the owner's partition."""
    if context.partition != PRIVATE:
        return candidates_response(())
    found: list[Candidate] = []
    for record_id in ever_approved(context.catalogue.database, context.partition):
        context.check()
        entry = context.catalogue.one(record_id)
        if entry is None or not entry.current(context.now_ms):
            continue
        approval = approved_recall(context, entry)
        if approval is None or not _eligible(request, approval):
            continue
        found.append(
            Candidate(
                id=entry.id,
                ref=reference(context.session.store.vault_id, entry.id, entry.revision, entry.hash),
                excerpt=approval.summary,
                triggers=approval.triggers,
                importance=approval.importance,
                projects=approval.projects,
            )
        )
    found.sort(key=lambda candidate: (-candidate.importance, candidate.id))
    return candidates_response(found[: request.limit])


def _eligible(request: MemoryCandidatesRequest, approval: Recall) -> bool:
    """Whether an approval is one of those that are asked for.

    A project candidate must share a key with the projects that are named. A trigger candidate may speak up everywhere
    unless it belongs to projects; then all of them must be named: what is meant for two projects at once would be out
    of place in one of them (knowledge-more-facts.md section 12). The limit counts only what may be used.
    """
    match request.kind:
        case "trigger":
            active = request.projects is None or set(approval.projects) <= set(request.projects)
            return bool(approval.triggers) and active
        case "project":
            shared = request.projects is None or bool(set(approval.projects) & set(request.projects))
            return bool(approval.projects) and shared
        case _:
            assert_never(request.kind)
