"""Attempts of a conversation to reach what is not its own: each is refused with a stable code and leaks nothing.

"Not even existence" is judged by twins: the same attempt on something that is there, in another partition, and on
something that is nowhere must have the same outcome, but for the name that the caller gave.

The attempts that are made with each guard on and off are in ``test_guards.py``.

Source: stores-and-access.md (Partitions, Caller authority); decisions.md section 6.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from actors.authority import view
from host_bridge import jsonrpc
from host_bridge.bridge import KnowledgeBridge
from host_bridge.mcp import McpHost
from host_bridge.rpc import RpcPeer
from host_bridge.transport import LineReader, Outbox
from messages.audience import Audience, Conversation, OwnerPrivate, own_partition, parse_audience
from messages.errors import InvalidArgument, KnowledgeError
from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import PRIVATE
from tests.host_bridge.mcp_session import Served
from tests.kit.actors import eventually
from tests.kit.leaks import nothing_left
from tests.kit.store import GROUP, MAIN, items_of, only_store, open_bridge, remembering, request_id

OTHER = Conversation("main", "chat:other", "44444444-4444-4444-8444-444444444444")
WORD = "Zebrafish"
H = "0" * 64


@dataclass(frozen=True, slots=True)
class Aim:
    """What an attempt is aimed at: everything by which something could be named."""

    id: str
    request_id: str
    path: str
    sha256: str
    hash: str


GHOST = Aim("99999999-9999-4999-8999-999999999999", request_id(9999), f"artifacts/{request_id(9998)}/x.txt", H, H)


@dataclass(frozen=True, slots=True)
class World:
    bridge: KnowledgeBridge
    aims: dict[str, Aim]
    vault: JsonObject
    """How a write of the caller names the vault and the ontology."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A private partition and another conversation that both know the word; the caller's own has one claim."""
    with nothing_left(), open_bridge(tmp_path_factory.mktemp("world")) as bridge:
        aims = {
            "private": saved(bridge, MAIN, f"{WORD} is private.", 1),
            "other": saved(bridge, OTHER, f"{WORD} belongs to others.", 2),
        }
        saved(bridge, GROUP, "The gate is green.", 3)
        page: JsonObject = {"title": WORD, "type": "project", "body": "Secret.", "requestId": request_id(4)}
        done = bridge.call("knowledge_save_page", page, MAIN)
        aims["page"] = Aim(str(done["id"]), request_id(4), GHOST.path, H, str(done["hash"]))
        bridge.ask("access.grants.set", {"agent": "main", "sessionKey": "chat:team", "access": "read"})
        eventually(lambda: git_of(bridge) == "current")
        status = bridge.call("knowledge_status", {}, GROUP)
        vault: JsonObject = {
            "expectedVaultId": status["vaultId"],
            "expectedOntologyFingerprint": status["ontologyFingerprint"],
        }
        yield World(bridge, aims, vault)


def git_of(bridge: KnowledgeBridge) -> object:
    git = bridge.call("knowledge_status", {}, GROUP)["git"]
    return git.get("state") if isinstance(git, dict) else None


def saved(bridge: KnowledgeBridge, audience: Audience, text: str, number: int) -> Aim:
    done = bridge.call("knowledge_remember", {**remembering(text), "requestId": request_id(number)}, audience)
    [item] = items_of(done)
    folder = only_store(bridge.state_dir).partition(own_partition(audience))
    [evidence] = folder.glob(f"artifacts/{request_id(number)}/*")
    return Aim(str(item["id"]), request_id(number), str(evidence.relative_to(folder)), H, str(item["hash"]))


def outcome(bridge: KnowledgeBridge, tool: str, arguments: JsonObject, audience: Audience = GROUP) -> str:
    """What a caller can tell, without what differs between any two calls."""
    try:
        found = bridge.call(f"knowledge_{tool}", arguments, audience)
    except KnowledgeError as error:
        fields = {name: value for name, value in error.fields.items() if name != "correlationId"}
        return json.dumps({"code": error.code, "message": error.message, **fields}, sort_keys=True)
    return json.dumps(found, sort_keys=True)


def attempts(aim: Aim, vault: JsonObject) -> dict[str, JsonObject]:
    fence: JsonObject = {"expectedRevision": 1, "expectedHash": aim.hash}
    write: JsonObject = {"id": aim.id, "requestId": request_id(500), **fence}
    cited: JsonObject = {"path": aim.path, "sha256": aim.sha256}
    return {
        "record": {"id": aim.id},
        "revision": {"id": aim.id, "sequence": 1},
        "mutation": {"requestId": aim.request_id},
        "resume": {"requestId": aim.request_id},
        "connections": {"id": aim.id},
        "verify": {"ids": [aim.id]},
        "history": {"id": aim.id},
        "evidence_read": {"id": aim.id, **cited},
        "attachment": {"id": aim.id, **cited, "offset": 0},
        "withdraw": {**write, "reason": "mine"},
        "edit_body": {**write, **vault, "start": 0, "end": 1, "replacement": "b", "reason": "mine"},
        "recall": {**write, "summary": "Forged."},
        "reconcile_evidence": {**write, "evidence": [cited], "reason": "mine"},
        "unmerge": {**write, "reason": "mine"},
    }


@pytest.mark.parametrize("tool", sorted(attempts(GHOST, {})))
@pytest.mark.parametrize("where", ["private", "other", "page"])
def test_what_is_in_another_partition_is_told_from_nothing_by_no_tool(world: World, tool: str, where: str) -> None:
    aim = world.aims[where]
    real = outcome(world.bridge, tool, attempts(aim, world.vault)[tool])
    ghost = outcome(world.bridge, tool, attempts(GHOST, world.vault)[tool])
    for name in ("id", "request_id", "path", "hash"):
        real = real.replace(getattr(aim, name), getattr(GHOST, name))
    assert real == ghost
    assert WORD not in real
    assert '"invalid_argument"' not in ghost, "it was understood"


def test_with_the_choice_of_partition_switched_off_the_same_attempts_succeed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "own_partition", lambda audience: PRIVATE)
    for tool in ("record", "mutation", "connections", "verify", "history"):
        real = outcome(world.bridge, tool, attempts(world.aims["private"], world.vault)[tool])
        assert real != outcome(world.bridge, tool, attempts(GHOST, world.vault)[tool]), tool
    assert WORD in outcome(world.bridge, "record", {"id": world.aims["private"].id})


LISTS: list[tuple[str, JsonObject]] = [
    ("grep", {"query": WORD}),
    ("lookup", {"query": WORD}),
    ("records", {}),
    ("history", {}),
    ("status", {}),
    ("timeline", {"since": "2000-01-01", "until": "2100-01-01"}),
    ("chronicle_days", {"since": "2026-01-01", "until": "2026-02-01"}),
    ("chronicle_due", {}),
    ("ontology", {}),
    ("source_check", {"sources": [{"key": WORD}]}),
]


@pytest.mark.parametrize(("tool", "arguments"), LISTS)
def test_no_list_count_or_statistic_crosses_a_partition(world: World, tool: str, arguments: JsonObject) -> None:
    before = outcome(world.bridge, tool, arguments)
    number = 600 + LISTS.index((tool, arguments))
    saved(world.bridge, MAIN, f"{WORD} again, in {number}.", number)
    assert outcome(world.bridge, tool, arguments) == before
    assert f"{WORD} is" not in before


def test_a_request_id_of_another_partition_is_free_in_this_one(world: World) -> None:
    saved(world.bridge, MAIN, f"{WORD} under a number of its own.", 700)
    done = world.bridge.call("knowledge_remember", {**remembering("Ours."), "requestId": request_id(700)}, GROUP)
    assert len(items_of(done)) == 1


SELECTORS = ["store", "agent", "scope", "partition", "sessionId", "sessionKey", "audience", "vaultId", "root", "folder"]


@pytest.mark.parametrize("name", SELECTORS)
def test_nothing_in_tool_arguments_selects_a_store_agent_path_or_scope(world: World, name: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        world.bridge.call("knowledge_records", {name: "private"}, GROUP)
    assert refusal.value.code == "invalid_argument"


KEYS = [
    "chat:tea", "chat:teams", "chat:team2", "chat:team ", " chat:team", "Chat:team", "CHAT:TEAM", "chat;team", "chat",
    "chat::team", "x:chat:team", "chat:te\u0430m", "chat:t\u0435am", "chat:team\u200b", "chat\uff1ateam",
    "chat:team\uff1a1",
    "chat:team/1", "chat:team.1", "chat:\u202dteam", "chat:team\u0301", "chat:*", "%", "chat:te_m",
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_only_looks_like_a_granted_one_has_no_grant(world: World, key: str) -> None:
    audience = Conversation("main", key, "55555555-5555-4555-8555-555555555555")
    assert WORD not in outcome(world.bridge, "records", {}, audience)


def test_with_the_comparison_of_keys_loosened_the_same_attempt_succeeds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    audience = Conversation("main", "chat:teams", "55555555-5555-4555-8555-555555555555")
    monkeypatch.setattr(view, "granted_access", lambda shown, found: "read")
    assert WORD in outcome(world.bridge, "records", {}, audience)


SESSIONS: list[JsonValue] = [
    "private", "../private", "..", ".", "", "/etc", "33333333-3333-4333-8333-333333333333/../../private",
    "33333333-3333-4333-8333-333333333333\u0000", "\uff13" * 8 + "-3333-4333-8333-333333333333", 7, ["private"],
]  # fmt: skip


@pytest.mark.parametrize("session", SESSIONS)
def test_a_session_id_that_is_no_uuid_never_reaches_the_disk(world: World, session: JsonValue) -> None:
    minted: JsonObject = {"kind": "conversation", "agent": "main", "sessionKey": "k", "sessionId": session}
    with pytest.raises(InvalidArgument):
        parse_audience(minted)
    if isinstance(session, str):
        told = outcome(world.bridge, "records", {}, Conversation("main", "k", session))
        assert json.loads(told)["code"] == "invalid_argument"


@pytest.mark.parametrize("agent", ["stranger", "Main", "main ", "m\u0430in", "research"])
def test_an_agent_that_the_host_does_not_know_is_denied_as_any_other(world: World, agent: str) -> None:
    told = outcome(world.bridge, "records", {}, OwnerPrivate(agent))
    assert told == outcome(world.bridge, "records", {}, OwnerPrivate("nobody"))
    assert json.loads(told)["code"] == "denied"


@pytest.mark.parametrize("line", [b'{"a":' * 70 + b"1" + b"}" * 70, b"[" * 100_000, b'{"id":NaN}', b"\xff{}"])
def test_json_that_is_too_deep_or_none_is_refused_before_anything_reads_it(line: bytes) -> None:
    with pytest.raises(jsonrpc.Malformed):
        jsonrpc.parse_message(line)


DEEP = b'{"a":' * 70 + b"1" + b"}" * 70
HOSTILE: dict[str, tuple[bytes, str]] = {
    "deep arguments": (b'{"jsonrpc":"2.0","id":1,"method":"%s","params":' + DEEP + b"}", "limit_exceeded"),
    "no end of brackets": (b"[" * 100_000, "limit_exceeded"),
    "a line of 9 MiB": (b'{"jsonrpc":"2.0","id":1,"method":"%s"' + b" " * (9 * 1024 * 1024) + b"}", "limit_exceeded"),
    "a name twice": (b'{"jsonrpc":"2.0","id":1,"method":"%s","params":{"x":1,"x":2}}', "-32600"),
    "no JSON": (b"{'jsonrpc'", "-32700"),
}


@pytest.mark.parametrize("door", ["rpc", "mcp"])
def test_hostile_json_has_its_code_at_each_door_and_the_connection_goes_on(world: World, door: str) -> None:
    say = over_mcp(world) if door == "mcp" else over_rpc(world)
    told: dict[str, JsonObject] = {}
    try:
        for what, (sent, _) in HOSTILE.items():
            told[what] = say(sent.replace(b"%s", b"tools/call" if door == "mcp" else b"tools.call"))
        method = b"ping" if door == "mcp" else b"initialize"
        alive = say(b'{"jsonrpc":"2.0","id":2,"method":"%s","params":{}}' % method)
    finally:
        say(b"")
    assert alive["id"] == 2
    codes = {what: code for what, (_, code) in HOSTILE.items()}
    assert {what: code_of(answer) for what, answer in told.items()} == codes
    assert WORD not in json.dumps(told)


def code_of(answer: JsonObject) -> str:
    error = answer["error"]
    assert isinstance(error, dict)
    data = error.get("data")
    return str(data["code"] if isinstance(data, dict) else error["code"])


def over_rpc(world: World) -> Callable[[bytes], JsonObject]:
    """A connected host that speaks one line and hears one; an empty line ends it."""
    ours, theirs = socket.socketpair()
    outbox = Outbox(ours.fileno(), name="adversary")
    peer = RpcPeer(world.bridge, outbox)
    reader, answers = LineReader(ours.fileno()), LineReader(theirs.fileno())
    heard = iter(answers)

    def listen() -> None:
        for line in reader:
            peer.receive(line)

    thread = threading.Thread(target=listen)
    thread.start()

    def say(line: bytes) -> JsonObject:
        if line:
            theirs.sendall(line + b"\n")
            answer = next(heard)
            assert isinstance(answer, bytes)
            found: JsonObject = json.loads(answer)
            return found
        reader.stop()
        thread.join()
        outbox.close()
        reader.close()
        answers.close()
        ours.close()
        theirs.close()
        return {}

    return say


def over_mcp(world: World) -> Callable[[bytes], JsonObject]:
    host = McpHost(world.bridge)
    served = Served(host, audience=GROUP)
    served.open()

    def say(line: bytes) -> JsonObject:
        if line:
            served.send(line)
            return served.answer()
        served.close()
        host.close()
        return {}

    return say
