"""``POST /v1/tools/{name}`` and ``/openapi.json``: plain HTTP for function calling, and what a document says of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx
import jsonschema  # type: ignore[import-untyped]  # it has no types of its own
import pytest

from host_bridge.http.refusals import STATUS_OF
from messages.errors import all_error_classes
from messages.json_types import JsonObject, JsonValue
from messages.schemas import TOOL_FORMATS, ToolFormat, export_tools
from tests.host_bridge.http.world import OWNER, World, code_of, remembering

AUDIENCE: Final = {"Knowledge-Audience": json.dumps(OWNER)}


def test_a_tool_answers_as_over_the_protocol(world: World) -> None:
    with world.client(world.token()) as client:
        saved = client.post("/v1/tools/knowledge_remember", json=remembering("The tower has nine bells."))
        assert saved.status_code == 200
        found = client.post("/v1/tools/knowledge_grep", json={"query": "bells"})
    assert found.headers["content-type"] == "application/json"
    assert found.json() == world.rpc(
        world.host_key,
        "tools.call",
        {"tool": "knowledge_grep", "arguments": {"query": "bells"}, "audience": OWNER},
    )["result"]


def test_the_host_names_the_audience_in_a_header_as_an_object_or_a_token(world: World) -> None:
    with world.client(world.host_key) as host:
        for named in (json.dumps(OWNER), world.token()):
            answer = host.post("/v1/tools/knowledge_status", json={}, headers={"Knowledge-Audience": named})
            assert answer.status_code == 200
        for bad, code in (
            ("{", "invalid_argument"),
            ('{"kind":"owner-private","agent":"main","agent":"research"}', "invalid_argument"),
            ('{"kind":"owner-private","agent":"nobody"}', "denied"),
            ("nonsense", "invalid_argument"),
        ):
            answer = host.post("/v1/tools/knowledge_status", json={}, headers={"Knowledge-Audience": bad})
            assert code_of(answer.json()) == code, bad
        assert code_of(host.post("/v1/tools/knowledge_status", json={}).json()) == "audience_missing"
    with world.client(world.token(), **AUDIENCE) as client:
        assert code_of(client.post("/v1/tools/knowledge_status", json={}).json()) == "invalid_argument"
    with world.client(world.operator_key("root", rotate=True), **AUDIENCE) as operator:
        assert code_of(operator.post("/v1/tools/knowledge_status", json={}).json()) == "denied"


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"{}", {}, 404, "unknown_tool"),
        (b"[]", {}, 400, "invalid_argument"),
        (b"{", {}, 400, "invalid_argument"),
        (b"null", {}, 400, "invalid_argument"),
        (b"", {}, 400, "invalid_argument"),
        (b"{}", {"Knowledge-Deadline-Ms": "0"}, 400, "invalid_argument"),
        (b"{}", {"Knowledge-Deadline-Ms": "soon"}, 400, "invalid_argument"),
    ],
)
def test_refusals_are_one_json_object_with_the_status_of_their_code(
    world: World, body: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    name = "no_such_tool" if code == "unknown_tool" else "knowledge_status"
    with world.client(world.token()) as client:
        answer = client.post(f"/v1/tools/{name}", content=body, headers={"Content-Type": "application/json", **headers})
    assert (answer.status_code, code_of(answer.json())) == (status, code)
    assert set(answer.json()) == {"error"}


def test_every_code_has_one_status() -> None:
    assert set(STATUS_OF) == {error.code for error in all_error_classes()}


def test_calls_are_counted_by_method_and_code_and_nothing_of_a_record_or_caller_is_in_the_metrics(world: World) -> None:
    saved = world.remember("The tower has nine bells.")
    ids = re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", json.dumps(saved))
    world.rpc(world.host_key, "tools.call", {"tool": "no_such", "arguments": {}, "audience": OWNER})
    with world.client(world.operator_key("ana", rotate=True)) as client:
        text = client.get("/metrics").text
    assert 'knowledge_http_calls_total{code="ok",method="tools.call"}' in text
    assert 'knowledge_http_calls_total{code="unknown_tool",method="tools.call"}' in text
    assert 'knowledge_http_call_seconds_bucket{le="0.001",method="tools.call"}' in text
    assert 'knowledge_mailbox_depth{actor="lane"} 0.0' in text
    assert 'knowledge_actor_restarts{actor="authority"} 0.0' in text
    assert re.search(r"^knowledge_stores_live [1-9]", text, re.MULTILINE)
    assert 'knowledge_http_open{kind="calls"} 1.0' in text
    assert ids
    for forbidden in (*ids, "bells", '"main"', '"research"', str(world.bridge.state_dir)):
        assert forbidden not in text
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-", text)
    assert 'actor="other"' not in text


def test_the_metrics_need_the_host_s_key_or_an_operator_who_reads(world: World) -> None:
    for bearer, status in ((world.host_key, 200), (world.operator_key("root", rotate=True), 200), (world.token(), 403)):
        with world.client(bearer) as client:
            assert client.get("/metrics").status_code == status


# --- schemas -----------------------------------------------------------------------------------------------


def schema_of(tool: JsonObject) -> Any:
    return tool.get("inputSchema") or tool.get("input_schema") or _function(tool)["parameters"]


def _function(tool: JsonObject) -> JsonObject:
    function = tool["function"]
    assert isinstance(function, dict)
    return function


@pytest.mark.parametrize("dialect", [jsonschema.Draft7Validator, jsonschema.Draft202012Validator])
@pytest.mark.parametrize("format", TOOL_FORMATS)
def test_every_tool_s_schema_is_valid_in_both_dialects_and_refuses_what_the_tool_does(
    format: ToolFormat, dialect: type[jsonschema.Draft7Validator]
) -> None:
    for tool in export_tools(format):
        schema = schema_of(tool)
        dialect.check_schema(schema)
        validator = dialect(schema)
        assert not validator.is_valid({"no_such_argument": 1})
        assert not validator.is_valid([])
        required = schema.get("required", [])
        assert validator.is_valid({}) == (not required)


# --- function calling --------------------------------------------------------------------------------------

WANTED: Final[list[tuple[str, JsonObject]]] = [
    ("knowledge_remember", remembering("The tower has nine bells.")),
    ("knowledge_grep", {"query": "bells"}),
    ("knowledge_grep", {}),
]
"""What the scripted model calls, one after another; the last call lacks an argument."""


class OpenAiModel:
    """Speaks chat completions: calls with their arguments as JSON text, results as messages of the role tool."""

    def __init__(self, tools: list[JsonObject]) -> None:
        self.names = [_function(tool)["name"] for tool in tools]
        self._left = list(WANTED)

    def complete(self, messages: list[JsonObject]) -> JsonObject:
        if not self._left:
            return {"role": "assistant", "content": str(messages[-1]["content"]), "tool_calls": []}
        name, arguments = self._left.pop(0)
        assert name in self.names
        call = {"name": name, "arguments": json.dumps(arguments)}
        calls: list[JsonValue] = [{"id": f"call_{len(messages)}", "type": "function", "function": call}]
        return {"role": "assistant", "content": None, "tool_calls": calls}


class AnthropicModel:
    """Speaks messages: blocks ``tool_use`` with arguments as an object, results as blocks ``tool_result``."""

    def __init__(self, tools: list[JsonObject]) -> None:
        self.names = [tool["name"] for tool in tools]
        self._left = list(WANTED)

    def complete(self, messages: list[JsonObject]) -> list[JsonObject]:
        if not self._left:
            return [{"type": "text", "text": json.dumps(messages[-1]["content"])}]
        name, arguments = self._left.pop(0)
        assert name in self.names
        return [{"type": "tool_use", "id": f"toolu_{len(messages)}", "name": name, "input": arguments}]


def called(client: httpx.Client, name: str, arguments: str) -> str:
    """What a host does with a call: the body is what the model wrote."""
    answer = client.post(f"/v1/tools/{name}", content=arguments, headers={"Content-Type": "application/json"})
    return answer.text


def openai_loop(client: httpx.Client) -> list[str]:
    model = OpenAiModel(export_tools("openai"))
    messages: list[JsonObject] = [{"role": "user", "content": "How many bells?"}]
    results: list[str] = []
    while True:
        answer = model.complete(messages)
        messages.append(answer)
        calls = answer["tool_calls"]
        assert isinstance(calls, list)
        if not calls:
            return results
        for call in calls:
            assert isinstance(call, Mapping)
            function = call["function"]
            assert isinstance(function, Mapping)
            results.append(called(client, str(function["name"]), str(function["arguments"])))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": results[-1]})


def anthropic_loop(client: httpx.Client) -> list[str]:
    model = AnthropicModel(export_tools("anthropic"))
    messages: list[JsonObject] = [{"role": "user", "content": "How many bells?"}]
    results: list[str] = []
    while True:
        blocks = model.complete(messages)
        messages.append({"role": "assistant", "content": list(blocks)})
        uses = [block for block in blocks if block["type"] == "tool_use"]
        if not uses:
            return results
        shown: list[JsonValue] = []
        for use in uses:
            results.append(called(client, str(use["name"]), json.dumps(use["input"])))
            failed = '"error"' in results[-1][:10]
            shown.append({"type": "tool_result", "tool_use_id": use["id"], "content": results[-1], "is_error": failed})
        messages.append({"role": "user", "content": shown})


@pytest.mark.parametrize("loop", [openai_loop, anthropic_loop])
def test_a_function_calling_loop_saves_finds_and_learns_what_it_did_wrong(
    world: World, loop: Callable[[httpx.Client], list[str]]
) -> None:
    with world.client(world.token()) as client:
        saved, found, refused = loop(client)
    assert "items" in json.loads(saved)
    assert "nine bells" in found
    error = json.loads(refused)["error"]
    assert (error["code"], error["field"]) == ("invalid_argument", "query")


# --- the document ------------------------------------------------------------------------------------------


def document_of(world: World) -> dict[str, Any]:
    with world.client(world.token()) as client:
        found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def test_the_document_describes_every_tool_with_its_schema_and_every_code(world: World) -> None:
    document = document_of(world)
    assert document["openapi"].startswith("3.1")
    for tool in export_tools("mcp"):
        operation = document["paths"][f"/v1/tools/{tool['name']}"]["post"]
        assert operation["requestBody"]["content"]["application/json"]["schema"] == tool["inputSchema"]
        named = " ".join(answer["description"] for answer in operation["responses"].values())
        assert all(re.search(rf"\b{code}\b", named) for code in STATUS_OF)
        assert {int(status) for status in operation["responses"]} >= {*STATUS_OF.values(), 200}


@pytest.mark.slow
def test_the_routes_answer_as_the_document_says_whatever_is_sent(world: World) -> None:
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    schema = schemathesis.openapi.from_dict(document_of(world))
    token = world.token()
    checked = 0
    for result in schema.get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]  # a document that is none fails here

        @settings(
            max_examples=4,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(), good=st.booleans())
        def answered(case: Any, good: bool) -> None:
            nonlocal checked
            if good:
                case.headers = {
                    name: value for name, value in (case.headers or {}).items() if name != "Knowledge-Audience"
                }
            response = case.call(base_url=world.server.url, headers={"Authorization": f"Bearer {token}"})
            case.validate_response(
                response,
                checks=[content_type_conformance, response_schema_conformance, status_code_conformance],
            )
            checked += 1

        answered()
    assert checked >= 2 * len(export_tools("mcp"))
