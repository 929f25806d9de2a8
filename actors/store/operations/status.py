"""``knowledge_status``: which vault and partition the caller is in, and how it is (decisions.md section 5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from actors.store.operations.context import CLOCK_TOLERANCE_MS, OperationContext
from messages.json_types import JsonObject
from messages.tools import StatusRequest, StatusResponse
from messages.vocabulary import PRIVATE
from storage.records import format_instant

LATEST_MS: Final = 253_402_300_799_999


def status(context: OperationContext, request: StatusRequest) -> JsonObject:
    """The calling agent's view of its partition. Never waits for the index or for Git."""
    pending, conflict = context.unsettled()
    # Conversations are looked at on demand: what is live or not is the private partition's watch.
    live = context.session.store.partition(PRIVATE).live.live
    warnings = [*context.session.warnings(context.scan_entries), *_warnings(context)]
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


def _warnings(context: OperationContext) -> Iterator[str]:
    if context.blocked is not None:
        yield context.blocked.message
    newest = context.catalogue.latest_recorded_at(LATEST_MS)
    if newest > context.now_ms + CLOCK_TOLERANCE_MS:
        yield f"the clock is more than 24 h behind the newest record, which is dated {format_instant(newest)[:10]}"
