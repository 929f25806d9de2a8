"""What a host does, in small: own an owner process, speak JSON-RPC to its socket, look at the vault as a person.

Standard library only. One :class:`Host` is used from one thread; a reader thread completes its futures.
Source: decisions.md sections 7 (host protocol) and 8 (processes).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Self, cast

from host_bridge.owner import client, spawn
from messages.json_types import JsonObject
from messages.vocabulary import PROTOCOL
from storage import python_child

OWNER_LOG = "demo-owner.log"
_START_SECONDS = 30.0
_STOP_SECONDS = 15.0


class DemoFailed(Exception):
    """Something did not come out as promised; the message says what."""


class CallFailed(DemoFailed):
    """The owner answered with a typed error."""

    def __init__(self, tool: str, error: JsonObject) -> None:
        data = error.get("data")
        self.data: JsonObject = cast(JsonObject, data) if isinstance(data, dict) else {}
        super().__init__(f"{tool} answered {self.data.get('code', error.get('code'))}: {error.get('message')}")


class ConnectionLost(DemoFailed):
    """The owner went away before it answered."""


class OwnerProcess:
    """A ``knowledge serve`` of our own, so that we may kill it and see how it ended."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self._log = state_dir / OWNER_LOG
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                spawn.command(str(state_dir), "serve"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=python_child.environment(),
            )

    def connect(self, agent: str) -> Host:
        """A connection to the owner's socket once it listens; raises :class:`DemoFailed` when it never does."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise DemoFailed(f"the owner ended at once with exit status {self.process.returncode}: {self.log()}")
            try:
                connection = client.reach(str(self.state_dir), {"door": "rpc"}, start=False)
            except client.OwnerError:
                time.sleep(0.01)  # it does not listen yet
            else:
                return Host(connection, agent)
        raise DemoFailed(f"the owner did not listen within {_START_SECONDS:.0f} s: {self.log()}")

    def log(self) -> str:
        """The last lines that the owner wrote, for a failure's message."""
        return " / ".join(self._log.read_text("utf-8", "replace").splitlines()[-3:]) or "it wrote nothing"

    def freeze(self) -> None:
        """Returns when every thread of the owner stands still."""
        self.process.send_signal(signal.SIGSTOP)
        if sys.platform == "linux":
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        else:
            time.sleep(0.002)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> int:
        """``kill -9``; the exit status as the parent sees it."""
        self.process.kill()
        return self.process.wait(_STOP_SECONDS)

    def stop(self) -> int:
        """An orderly end by SIGTERM; a kill when it does not come to one."""
        self.process.terminate()
        try:
            return self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return self.kill()

    def close(self) -> None:
        """Leaves no process behind, whatever happened before."""
        if self.process.poll() is None:
            self.thaw()
            self.stop()


class Host:
    """A JSON-RPC connection that mints one owner-private audience for ``agent``."""

    def __init__(self, connection: client.Connection, agent: str) -> None:
        self._audience: JsonObject = {"kind": "owner-private", "agent": agent}
        self._socket = connection.sock
        self._socket.settimeout(None)
        self._early = connection.take_rest()
        self._pending: dict[int, Future[JsonObject]] = {}
        self._lost = False
        self._guard = threading.Lock()
        self._next = 0
        self._reader = threading.Thread(target=self._read, name="demo-host", daemon=True)
        self._reader.start()
        self.server = self.request(
            "initialize", {"protocol": PROTOCOL, "host": {"name": "knowledge-demo", "version": "1"}}
        )

    def send(self, method: str, params: JsonObject) -> Future[JsonObject]:
        """Hands the request to the socket; the future gets the response object, or :class:`ConnectionLost`."""
        future: Future[JsonObject] = Future()
        with self._guard:
            self._next += 1
            number = self._next
            if self._lost:
                future.set_exception(ConnectionLost("the owner is gone"))
                return future
            self._pending[number] = future
        line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}, ensure_ascii=False)
        try:
            self._socket.sendall(line.encode() + b"\n")
        except OSError:
            self._lose()
        return future

    def request(self, method: str, params: JsonObject, *, seconds: float = 60.0) -> JsonObject:
        """The result of one request; raises :class:`CallFailed`, or :class:`DemoFailed` after ``seconds``."""
        return self.result(method, self.send(method, params), seconds=seconds)

    def result(self, name: str, future: Future[JsonObject], *, seconds: float = 60.0) -> JsonObject:
        try:
            response = future.result(seconds)
        except FutureTimeout:
            raise DemoFailed(f"{name} was not answered within {seconds:.0f} s") from None
        error = response.get("error")
        if isinstance(error, dict):
            raise CallFailed(name, error)
        return cast(JsonObject, response["result"])

    def start(self, tool: str, arguments: JsonObject) -> Future[JsonObject]:
        """One tool call under way."""
        params: JsonObject = {"tool": tool, "arguments": arguments, "audience": self._audience}
        return self.send("tools.call", params)

    def call(self, tool: str, arguments: JsonObject) -> JsonObject:
        """One tool call, answered."""
        return self.result(tool, self.start(tool, arguments))

    def close(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other side was faster
        self._reader.join()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as lines:
                for line in lines:
                    response = json.loads(self._early + line)
                    self._early = b""
                    with self._guard:
                        future = self._pending.pop(response.get("id", 0), None)
                    if future is not None:
                        future.set_result(response)
        except (OSError, ValueError):
            pass  # a killed owner may leave a reset connection or half a line
        self._lose()

    def _lose(self) -> None:
        with self._guard:
            self._lost = True
            left, self._pending = self._pending, {}
        for future in left.values():
            future.set_exception(ConnectionLost("the owner went away before it answered"))


def call_from_a_shell(state_dir: Path, tool: str, arguments: JsonObject) -> JsonObject:
    """``knowledge call`` in a process of its own, as a script would use it."""
    ran = subprocess.run(
        spawn.command(str(state_dir), "call", tool, json.dumps(arguments, ensure_ascii=False), "--json"),
        env=python_child.environment(),
        capture_output=True,
        timeout=_STOP_SECONDS,
        check=False,
    )
    if ran.returncode != 0:
        raise DemoFailed(f"knowledge call {tool} ended with {ran.returncode}: {ran.stderr.decode('utf-8', 'replace')}")
    return cast(JsonObject, json.loads(ran.stdout))


class McpClient:
    """A minimal MCP client on ``knowledge mcp``: the handshake, then tool calls one after another."""

    def __init__(self, state_dir: Path) -> None:
        self._process = subprocess.Popen(
            spawn.command(str(state_dir), "mcp"),
            env=python_child.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._next = 0
        client: JsonObject = {"name": "knowledge-demo", "version": "1"}
        self._request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def tools(self) -> list[str]:
        listed = cast("list[JsonObject]", self._request("tools/list", {})["tools"])
        return [str(tool["name"]) for tool in listed]

    def call(self, tool: str, arguments: JsonObject) -> JsonObject:
        result = self._request("tools/call", {"name": tool, "arguments": arguments})
        (content,) = cast("list[JsonObject]", result["content"])
        text = str(content["text"])
        if result.get("isError"):
            raise DemoFailed(f"{tool} answered over MCP: {text}")
        return cast(JsonObject, json.loads(text))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # closes its pipes, which ends it, and waits
            pass

    def _request(self, method: str, params: JsonObject) -> JsonObject:
        self._next += 1
        self._write({"jsonrpc": "2.0", "id": self._next, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self._next and "method" not in answer:
                if "error" in answer:
                    raise DemoFailed(f"{method} answered over MCP: {answer['error'].get('message')}")
                return cast(JsonObject, answer["result"])
        raise DemoFailed(f"knowledge mcp ended before it answered {method}")

    def _write(self, message: JsonObject) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()


def vault_of(state_dir: Path) -> Path:
    """The folder of the only store's vault."""
    (vault,) = (state_dir / "knowledge" / "stores").glob("*/vault")
    return vault


def record_files(folder: Path) -> Iterator[Path]:
    """Every file below ``folder`` but the evidence; a staged name begins with ``.kr-``."""
    for path in folder.rglob("*"):
        if path.is_file() and "artifacts" not in path.parts:
            yield path


def find_record(folder: Path, record_id: str) -> Path:
    """The file that holds the record, found as a person would: by looking inside."""
    line = f"id: {json.dumps(record_id)}\n".encode()
    plain = f"id: {record_id}\n".encode()
    for path in record_files(folder):
        head = path.read_bytes()[:4096]
        if line in head or plain in head:
            return path
    raise DemoFailed(f"no file below {folder} holds the record {record_id}")


def save_like_an_editor(path: Path, text: str) -> None:
    """Write a new file beside the old one, then rename it over: what most text editors do."""
    draft = path.with_name(f".{path.name}.swp")
    draft.write_text(text, "utf-8", newline="")
    draft.replace(path)
