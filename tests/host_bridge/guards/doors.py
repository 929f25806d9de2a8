"""The guards at the doors: what a line and its arguments may be, and what leaves beside answers.

Source: decisions.md sections 5 to 7.
"""

from __future__ import annotations

import json
import os
from contextlib import closing
from typing import Any, Final

import apsw

from actors.events import PendingEvent
from host_bridge.mcp import McpHost
from host_bridge.rpc import RpcPeer
from host_bridge.transport import LineReader, Outbox
from messages.audience import Audience, Conversation
from messages.envelope import Deadline
from messages.json_types import JsonObject, JsonValue
from messages.operator import SubscribeCall, Subscriber
from messages.vocabulary import PRIVATE
from storage.layout import Layout
from tests.host_bridge.guards.folders import older
from tests.host_bridge.guards.kit import Attempt, Guard, Refused, World, patched
from tests.host_bridge.mcp_session import Served, only_text
from tests.kit.store import GROUP, MAIN, remembering, request_id

BIG: Final = 9 * 1024 * 1024
INIT: Final = LineReader.__init__


def unlimited(self: LineReader, descriptor: int, *, limit: int = 0, first: bytes = b"") -> None:
    INIT(self, descriptor, limit=1 << 40, first=first)


def minted(audience: Audience) -> JsonObject:
    if isinstance(audience, Conversation):
        return {
            "kind": "conversation", "agent": audience.agent, "sessionKey": audience.session_key,
            "sessionId": audience.session_id,
        }  # fmt: skip
    return {"kind": "owner-private", "agent": audience.agent}


def line(tool: str, arguments: JsonObject, audience: Audience) -> bytes:
    params: JsonObject = {"tool": tool, "arguments": arguments, "audience": minted(audience)}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools.call", "params": params}).encode()


def over_rpc(world: World, sent: bytes) -> str:
    """What the host protocol answers to a line."""
    reading, writing = os.pipe()
    incoming, nothing = os.pipe()
    os.close(nothing)
    outbox = Outbox(writing, name="guards")
    peer = RpcPeer(world.bridge, outbox)
    lines, answers = LineReader(incoming, first=sent + b"\n"), LineReader(reading)
    try:
        for one in lines:
            peer.receive(one)
        answered = next(iter(answers))
    finally:
        lines.close()
        answers.close()
        outbox.close()
        for end in (reading, writing, incoming):
            os.close(end)
    assert isinstance(answered, bytes)
    error = json.loads(answered).get("error")
    if error is not None:
        raise Refused(str(error.get("data", error).get("code")), answered.decode())
    return answered.decode()


def two_audiences(world: World) -> str:
    """Whoever looked at the first of the two let a conversation pass."""
    sent = line("knowledge_records", {}, GROUP).decode()
    second = json.dumps({"audience": minted(MAIN)})[1:-1]
    return over_rpc(world, f"{sent[:-2]}, {second}}}}}".encode())


def nested(depth: int) -> JsonValue:
    value: JsonValue = 1
    for _ in range(depth):
        value = [value]
    return value


def deep(depth: int) -> Any:
    def attempt(world: World) -> str:
        page: JsonObject = {
            "title": "Deep", "type": "project", "body": "Deep.", "fields": {"x": nested(depth)},
            "requestId": request_id(930),
        }  # fmt: skip
        return over_rpc(world, line("knowledge_save_page", page, GROUP))

    return attempt


def long_line(world: World) -> str:
    return over_rpc(world, line("knowledge_records", {}, GROUP)[:-1] + b" " * BIG + b"}")


def long_text(world: World) -> str:
    return world.call("lookup", {"query": "a", "tag": "x" * BIG})


def saves_under_a_profile(world: World) -> str:
    """A session that was opened for reading is asked to save."""
    host = McpHost(world.bridge)
    served = Served(host, profile="read", audience=GROUP)
    try:
        served.open()
        arguments: JsonObject = {**remembering("Forged."), "requestId": request_id(931)}
        served.request(1, "tools/call", {"name": "knowledge_remember", "arguments": arguments})
        result = served.result()
    finally:
        served.close()
        host.close()
    if result.get("isError"):
        raise Refused(json.loads(only_text(result))["code"], only_text(result))
    return only_text(result)


def hears_of_the_owner(world: World) -> str:
    """A conversation listens while the owner's partition changes."""
    heard: list[PendingEvent] = []
    world.call("status", {})
    call = SubscribeCall(Subscriber(audience=GROUP), Deadline.after(30))
    subscription = world.bridge.subscribe(call, heard.append)
    try:
        world.bridge._runtime._events.publish(world.store.root.name, PRIVATE, "changed")
    finally:
        subscription.end()
    return "heard" if heard else "heard nothing"


def revokes_into_a_lost_registry(world: World) -> str:
    """``registry.sqlite`` was put back from a copy while it was open; then a grant is taken away."""
    world.call("status", {})
    place = Layout(world.bridge.state_dir).registry
    with closing(apsw.Connection(str(place))) as connection:
        connection.execute("VACUUM INTO ?", (str(place.with_name("copy")),))
    for suffix in ("-wal", "-shm"):
        place.with_name(place.name + suffix).unlink(missing_ok=True)
    place.with_name("copy").rename(place)
    world.bridge.ask("access.grants.remove", {"agent": "main", "sessionKey": "chat:team"})
    with closing(apsw.Connection(str(place), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        left = list(connection.execute("SELECT 1 FROM conversation_grant WHERE session_key = 'chat:team'"))
    return "still granted" if left else "revoked"


GUARDS: Final = [
    Guard("registry in place", patched("storage.registry.Registry.in_place", lambda self: True)),
    Guard("names once", patched("host_bridge.jsonrpc._require_unique", lambda doubled, value: None)),
    Guard("depth of a line", patched("host_bridge.jsonrpc.MAX_DEPTH", 10_000)),
    Guard("depth of arguments", patched("messages.coercion.ARGUMENT_MAX_DEPTH", 10_000)),
    Guard("depth of fields", patched("messages.pieces.FIELDS_MAX_DEPTH", 10_000)),
    Guard("size of a line", patched("host_bridge.transport.LineReader.__init__", unlimited)),
    Guard("size of arguments", patched("messages.coercion.REQUEST_MAX_BYTES", 1 << 40)),
    Guard("length of a text", patched("messages.text.utf16_length", lambda text: 0)),
    Guard("tools of the profile", patched("host_bridge.mcp_server.ToolServer.refusal", lambda self, tool: None)),
    Guard("events of a partition", patched("actors.events._concerns", lambda permit, vault_id, partition: True)),
    Guard("generations for operators", patched("messages.errors.FailedClosed.for_agents", lambda self: self)),
]


def says(text: str) -> Any:
    return lambda told: text in told


def got_through(told: str) -> bool:
    return "nested deeper" not in told


DEPTHS: Final = ("depth of a line", "depth of arguments", "depth of fields")
ATTEMPTS: Final = [
    Attempt(("names once",), "two audiences in one call", two_audiences, "-32600"),
    Attempt(DEPTHS, "fields 70 levels deep", deep(70), "limit_exceeded", alone=True, reached=got_through),
    Attempt(DEPTHS[1:], "fields 40 levels deep", deep(40), "invalid_argument", alone=True, reached=got_through),
    Attempt(("size of a line",), "a line of 9 MiB", long_line, "limit_exceeded", reached=says('"result"')),
    Attempt(("size of arguments", "length of a text"), "a tag of 9 MiB", long_text, "limit_exceeded",
            reached=says('"missing"')),
    Attempt(("tools of the profile",), "save", saves_under_a_profile, "invalid_argument", alone=True,
            reached=says('"revision":1')),
    Attempt(("events of a partition",), "a conversation that listens", hears_of_the_owner, "",
            reached=lambda told: told == "heard"),
    Attempt(("generations for operators",), "older vault", lambda world: world.call("records", {}, MAIN),
            "vault_older_than_database", before=older, reached=says('"generation"')),
    Attempt(("registry in place",), "revocation in a registry that was put back", revokes_into_a_lost_registry, "",
            alone=True, reached=says("still granted")),
]  # fmt: skip

