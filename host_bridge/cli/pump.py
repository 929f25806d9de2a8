"""Copy whole lines between a client's stdio and the owner's socket, and survive the owner. Standard library only.

The pump understands just enough of a line to keep its promises: which requests are open, and the handshake. When the
owner dies it starts another, repeats the handshake to it, swallows the answer, asks again whatever is harmless to ask
twice, and answers open tool calls with a retryable error, since they may have run. When the owner said that its end
is meant, another is started only once the client speaks again.

Where no owner runs yet, the first one is started in a thread of its own while the client is heard already: its MCP
handshake is answered here, and repeated to the owner like every later one.

One poll loop; neither side can block the other. Source: decisions.md section 8; HOSTS.md section 0 (rule 11).
"""

from __future__ import annotations

import json
import os
import select
import socket

from host_bridge.cli import exits, output
from host_bridge.owner.client import ENDING, OwnerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from host_bridge.cli.dialects import HostDialect, McpDialect
    from host_bridge.owner.client import Connection
    from messages.json_types import JsonObject, JsonValue

_CHUNK = 1 << 16
_FULL = 8 << 20  # beyond this much waiting on one side, the other side is not read
_EARLY_MAX = 1 << 20  # what a client may say before there is an owner
_LINE_MAX = 9 << 20  # the owner refuses lines over 8 MiB; the pump passes them on unread
_PARENT_CHECK_MS = 10_000
_LAST_ANSWERS_MS = 3_000  # after the client's end of input: the owner drains 1.5 s, hosts kill after 4
_RESENDS_MAX = 2
_EAGER_MAX = 5  # replacements without a word of the client's in between; then it has to speak first
_LOST = OwnerError(
    "restarting",
    "The owner ended before it answered. The call may have run; with the same requestId a repeat is harmless.",
    "unknown",
)


class _Open:
    """A request without its answer. ``line`` is kept when asking again is harmless."""

    __slots__ = ("id", "line", "method", "resends")

    def __init__(self, request_id: JsonValue, method: str, line: bytes | None) -> None:
        self.id = request_id
        self.method = method
        self.line = line
        self.resends = 0


class _Start:
    """The first owner, reached in a thread of its own; ``reader`` ends when the ``outcome`` is there."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        import threading  # reaching an owner that runs already needs none

        self.outcome: Connection | OwnerError = OwnerError("internal", "The owner could not be reached.", "never")
        self.reader, self._writer = os.pipe()
        threading.Thread(target=self._run, args=(connect,), daemon=True).start()

    def _run(self, connect: Callable[[], Connection]) -> None:
        try:
            self.outcome = connect()
        except OwnerError as error:
            self.outcome = error
        finally:
            os.close(self._writer)


class Pump:
    """One client, one owner after another. ``run`` returns the exit status when the client has ended.

    Without a ``first`` connection it makes one by ``connect`` itself; why that failed is said on stderr, and what the
    client asked meanwhile is answered with it.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        first: Connection | None,
        dialect: McpDialect | HostDialect,
        wire_in: int = 0,
        wire_out: int = 1,
    ) -> None:
        self._connect = connect
        self._dialect = dialect
        self._in = wire_in
        self._out = wire_out
        self._parent = os.getppid()
        self._from_host = bytearray()
        self._to_host = bytearray()
        self._from_owner = bytearray()
        self._to_owner = bytearray()
        self._passing = False
        self._open: dict[str, _Open] = {}
        self._initialize: tuple[str, bytes] | None = None
        self._initialized: bytes | None = None
        self._swallow: str | None = None
        self._behind: list[bytes] = []  # lines that wait until the repeated handshake was answered
        self._ending = False
        self._eager = 0
        self._input_ended = False
        self._sock: socket.socket | None = None
        self._start: _Start | None = None
        self._failure: OwnerError | None = None
        if first is not None:
            self._attach(first)
        else:
            self._start = _Start(connect)

    def run(self) -> int:
        try:
            return self._run()
        finally:
            if self._sock is not None:
                self._sock.close()

    def _run(self) -> int:
        while True:
            if self._failure is not None and not self._to_host:
                return output.failure(self._failure, compact=False)
            idle = self._start is None and (self._sock is None or self._ending)
            if self._input_ended and idle and not self._to_host:
                return exits.OK
            ready = dict(self._poll())
            if not ready:
                if (self._input_ended and self._start is None) or os.getppid() != self._parent:
                    return exits.OK
                continue
            if self._sock is not None and (state := ready.get(self._sock.fileno())) is not None:
                if state & select.POLLOUT:
                    self._send_to_owner()
                if state & (select.POLLIN | select.POLLHUP | select.POLLERR):
                    self._read_owner()
            if (state := ready.get(self._out)) is not None and not self._write_to_host(state):
                return exits.OK
            if self._start is not None and self._start.reader in ready:
                self._started(self._start)
            if ready.get(self._in) is not None and not self._input_ended:
                self._read_host()

    def _poll(self) -> list[tuple[int, int]]:
        poller = select.poll()
        if self._start is not None:
            poller.register(self._start.reader, select.POLLIN)
            full = len(self._from_host) + sum(map(len, self._behind)) > _EARLY_MAX
        else:
            full = len(self._to_owner) >= _FULL
        if not self._input_ended and not full:
            poller.register(self._in, select.POLLIN)
        # Registered without events as well: a client that closed its end is noticed at once.
        poller.register(self._out, select.POLLOUT if self._to_host else 0)
        if self._sock is not None:
            events = select.POLLIN if len(self._to_host) < _FULL else 0
            poller.register(self._sock, events | (select.POLLOUT if self._to_owner else 0))
        return poller.poll(_LAST_ANSWERS_MS if self._input_ended else _PARENT_CHECK_MS)

    # the client's side

    def _read_host(self) -> None:
        chunk = os.read(self._in, _CHUNK)
        if not chunk:
            self._input_ended = True
            if self._from_host:
                self._take_host_line(bytes(self._from_host) + b"\n")
                self._from_host.clear()
            self._pass_on_the_end()
            return
        self._from_host += chunk
        while (end := self._from_host.find(b"\n")) >= 0:
            line = bytes(self._from_host[: end + 1])
            del self._from_host[: end + 1]
            if self._passing:
                self._passing = False
                self._forward(line)
            else:
                self._take_host_line(line)
        if len(self._from_host) > _LINE_MAX:
            self._passing = True
            self._forward(bytes(self._from_host))
            self._from_host.clear()

    def _take_host_line(self, line: bytes) -> None:
        self._eager = 0
        message = _object(line)
        method = None if message is None else message.get("method")
        if message is not None and isinstance(method, str):
            if "id" in message and _answerable(message["id"]):
                key = _key(message["id"])
                is_call = method == self._dialect.call
                self._open[key] = _Open(message["id"], method, None if is_call else line)
                if method == "initialize":
                    self._initialize, self._initialized = (key, line), None
                    if self._start is not None and self._greet(message):
                        return
            elif method == self._dialect.initialized:
                self._initialized = line
                if self._is_greeted() and (self._swallow is not None or self._start is not None):
                    return  # it goes out behind the repeated handshake
            elif method == self._dialect.cancelled:
                self._forget_cancelled(message)
        if self._swallow is not None or self._start is not None:
            self._behind.append(line)
        elif self._sock is None:
            self._revive(line)
        else:
            self._forward(line)

    def _greet(self, message: Mapping[str, JsonValue]) -> bool:
        """Answer the client's ``initialize`` while its owner starts; whether we could."""
        result = self._dialect.greeting(message.get("params"))
        if result is None:
            return False
        del self._open[_key(message["id"])]
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        self._to_host += json.dumps(answer, separators=(",", ":")).encode() + b"\n"
        return True

    def _is_greeted(self) -> bool:
        """Whether the client has the answer to its ``initialize``, so that an owner's is one too many."""
        return self._initialize is not None and self._initialize[0] not in self._open

    def _forget_cancelled(self, message: Mapping[str, JsonValue]) -> None:
        """MCP never answers a cancelled request, so neither do we."""
        params = message.get("params")
        if isinstance(params, dict) and "requestId" in params:
            self._open.pop(_key(params["requestId"]), None)

    def _write_to_host(self, state: int) -> bool:
        """Whether the client is still there. Pieces of PIPE_BUF bytes never block once there is room for them."""
        if state & select.POLLOUT and self._to_host:
            try:
                written = os.write(self._out, self._to_host[: select.PIPE_BUF])
            except OSError:
                return False
            del self._to_host[:written]
        return not state & (select.POLLERR | select.POLLHUP | select.POLLNVAL)

    def _answer(self, request: _Open, error: OwnerError) -> None:
        """Our own answer to a request that will get no other."""
        body: JsonObject
        if request.method == self._dialect.call:
            body = self._dialect.failed_call(error, handshake=self._initialize is not None)
        else:
            body = {"error": {"code": -32000, "message": error.message, "data": error.to_json()}}
        answer = {"jsonrpc": "2.0", "id": request.id, **body}
        self._to_host += json.dumps(answer, separators=(",", ":")).encode() + b"\n"

    # the owner's side

    def _attach(self, connection: Connection) -> None:
        self._sock = connection.sock
        self._sock.setblocking(False)
        self._ending = False
        self._from_owner.clear()
        self._to_owner.clear()
        rest = connection.take_rest()
        if rest:
            self._take_owner_bytes(rest)

    def _forward(self, line: bytes) -> None:
        self._to_owner += line
        self._send_to_owner()

    def _send_to_owner(self) -> None:
        if self._sock is None or not self._to_owner:
            return
        try:
            sent = self._sock.send(self._to_owner)
        except BlockingIOError:
            return
        except OSError:
            return  # its end is read next, and everything open is settled then
        del self._to_owner[:sent]
        self._pass_on_the_end()

    def _pass_on_the_end(self) -> None:
        """Close for writing once the client has ended and its last line is out."""
        if self._input_ended and self._sock is not None and not self._to_owner and not self._behind:
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it is gone, which its read end tells as well

    def _read_owner(self) -> None:
        assert self._sock is not None
        try:
            chunk = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if chunk:
            self._take_owner_bytes(chunk)
        else:
            self._owner_ended()

    def _take_owner_bytes(self, chunk: bytes) -> None:
        self._from_owner += chunk
        while (end := self._from_owner.find(b"\n")) >= 0:
            line = bytes(self._from_owner[: end + 1])
            del self._from_owner[: end + 1]
            self._take_owner_line(line)

    def _take_owner_line(self, line: bytes) -> None:
        message = _object(line)
        if message is not None and "method" not in message and "id" in message:
            key = _key(message["id"])
            if key == self._swallow:
                self._handshake_repeated()
                return
            answered = self._open.pop(key, None)
            if answered is not None and answered.method == self._dialect.shutdown:
                self._ending = self._input_ended = True
        elif message is not None and message.get("method") == ENDING:
            self._ending = True
            return
        self._to_host += line

    def _started(self, start: _Start) -> None:
        """The first owner is there, or why there is none."""
        os.close(start.reader)
        self._start = None
        outcome = start.outcome
        if isinstance(outcome, OwnerError):
            self._failure = outcome
            self._input_ended = True
            for request in self._open.values():
                self._answer(request, outcome)
            self._open.clear()
            return
        self._attach(outcome)
        self._hand_on(self._behind)
        self._pass_on_the_end()

    def _hand_on(self, lines: list[bytes]) -> None:
        """Give a fresh owner the handshake that the client is through with already, then ``lines``."""
        self._behind = []
        if self._is_greeted() and self._initialize is not None:
            self._swallow, handshake = self._initialize
            self._behind = lines
            self._forward(handshake)
        else:
            self._forward(b"".join(lines))

    def _handshake_repeated(self) -> None:
        self._swallow = None
        behind, self._behind = self._behind, []
        self._forward(b"".join([*([self._initialized] if self._initialized else []), *behind]))
        self._pass_on_the_end()

    def _owner_ended(self) -> None:
        """Settle what was open, then start another owner unless this end was meant or the client is leaving."""
        assert self._sock is not None
        self._sock.close()
        self._sock = None
        self._swallow = None
        self._behind.clear()
        for key, request in list(self._open.items()):
            if request.line is None or self._input_ended or request.resends >= _RESENDS_MAX:
                self._answer(request, _LOST)
                del self._open[key]
        meant = self._ending or self._eager >= _EAGER_MAX
        if self._input_ended or (meant and not self._open):
            return
        self._eager += 1
        self._revive(None)

    def _revive(self, line: bytes | None) -> None:
        """Reach an owner again and bring it to where the last one was; ``line`` is what the client just said."""
        try:
            connection = self._connect()
        except OwnerError as error:
            for request in self._open.values():
                self._answer(request, error)
            self._open.clear()
            return
        again: list[bytes] = []
        for request in self._open.values():
            if request.line is not None and request.line != line:
                request.resends += 1
                again.append(request.line)
        if line is not None and not (self._is_greeted() and line == self._initialized):
            again.append(line)
        self._attach(connection)
        self._hand_on(again)


def _object(line: bytes) -> dict[str, JsonValue] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _answerable(request_id: JsonValue) -> bool:
    """Whether an answer can come under this id; under any other it comes under null, and nothing is kept open."""
    if isinstance(request_id, str):
        return not any("\ud800" <= character <= "\udfff" for character in request_id)
    return isinstance(request_id, int) and not isinstance(request_id, bool)


def _key(request_id: JsonValue) -> str:
    """1 and "1" are two ids."""
    return json.dumps(request_id)
