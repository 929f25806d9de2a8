"""The neighbourhood of a record as nodes and edges: what it is connected with, and what its pages are connected with.

Bounded: the centre's connections, then those of its nearest pages, at most :data:`NODES_MAX` nodes.

Source: tools.md (Listing and connections).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from starlette.responses import JSONResponse, Response

from host_bridge.explorer.record import heading
from host_bridge.explorer.site import Look, rows
from messages.json_types import JsonObject

NODES_MAX: Final = 300
FIRST_MAX: Final = 200
PAGES_FOLLOWED: Final = 10
SECOND_LIMIT: Final = 30
TITLE_SHOWN: Final = 80
_PER_ASK: Final = 100
_NAMES: Final = {"links": "links to", "backlinks": "links to", "claims": "says of", "dependents": "rests on"}


@dataclass(slots=True)
class Neighbourhood:
    """Nodes by id, the centre first, and edges by (from, to, name)."""

    nodes: dict[str, JsonObject] = field(default_factory=dict)
    edges: dict[tuple[str, str, str], None] = field(default_factory=dict)
    partial: bool = False
    """Whether there is more than is shown."""

    def node(self, record_id: str, title: str, kind: str, type_: str = "") -> bool:
        """Whether the node is there now."""
        if record_id in self.nodes:
            return True
        if len(self.nodes) >= NODES_MAX:
            self.partial = True
            return False
        self.nodes[record_id] = {"id": record_id, "title": title[:TITLE_SHOWN], "kind": kind, "type": type_}
        return True

    def edge(self, one: str, other: str, name: str) -> None:
        self.edges[one, other, name] = None

    def connect(self, record_id: str, row: JsonObject) -> None:
        """A row of the record's connections: a typed relationship is an edge, any other record a node."""
        direction = str(row.get("direction"))
        if direction in ("incoming", "outgoing"):
            ends = {"incoming": ("from", "to"), "outgoing": ("to", "from")}[direction]
            far = row.get(ends[0])
            if not isinstance(far, dict):
                return
            other = str(far.get("mergedInto") or far.get("id"))
            if self.node(other, str(far.get("title") or other), "page"):
                label = str(row.get("label", "")).replace("_", " ")
                one, two = (other, record_id) if direction == "incoming" else (record_id, other)
                self.edge(one, two, label)
            return
        other = str(row.get("id"))
        title = str(row.get("text") or row.get("title") or other)
        if self.node(other, title if row.get("kind") == "claim" else str(row.get("title") or other),
                     str(row.get("kind")), str(row.get("type", ""))):  # fmt: skip
            outwards = direction == "links"
            one, two = (record_id, other) if outwards else (other, record_id)
            self.edge(one, two, _NAMES.get(direction, direction))

    def to_json(self) -> JsonObject:
        return {
            "nodes": list(self.nodes.values()),
            "edges": [{"from": one, "to": other, "name": name} for one, other, name in self.edges],
            "partial": self.partial,
        }


async def neighbourhood(look: Look, record_id: str) -> Neighbourhood:
    """What lies around a record."""
    centre = await heading(look, record_id)
    found = Neighbourhood()
    shown = str(centre.get("text") or centre.get("title")) if centre.get("kind") == "claim" else str(centre["title"])
    found.node(record_id, shown, str(centre["kind"]), str(centre.get("type", "")))
    pages = centre.get("pages")
    for page in pages if isinstance(pages, list) else []:
        if isinstance(page, dict):  # a claim names its pages itself
            end = str(page.get("mergedInto") or page.get("id"))
            if found.node(end, str(page.get("title") or end), "page"):
                found.edge(record_id, end, _NAMES["claims"])
    for name in ("from", "to"):
        end_ = centre.get(name)
        if isinstance(end_, dict) and found.node(str(end_["id"]), str(end_.get("title") or end_["id"]), "page"):
            found.edge(record_id, str(end_["id"]), name)
    await _take_in(look, found, record_id, FIRST_MAX)
    nearest = [key for key, node in found.nodes.items() if node["kind"] == "page" and key != record_id]
    for page_id in nearest[:PAGES_FOLLOWED]:
        await _take_in(look, found, page_id, SECOND_LIMIT)
    found.partial = found.partial or len(nearest) > PAGES_FOLLOWED
    return found


async def _take_in(look: Look, found: Neighbourhood, record_id: str, limit: int) -> None:
    offset = 0
    while offset < limit:
        asked: JsonObject = {"id": record_id, "limit": min(_PER_ASK, limit - offset), "offset": offset}
        answer = await look.ask("operator.connections", asked)
        for row in rows(answer, "connections"):
            found.connect(record_id, row)
        following = answer.get("nextOffset")
        if not isinstance(following, int):
            return
        offset = following
    found.partial = True


async def graph(look: Look) -> Response:
    """The page: the picture for those who have a script, the same as a list for everybody."""
    record_id = str(look.request.path_params["id"])
    found = await neighbourhood(look, record_id)
    listed = [
        {"from": found.nodes[one], "to": found.nodes[other], "name": name}
        for one, other, name in found.edges
        if one in found.nodes and other in found.nodes
    ]
    return look.page(
        "graph.html",
        record=await heading(look, record_id),
        nodes=list(found.nodes.values()),
        edges=listed,
        partial=found.partial,
        data=look.link(f"/record/{record_id}/graph.json"),
    )


async def graph_data(look: Look) -> Response:
    """The same as JSON, with the address of each record."""
    record_id = str(look.request.path_params["id"])
    shown = (await neighbourhood(look, record_id)).to_json()
    for node in rows(shown, "nodes"):
        node["open"] = look.link(f"/record/{node['id']}")
    return JSONResponse(shown, headers={"Cache-Control": "no-store"})
