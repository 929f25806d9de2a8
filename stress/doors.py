"""The doors that a run's clients use: the owner's socket, MCP on stdio, one shell command a call.

A door is used by one thread and may be looked at by others: :meth:`StreamDoor.arrived` says how many bytes have reached
this end of the pipe, read or not, which is where a revocation is judged.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import itertools
import json
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from host_bridge.owner.client import Lost, OwnerError, reach
from messages.json_types import JsonObject, JsonValue
from stress.scripts import is_method

_ROOT: Final = Path(__file__).resolve().parents[1]
_connections = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended: ``code`` is ``ok``, the error's, ``lost`` (the connection ended) or ``no_answer``.

    ``place`` is the connection and the bytes it had delivered up to and with the answer; (0, 0) where there is none.
    """

    code: str
    retry: str
    result: JsonObject | None
    place: tuple[int, int] = (0, 0)
    retry_after: float = 0.0
    message: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool. ``patience``: for how many seconds its client waits, whatever the deadline says;
    ``cancel_after``: seconds until the client gives it up, where a door can say so."""

    tool: str
    arguments: JsonObject
    audience: JsonObject
    deadline_ms: int
    patience: float
    cancel_after: float | None = None


class Door(Protocol):
    """One client's way in."""

    name: str
    surplus: int
    """Answers that nobody asked for, or that came twice."""

    def call(self, call: ToolCall) -> Outcome:
        """One call; returns at the latest when its patience ends."""

    def leave(self) -> None:
        """Go without saying so."""


class StreamDoor:
    """JSON-RPC lines over one stream; connects again at the next call when the stream has ended."""

    def __init__(self, name: str, connect: Callable[[], socket.socket]) -> None:
        self.name = name
        self.surplus = 0
        self._connect = connect
        self._socket: socket.socket | None = None
        self._connection = 0
        self._lock = threading.Lock()
        self._rest = b""
        self._received = 0
        self._next = itertools.count(1)
        self._open: set[int] = set()

    def arrived(self) -> tuple[int, int]:
        """The connection, and the bytes that have arrived on it so far, those that were not read yet included."""
        with self._lock:
            if self._socket is None:
                return (0, 0)
            waiting = array.array("i", [0])
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._socket, termios.FIONREAD, waiting)
            return (self._connection, self._received + waiting[0])

    def request(
        self, method: str, params: JsonObject, *, patience: float, cancel_after: float | None = None
    ) -> tuple[JsonObject | None, tuple[int, int]]:
        """The answer's object and its place; None when none came in time. Raises :class:`Lost`."""
        connection = self._connected()
        number = next(self._next)
        until = time.monotonic() + patience
        self._open.add(number)
        self._send(connection, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        cancel_at = None if cancel_after is None else time.monotonic() + cancel_after
        while True:
            now = time.monotonic()
            if cancel_at is not None and now >= cancel_at:
                cancel_at = None
                self._send(connection, self.cancellation(number))
            line = self._line(connection, until if cancel_at is None else min(until, cancel_at))
            if line is None:
                if time.monotonic() >= until:
                    return None, (0, 0)
                continue
            place = (self._connection, self._received - len(self._rest))
            try:
                message = json.loads(line)
            except ValueError:
                return {"error": {"message": "the answer cannot be read"}}, place
            if not isinstance(message, dict) or "id" not in message:
                continue
            found = message["id"]
            if found not in self._open:
                self.surplus += 1
                continue
            self._open.discard(found)
            if found == number:
                return message, place

    def cancellation(self, number: int) -> JsonObject:
        """The line that asks for a request to end."""
        return {"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": number}}

    def opened(self) -> None:
        """Greet a new connection."""

    def hang_up(self) -> None:
        """End the connection under whoever waits for an answer on it. Any thread."""
        with self._lock:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def leave(self) -> None:
        with self._lock:
            if self._socket is not None:
                self._socket.close()
            self._socket = None
        self._open.clear()

    def _connected(self) -> socket.socket:
        if self._socket is None:
            made = self._connect()
            made.setblocking(False)
            with self._lock:
                self._socket, self._connection = made, next(_connections)
                self._rest, self._received = b"", 0
            self._open.clear()
            self.opened()
        found = self._socket
        if found is None:
            raise Lost("the connection ended while it was greeted")
        return found

    def _send(self, connection: socket.socket, message: JsonObject) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        while data:
            try:
                data = data[connection.send(data) :]
            except BlockingIOError:
                select.select([], [connection], [], 1.0)
            except OSError as error:
                self.leave()
                raise Lost(str(error)) from error

    def _line(self, connection: socket.socket, until: float) -> bytes | None:
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            if left <= 0:
                return None
            poller = select.poll()
            poller.register(connection, select.POLLIN)
            if not poller.poll(left * 1000 + 1):
                continue
            try:
                with self._lock:
                    chunk = connection.recv(1 << 18)
                    self._received += len(chunk)
            except BlockingIOError:
                continue
            except OSError as error:
                self.leave()
                raise Lost(str(error)) from error
            if not chunk:
                self.leave()
                raise Lost("the owner closed the connection")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line


class SocketDoor(StreamDoor):
    """The host protocol on the owner's socket."""

    def __init__(self, state_dir: Path) -> None:
        super().__init__("socket", lambda: _take(state_dir))

    def call(self, call: ToolCall) -> Outcome:
        about: JsonObject = {"audience": call.audience, "deadlineMs": call.deadline_ms}
        method, params = "tools.call", {"tool": call.tool, "arguments": call.arguments, **about}
        if is_method(call.tool):
            method, params = call.tool, {**call.arguments, **about}
        return self.ask(method, params, patience=call.patience, cancel_after=call.cancel_after)

    def ask(
        self, method: str, params: JsonObject, *, patience: float = 40.0, cancel_after: float | None = None
    ) -> Outcome:
        """Any method of the protocol."""
        try:
            message, place = self.request(method, params, patience=patience, cancel_after=cancel_after)
        except (Lost, OwnerError):
            return Outcome("lost", "unknown", None)
        if message is None:
            return Outcome("no_answer", "unknown", None)
        error = message.get("error")
        if isinstance(error, dict):
            data = error.get("data")
            facts = data if isinstance(data, dict) else {"code": "protocol_error"}
            return refusal_of({**facts, "message": error.get("message")}, place)
        return Outcome("ok", "never", _object(message.get("result")), place)


class McpDoor(StreamDoor):
    """``knowledge mcp`` as a child, spoken to as an MCP client does. It outlives owners."""

    def __init__(self, state_dir: Path, environment: dict[str, str], agent: str) -> None:
        super().__init__("mcp", self._spawn)
        self._command = [
            *(sys.executable, "-P", "-m", "host_bridge", "mcp", "--profile", "full"),
            *("--agent", agent, "--state-dir", str(state_dir)),
        ]
        self._environment = {**environment, "PYTHONPATH": str(_ROOT)}
        self._process: subprocess.Popen[bytes] | None = None

    def opened(self) -> None:
        params: JsonObject = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "stress", "version": "1"},
        }
        message, _ = self.request("initialize", params, patience=40.0)
        connection = self._socket
        if message is None or connection is None:
            raise Lost("the MCP server did not greet")
        self._send(connection, {"jsonrpc": "2.0", "method": "notifications/initialized"})

    def cancellation(self, number: int) -> JsonObject:
        return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}

    def call(self, call: ToolCall) -> Outcome:
        params: JsonObject = {"name": call.tool, "arguments": call.arguments}
        try:
            message, place = self.request("tools/call", params, patience=call.patience)
        except (Lost, OwnerError):
            return Outcome("lost", "unknown", None)
        if message is None:
            return Outcome("no_answer", "unknown", None)
        result = message.get("result")
        if not isinstance(result, dict):
            return Outcome("protocol_error", "never", None, place)
        facts = _text(result)
        return refusal_of(facts, place) if result.get("isError") else Outcome("ok", "never", facts, place)

    def leave(self) -> None:
        super().leave()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def hold(self, still: bool) -> None:
        """Keep the client from starting an owner of its own while another is meant to come up."""
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGSTOP if still else signal.SIGCONT)

    def _spawn(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                self._command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                env=self._environment,
                cwd="/",
            )
        return ours


class ShellDoor:
    """One ``knowledge call`` a call, as scripts do."""

    name = "shell"
    surplus = 0

    def __init__(self, state_dir: Path, environment: dict[str, str], agent: str) -> None:
        self._command = [sys.executable, "-P", "-m", "host_bridge", "call"]
        self._options = ["--agent", agent, "--state-dir", str(state_dir), "--json"]
        self._environment = {**environment, "PYTHONPATH": str(_ROOT)}
        self._process: subprocess.Popen[bytes] | None = None
        self._free = threading.Lock()

    def call(self, call: ToolCall) -> Outcome:
        words = [call.tool.removeprefix("knowledge_"), json.dumps(call.arguments)]
        command = [*self._command, *words, *self._options]
        with self._free:
            process = self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                cwd="/",
            )
        try:
            said, complained = process.communicate(timeout=call.patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return Outcome("no_answer", "unknown", None)
        try:
            facts = _object(json.loads(said or complained))
        except ValueError:
            return Outcome("protocol_error", "unknown", None)
        if process.returncode == 0:
            return Outcome("ok", "never", facts)
        error = facts.get("error")
        return refusal_of(error if isinstance(error, dict) else {"code": "protocol_error"}, (0, 0))

    def leave(self) -> None:
        """Every call has left already."""

    def hold(self, still: bool) -> None:
        """As with MCP: a command starts an owner where it finds none."""
        if still:
            self._free.acquire()
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGSTOP if still else signal.SIGCONT)
        if not still:
            self._free.release()


def _take(state_dir: Path) -> socket.socket:
    connection = reach(str(state_dir), start=False, timeout=5.0)
    connection.sock.settimeout(None)
    return connection.sock


def refusal_of(facts: JsonObject, place: tuple[int, int] = (0, 0)) -> Outcome:
    """The outcome that an error's facts stand for: ``code``, ``retry``, ``message`` and when to come back."""
    wait = facts.get("retryAfterMs")
    return Outcome(
        str(facts.get("code")),
        str(facts.get("retry")),
        None,
        place,
        wait / 1000 if isinstance(wait, int | float) else 0.0,
        str(facts.get("message")),
    )


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _text(result: JsonObject) -> JsonObject:
    match result.get("content"):
        case [{"text": str(text)}, *_]:
            return _object(json.loads(text))
        case _:
            return {}
