"""The HTTP server of an owner: none, one from its start, or one that a person's wish to look started.

Imported with the owner, and cheap: what serves HTTP is imported when it is to serve.

Source: decisions.md sections 1 (http) and 8.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from messages.errors import InvalidArgument, Stopping
from messages.json_types import JsonObject
from messages.operator import LOCAL_OPERATOR, Operator

if TYPE_CHECKING:
    from host_bridge.bridge import KnowledgeBridge
    from host_bridge.http.application import ExplorerRoutes
    from host_bridge.http.server import HttpServer

ON_DEMAND = "127.0.0.1:0"
EXPLORER = "host_bridge.explorer"
READER = Operator("local", frozenset(("operator.read",)))


@dataclass(frozen=True, slots=True)
class HttpWish:
    """What the command line says of HTTP; ``listen`` left out: what the configuration says."""

    listen: str | None = None
    insecure_bind: bool = False


class HttpDoor:
    """Any thread."""

    def __init__(self, bridge: KnowledgeBridge, *, explorer: Callable[[], ExplorerRoutes | None] | None = None) -> None:
        self._bridge = bridge
        self._explorer = explorer or explorer_routes
        self._lock = threading.Lock()
        self._server: HttpServer | None = None
        self._stopping = False

    @property
    def url(self) -> str | None:
        """Where HTTP is served; ``None`` while it is not."""
        server = self._server
        return None if server is None else server.url

    def serve(self, wish: HttpWish) -> str:
        """Serve, where the command line or the configuration says; the address. Raises ``InvalidArgument`` for a place
        that is not safe, ``StorageError`` for one that is taken."""
        with self._lock:
            return self._serving(wish.listen, wish.insecure_bind).url

    def link(self, params: JsonObject) -> JsonObject:
        """``{readOnly?, plainHost?}`` -> ``{link, url}``: an address that opens a browser's session once.

        Starts to serve, at a free loopback port, where HTTP is not served yet.
        """
        unknown = sorted(set(params) - {"readOnly", "plainHost"})
        flags = {name: params.get(name, False) for name in ("readOnly", "plainHost")}
        if unknown or not all(isinstance(flag, bool) for flag in flags.values()):
            raise InvalidArgument(
                "owner.ui takes readOnly and plainHost, true or false.", field="", allowed=["readOnly", "plainHost"]
            )
        with self._lock:
            server = self._serving(ON_DEMAND, insecure_bind=False)
        operator = READER if flags["readOnly"] else LOCAL_OPERATOR
        return {"link": server.session_link(operator, plain_host=bool(flags["plainHost"])), "url": server.url}

    def busy(self) -> bool:
        """Whether anybody is connected."""
        server = self._server
        return server is not None and server.busy()

    def stop_accepting(self) -> None:
        """Refuse further calls; open ones go on."""
        self._stopping = True
        server = self._server
        if server is not None:
            server.stop_accepting()

    def close(self) -> None:
        """Send what is answered, and end."""
        self._stopping = True
        with self._lock:
            server = self._server
        if server is not None:
            server.close()

    def _serving(self, listen: str | None, insecure_bind: bool) -> HttpServer:
        """Holds the lock."""
        if self._stopping:
            raise Stopping("This owner is ending; ask again.")
        if self._server is None:
            from host_bridge.http.server import HttpServer, HttpSettings

            configured = self._bridge.configuration.http
            settings = HttpSettings(
                configured.listen if listen is None else listen,
                public_url=configured.public_url,
                cert_file=None if configured.tls is None else configured.tls.cert_file,
                key_file=None if configured.tls is None else configured.tls.key_file,
                insecure_bind=insecure_bind,
            )
            self._server = HttpServer(
                self._bridge,
                settings,
                host_key_file=lambda: self._bridge.configuration.http.host_key_file,
                explorer_routes=self._explorer(),
            )
        return self._server


def explorer_routes() -> ExplorerRoutes | None:
    """The routes of the pages at ``/``; ``None`` in an installation without them."""
    if importlib.util.find_spec(EXPLORER) is None:
        return None
    routes: ExplorerRoutes = importlib.import_module(EXPLORER).routes
    return routes


__all__ = ["HttpDoor", "HttpWish", "explorer_routes"]
