"""``knowledge_records``: the exhaustive inventory, page by page (tools.md, Listing and connections)."""

from __future__ import annotations

from actors.store.operations.context import OperationContext
from actors.store.operations.filters import types_of
from actors.store.operations.rows import AGENT, Listed, Shape, coverage_of, current_snapshot
from messages.json_types import JsonObject
from messages.tools import RecordsRequest, records_response
from storage.records import bound_ms
from storage.state.inventory import InventoryFilters, inventory


def records(context: OperationContext, request: RecordsRequest) -> JsonObject:
    """One page of every record that passes, in the order of recording; within 24 KiB."""
    snapshot = current_snapshot(context, request.snapshot)
    filters = InventoryFilters(
        kind=request.kind,
        types=types_of(context, request.type),
        match=request.match,
        origin=request.origin,
        lifecycle=request.lifecycle,
        time_field=request.time_field,
        since=None if request.since is None else bound_ms(request.since),
        until=None if request.until is None else bound_ms(request.until),
        now_ms=context.now_ms,
    )
    return inventory_page(context, filters, request.limit, request.offset, snapshot, AGENT)


def inventory_page(
    context: OperationContext, filters: InventoryFilters, limit: int, offset: int, snapshot: str, shape: Shape
) -> JsonObject:
    """One page of the inventory in the caller's shape."""
    db = context.session.store.publisher.db
    found, total = inventory(db, context.partition, filters, limit, offset)
    listed = Listed.of(context, shape, found)
    rows = [listed.row(entry) for entry in found]
    return records_response(
        rows,
        total=total,
        offset=offset,
        snapshot=snapshot,
        coverage=coverage_of(context),
        max_bytes=shape.max_bytes,
    )
