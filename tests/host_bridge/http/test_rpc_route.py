"""``POST /rpc``: the host protocol over HTTP, and who may ask what."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from host_bridge.http import methods
from host_bridge.rpc import WAITED_FOR
from messages.host import METHODS
from messages.json_types import JsonObject
from messages.operator import SUBSCRIBE
from tests.host_bridge.http.world import OWNER, World, code_of, reason_of, serving
from tests.kit.leaks import nothing_left

OTHERS = ("steward.admit", "steward.promote", "shutdown", "$/cancel", SUBSCRIBE, "owner.stop", "owner.ui")
GREP: JsonObject = {"tool": "knowledge_grep", "arguments": {"query": "bells"}}


def test_the_host_calls_tools_for_the_audience_that_it_minted(world: World) -> None:
    saved = world.remember("The tower has nine bells.")
    assert "result" in saved, saved
    found = world.rpc(world.host_key, "tools.call", {**GREP, "audience": OWNER})
    assert "nine bells" in json.dumps(found["result"])
    assert found["id"] == 1


def test_a_token_s_bearer_calls_tools_for_its_audience_alone(world: World) -> None:
    world.remember("The tower has nine bells.")
    token = world.token()
    assert "nine bells" in json.dumps(world.rpc(token, "tools.call", GREP))
    other = world.token({"kind": "owner-private", "agent": "research"})
    assert "nine bells" not in json.dumps(world.rpc(other, "tools.call", GREP))
    for audience in (OWNER, {"kind": "owner-private", "agent": "research"}, token):
        refused = world.rpc(token, "tools.call", {**GREP, "audience": audience})
        assert code_of(refused) == "invalid_argument"


def test_the_provider_s_methods_answer_a_token_s_bearer(world: World) -> None:
    world.remember("The tower has nine bells.")
    found = world.rpc(world.token(), "memory.search", {"query": "bells"})
    assert "nine bells" in json.dumps(found["result"])


@pytest.mark.parametrize("method", sorted(methods.OPERATORS | methods.HOSTS))
def test_an_audience_token_never_calls_a_method_of_operators(world: World, method: str) -> None:
    refused = world.rpc(world.token(), method, {})
    assert (code_of(refused), reason_of(refused)) == ("denied", "audience_token")
    assert method in str(refused["error"])


@pytest.mark.parametrize("method", sorted(methods.AUDIENCES))
def test_an_operator_s_key_never_calls_tools_or_memory(world: World, method: str) -> None:
    key = world.operator_key("root", rotate=True)
    for params in ({}, {"audience": OWNER}):
        refused = world.rpc(key, method, params)  # type: ignore[arg-type]
        assert (code_of(refused), reason_of(refused)) == ("denied", "operator_key")
        assert method in str(refused["error"])


@pytest.mark.parametrize("method", sorted(methods.HOSTS))
def test_an_operator_s_key_never_mints_for_itself(world: World, method: str) -> None:
    refused = world.rpc(world.operator_key("root", rotate=True), method, {"audience": OWNER, "seconds": 60})
    assert (code_of(refused), reason_of(refused)) == ("denied", "operator_key")


@pytest.mark.parametrize(
    "method",
    [*sorted(methods.AT_THE_MACHINE), *OTHERS],
)
def test_what_is_for_the_person_at_the_machine_has_no_http_route_for_any_bearer(world: World, method: str) -> None:
    for bearer in (world.host_key, world.operator_key("root", rotate=True), world.token()):
        answer = world.rpc(bearer, method, {})
        assert answer["error"] == {"code": -32601, "message": "no such method"}


def test_every_method_of_the_protocol_stands_on_exactly_one_list() -> None:
    lists = (methods.EVERYBODY, methods.AUDIENCES, methods.OPERATORS, methods.HOSTS, methods.AT_THE_MACHINE)
    named = [method for names in lists for method in names]
    assert len(named) == len(set(named))
    assert set(named) == (WAITED_FOR | set(METHODS)) - {"shutdown", "$/cancel"}


def test_an_operator_asks_in_its_own_name_within_its_scopes_and_agents(world: World) -> None:
    world.remember("The tower has nine bells.")
    ana = world.operator_key("ana", rotate=True)
    assert "nine bells" in json.dumps(world.rpc(ana, "operator.recent", {"agent": "main"}))
    refused = world.rpc(ana, "access.grants.set", {"agent": "main", "sessionKey": "k", "access": "read"})
    assert code_of(refused) == "denied"
    other = world.operator_key("other", rotate=True)
    assert code_of(world.rpc(other, "operator.recent", {"agent": "main"})) == "denied"
    named: JsonObject = {"operator": {"id": "root", "scopes": ["operator.admin"]}}
    assert code_of(world.rpc(ana, "operator.recent", named)) == "invalid_argument"


def test_the_host_names_the_operators_that_it_stands_for(world: World) -> None:
    operator: JsonObject = {"id": "host-admin", "scopes": ["operator.read"], "agents": ["main"]}
    assert "result" in world.rpc(world.host_key, "operator.status", {"operator": operator})
    assert code_of(world.rpc(world.host_key, "operator.status", {})) == "invalid_argument"
    minted = world.rpc(world.host_key, "access.tokens.mint", {"audience": OWNER})
    result = minted["result"]
    assert isinstance(result, dict)
    assert "result" in world.rpc(str(result["token"]), "tools.call", GREP)
    rows = world.bridge.ask("access.audit", {"limit": 1})["rows"]
    assert isinstance(rows, list)
    newest = rows[0]
    assert isinstance(newest, dict)
    assert (newest["action"], newest["door"]) == ("token.mint", "http")


@pytest.mark.parametrize(
    ("body", "status", "number"),
    [
        (b"{", 400, -32700),
        (b"\xff{}", 400, -32700),
        (b"[]", 400, -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"initialize"}]', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"initialize"}', 400, -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"initialize"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"initialize"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":[]}', 400, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}', 200, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"no.such"}', 200, -32601),
        (b'{"a":' * 100 + b"1" + b"}" * 100, 400, -32600),
    ],
)
def test_what_is_no_request_is_refused_as_on_the_socket(world: World, body: bytes, status: int, number: int) -> None:
    with world.client(world.host_key) as client:
        answer = client.post("/rpc", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == number


def test_a_notification_is_taken_and_has_no_answer(world: World) -> None:
    with world.client(world.host_key) as client:
        answer = client.post("/rpc", json={"jsonrpc": "2.0", "method": "tools.call", "params": {}})
    assert (answer.status_code, answer.content) == (202, b"")


def test_nobody_is_answered_without_a_bearer_that_counts(world: World) -> None:
    token, token_id = world.token_and_id()
    world.bridge.ask("access.tokens.revoke", {"id": token_id})
    head = {"Content-Type": "application/json"}
    for authorization in (
        None,
        "",
        "Bearer",
        "Basic dXNlcjpwYXNz",
        "Bearer nothing",
        "Bearer kr-host-" + "A" * 43,
        f"Bearer {world.host_key}x",
        f"Bearer {token}",
        "Bearer " + "x" * 9_000,
    ):
        headers = head if authorization is None else {**head, "Authorization": authorization}
        with world.client() as client:
            answer = client.post("/rpc", content=b"never read", headers=headers)
        assert answer.status_code == 401, authorization
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert code_of(answer.json()) in ("denied", "audience_stale", "invalid_argument", "limit_exceeded")


@pytest.mark.parametrize("end", ["rotate", "revoke", "configuration"])
def test_a_key_that_was_replaced_revoked_or_deconfigured_counts_no_more(tmp_path: Path, end: str) -> None:
    with nothing_left(), serving(tmp_path / "state") as world:
        old = world.operator_key("ana")
        assert "result" in world.rpc(old, "operator.status", {})
        match end:
            case "rotate":
                assert "result" in world.rpc(world.operator_key("ana", rotate=True), "operator.status", {})
            case "revoke":
                world.bridge.ask("access.httpKeys.revoke", {"operatorId": "ana"})
            case _:
                (tmp_path / "state" / "knowledge.yaml").write_text("operators: []\n")
                until(lambda: world.bridge.configuration.operators == ())
                world.bridge.ask("access.stores.list", {})
        with world.client(old) as client:
            answer = client.post("/rpc", json={"jsonrpc": "2.0", "id": 1, "method": "operator.status"})
        assert answer.status_code == 401
        assert code_of(answer.json()) == "denied"


def until(holds: Callable[[], bool]) -> None:
    import time

    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_call_s_deadline_is_its_own(world: World) -> None:
    refused = world.rpc(world.host_key, "tools.call", {**GREP, "audience": OWNER, "deadlineMs": 600_001})
    assert code_of(refused) == "invalid_argument"


def test_a_host_key_file_is_the_host_s_key_and_must_be_private(tmp_path: Path) -> None:
    key = tmp_path / "key"
    secret = "s" * 40
    key.write_text(f"{secret}\n")
    key.chmod(0o600)
    with serving(tmp_path / "state", configuration=f"http: {{hostKeyFile: {key}}}\n") as world:
        assert "result" in world.rpc(secret, "tools.call", {**GREP, "audience": OWNER})
        assert "result" in world.rpc(world.host_key, "tools.call", {**GREP, "audience": OWNER})
        key.chmod(0o644)
        refused = world.rpc(secret, "tools.call", {**GREP, "audience": OWNER})
        assert (code_of(refused), reason_of(refused)) == ("storage_error", "host_key_file")
