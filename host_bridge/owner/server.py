"""The connections of one owner: accept, greet, serve each in its own thread, end when idle or told to.

What one connection says and gets is ``owner.session``'s. An owner with a connected client is not idle.

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
from collections.abc import Callable
from typing import TYPE_CHECKING

import host_bridge
from host_bridge import jsonrpc
from host_bridge.dispatch import Service
from host_bridge.owner import address, endpoint
from host_bridge.owner.session import Session
from host_bridge.transport import WakePipe
from messages import control
from messages.errors import Busy, InvalidArgument, KnowledgeError, Stopping
from messages.json_types import JsonObject

if TYPE_CHECKING:
    from host_bridge.mcp import McpHost
    from host_bridge.owner.http_door import HttpDoor

CONNECTIONS_MAX = 256
_CHECK_SECONDS = 1.0
_TIDY_SECONDS = 5.0
_QUEUE_SECONDS = 0.05
_ACCEPT_PAUSE_SECONDS = 0.05
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
        http: HttpDoor | None = None,
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
        self._next_tidy = clock() + _TIDY_SECONDS
        self._lock = threading.Lock()
        self._sessions: set[Session] = set()
        self._wake = WakePipe()
        self._mcp: McpHost | None = None
        self._http = http
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
        if self._http is not None:
            self._http.stop_accepting()

    def close(self) -> None:
        """Flush what the bridge still answered, close the connections and join their threads: the last step."""
        with self._lock:
            sessions = list(self._sessions)
        for session in sessions:
            session.end()
        for session in sessions:
            session.join()
        if self._http is not None:
            self._http.close()
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
        if self._http is not None and self._http.busy():
            others += 1
        refused = control.hand_over_refusal(
            control.Holder(host_bridge.__version__, "detached" if self.detached else "foreground", others),
            control.Candidate(str(params.get("version", "")), mode),
        )
        if refused is not None:
            return {"accepted": False, "reason": refused, "connectedClients": others}
        self.request_stop("hand-over")
        return {"accepted": True}

    def open_pages(self, params: JsonObject) -> JsonObject:
        """A link that opens a browser's session: see :meth:`HttpDoor.link`. Starts HTTP where it is not served."""
        if self.stop_reason is not None or self._http is None:
            raise Stopping("This owner serves no pages now; ask again.")
        return self._http.link(params)

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
            **({} if self._http is None or self._http.url is None else {"http": self._http.url}),
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
        if self.service.busy() or (self._http is not None and self._http.busy()):
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
        self._stay_owner()
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
        if not self._stay_owner():
            return
        if self._parent is not None and os.getppid() != self._parent:
            self.request_stop("the host is gone")
        else:
            self._keep_socket()
            self._tidy()

    def _stay_owner(self) -> bool:
        """Whether the directory is still ours. Another owner may hold a new one at the same place by now, and waits
        at our socket for our end: so every connection asks."""
        if not self._still_owner():
            self.request_stop("the state directory is gone")
        return self.stop_reason is None

    def _tidy(self) -> None:
        if self._clock() < self._next_tidy:
            return
        self._next_tidy = self._clock() + _TIDY_SECONDS
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
