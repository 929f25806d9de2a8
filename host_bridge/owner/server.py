"""The connections of one owner: accept, greet, serve each in its own thread, end when idle or told to.

Every connection begins as a peer of the host protocol. ``owner.hello`` names the door: ``rpc`` stays with it,
``mcp`` hands the rest of the connection to the MCP host. An owner with a connected client is not idle.

Source: decisions.md sections 7 and 8.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import host_bridge
from host_bridge import jsonrpc
from host_bridge.owner import address, endpoint
from host_bridge.owner.client import ENDING, OWNER_PROTOCOL
from host_bridge.rpc import Method, RpcPeer, Service
from host_bridge.transport import LineReader, Outbox, Oversize, WakePipe
from messages import control
from messages.audience import Audience, parse_audience
from messages.errors import Busy, InvalidArgument, KnowledgeError, Stopping
from messages.json_types import JsonObject, JsonValue

if TYPE_CHECKING:
    from host_bridge.mcp import McpHost, McpSession

CONNECTIONS_MAX = 256
EOF_DRAIN_SECONDS = 1.5
SHUTDOWN_DRAIN_SECONDS = 5.0
_FLUSH_SECONDS = 1.0
_CHECK_SECONDS = 5.0
_QUEUE_SECONDS = 0.05
_ACCEPT_PAUSE_SECONDS = 0.05
_ENDING = jsonrpc.dump({"jsonrpc": "2.0", "method": ENDING})
_log = logging.getLogger(__name__)


class OwnerServer:
    """Serves one listening socket. ``run`` in the main thread; ``request_stop`` from any thread or signal handler."""

    def __init__(
        self,
        listener: socket.socket,
        path: str,
        service: Service,
        default_agent: Callable[[], str],
        *,
        detached: bool,
        idle_seconds: float,
        parent: int | None = None,
        still_owner: Callable[[], bool] = lambda: True,
        housekeeping: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.service = service
        self.default_agent = default_agent
        self.detached = detached
        self.stop_reason: str | None = None
        self._listener = listener
        self._path = path
        self._identity = _identity(path)
        self._idle_seconds = idle_seconds
        self._parent = parent
        self._still_owner = still_owner
        self._housekeeping = housekeeping
        self._clock = clock
        self._started = clock()
        self._idle_since = clock()
        self._lock = threading.Lock()
        self._sessions: set[Session] = set()
        self._wake = WakePipe()
        self._mcp: McpHost | None = None
        self._mcp_lock = threading.Lock()

    @property
    def wakeup_descriptor(self) -> int:
        """Writing a byte to it wakes :meth:`run`."""
        return self._wake.writer

    def run(self) -> str:
        """Accept until told to stop, idle for long enough (detached) or without the ``parent`` that is our host."""
        next_check = self._clock() + _CHECK_SECONDS
        while self.stop_reason is None:
            poller = select.poll()
            poller.register(self._listener, select.POLLIN)
            poller.register(self._wake.reader, select.POLLIN)
            until = min(next_check, self._idle_end())
            ready = {descriptor for descriptor, _ in poller.poll(max(until - self._clock(), 0) * 1000 + 1)}
            self._wake.clear()
            if self._listener.fileno() in ready:
                self._accept()
            if self._clock() >= next_check:
                next_check = self._clock() + _CHECK_SECONDS
                self._check()
            if self._clock() >= self._idle_end():
                self.request_stop("idle")
        _log.info("owner ends", extra={"reason": self.stop_reason})
        return self.stop_reason

    def request_stop(self, reason: str) -> None:
        """The first reason wins. Async-signal-safe: a flag and one write to a pipe."""
        if self.stop_reason is None:
            self.stop_reason = reason
        self._wake.wake()

    def refuse_new(self) -> None:
        """Close the socket and refuse every further request: the first step of a shutdown."""
        self._listener.close()
        if _identity(self._path) == self._identity:
            os.unlink(self._path)
        with self._lock:
            sessions = list(self._sessions)
        for session in sessions:
            session.stop_accepting()

    def close(self) -> None:
        """Flush what the bridge still answered, close the connections and join their threads: the last step."""
        with self._lock:
            sessions = list(self._sessions)
        for session in sessions:
            session.end()
        for session in sessions:
            session.join()
        if self._mcp is not None:
            self._mcp.close()
        self._wake.close()

    def mcp(self) -> McpHost:
        """The MCP host, made at its first use: importing the SDK takes longer than everything else together."""
        with self._mcp_lock:
            if self._mcp is None:
                from host_bridge.mcp import McpHost

                self._mcp = McpHost(self.service)
            return self._mcp

    def hand_over(self, asker: Session, params: JsonObject) -> JsonObject:
        """Agree to end when nobody but the asker needs this owner: ``{version, mode}`` -> ``{accepted, reason?}``."""
        mode = params.get("mode")
        if mode not in ("foreground", "detached"):
            raise InvalidArgument(
                "`mode` must be foreground or detached.", field="mode", allowed=["foreground", "detached"]
            )
        with self._lock:
            others = sum(1 for session in self._sessions if session is not asker and session.greeted)
        refused = control.hand_over_refusal(
            control.Holder(host_bridge.__version__, "detached" if self.detached else "foreground", others),
            control.Candidate(str(params.get("version", "")), mode),
        )
        if refused is not None:
            return {"accepted": False, "reason": refused, "connectedClients": others}
        self.request_stop("hand-over")
        return {"accepted": True}

    def status(self) -> JsonObject:
        """Published facts only: nobody is asked."""
        with self._lock:
            sessions = list(self._sessions)
        return {
            "pid": os.getpid(),
            "version": host_bridge.__version__,
            "detached": self.detached,
            "socket": self._path,
            "uptimeSeconds": round(self._clock() - self._started, 3),
            "connections": len(sessions),
            "openCalls": sum(session.open_calls for session in sessions),
            "health": self.service.health(),
        }

    def ended(self, session: Session) -> None:
        with self._lock:
            self._sessions.discard(session)
            if not self._sessions:
                self._idle_since = self._clock()
        self._wake.wake()

    def _idle_end(self) -> float:
        with self._lock:
            if not self.detached or self._sessions:
                return float("inf")
        if self.service.busy():
            # A client left while its accepted write was finished: its time of rest has not begun.
            self._idle_since = self._clock()
        return self._idle_since + self._idle_seconds

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                _log.warning("no descriptor for a connection", extra={"errno": error.errno})
                time.sleep(_ACCEPT_PAUSE_SECONDS)  # it stays readable: without a pause this loop would spin
            return
        try:
            endpoint.check_peer(connection)
        except (endpoint.ForeignPeer, OSError):
            _log.warning("a connection of another user was refused")
            connection.close()
            return
        with self._lock:
            connections = len(self._sessions)
        try:
            if connections >= CONNECTIONS_MAX:
                raise OSError(errno.EMFILE, "connection limit")
            session = Session(self, connection)
        except (OSError, RuntimeError):  # no descriptor, or no thread
            full = Busy(f"The owner has {connections} connections and room for no more; close one.")
            refuse_connection(connection, full, patience=0.0)
            return
        with self._lock:
            self._sessions.add(session)
        session.start()

    def _check(self) -> None:
        """What nobody tells us: a state directory removed under us, a host that died, a socket file swept away."""
        if not self._still_owner():
            # Another owner may hold a new directory at the same place by now, and its socket has the same name.
            self.request_stop("the state directory is gone")
        elif self._parent is not None and os.getppid() != self._parent:
            self.request_stop("the host is gone")
        else:
            self._keep_socket()
            self._tidy()

    def _tidy(self) -> None:
        try:
            self._housekeeping()
        except OSError as error:
            _log.warning("housekeeping failed", extra={"errno": error.errno})

    def _keep_socket(self) -> None:
        """Listen anew when somebody, such as a cleaner of temporary folders, removed the socket file."""
        if _identity(self._path) == self._identity:
            return
        _log.warning("the socket file vanished; listening anew")
        folder = os.path.dirname(self._path)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if (problem := address.folder_problem(folder)) is not None:
                _log.warning("the socket's folder is not ours any more: %s", problem)
                return
            fresh = endpoint.listen(self._path)
        except OSError as error:
            _log.warning("the socket could not be made anew", extra={"errno": error.errno})
            return
        self._listener.close()
        self._listener = fresh
        self._identity = _identity(self._path)


class Session:
    """One connection, one reading thread, one outbox."""

    def __init__(self, server: OwnerServer, connection: socket.socket) -> None:
        self.greeted = False
        self._hello_said = False
        self._server = server
        self._connection = connection
        connection.setblocking(True)
        self._reader = LineReader(connection.fileno())
        self._outbox = Outbox(connection.fileno(), name=f"conn-{connection.fileno()}", on_broken=self._reader.stop)
        self._door: Callable[[], McpSession] | None = None
        self._mcp: McpSession | None = None
        self._ending = threading.Event()
        methods: Mapping[str, Method] = {
            control.HELLO: self._hello,
            control.HAND_OVER: lambda params: server.hand_over(self, params),
            "owner.status": lambda _: server.status(),
            control.STOP: self._stop,
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
            methods=self._methods,
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


def refuse_connection(connection: socket.socket, error: KnowledgeError, *, patience: float) -> None:
    """Answer the first request of a connection with ``error`` and close it."""
    with connection:
        connection.settimeout(patience or 0.05)
        request_id: jsonrpc.RequestId | None = None
        try:
            message = jsonrpc.parse_message(connection.recv(1 << 16).split(b"\n", 1)[0])
            if isinstance(message, jsonrpc.Request):
                request_id = message.id
        except (OSError, jsonrpc.Malformed):
            pass  # whatever it was, the refusal is all there is to say
        try:
            connection.sendall(jsonrpc.refusal_line(request_id, error) + b"\n")
        except OSError:
            pass


def refuse_everybody(listener: socket.socket, error: KnowledgeError, seconds: float) -> None:
    """Tell the clients that wait for this owner why it cannot serve: the first within ``seconds``, then the queue."""
    left = seconds
    while True:
        listener.settimeout(left)
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        refuse_connection(connection, error, patience=1.0)
        left = _QUEUE_SECONDS


def stop_on_signals(server: OwnerServer) -> None:
    """SIGTERM, SIGINT and SIGHUP take the same path as ``shutdown``; a second SIGINT ends at once."""

    def stop(number: int, _: object) -> None:
        server.request_stop(signal.Signals(number).name)
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    # The kernel may hand a signal to any thread; the byte it leaves in the pipe wakes the main one, where Python's
    # handlers run.
    signal.set_wakeup_fd(server.wakeup_descriptor, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _hung_up(connection: socket.socket) -> bool:
    """Whether the other end is closed altogether, not only for writing."""
    poller = select.poll()
    poller.register(connection, 0)
    return any(event & select.POLLHUP for _, event in poller.poll(0))
