"""What the pages at ``/`` get of the runtime: the operator of their request's session, and that operator's answers.

The pages bring ``routes(console) -> list[BaseRoute]``; :func:`host_bridge.http.application.build_application` takes
these as ``explorer_routes`` and puts every guard of the door around them (Host, Origin, limits, security headers). A
route never sees a token, a cookie or the bridge.

Source: stores-and-access.md (Control UI); decisions.md section 7.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from starlette.requests import Request

from messages.json_types import JsonObject
from messages.operator import Operator


class Console(Protocol):
    """The only way of a page to the runtime. All of it runs on the event loop of the HTTP door, and never blocks it."""

    def operator(self, request: Request) -> Operator | None:
        """Who looks at this page; ``None`` without a session, or with one that has ended."""

    def csrf(self, request: Request) -> str:
        """The session's token, which every form sends back as the field ``csrf`` (a script as ``X-CSRF-Token``).

        A POST with a session and without it never reaches its route. Raises ``Denied`` without a session.
        """

    async def ask(self, request: Request, method: str, params: JsonObject) -> JsonObject:
        """The complete answer of an operator's method (``operator.recent``, ``access.grants.set``, ...), as on the
        host protocol, asked by the session's operator: one of those in :data:`host_bridge.http.methods.OPERATORS`.

        ``params`` as there, without ``operator``; ``deadlineMs`` counts. Raises ``KnowledgeError``: ``Denied`` without
        a session or the scope, ``InvalidArgument`` for another method. A request whose client has gone is cancelled.
        """

    def events(self, request: Request, agent: str | None = None) -> AsyncIterator[JsonObject]:
        """What ``events.subscribe`` tells the session's operator about an agent: ``{type, partition}``, without end.

        ``{"type": "heartbeat"}`` comes when nothing else did for 15 seconds, so that a page can tell silence from a
        lost connection. Ends when the session, the right to read or the runtime ends; raises ``KnowledgeError`` when it
        cannot begin.
        """
        ...


__all__ = ["Console"]
