"""MCP in the owner, line by line, in both protocol eras. The SDK's own client meets it in ``cli/test_mcp.py``."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Final

import pytest
from mcp_types import version as sdk

import host_bridge
from host_bridge import mcp_calls, mcp_greeting
from host_bridge.mcp import McpHost
from host_bridge.transport import Oversize
from messages.json_types import JsonObject
from messages.schemas import PROFILES, export_tools, input_schema, profile_tools
from tests.host_bridge.fake_bridge import FakePending, KnowledgeBridge
from tests.host_bridge.mcp_session import ERAS, Era, Served, mapping, only_text

BOTH: Final[tuple[Era, ...]] = ("2025-11-25", "2026-07-28")
PATIENCE = 20.0


class Bridge(KnowledgeBridge):
    """The fake bridge; calls that ``hold`` are kept for the test, which waits for them by ``arrived``."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[FakePending] = []
        self.arrived = threading.Semaphore(0)

    def hold(self, pending: FakePending) -> None:
        self.held.append(pending)
        self.arrived.release()

    def wait_held(self) -> FakePending:
        assert self.arrived.acquire(timeout=PATIENCE)
        return self.held[-1]


@pytest.fixture(scope="module")
def bridge() -> Bridge:
    return Bridge()


@pytest.fixture(scope="module")
def host(bridge: Bridge) -> Iterator[McpHost]:
    made = McpHost(bridge)
    yield made
    made.close()


@pytest.fixture(params=BOTH)
def served(host: McpHost, request: pytest.FixtureRequest) -> Iterator[Served]:
    """An open session, in both eras."""
    made = Served(host, request.param)
    made.open()
    yield made
    made.close()


@pytest.mark.parametrize("era", ERAS)
def test_every_protocol_version_is_served_with_name_version_and_instructions(host: McpHost, era: Era) -> None:
    session = Served(host, era)
    opened = session.open()
    assert json.dumps(opened).count(mcp_greeting.instructions(None).splitlines()[0]) == 1
    assert host_bridge.__version__ in json.dumps(opened)
    if era != "2026-07-28":
        assert opened["protocolVersion"] == era
        assert mapping(opened["serverInfo"])["name"] == "knowledge"
    session.close()


def test_instructions_fit_and_say_the_most_important_thing_first() -> None:
    for profile in (None, *PROFILES):
        said = mcp_greeting.instructions(profile)
        assert len(said.encode()) <= mcp_greeting.INSTRUCTIONS_MAX_BYTES
        assert said.isascii()
        assert "memory" in said.splitlines()[0]


@pytest.mark.parametrize("profile", PROFILES)
def test_instructions_name_no_tool_and_no_argument_that_the_profile_lacks(profile: str) -> None:
    tools = profile_tools(profile)
    said = mcp_greeting.instructions(profile)
    assert set(re.findall(r"knowledge_\w+", said)) <= {tool.name for tool in tools}
    writes = [input_schema(tool.request) for tool in tools if not tool.annotations.read_only]
    for argument in ("requestId", "expectedRevision", "expectedHash"):
        assert (argument in said) == any(argument in mapping(schema["properties"]) for schema in writes)


@pytest.mark.parametrize("version", [*sdk.HANDSHAKE_PROTOCOL_VERSIONS, "1999-01-01", "2026-07-28", ""])
def test_the_handshake_without_an_owner_is_the_one_that_the_sdk_gives(host: McpHost, version: str) -> None:
    params: JsonObject = {
        "protocolVersion": version,
        "capabilities": {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {}},
        "clientInfo": {"name": "test", "title": "A test", "version": "1"},
    }
    for profile in (None, *PROFILES):
        session = Served(host, profile=profile)
        session.request(1, "initialize", params)
        assert session.result() == mcp_greeting.greeting(params, profile)
        session.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"protocolVersion": 5},
        {"capabilities": None},
        {"capabilities": {"roots": 5}},
        {"clientInfo": {"name": "x"}},
        {"clientInfo": "x"},
    ],
)
def test_a_handshake_that_the_sdk_may_refuse_is_left_to_it(wrong: JsonObject) -> None:
    plain: JsonObject = {"protocolVersion": "x", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    assert mcp_greeting.greeting(plain, None) is not None
    assert mcp_greeting.greeting({**plain, **wrong}, None) is None
    assert mcp_greeting.greeting([], None) is None


def test_tools_are_listed_in_one_page_with_all_four_annotations_and_the_same_bytes_each_time(served: Served) -> None:
    served.request(1, "tools/list", {})
    served.request(1, "tools/list", {})
    first, second = served.answer(), served.answer()
    assert first == second
    result = mapping(first["result"])
    assert "nextCursor" not in result
    tools = result["tools"]
    assert isinstance(tools, list)
    assert [tool["name"] for tool in tools] == [tool["name"] for tool in export_tools("mcp")]
    for tool in tools:
        assert {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} <= set(tool["annotations"])
        assert "outputSchema" not in tool
        assert tool["inputSchema"]["additionalProperties"] is False


def test_a_result_is_one_text_block_of_compact_json(served: Served) -> None:
    served.call(1, {"note": "żółw 漢字 🐢", "list": [1, 2]})
    result = served.result()
    assert result["isError"] is False
    text = only_text(result)
    assert "\n" not in text
    assert '"list":[1,2]' in text
    assert json.loads(text)["arguments"]["note"] == "żółw 漢字 🐢"
    assert json.loads(text)["agent"] == "main"


def test_an_expected_failure_is_a_result_with_code_message_and_retry(served: Served) -> None:
    served.call(1, {"act": "refuse"})
    assert served.failure() == {
        "code": "stale_fence",
        "message": "The revision is not current.",
        "retry": "never",
        "field": "expectedRevision",
        "current": 4,
    }


@pytest.mark.parametrize("act", ["defect", "broken"])
def test_no_exception_text_ever_reaches_the_client(served: Served, act: str) -> None:
    served.call(1, {"act": act})
    failure = served.failure()
    assert failure["code"] == "internal"
    assert "secret" not in json.dumps(failure)


def test_a_permit_revoked_before_the_bytes_left_gives_the_refusal(served: Served) -> None:
    served.call(1, {"act": "revoked"})
    assert served.failure()["code"] == "denied"


def test_an_unknown_tool_is_a_protocol_error(served: Served) -> None:
    served.request(1, "tools/call", {"name": "knowledge_nothing", "arguments": {}})
    error = mapping(served.answer()["error"])
    assert error["code"] == -32602


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_hides_tools_and_a_hidden_one_says_so(host: McpHost, profile: str) -> None:
    session = Served(host, profile=profile)
    session.open()
    session.request(1, "tools/list", {})
    tools = session.result()["tools"]
    assert isinstance(tools, list)
    shown = {tool["name"] for tool in tools}
    assert shown == {tool["name"] for tool in export_tools("mcp", profile)}
    for number, name in enumerate(sorted({str(tool["name"]) for tool in export_tools("mcp")} - shown)):
        session.request(number + 2, "tools/call", {"name": name, "arguments": {}})
        failure = session.failure()
        assert "not in this profile" in str(failure["message"])
    session.close()


def test_arguments_sent_as_text_are_parsed(served: Served) -> None:
    served.call(1, json.dumps({"note": "from a string"}))
    assert json.loads(only_text(served.result()))["arguments"] == {"note": "from a string"}


def test_arguments_left_out_or_null_are_none(served: Served) -> None:
    served.call(1, None)
    assert json.loads(only_text(served.result()))["arguments"] == {}


def test_a_lone_surrogate_is_answered_instead_of_lost(served: Served) -> None:
    served.request("a", "tools/call", {"name": "knowledge_status", "arguments": {"note": "\ud800"}})
    answer = served.answer()
    assert answer["id"] == "a"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"  ",
        b'{"jsonrpc":"2.0","id":9,"result":{}}',
        b'{"jsonrpc":"2.0","id":9,"result":5}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}',
        b'{"jsonrpc":"2.0","method":"notifications/nothing"}',
    ],
)
def test_what_json_rpc_never_answers_is_ignored_and_the_session_goes_on(served: Served, line: bytes) -> None:
    served.send(line)
    served.call(1, {})
    assert served.answer()["id"] == 1


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (b"junk", -32700),
        (b"\xff\xfe", -32700),
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"n":NaN}}', -32700),
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"n":1e999}}', -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":7,"method":"ping"}]', -32600),
        (b"5", -32600),
        (b"null", -32600),
        (b"[" * 100_000, -32600),
        (b'{"a":' * 100_000, -32600),
        (b'{"jsonrpc":"2.0","method":5}', -32600),
        *(
            (b'{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"knowledge_status"}}' % bad, -32600)
            for bad in (b"null", b"1.5", b"1.0", b"true", b"[1]", b"{}", b'"\\ud800"', b'"%s"' % (b"x" * 257))
        ),
    ],
)
def test_a_line_without_an_id_to_echo_is_answered_under_null_and_the_session_goes_on(
    served: Served, line: bytes, number: int
) -> None:
    served.send(line)
    answer = served.answer()
    assert answer["id"] is None
    assert mapping(answer["error"])["code"] == number
    served.call(1, {})
    assert served.answer()["id"] == 1
    assert not served.session.calls


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "ping", "no/such"])
def test_an_id_is_echoed_exactly(served: Served, method: str) -> None:
    for request_id in (0, -1, 2**53 + 1, 2**70, "", "0", "a\x00\u200b", "z\u0307\u202e", "\U0001f422" * 256):
        served.request(request_id, method, {"name": "knowledge_status"} if method == "tools/call" else {})
        answer = served.answer()
        assert (answer["id"], type(answer["id"])) == (request_id, type(request_id))


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"1.0","id":7,"method":"tools/list"}',
        b'{"jsonrpc":"2.0","id":7,"method":5}',
        b'{"jsonrpc":"2.0","id":7,"method":"tools/list","params":[]}',
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"knowledge_status","arguments":%s}}'
        % (b'{"a":' * 300 + b"1" + b"}" * 300),
    ],
)
def test_a_malformed_request_with_an_id_is_answered(served: Served, line: bytes) -> None:
    served.send(line)
    answer = served.answer()
    assert answer["id"] == 7
    assert "error" in answer


def test_an_oversized_line_is_a_typed_refusal(served: Served) -> None:
    served.session.feed(Oversize(8 << 20))
    error = mapping(served.answer()["error"])
    assert mapping(error["data"])["code"] == "limit_exceeded"


def test_an_id_that_is_still_open_is_not_answered_twice(served: Served, bridge: Bridge) -> None:
    served.call("a", {"act": "hold"})
    pending = bridge.wait_held()
    served.call("a", {})
    assert served.answer()["id"] is None
    pending.settle({"held": True})
    assert only_text(served.result()) == '{"held":true}'


def test_a_cancelled_call_reaches_the_bridge_and_is_not_answered(served: Served, bridge: Bridge) -> None:
    served.call("a", {"act": "hold"})
    pending = bridge.wait_held()
    cancelled = threading.Event()
    pending.add_done_callback(lambda _: cancelled.set())
    served.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}')
    assert cancelled.wait(PATIENCE)
    assert pending.call.cancellation.requested
    served.call("b", {})
    assert served.answer()["id"] == "b"
    assert served.session.calls.wait_idle(PATIENCE)


def test_many_calls_run_side_by_side_and_each_gets_its_own_answer(served: Served, bridge: Bridge) -> None:
    held: list[FakePending] = []
    for number in range(20):
        served.call(number, {"act": "hold", "name": str(number)})
        held.append(bridge.wait_held())
    served.call("quick", {})
    assert served.answer()["id"] == "quick"
    for pending in reversed(held):
        pending.settle({"name": pending.call.arguments["name"]})
    answers = [served.answer() for _ in range(20)]
    assert {answer["id"] for answer in answers} == set(range(20))
    for answer in answers:
        assert json.loads(only_text(mapping(answer["result"])))["name"] == str(answer["id"])


def test_a_client_that_asked_for_progress_hears_that_a_long_call_lives(
    served: Served, bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_calls, "PROGRESS_SECONDS", 0.02)
    served.call("a", {"act": "hold"}, _meta={"progressToken": "t"})
    pending = bridge.wait_held()
    beat = served.answer()
    assert beat["method"] == "notifications/progress"
    assert mapping(beat["params"])["progressToken"] == "t"
    pending.settle({"done": True})
    while "method" in (answer := served.answer()):
        pass
    assert only_text(mapping(answer["result"])) == '{"done":true}'


def test_calls_after_the_shutdown_began_are_refused_as_stopping(served: Served) -> None:
    served.session.stop_accepting()
    served.call(1, {})
    failure = served.failure()
    assert (failure["code"], failure["retry"]) == ("stopping", "safe")


def test_a_session_that_ends_cancels_what_still_ran(host: McpHost, bridge: Bridge) -> None:
    session = Served(host)
    session.open()
    session.call("a", {"act": "hold"})
    pending = bridge.wait_held()
    session.close()
    assert pending.call.cancellation.requested


def test_eight_sessions_share_one_loop_without_mixing_answers(host: McpHost) -> None:
    sessions = [Served(host, BOTH[number % 2]) for number in range(8)]
    for session in sessions:
        session.open()
    for round_number in range(20):
        for number, session in enumerate(sessions):
            session.call(round_number, {"session": number})
    for number, session in enumerate(sessions):
        for _ in range(20):
            assert json.loads(only_text(session.result()))["arguments"] == {"session": number}
        session.close()
