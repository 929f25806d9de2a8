"""Reach the owner of a state directory, starting a detached one on demand. Standard library only.

Everything a thin client asks goes through one JSON-RPC connection whose first request is ``owner.hello``: it names
the door (``rpc`` or ``mcp``), the client's version and who calls. An idle detached owner of an older version is asked
to hand over; a busy one is used as it is, as long as both speak the same ``owner protocol``.

Source: decisions.md section 8.
"""

from __future__ import annotations

import json
import os
import socket
import time

import host_bridge
from host_bridge.owner import address, endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from messages.json_types import JsonObject, JsonValue

OWNER_PROTOCOL = "knowledge-owner/1"
ENDING = "owner.ending"  # the last thing an owner says to a client that greeted it, when its end is meant
START_SECONDS = 20.0
REQUEST_MAX_BYTES = 8 << 20  # of messages.vocabulary, which costs more to import than a warm call may take
_PAUSE_SECONDS = 0.02
_START_ATTEMPTS = 5
_UNNAMED_SECONDS = 3.0
_CHUNK = 1 << 16
_ENTRY_MAX = 4096
_PID_MAX = (1 << 31) - 1
_PLAIN_REFUSALS = frozenset((-32700, -32600, -32601, -32602))


class OwnerError(Exception):
    """A typed failure: what the owner answered, or why there is none. The same facts as an error of the protocol."""

    def __init__(
        self, code: str, message: str, retry: str = "safe", fields: Mapping[str, JsonValue] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry = retry
        self.fields = dict(fields or {})

    @classmethod
    def from_error(cls, error: JsonObject) -> OwnerError:
        """The failure in a JSON-RPC error object."""
        data = error.get("data")
        fields = dict(data) if isinstance(data, dict) else {}
        # Plain JSON-RPC refusals, such as "this is no JSON", carry no code of ours: what was sent was no request.
        missing = "invalid_argument" if error.get("code") in _PLAIN_REFUSALS else "internal"
        code = str(fields.pop("code", missing))
        return cls(code, str(error.get("message", "")), str(fields.pop("retry", "never")), fields)

    def to_json(self) -> JsonObject:
        return {"code": self.code, "message": self.message, "retry": self.retry, **self.fields}


class Lost(Exception):
    """The connection ended before the answer came."""


class Holder:
    """What ``owner.lock`` says about its holder. ``socket`` None: a bridge in somebody's own process."""

    __slots__ = ("pid", "socket", "version")

    def __init__(self, pid: int, version: str, socket: str | None) -> None:
        self.pid = pid
        self.version = version
        self.socket = socket


class Answer:
    """What a holder said when it was asked to end; ``description`` completes "held by process 12: ..."."""

    __slots__ = ("description", "ending")

    def __init__(self, ending: bool, description: str) -> None:
        self.ending = ending
        self.description = description


class Connection:
    """One connection to the owner, used by one thread. Requests are answered one at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.hello: JsonObject = {}
        self._rest = b""
        self._next_id = 0

    def request(self, method: str, params: JsonObject, timeout: float | None) -> JsonValue:
        """The result; :class:`OwnerError` for an error answer, :class:`Lost`, ``TimeoutError``.

        A request that no owner would take is refused here. An error without an id is the answer too: this connection
        has one request, and the owner could not read its id.
        """
        self._next_id += 1
        wanted = self._next_id
        line = _request_line({"jsonrpc": "2.0", "id": wanted, "method": method, "params": params})
        until = None if timeout is None else time.monotonic() + timeout
        try:
            self.sock.settimeout(timeout)
            self.sock.sendall(line)
        except TimeoutError:
            raise
        except OSError as error:
            raise Lost(str(error)) from error
        while True:
            answer = json.loads(self._line(until))
            if not isinstance(answer, dict):
                continue
            failure = answer.get("error")
            if isinstance(failure, dict) and answer.get("id") in (None, wanted):
                raise OwnerError.from_error(failure)
            if answer.get("id") == wanted:
                result: JsonValue = answer.get("result")
                return result

    def take_rest(self) -> bytes:
        """Bytes received beyond the last answer, for whoever reads the socket from here on."""
        rest, self._rest = self._rest, b""
        return rest

    def close(self) -> None:
        self.sock.close()

    def _line(self, until: float | None) -> bytes:
        parts = [self._rest]
        while b"\n" not in parts[-1]:
            if until is not None:
                left = until - time.monotonic()
                if left <= 0:
                    raise TimeoutError("the owner did not answer in time")
                self.sock.settimeout(left)
            try:
                chunk = self.sock.recv(_CHUNK)
            except TimeoutError:
                raise
            except OSError as error:
                raise Lost(str(error)) from error
            if not chunk:
                raise Lost("the owner closed the connection")
            parts.append(chunk)
        line, _, self._rest = b"".join(parts).partition(b"\n")
        return line


def _request_line(message: JsonObject) -> bytes:
    try:
        text = json.dumps(message, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        raise OwnerError(
            "invalid_argument", "The request holds a number that JSON does not have, or is nested too deep.", "never"
        ) from None
    line = text.encode() + b"\n"
    if len(line) > REQUEST_MAX_BYTES:
        raise OwnerError(
            "limit_exceeded",
            f"The request has {len(line)} bytes; one request is at most {REQUEST_MAX_BYTES}. Split it.",
            "never",
            {"limit": REQUEST_MAX_BYTES},
        )
    return line


def read_holder(directory: str) -> Holder | None:
    """The holder that ``owner.lock`` names, None where it names none. It may be dead: the file decides nothing."""
    try:
        # Not blocking: whatever lies there, a pipe included, is at most no holder.
        descriptor = os.open(address.lock_path(directory), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        entry = json.loads(os.read(descriptor, _ENTRY_MAX).partition(b"\n")[0])
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(descriptor)
    match entry:
        case {"pid": int(pid), "version": str(version), "socket": str() | None as path} if 0 < pid <= _PID_MAX:
            return Holder(pid, version, path)
    return None


def probe(holder: Holder) -> Answer | None:
    """None when nobody accepts connections at the holder's socket any more."""
    connection = _connect(holder, 2.0)
    if connection is None:
        return None
    connection.close()
    return Answer(False, "its owner is running")


def ask_to_end(holder: Holder) -> Answer | None:
    """Ask an owner to hand over: only an idle detached one agrees. None when it answers nobody."""
    connection = _connect(holder, 2.0)
    if connection is None:
        return None
    try:
        connection.request("owner.hello", _hello({"door": "rpc"}), 5.0)
        params: JsonObject = {"version": host_bridge.__version__, "mode": "foreground"}
        result = connection.request("owner.handOver", params, 5.0)
    except (Lost, TimeoutError):
        return None
    except OwnerError as error:
        return Answer(error.code == "stopping", error.message)
    finally:
        connection.close()
    if not isinstance(result, dict):
        return Answer(False, "it answers in another way than this version")
    if result.get("accepted") is True or result.get("reason") == "stopping":
        return Answer(True, "it is ending")
    if result.get("reason") == "foreground":
        return Answer(False, "an owner in the foreground")
    return Answer(False, f"a detached owner with connected clients ({result.get('connectedClients')})")


def reach(
    state_dir: str, hello: JsonObject | None = None, *, start: bool = True, timeout: float = START_SECONDS
) -> Connection:
    """A connection that has said hello, to the owner of ``state_dir``; starts a detached one where none runs.

    Raises :class:`OwnerError`: ``stopping`` with ``start=False`` and nobody there, otherwise why none could start.
    """
    directory = address.knowledge_dir(state_dir)
    params = _hello(hello or {})
    until = time.monotonic() + timeout
    unnamed_until = time.monotonic() + _UNNAMED_SECONDS
    attempts = 0
    while True:
        holder = read_holder(directory)
        if holder is not None and holder.socket is not None:
            # One that we started ourselves is as new as we are, whatever it says: replacing it would never end.
            connection = _greet(holder, params, max(until - time.monotonic(), 0.1), replace=attempts == 0)
            if connection is not None:
                return connection
        if not start:
            if (holder is not None and holder.socket is not None) or not is_held(directory):
                raise OwnerError("stopping", "No owner is running for this state directory.")
            if holder is not None and is_held(address.lock_path(directory)):
                raise OwnerError(
                    "open_elsewhere",
                    f"Process {holder.pid} has opened this state directory with KnowledgeBridge in its own process; "
                    "nobody else is served until it closes that. Wait, or choose another with --state-dir.",
                    fields={"pid": holder.pid, "version": holder.version},
                )
            if time.monotonic() >= unnamed_until:
                raise OwnerError(
                    "store_unavailable", "Another process holds this state directory; owner.lock does not say which."
                )
            time.sleep(_PAUSE_SECONDS)  # an owner whose lock file was lost puts it back
            continue
        if time.monotonic() >= until or attempts == _START_ATTEMPTS:
            raise _nobody(directory, holder, timeout)
        if attempts:
            time.sleep(_PAUSE_SECONDS)
        attempts += 1
        from host_bridge.owner import spawn

        report = spawn.start_detached(state_dir, max(until - time.monotonic(), 0.1))
        if report.failure is not None:
            raise report.failure
        # It listens, or another process won the race and does: either way the lock file names the socket now.


def _greet(holder: Holder, params: JsonObject, timeout: float, *, replace: bool) -> Connection | None:
    """A connection that was welcomed; None when the holder is dead, ending, or agreed to hand over to us."""
    connection = _connect(holder, min(timeout, 5.0))
    if connection is None:
        return None
    try:
        welcome = connection.request("owner.hello", params, timeout)
        if not isinstance(welcome, dict):
            raise Lost("no welcome")
        connection.hello = dict(welcome)
        outdated = replace and _is_newer_than(str(welcome.get("version")))
        if (outdated or welcome.get("protocol") != OWNER_PROTOCOL) and _hands_over(connection, welcome):
            connection.close()
            return None
        return connection
    except (Lost, TimeoutError):
        connection.close()
        return None
    except OwnerError as error:
        connection.close()
        if error.code == "stopping":
            return None
        raise


def _hands_over(connection: Connection, welcome: Mapping[str, JsonValue]) -> bool:
    """Whether an older owner makes room. A busy one of our own owner protocol is used as it is."""
    params: JsonObject = {"version": host_bridge.__version__, "mode": "detached"}
    result = connection.request("owner.handOver", params, 5.0)
    if isinstance(result, dict) and result.get("accepted") is True:
        return True
    if welcome.get("protocol") == OWNER_PROTOCOL:
        return False
    raise OwnerError(
        "open_elsewhere",
        f"The owner in process {welcome.get('pid')} (version {welcome.get('version')}) speaks another owner protocol "
        "and is in use; end its clients, or run: knowledge stop",
        fields={"pid": welcome.get("pid"), "version": welcome.get("version")},
    )


def _hello(extra: JsonObject) -> JsonObject:
    return {"door": "rpc", "protocol": OWNER_PROTOCOL, "version": host_bridge.__version__, **extra}


def _connect(holder: Holder, timeout: float) -> Connection | None:
    if holder.socket is None:
        return None
    try:
        return Connection(endpoint.connect(holder.socket, timeout))
    except OSError:
        return None
    except endpoint.ForeignPeer as error:
        raise OwnerError("denied", f"{holder.socket}: {error}", "never") from error


def _nobody(directory: str, holder: Holder | None, timeout: float) -> OwnerError:
    log = address.log_path(directory)
    if holder is None:
        return OwnerError("store_unavailable", f"No owner could be started within {timeout:g} s; see {log}.")
    return OwnerError(
        "store_unavailable",
        f"Process {holder.pid} (version {holder.version}) holds this state directory but does not answer; see {log}.",
        fields={"pid": holder.pid},
    )


def is_held(path: str) -> bool:
    """Whether somebody has locked the directory (which makes an owner), or the ``owner.lock`` in it (whose entry is
    then the holder's own). A process id in a file says nothing: it may be another process's by now."""
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _is_newer_than(version: str) -> bool:
    if version == host_bridge.__version__:
        return False
    from messages.control import version_key  # costs more than a warm call may take, so only when versions differ

    return version_key(host_bridge.__version__) > version_key(version)
