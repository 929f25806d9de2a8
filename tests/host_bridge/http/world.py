"""A real runtime behind a real HTTP server on loopback, with real keys."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from host_bridge.bridge import KnowledgeBridge
from host_bridge.http.application import ExplorerRoutes
from host_bridge.http.door import Limits
from host_bridge.http.server import HttpServer, HttpSettings
from messages.json_types import JsonObject, JsonValue

OWNER: JsonObject = {"kind": "owner-private", "agent": "main"}
CONFIGURATION = """
operators:
  - {id: ana, scopes: [operator.read]}
  - {id: root, scopes: [operator.admin]}
  - {id: other, scopes: [operator.admin], agents: [research]}
agents: {list: [{id: main}, {id: research}]}
"""


@dataclass(frozen=True, slots=True)
class World:
    """One runtime and its server."""

    bridge: KnowledgeBridge
    server: HttpServer
    host_key: str

    def operator_key(self, operator: str, *, rotate: bool = False) -> str:
        made = self.bridge.ask("access.httpKeys.make", {"operatorId": operator, "rotate": rotate})
        return str(made["key"])

    def token(self, audience: JsonObject = OWNER, **more: object) -> str:
        params: JsonObject = {"audience": audience, **more}  # type: ignore[dict-item]  # JSON values
        return str(self.bridge.ask("access.tokens.mint", params)["token"])

    def token_and_id(self, audience: JsonObject = OWNER) -> tuple[str, str]:
        made = self.bridge.ask("access.tokens.mint", {"audience": audience})
        return str(made["token"]), str(made["id"])

    def client(self, bearer: str | None = None, **headers: str) -> httpx.Client:
        authorization = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
        return httpx.Client(base_url=self.server.url, headers={**authorization, **headers}, timeout=20, trust_env=False)

    def rpc(self, bearer: str | None, method: str, params: JsonObject | None = None) -> JsonObject:
        """The JSON-RPC object that a request is answered with."""
        with self.client(bearer) as client:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
            answer: JsonObject = client.post("/rpc", json=body).json()
        return answer

    def remember(self, text: str) -> JsonObject:
        """Save a claim over the host's door; the JSON-RPC answer."""
        params: JsonObject = {"tool": "knowledge_remember", "arguments": remembering(text), "audience": OWNER}
        return self.rpc(self.host_key, "tools.call", params)

    def raw(self) -> socket.socket:
        """A connection for bytes that no client library would send."""
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=20)

    def exchange(self, data: bytes) -> bytes:
        """Everything that the server says to these bytes until it closes."""
        with self.raw() as connection:
            connection.sendall(data)
            return read_all(connection)


def remembering(text: str) -> JsonObject:
    """The arguments that save ``text`` as a claim."""
    items: list[JsonValue] = [{"text": text, "kind": "fact"}]
    return {"requestId": str(uuid.uuid4()), "items": items, "excerpt": text, "attribution": "a test"}


def read_all(connection: socket.socket) -> bytes:
    parts: list[bytes] = []
    while True:
        try:
            part = connection.recv(1 << 16)
        except ConnectionResetError:
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


@contextmanager
def serving(
    folder: Path,
    *,
    configuration: str = CONFIGURATION,
    limits: Limits | None = None,
    explorer_routes: ExplorerRoutes | None = None,
    listen: str = "127.0.0.1:0",
) -> Iterator[World]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "knowledge.yaml").write_text(configuration)
    with KnowledgeBridge(folder) as bridge:
        key = str(bridge.ask("access.httpKeys.make", {})["key"])
        server = HttpServer(
            bridge,
            HttpSettings(listen),
            host_key_file=lambda: bridge.configuration.http.host_key_file,
            explorer_routes=explorer_routes,
            limits=limits,
        )
        try:
            yield World(bridge, server, key)
        finally:
            server.close()


def code_of(answer: Mapping[str, object]) -> object:
    """The code of a refusal, in JSON-RPC or outside of it."""
    error = answer.get("error")
    assert isinstance(error, dict), json.dumps(answer)
    data = error.get("data", error)
    assert isinstance(data, dict)
    return data.get("code")


def reason_of(answer: Mapping[str, object]) -> object:
    error = answer.get("error")
    assert isinstance(error, dict), json.dumps(answer)
    data = error.get("data", error)
    assert isinstance(data, dict)
    return data.get("reason")
