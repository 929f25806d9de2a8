"""System memory over every door of a real runtime: who is answered, who is refused, and what a revocation ends.

decisions.md sections 6 and 7; system-memory-contract.md sections 3, 5 and 11 (5).
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.authority import PermitGate
from host_bridge.bridge import KnowledgeBridge
from host_bridge.http import methods
from host_bridge.mcp import McpHost
from messages.audience import audience_json
from messages.errors import InvalidArgument
from messages.host import METHODS
from messages.json_types import JsonObject, JsonValue
from messages.system_memory import STEWARD_METHODS, SYSTEM_MEMORY_METHODS
from messages.tools import CATALOGUE
from storage import faults
from tests.host_bridge.http.world import World, code_of, serving
from tests.host_bridge.mcp_session import Served
from tests.host_bridge.processes import Home
from tests.host_bridge.test_barrier import SECRET, Host, Paused, code
from tests.host_bridge.test_real_stdio import spoken
from tests.kit.actors import eventually
from tests.kit.leaks import nothing_left
from tests.kit.store import GROUP, MAIN

OWNER = audience_json(MAIN)
TALK = audience_json(GROUP)
RESEARCH: JsonObject = {"kind": "owner-private", "agent": "research"}
SYSTEM_FIELDS: JsonObject = {
    "slug": "sys:gateway",
    "entity": "gateway",
    "tier": "glass",
    "asOf": "2026-09-20",
    "admission": "admitted",
    "evidenceRefs": [{"kind": "url", "ref": "https://example.org", "digest": "sha256:1"}],
    "stance": "gateway",
    "promoted": True,
    "account": "ben",
    "steward": "stella",
}
REFUSED: dict[str, tuple[JsonValue, str]] = {
    "conversation": (TALK, "denied"),
    "delegated by a conversation": ({**OWNER, "root": TALK}, "denied"),
    "a conversation that the owner delegated": ({**TALK, "root": OWNER}, "denied"),
    "sandboxed": ({**OWNER, "sandboxed": True}, "sandboxed"),
    "delegated by a sandboxed owner": ({**RESEARCH, "root": {**OWNER, "sandboxed": True}}, "sandboxed"),
    "unknown agent": ({**OWNER, "agent": "nobody"}, "denied"),
    "delegated to an unknown agent": ({**OWNER, "agent": "nobody", "root": OWNER}, "denied"),
    "expired": ({**OWNER, "expiresAt": "2020-01-01T00:00:00Z"}, "audience_stale"),
    "ended run": ({**OWNER, "runId": "over"}, "audience_stale"),
    "nobody": (None, "audience_missing"),
}
CALLS: dict[str, JsonObject] = {
    "systemMemory.create": {"body": "kept"},
    "systemMemory.list": {},
    "systemMemory.fetch": {"id": str(uuid.UUID(int=1))},
    "systemMemory.delete": {"id": str(uuid.UUID(int=1))},
    "systemMemory.recall": {"query": "kept"},
}
CONFIGURATION = """
agents: {list: [{id: main}, {id: research}]}
operators: [{id: root, scopes: [operator.admin]}]
systemMemory: {stewards: [stella], systemBucketEnabled: true}
"""


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[KnowledgeBridge]:
    (tmp_path / "knowledge.yaml").write_text(CONFIGURATION)
    with nothing_left(), KnowledgeBridge(tmp_path) as opened:
        opened.end_run("over")
        yield opened


@pytest.fixture
def host(bridge: KnowledgeBridge) -> Iterator[Host]:
    made = Host(bridge)
    made.audience = OWNER
    made.read()
    yield made
    made.close()


def begin(host: Host, method: str, **params: JsonValue) -> int:
    return host.send(f"systemMemory.{method}", {**params, "audience": host.audience})


def ask(host: Host, method: str, **params: JsonValue) -> JsonObject:
    return host.answer(begin(host, method, **params))[1]


def bodies(host: Host, audience: JsonValue = OWNER) -> list[object]:
    answer = host.ask("systemMemory.list", {"audience": audience})
    result = answer["result"]
    assert isinstance(result, dict)
    found = result["memories"]
    assert isinstance(found, list)
    return [row["body"] for row in found if isinstance(row, dict)]


# --- who is answered -------------------------------------------------------------------------------------------------


def test_the_calls_of_these_tests_are_all_methods_of_accounts() -> None:
    assert set(CALLS) == set(SYSTEM_MEMORY_METHODS)


def test_the_account_is_the_audiences_account_else_its_agent_and_a_delegates_that_of_its_root(host: Host) -> None:
    ask(host, "create", body="of main")
    host.audience = {**OWNER, "account": "ann"}
    ask(host, "create", body="of ann")
    assert bodies(host, {**RESEARCH, "account": "ann"}) == ["of ann"]
    assert bodies(host, {**RESEARCH, "root": OWNER}) == ["of main"]
    assert bodies(host, {**RESEARCH, "account": "ann", "root": OWNER}) == ["of main"]
    assert bodies(host, RESEARCH) == []


@pytest.mark.parametrize("method", sorted(CALLS))
@pytest.mark.parametrize("who", sorted(REFUSED))
def test_whoever_has_no_account_is_refused_and_nothing_is_made(
    bridge: KnowledgeBridge, host: Host, method: str, who: str
) -> None:
    audience, expected = REFUSED[who]
    given = {} if audience is None else {"audience": audience}
    assert code(host.ask(method, {**CALLS[method], **given})) == expected
    assert not (bridge.state_dir / "knowledge" / "system-memory.sqlite").exists()


@pytest.mark.parametrize("field", sorted(SYSTEM_FIELDS))
def test_system_fields_cannot_be_sent(bridge: KnowledgeBridge, host: Host, field: str) -> None:
    for method, params in CALLS.items():
        refused = host.ask(method, {**params, field: SYSTEM_FIELDS[field], "audience": OWNER})
        assert code(refused) == "invalid_argument"
        assert field in str(refused["error"])
    assert bodies(host) == []


def test_no_row_of_the_system_bucket_is_written_over_the_host_protocol(host: Host) -> None:
    assert code(ask(host, "create", body="claimed", bucket="system")) == "invalid_argument"
    assert bodies(host) == []


def test_a_row_is_shown_with_exactly_these_keys(host: Host) -> None:
    made = ask(host, "create", body="kept", sourceRef="turn 3")["result"]
    assert isinstance(made, dict)
    assert list(made) == ["id", "bucket", "body", "sourceRef", "supersededBy", "createdAt"]
    assert ask(host, "fetch", id=made["id"])["result"] == made


def test_a_token_stands_for_its_audience_and_a_revoked_one_for_nobody(bridge: KnowledgeBridge, host: Host) -> None:
    minted = bridge.ask("access.tokens.mint", {"audience": OWNER})
    host.audience = minted["token"]
    ask(host, "create", body="by a token")
    assert bodies(host) == ["by a token"]
    bridge.ask("access.tokens.revoke", {"id": minted["id"]})
    for method, params in CALLS.items():
        assert code(ask(host, method.partition(".")[2], **params)) == "audience_stale"
    assert bodies(host) == ["by a token"]


def test_writes_of_accounts_are_refused_while_they_are_disabled_and_reads_are_not(tmp_path: Path) -> None:
    (tmp_path / "knowledge.yaml").write_text("writesEnabled: false")
    with KnowledgeBridge(tmp_path) as bridge:
        host = Host(bridge)
        host.read()
        try:
            host.audience = OWNER
            assert code(ask(host, "create", body="x")) == "writes_disabled"
            assert code(ask(host, "delete", id=str(uuid.uuid4()))) == "writes_disabled"
            assert bodies(host) == []
            assert ask(host, "recall", query="x")["result"] == {"note": None, "attached": 0, "dropped": 0}
        finally:
            host.close()


# --- what a revocation ends ------------------------------------------------------------------------------------------


def revocable(bridge: KnowledgeBridge, host: Host) -> str:
    minted = bridge.ask("access.tokens.mint", {"audience": OWNER})
    host.audience = minted["token"]
    return str(minted["id"])


def in_force(bridge: KnowledgeBridge, host: Host) -> bool:
    try:
        bridge.audience_of(str(host.audience))
    except Exception:  # noqa: BLE001 - whatever the refusal, it is out of force
        return False
    return True


@pytest.mark.parametrize("point", ["system_memory.change.begin", "system_memory.change.commit"])
def test_a_revocation_is_answered_after_a_save_that_it_met_inside_the_fence(
    bridge: KnowledgeBridge, host: Host, point: str
) -> None:
    token = revocable(bridge, host)
    paused = Paused(point)
    with faults.installed(paused):
        saving = begin(host, "create", body="In time.")
        assert paused.reached.wait(20)
        revoking = host.send("access.tokens.revoke", {"id": token})
        eventually(lambda: not in_force(bridge, host))
        assert not host.answered(revoking)
        paused.go_on.set()
        place, message = host.answer(revoking)
        assert "result" in message
        answered, told = host.answer(saving)
        assert "error" in told or answered < place
    assert bodies(host) == ["In time."]


def test_a_save_that_waited_for_the_lane_when_its_token_was_revoked_never_happens(
    bridge: KnowledgeBridge, host: Host
) -> None:
    paused = Paused("system_memory.change.commit")
    with faults.installed(paused):
        first = begin(host, "create", body="first")
        assert paused.reached.wait(20)
        token = revocable(bridge, host)
        saving = begin(host, "create", body="Too late.")
        assert "result" in host.ask("access.tokens.revoke", {"id": token})
        paused.go_on.set()
        assert "result" in host.answer(first)[1]
        assert code(host.answer(saving)[1]) == "audience_stale"
    assert bodies(host) == ["first"]


def test_without_the_fence_a_save_follows_the_answer_to_the_revocation(
    bridge: KnowledgeBridge, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import nullcontext

    monkeypatch.setattr(PermitGate, "fence", lambda self, permit: nullcontext())
    token = revocable(bridge, host)
    paused = Paused("system_memory.change.commit")
    with faults.installed(paused):
        saving = begin(host, "create", body="Too late.")
        assert paused.reached.wait(20)
        assert "result" in host.ask("access.tokens.revoke", {"id": token})
        assert not host.answered(saving)
        paused.go_on.set()
        host.answer(saving)
    assert bodies(host) == ["Too late."]


@pytest.mark.parametrize("method", ["list", "recall"])
def test_a_revocation_between_acceptance_and_answer_hands_nothing_over(
    bridge: KnowledgeBridge, host: Host, method: str
) -> None:
    ask(host, "create", body=f"{SECRET} is private.")
    token = revocable(bridge, host)
    paused = Paused("system_memory.statement")
    params: JsonObject = {"query": SECRET} if method == "recall" else {}
    with faults.installed(paused):
        reading = begin(host, method, **params)
        assert paused.reached.wait(20)
        assert "result" in host.ask("access.tokens.revoke", {"id": token})
        paused.go_on.set()
        answer = host.answer(reading)[1]
    assert code(answer) == "audience_stale"
    assert SECRET not in json.dumps(answer)


def test_a_revocation_waits_for_an_answer_that_is_being_handed_over(bridge: KnowledgeBridge, host: Host) -> None:
    for number in range(30):
        ask(host, "create", body=f"{SECRET} {number} " + "is private. " * 150)
    token = revocable(bridge, host)
    slow = Host(bridge, patience=60, small=True)
    slow.audience = host.audience
    try:
        asked = [begin(slow, "list") for _ in range(4)]
        eventually(lambda: bool(bridge._runtime.gate._inside))
        revoking = host.send("access.tokens.revoke", {"id": token})
        eventually(lambda: not in_force(bridge, host))
        assert not host.answered(revoking)
        slow.read()
        assert "result" in host.answer(revoking)[1]
        received = len(slow.private)
        for number in asked:
            slow.answer(number)
        assert not any(slow.private[received + 1 :]), "at most the line that was on its way"
    finally:
        slow.close()


def test_an_ended_run_ends_what_waits_under_it(bridge: KnowledgeBridge, host: Host) -> None:
    paused = Paused("system_memory.change.commit")
    with faults.installed(paused):
        host.audience = {**OWNER, "runId": "r1"}
        saving = begin(host, "create", body="In time.")
        assert paused.reached.wait(20)
        late = begin(host, "create", body="Too late.")
        ended = threading.Event()

        def end() -> None:
            bridge.end_run("r1")
            ended.set()

        ending = threading.Thread(target=end)
        ending.start()
        eventually(lambda: "r1" in bridge._runtime.gate._current().ended_runs)
        assert not ended.is_set()
        paused.go_on.set()
        ending.join(20)
        assert ended.is_set()
        host.answer(saving)
        assert code(host.answer(late)[1]) == "audience_stale"
    assert bodies(host) == ["In time."]


# --- observers and stewards ------------------------------------------------------------------------------------------

ADMIT: JsonObject = {"steward": "stella", "id": str(uuid.UUID(int=1)), "verdict": "admitted", "ground": "x"}


def test_no_tool_and_no_method_of_the_host_protocol_leads_to_observers_and_stewards(bridge: KnowledgeBridge) -> None:
    assert not set(STEWARD_METHODS) & set(METHODS)
    assert not set(STEWARD_METHODS) & (methods.AUDIENCES | methods.OPERATORS | methods.HOSTS)
    words = ("admit", "challenge", "refute", "promote", "supersede", "observe", "system")
    named = [*CATALOGUE, *(str(tool["name"]) for tool in bridge.tools("mcp"))]
    assert [name for name in named if any(word in name for word in words)] == []


@pytest.mark.parametrize("method", sorted(STEWARD_METHODS))
def test_a_host_on_a_pipe_has_no_such_method_whatever_it_may_mint(host: Host, method: str) -> None:
    for more in ({}, {"audience": OWNER}, {"operator": {"id": "root", "scopes": ["operator.admin"]}}):
        answer = host.ask(method, {**ADMIT, **more})
        error = answer["error"]
        assert isinstance(error, dict)
        assert error["code"] == -32601
        assert "data" not in error


def test_real_stdio_has_no_such_method(tmp_path: Path) -> None:
    hello: tuple[str, JsonObject] = (
        "initialize", {"protocol": "knowledge-host/1", "host": {"name": "test", "version": "1"}},
    )  # fmt: skip
    made: tuple[str, JsonObject] = ("systemMemory.create", {"audience": OWNER, "body": "kept"})
    answers = spoken(tmp_path, [hello, made, ("steward.admit", ADMIT), ("steward.status", {}), ("shutdown", {})])
    assert "kept" in str(answers[1]["result"])
    for number in (2, 3):
        error = answers[number]["error"]
        assert isinstance(error, dict)
        assert error["code"] == -32601


def test_over_http_accounts_are_answered_by_token_and_stewards_have_no_route_whatever_the_bearer(
    tmp_path: Path,
) -> None:
    with nothing_left(), serving(tmp_path / "state", configuration=CONFIGURATION) as world:
        token = world.token()
        made = world.rpc(token, "systemMemory.create", {"body": "kept"})
        assert "result" in made
        by_host = world.rpc(world.host_key, "systemMemory.recall", {"audience": OWNER, "query": "kept"})
        assert "kept" in str(by_host["result"])
        assert code_of(world.rpc(token, "systemMemory.create", {"body": "x", "audience": OWNER})) == "invalid_argument"
        assert code_of(world.rpc(world.token(TALK), "systemMemory.list")) == "denied"
        for bearer in (token, world.host_key, world.operator_key("root")):
            for method in STEWARD_METHODS:
                _no_such_method(world, bearer, method)


def _no_such_method(world: World, bearer: str, method: str) -> None:
    answer = world.rpc(bearer, method, ADMIT)
    error = answer["error"]
    assert isinstance(error, dict)
    assert error["code"] == -32601, answer
    with world.client(bearer) as client:
        for path in (f"/{method}", f"/rpc/{method}", f"/tools/{method}", f"/api/v1/{method}", "/steward"):
            assert client.post(path, json=ADMIT).status_code in (403, 404, 405), path


def test_over_mcp_there_is_neither_a_method_nor_a_tool_for_stewards(bridge: KnowledgeBridge) -> None:
    mcp = McpHost(bridge)
    served = Served(mcp)
    try:
        served.open()
        served.request(1, "steward.status", {})
        error = served.answer()["error"]
        assert isinstance(error, dict)
        assert error["code"] == -32601
        served.request(2, "tools/call", {"name": "steward.status", "arguments": {}})
        assert json.loads(json.dumps(served.answer())).get("result", {"isError": True})["isError"]
    finally:
        served.close()
        mcp.close()


def test_the_owners_socket_and_python_answer_stewards(bridge: KnowledgeBridge) -> None:
    home = Home(fake=False)
    try:
        (home.state_dir / "knowledge.yaml").write_text(CONFIGURATION)
        told = home.run("system-memory", "status", "--json")
        assert told.returncode == 0, told.stderr.decode()
        assert json.loads(told.stdout)["claims"]["candidate"] == 0
    finally:
        home.close()
    assert bridge.steward("steward.status", {})["claims"]
    with pytest.raises(InvalidArgument):
        bridge.steward("systemMemory.list", {})


def test_an_account_with_space_around_it_is_refused_and_takes_system_memory_from_nobody(host: Host) -> None:
    for _ in range(8):
        host.audience = {**OWNER, "account": " ann "}
        assert code(ask(host, "create", body="x")) == "invalid_argument"
    host.audience = OWNER
    ask(host, "create", body="kept")
    assert bodies(host) == ["kept"]
