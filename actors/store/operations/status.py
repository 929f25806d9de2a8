"""``knowledge_status``: which vault and partition the caller is in, and how it is (decisions.md section 5)."""

from __future__ import annotations

from actors.store.operations.context import OperationContext
from messages.json_types import JsonObject
from messages.tools import StatusRequest, StatusResponse


def status(context: OperationContext, request: StatusRequest) -> JsonObject:
    """The calling agent's view of its partition. Never waits for the index or for Git."""
    pending, conflict = context.unsettled()
    live = context.session.live.live
    warnings = list(context.session.warnings(context.scan_entries))
    return StatusResponse(
        vault_id=context.session.store.vault_id,
        partition=context.partition.kind,
        writes_enabled=context.writes_enabled,
        live="watching" if live == "watching" else "unavailable",
        ontology_fingerprint=context.fingerprint,
        counts=context.catalogue.counts(),
        pending=pending,
        conflict=conflict,
        git=context.git_state(),
        index_state=context.index_state(),
        warnings=warnings,
    ).to_json()
