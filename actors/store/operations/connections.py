"""``knowledge_connections``: the neighbours of one record (tools.md, Listing and connections).

The connected record of a typed relationship is the relationship itself: its row names both ends and the label.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from actors.store.operations.context import OperationContext
from actors.store.operations.link_targets import AuthoredLinks
from actors.store.operations.named_records import ids_of, record_of_id
from actors.store.operations.rows import AGENT, Listed, Shape, coverage_of, current_snapshot
from messages.json_types import JsonObject
from messages.tools import Connection, ConnectionsRequest, connections_response
from storage.state.catalogue_reader import Entry
from storage.state.connections import DIRECTIONS, ConnectionFilters, Direction, linking_statements
from storage.state.connections import connections as connected


def connections(context: OperationContext, request: ConnectionsRequest, shape: Shape = AGENT) -> JsonObject:
    """One page of the connections of a record, each pair of direction and record once, within the shape's bytes.

    ``links`` are read from the record's own text, whatever its kind, and followed by the rule that ``knowledge_verify``
    follows; ``backlinks`` are the same links seen from their other end. Raises ``NotFound`` or ``Ambiguous`` for the
    id, and ``SnapshotChanged``.
    """
    snapshot = current_snapshot(context, request.snapshot)
    entry = record_of_id(context, request.id)
    directions = DIRECTIONS if request.direction is None else (request.direction,)
    found = connected_rows(context, entry, directions, historical=request.historical)
    shown = found[request.offset : request.offset + request.limit]
    others = {other.row: other for other in context.catalogue.of_rows(row for _, row in shown)}
    listed = Listed.of(context, shape, others.values())
    rows = [Connection(direction, listed.row(others[row])) for direction, row in shown]
    return connections_response(
        rows,
        total=len(found),
        offset=request.offset,
        snapshot=snapshot,
        merged_into=None if entry.id == request.id else entry.id,
        coverage=coverage_of(context),
        max_bytes=shape.max_bytes,
    )


def connected_rows(
    context: OperationContext, entry: Entry, directions: Collection[Direction], *, historical: bool
) -> Sequence[tuple[Direction, int]]:
    """``(direction, row)`` of every connection in these directions, each once."""
    filters = ConnectionFilters(directions=directions, historical=historical, now_ms=context.now_ms)
    links = _linked(context, entry) if "links" in directions else ()
    ids = ids_of(context, entry)
    backlinks = linking_statements(context.catalogue, entry, ids) if "backlinks" in directions else ()
    return connected(context.catalogue, entry, ids, links, backlinks, filters)


def _linked(context: OperationContext, entry: Entry) -> list[int]:
    if not context.catalogue.has_links(entry.row):
        return []  # its text need not be read
    authored = AuthoredLinks.of(context, entry, context.session.load(entry))
    return [other.row for other in authored.targets()]
