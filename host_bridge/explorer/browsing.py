"""Recent, Browse and Search: lists of records, page by page of one snapshot; and finding a record by its name.

Source: knowledge-more-facts.md section 8; tools.md (Listing and connections, Search and lookup).
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from host_bridge.explorer.site import Look, member, rows
from messages.json_types import JsonObject, JsonValue
from messages.tools.operator_reads import BROWSE_STATES
from messages.vocabulary import LOOKUP_QUERY_MAX_CHARS, RECORD_KINDS

PER_PAGE: Final = 25
TAGS_SHOWN: Final = 30
TYPES_SHOWN: Final = 100
ORDERS: Final = {
    "newest": ("recorded", True), "oldest": ("recorded", False), "updated": ("updated", True),
    "title": ("title", False),
}  # fmt: skip
FIELDS: Final = ("occurred", "recorded", "updated", "due")
MODES: Final = ("all", "any", "phrase")
_PAGING: Final = ("offset", "snapshot", "changed")


async def recent(look: Look) -> Response:
    """What was written or edited last, first."""
    narrowed = {"kind": look.text("kind"), "lifecycle": look.text("lifecycle")}
    found = await look.ask("operator.recent", _page_of(look) | narrowed)
    return look.page("recent.html", kinds=RECORD_KINDS, **_shown(look, found, "records"))


async def browse(look: Look) -> Response:
    """Every record that passes the filters of the address."""
    order, descending = ORDERS.get(look.text("order") or "newest", ORDERS["newest"])
    found = await look.ask("operator.records", _page_of(look) | {
        "kind": look.text("kind"), "type": look.text("type"), "tag": look.text("tag"), "match": look.text("match"),
        "lifecycle": look.text("lifecycle"), "timeField": look.text("field"), "since": look.text("since"),
        "until": look.text("until"), "order": order, "descending": descending,
    })  # fmt: skip
    tags = await look.ask("operator.tags", {"limit": TAGS_SHOWN})
    types = await look.ask("operator.vocabulary", {"kind": "page", "limit": TYPES_SHOWN})
    return look.page(
        "browse.html",
        tags=rows(tags, "tags"),
        types=[row for row in rows(types, "types") if member(row, "counts").get("total")],
        kinds=RECORD_KINDS,
        states=BROWSE_STATES,
        orders=tuple(ORDERS),
        fields=FIELDS,
        filtered=any(look.text(name) for name in ("kind", "type", "tag", "match", "lifecycle", "since", "until")),
        **_shown(look, found, "records"),
    )


async def search(look: Look) -> Response:
    """Ranked words, with the excerpts in which they stand; first a record of exactly this name."""
    query = look.text("q")
    if query is None:
        return look.page("search.html", query="", exact=(), modes=MODES, unavailable=None, **_shown(look, {}, "hits"))
    found = await look.ask(
        "operator.search",
        {**_page_of(look), "limit": 20, "query": query, "mode": look.text("mode"), "kind": look.text("kind"),
         "lifecycle": look.text("lifecycle")},
    )  # fmt: skip
    exact: list[JsonObject] = []
    if not look.whole("offset") and len(query) <= LOOKUP_QUERY_MAX_CHARS:
        exact = rows(await look.ask("operator.lookup", {"query": query, "limit": 5}), "hits")
    return look.page(
        "search.html",
        query=query,
        exact=exact,
        modes=MODES,
        unavailable=member(found, "index").get("reason") if found.get("total") is None else None,
        **_shown(look, found, "hits"),
    )


async def find(look: Look) -> Response:
    """The one record of a name; the choice where there are several, and what to do where there is none."""
    name = (look.text("name") or "")[:LOOKUP_QUERY_MAX_CHARS]
    if not name:
        return look.moved("/search")
    found = await look.ask("operator.lookup", {"query": name, "lifecycle": "all", "limit": 20})
    hits = rows(found, "hits")
    if found.get("state") == "found":
        return look.moved(f"/record/{hits[0]['id']}")
    return look.page("find.html", name=name, **_shown(look, found, "hits"))


def _page_of(look: Look) -> dict[str, JsonValue]:
    return {"limit": PER_PAGE, "offset": look.whole("offset") or None, "snapshot": look.text("snapshot")}


def _shown(look: Look, found: JsonObject, name: str) -> dict[str, object]:
    """A page of a list with the ways to its neighbours: pages of one snapshot join without gap or repeat."""
    following, offset = found.get("nextOffset"), look.whole("offset")
    listed = rows(found, name)
    return {
        "rows": listed,
        "total": found.get("total"),
        "first": offset + 1,
        "last": offset + len(listed),
        "next_page": look.again(offset=following, snapshot=found.get("snapshot"), changed=None)
        if isinstance(following, int)
        else None,
        "first_page": look.again(**dict.fromkeys(_PAGING)) if offset else None,
        "changed": bool(look.text("changed")),
    }
