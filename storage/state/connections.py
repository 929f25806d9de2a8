"""What a record is connected with: who names it, and whose bodies link to it, from the catalogue's indexes.

Costs as much as the record has connections, whatever the partition holds. Reads only, on the thread that owns the
connection. Source: tools.md (Listing and connections).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from storage.records import path_key
from storage.records.link_keys import LinkKey
from storage.state.catalogue_reader import CURRENT, CatalogueReader, Entry
from storage.state.connection import SqlValue
from storage.state.page_graph import PageGraph, is_current_page

Direction: TypeAlias = Literal["incoming", "outgoing", "dependents", "claims", "links", "backlinks"]

DIRECTIONS: Final[tuple[Direction, ...]] = ("incoming", "outgoing", "dependents", "claims", "links", "backlinks")
"""In the order in which they are listed."""

_ROLES: Final[Mapping[Direction, tuple[str, str]]] = {
    "incoming": ("'to'", "relationship"),
    "outgoing": ("'from'", "relationship"),
    "dependents": ("'dependency'", ""),
    "claims": ("'entity', 'owner'", "claim"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFilters:
    """``directions`` are those that are wanted; ``historical`` adds superseded records to the current ones."""

    directions: Collection[Direction]
    historical: bool
    now_ms: int


def connections(
    reader: CatalogueReader,
    entry: Entry,
    ids: Sequence[str],
    links: Collection[int],
    backlinks: Collection[int],
    filters: ConnectionFilters,
) -> Sequence[tuple[Direction, int]]:
    """``(direction, row)`` of every connection of ``entry``, each pair once: by direction, then oldest record first.

    ``ids`` are the record's own and those of pages merged into it; ``links`` the rows that its text links to,
    ``backlinks`` those of :func:`linking_statements`. A record is not connected with itself. Withdrawn, merged, invalid
    and expired records, and fixtures, are never listed.
    """
    parts, parameters = _parts(reader.number, entry, ids, links, backlinks, filters.directions)
    if not parts:
        return []
    eligible = f"({CURRENT})"
    if filters.historical:
        eligible = f"({eligible} OR (r.lifecycle = 'superseded' AND r.valid = 1 AND r.fixture = 0))"
    found = reader.database.query(
        f"SELECT DISTINCT c.place, r.row FROM ({' UNION ALL '.join(parts)}) c CROSS JOIN record r ON r.row = c.row "
        f"WHERE r.partition = ? AND r.row <> ? AND (c.kind = '' OR r.kind = c.kind) AND {eligible} "
        "ORDER BY c.place, r.row",
        (*parameters, reader.number, entry.row, filters.now_ms),
    )
    return [(DIRECTIONS[int(place)], int(row)) for place, row in found]


def linking_statements(reader: CatalogueReader, entry: Entry, ids: Sequence[str]) -> Sequence[int]:
    """The claims and relationships whose texts link to a current page by title, alias, path or file name.

    ``ids`` are the page's own and those merged into it. Each different way of writing the link is decided once, by the
    rule for the links of pages: what several pages could be meant by leads nowhere.
    """
    if not is_current_page(entry):
        return ()
    merged = (reader.one(record_id) for record_id in ids if record_id != entry.id)
    bearers = [entry, *(bearer for bearer in merged if bearer is not None)]
    keys = [path_key(bearer.path) for bearer in bearers]
    paths = sorted({path for key in keys for path in (key, key.rpartition("/")[2])})
    found = reader.database.query(
        "SELECT b.row, b.form, b.written, b.name, b.path FROM json_each(?1) j CROSS JOIN name n ON n.row = j.value "
        "CROSS JOIN body_link b ON b.partition = ?2 AND b.form = 'wiki' AND b.name = n.normalised "
        "CROSS JOIN record r ON r.row = b.row WHERE r.kind <> 'page' "
        "UNION SELECT b.row, b.form, b.written, b.name, b.path FROM json_each(?3) j CROSS JOIN body_link b "
        "ON b.partition = ?2 AND b.path = j.value CROSS JOIN record r ON r.row = b.row WHERE r.kind <> 'page'",
        (json.dumps([bearer.row for bearer in bearers]), reader.number, json.dumps(paths)),
    )
    graph = PageGraph(reader)
    led: dict[LinkKey, bool] = {}
    rows: dict[int, None] = {}
    for row, form, written, name, path in found:
        key = LinkKey(form, written, name, path)
        if key not in led:
            led[key] = graph.row_of(key) == entry.row
        if led[key]:
            rows[int(row)] = None
    return sorted(rows)


def _parts(
    number: int,
    entry: Entry,
    ids: Sequence[str],
    links: Collection[int],
    backlinks: Collection[int],
    directions: Collection[Direction],
) -> tuple[list[str], list[SqlValue]]:
    parts: list[str] = []
    parameters: list[SqlValue] = []
    named = json.dumps(ids)

    def add(direction: Direction, select: str, *values: SqlValue, kind: str = "") -> None:
        if direction in directions:
            parts.append(f"SELECT {DIRECTIONS.index(direction)} AS place, '{kind}' AS kind, {select}")
            parameters.extend(values)

    for direction, (roles, kind) in _ROLES.items():
        if direction != "claims" or entry.kind == "page":
            add(
                direction,
                "f.row AS row FROM json_each(?) j CROSS JOIN reference f "
                f"ON f.partition = ? AND f.target = j.value AND f.role IN ({roles})",
                named,
                number,
                kind=kind,
            )
    add("links", "value AS row FROM json_each(?)", json.dumps(sorted(links)))
    add("backlinks", "row FROM body_link WHERE target = ?", entry.row)
    add("backlinks", "value AS row FROM json_each(?)", json.dumps(sorted(backlinks)))
    # By id a link means a record of any kind, and also one that a page's other names no longer stand for.
    add(
        "backlinks",
        "b.row AS row FROM json_each(?) j CROSS JOIN body_link b "
        "ON b.partition = ? AND b.form = 'wiki' AND b.written = j.value",
        named,
        number,
    )
    if not is_current_page(entry):
        add(
            "backlinks",
            "row FROM body_link WHERE partition = ? AND path = ? AND form = 'path'",
            number,
            path_key(entry.path),
        )
    return parts, parameters
