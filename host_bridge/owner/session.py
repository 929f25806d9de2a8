"""One connection to the owner: the greeting, the door it chose, and how it ends.

Every connection begins as a peer of the host protocol. ``owner.hello`` names the door: ``rpc`` stays with it, ``mcp``
hands the rest of the connection to the MCP host.

Source: decisions.md sections 6 (who thin clients act as), 7 and 8.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import host_bridge
from host_bridge import jsonrpc
from host_bridge.owner.client import ENDING, OWNER_PROTOCOL
from host_bridge.rpc import Method, RpcPeer
from host_bridge.transport import LineReader, Outbox, Oversize
from messages import control
from messages.audience import Audience, parse_audience
from messages.errors import InvalidArgument, Stopping
from messages.json_types import JsonObject, JsonValue
from messages.operator import LOCAL_OPERATOR

if TYPE_CHECKING:
    from host_bridge.mcp import McpSession
    from host_bridge.owner.server import OwnerServer

EOF_DRAIN_SECONDS = 1.5
SHUTDOWN_DRAIN_SECONDS = 5.0
_FLUSH_SECONDS = 1.0
_ENDING = jsonrpc.dump({"jsonrpc": "2.0", "method": ENDING})
_log = logging.getLogger(__name__)


class Session:
    """One connection, one reading thread, one outbox."""

    def __init__(self, server: OwnerServer, connection: socket.socket) -> None:
        self.greeted = False
        self._hello_said = False
        self._server = server
        self._connection = connection
        connection.setblocking(True)
        self._reader = LineReader(connection.fileno())
        self._outbox = Outbox(
            connection.fileno(),
            name=f"conn-{connection.fileno()}",
            on_broken=self._reader.stop,
            send=lambda view: connection.send(view, socket.MSG_DONTWAIT),
        )
        self._door: Callable[[], McpSession] | None = None
        self._mcp: McpSession | None = None
        self._ending = threading.Event()
        methods: Mapping[str, Method] = {
            control.HELLO: self._hello,
            control.HAND_OVER: lambda params: server.hand_over(self, params),
            "owner.status": lambda _: server.status(),
            control.STOP: self._stop,
            control.UI: server.open_pages,
        }
        self._methods = methods
        self._peer = self._new_peer(None)
        self._thread = threading.Thread(target=self._run, name=f"session-{connection.fileno()}", daemon=True)

    @property
    def open_calls(self) -> int:
        return len(self._peer.calls) + (len(self._mcp.calls) if self._mcp is not None else 0)

    def start(self) -> None:
        self._thread.start()

    def stop_accepting(self) -> None:
        self._peer.stop_accepting()
        if self._mcp is not None:
            self._mcp.stop_accepting()
        if self._hello_said:
            # Tells a pump that this end is meant: it starts another owner only when its host speaks again.
            self._outbox.put(_ENDING)

    def end(self) -> None:
        """Ask the thread to flush and close. Any thread."""
        self._ending.set()
        self._reader.stop()

    def join(self) -> None:
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            for line in self._reader:
                self.greeted = True
                self._take(line)
            self._drain()
        except Exception:  # noqa: BLE001 - one connection's defect must not take the owner down
            _log.exception("a connection failed")
        finally:
            self._peer.end_subscriptions()
            self._outbox.close()
            if self._mcp is not None:
                self._mcp.close()
            self._connection.close()
            self._reader.close()
            self._server.ended(self)

    def _take(self, line: bytes | Oversize) -> None:
        if self._mcp is not None:
            self._mcp.feed(line)
            return
        self._peer.receive(line)
        if self._door is not None:
            # The welcome is queued ahead of everything that the MCP session will say.
            self._mcp, self._door = self._door(), None

    def _drain(self) -> None:
        """Let open calls end: briefly after an orderly end of input, not at all for a client that is gone."""
        calls = self._mcp.calls if self._mcp is not None else self._peer.calls
        if self._ending.is_set():
            calls.wait_idle(_FLUSH_SECONDS)
        elif self._outbox.broken or _hung_up(self._connection):
            calls.cancel_all()
        elif not calls.wait_idle(EOF_DRAIN_SECONDS):
            calls.cancel_all()
            calls.wait_idle(_FLUSH_SECONDS)

    def _new_peer(self, caller: Audience | None) -> RpcPeer:
        return RpcPeer(
            self._server.service,
            self._outbox,
            caller=caller,
            operator=LOCAL_OPERATOR,
            methods=self._methods,
            stewards=True,
            on_shutdown=self._shut_down,
            after_shutdown=self._reader.stop,
        )

    def _shut_down(self) -> None:
        """A host's ``shutdown`` over the socket ends its own connection; the owner has other clients."""
        self._peer.calls.wait_idle(SHUTDOWN_DRAIN_SECONDS)

    def _hello(self, params: JsonObject) -> JsonValue:
        if self._server.stop_reason is not None:
            raise Stopping("This owner is ending; connect again.")
        if self._peer.calls:
            raise InvalidArgument("owner.hello must come before any call.", field="door")
        caller = params.get("caller")
        if caller is not None and not isinstance(caller, Mapping):
            raise InvalidArgument("`caller` must be an object.", field="caller", allowed="object")
        match params.get("door"):
            case "rpc":
                if caller is not None:
                    self._peer.end_subscriptions()
                    self._peer = self._new_peer(mint_audience(caller, self._server.default_agent()))
            case "mcp":
                audience = mint_audience(caller or {}, self._server.default_agent())
                profile = params.get("profile")
                if profile is not None and not isinstance(profile, str):
                    raise InvalidArgument("`profile` must be a string.", field="profile", allowed="string")
                if profile is not None:
                    self._server.service.tools("mcp", profile)
                self._door = lambda: self._server.mcp().open(self._outbox, audience, profile)
            case _:
                raise InvalidArgument("`door` must be rpc or mcp.", field="door", allowed=["rpc", "mcp"])
        self._hello_said = True
        return {
            "protocol": OWNER_PROTOCOL,
            "pid": os.getpid(),
            "version": host_bridge.__version__,
            "detached": self._server.detached,
        }

    def _stop(self, params: JsonObject) -> JsonValue:
        self._server.request_stop("asked to stop")
        return {"pid": os.getpid()}


def mint_audience(caller: Mapping[str, JsonValue], default_agent: str) -> Audience:
    """The audience of a thin client, ``{agent?, conversation?, session?}``: its user's own, or a conversation's."""
    for name in caller:
        if name not in ("agent", "conversation", "session"):
            raise InvalidArgument(
                "`caller` has agent, conversation and session.",
                field="caller",
                allowed=["agent", "conversation", "session"],
            )
    minted: JsonObject = {"kind": "owner-private", "agent": caller.get("agent") or default_agent}
    if caller.get("conversation") is not None or caller.get("session") is not None:
        minted |= {
            "kind": "conversation",
            "sessionKey": caller.get("conversation"),
            "sessionId": caller.get("session"),
        }
    return parse_audience(minted)


def _hung_up(connection: socket.socket) -> bool:
    """Whether the other end is closed altogether, not only for writing."""
    poller = select.poll()
    poller.register(connection, 0)
    return any(event & select.POLLHUP for _, event in poller.poll(0))
