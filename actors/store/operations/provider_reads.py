"""The host's shared reads (memory-provider.md, Shared memory reads; decisions.md section 7, ``memory.*``)."""

from __future__ import annotations

from actors.store.operations.context import OperationContext
from messages.json_types import JsonObject
from messages.provider import MemoryStatusRequest
from messages.provider.reads import MemoryHealth


def memory_status(context: OperationContext, request: MemoryStatusRequest) -> JsonObject:
    """The health of the caller's partition: whether its files and its ontology are as they should be."""
    _, findings = context.session.diagnostics(0)
    return MemoryHealth(
        partition=context.partition.kind,
        records=sum(sum(states.values()) for states in context.catalogue.counts().values()),
        findings=findings,
        ontology_fingerprint=context.fingerprint,
        ontology_findings=len(context.session.activation.issues),
        index_state=context.index_state(),
    ).to_json()
