"""The explorer that people look at: the pages at ``/``, read-only for knowledge.

Everything is rendered by the server and works without a script; small modules put times into the reader's zone, copy
text, draw the graph and keep an open page current. It never writes knowledge and never makes a store; the only changes
are membership and conversation grants, each confirmed by an operator who administers.

Source: stores-and-access.md (Manage stores, Conversation access); knowledge-more-facts.md section 8.
"""

from __future__ import annotations

from starlette.routing import BaseRoute, Mount

from host_bridge.explorer import (
    activity,
    browsing,
    conversations,
    dates,
    evidence,
    graph,
    live,
    record,
    settings,
    sharing,
)
from host_bridge.explorer.site import ASSETS, Site, nowhere
from host_bridge.http.console import Console


def routes(console: Console) -> list[BaseRoute]:
    """The pages on a console. The guards of the door (Host, Origin, CSRF, limits, headers) stand around them."""
    site = Site(console)
    return [
        site.route("/", activity.activity),
        site.route("/publication/{request}", activity.publication),
        site.route("/recent", browsing.recent),
        site.route("/browse", browsing.browse),
        site.route("/search", browsing.search),
        site.route("/find", browsing.find),
        site.route("/timeline", dates.timeline),
        site.route("/due", dates.due),
        site.route("/record/{id}", record.record),
        site.route("/record/{id}/connections/{direction}", record.connections),
        site.route("/record/{id}/history", record.history),
        site.route("/record/{id}/revision/{sequence}", record.revision),
        site.route("/record/{id}/evidence", evidence.evidence),
        site.route("/record/{id}/original", evidence.original),
        site.route("/record/{id}/graph", graph.graph),
        site.route("/record/{id}/graph.json", graph.graph_data),
        site.route("/settings/stores", sharing.stores),
        site.route("/settings/stores/{move}", sharing.move),
        site.route("/settings/stores/{move}", sharing.moved, post=True),
        site.route("/settings/conversations", conversations.conversations),
        site.route("/settings/conversations/grant", conversations.grant),
        site.route("/settings/conversations/grant", conversations.granted, post=True),
        site.route("/settings/vocabulary", settings.vocabulary),
        site.route("/settings/vault", settings.vault),
        site.route("/settings/maintenance", settings.maintenance),
        site.route("/hints", live.hints),
        site.route("/theme", live.theme, post=True),
        Mount("/assets", live.Assets(directory=ASSETS), name="assets"),
        site.route("/{path:path}", nowhere),
    ]


__all__ = ["routes"]
