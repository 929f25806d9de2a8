"""One TCP connection of the HTTP door: bounded in number, in time and in what it may leave unsent.

uvicorn's h11 protocol, with what it lets the outside decide taken back: a request's head must be there within
``HEAD_SECONDS``, at most :data:`CONNECTIONS_MAX` connections are open (of those that never showed a key or token the
oldest gives way), and bytes count as handed over only when the kernel has them. The event loop's thread.

Source: decisions.md section 6 (an answer happens when its bytes are handed to the transport).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import MutableMapping
from typing import Any, Final

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

HEAD_SECONDS: Final = 10.0
HEAD_MAX_BYTES: Final = 32 * 1024
CONNECTIONS_MAX: Final = 256
CONNECTION_KEY: Final = "knowledge.connection"
"""Where a request's scope holds its :class:`GuardedConnection`."""


class Connections:
    """The open connections of one server."""

    def __init__(self, limit: int = CONNECTIONS_MAX) -> None:
        self._limit = limit
        self._open: OrderedDict[GuardedConnection, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: GuardedConnection) -> bool:
        """Let one more in; where there are too many, the oldest stranger goes, or else the new one."""
        if len(self._open) >= self._limit:
            stranger = next((known for known in self._open if not known.trusted), None)
            if stranger is None:
                return False
            stranger.abort()
            self._open.pop(stranger, None)
        self._open[connection] = None
        return True

    def discard(self, connection: GuardedConnection) -> None:
        self._open.pop(connection, None)


class GuardedConnection(H11Protocol):
    """See the module. Set :attr:`all` on a subclass for each server."""

    all: Connections
    head_seconds = HEAD_SECONDS

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.trusted = False
        self._head_timer: asyncio.TimerHandle | None = None
        self.app = _tied(self, self.app)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """A stranger until a request shows a bearer or a session that counts."""
        super().connection_made(transport)
        # Nothing waits in this process: what `send` has returned from is in the kernel (see answers.hand_over).
        # asyncio's TLS pauses a writer at its limit, the plain transport above it: there 0 would pause for ever.
        transport.set_write_buffer_limits(high=0 if transport.get_extra_info("sslcontext") is None else 1, low=0)
        if not self.all.add(self):
            self.abort()
            return
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self.all.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A head that comes in drops is timed from its first byte; the body is timed where it is read."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            if self.conn.trailing_data[0]:
                self._arm()
        else:
            self._disarm()

    def abort(self) -> None:
        """Cut it off now: what was not sent is dropped."""
        self._disarm()
        if self.transport is not None:
            self.transport.abort()

    def _arm(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self.abort)

    def _disarm(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def connection_of(scope: MutableMapping[str, Any]) -> GuardedConnection | None:
    """The connection that a request came over; ``None`` where it came over none of ours (an in-process test)."""
    found = scope.get(CONNECTION_KEY)
    return found if isinstance(found, GuardedConnection) else None


def _tied(connection: GuardedConnection, app: ASGIApp) -> ASGIApp:
    async def tied(scope: Scope, receive: Receive, send: Send) -> None:
        scope[CONNECTION_KEY] = connection
        await app(scope, receive, send)

    return tied


__all__ = ["CONNECTIONS_MAX", "Connections", "GuardedConnection", "connection_of"]
