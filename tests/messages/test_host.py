"""The host protocol's messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from messages import host
from messages.errors import Busy, InvalidArgument, KnowledgeError, UnknownTool, all_error_classes
from messages.tools import CATALOGUE
from messages.vocabulary import DEADLINE_DEFAULT_MS, PROTOCOL

HELLO: dict[str, Any] = {"protocol": PROTOCOL, "host": {"name": "a host", "version": "1"}}


def test_initialize_answers_with_what_a_host_needs_to_know() -> None:
    params = host.parse_params("initialize", HELLO)
    assert params == host.InitializeParams.model_validate(HELLO)
    result: Any = host.initialize_result(server_version="1.2.3")
    assert result["protocol"] == PROTOCOL
    assert result["server"] == {"name": "knowledge-runtime", "version": "1.2.3"}
    assert result["vaultFormat"] == "knowledge-vault-v2"
    assert result["limits"]["requestBytes"] == 8 * 1024 * 1024
    assert result["capabilities"] == {
        "recallTools": ["knowledge_grep", "knowledge_lookup", "knowledge_record"],
        "sources": ["memory"],
    }
    assert set(result["capabilities"]["recallTools"]) <= set(CATALOGUE)
    json.dumps(result)


def test_another_protocol_is_refused_with_the_one_that_is_spoken() -> None:
    with pytest.raises(InvalidArgument) as caught:
        host.parse_params("initialize", {**HELLO, "protocol": "knowledge-host/2"})
    assert caught.value.fields["allowed"] == [PROTOCOL]


def test_a_call_keeps_arguments_and_audience_as_they_came() -> None:
    params = host.parse_params(
        "tools.call",
        {"tool": "t", "arguments": {"a": None}, "audience": {"b": None}, "deadlineMs": 600_000, "flushId": "f"},
    )
    assert isinstance(params, host.ToolsCallParams)
    assert (params.arguments, params.audience) == ({"a": None}, {"b": None})
    assert (params.deadline_ms, params.flush_id) == (600_000, "f")


def test_a_call_without_a_deadline_gets_the_default() -> None:
    params = host.parse_params("tools.call", {"tool": "t"})
    assert isinstance(params, host.ToolsCallParams)
    assert params.deadline_ms == DEADLINE_DEFAULT_MS
    assert params.audience is None


@pytest.mark.parametrize(
    ("method", "params", "field"),
    [
        ("initialize", None, "protocol"),
        ("initialize", {**HELLO, "host": "me"}, "host"),
        ("shutdown", {"now": True}, "now"),
        ("tools.list", {}, "format"),
        ("tools.list", {"format": "soap"}, "format"),
        ("tools.list", {"format": "mcp", "profile": "all"}, "profile"),
        ("tools.call", {}, "tool"),
        ("tools.call", {"tool": "t", "deadlineMs": 0}, "deadlineMs"),
        ("tools.call", {"tool": "t", "deadlineMs": 600_001}, "deadlineMs"),
        ("tools.call", {"tool": "t", "flushId": ""}, "flushId"),
        ("tools.call", {"tool": "t", "agent": "main"}, "agent"),
        ("tools.call", [1], ""),
        ("$/cancel", {}, "id"),
        ("$/cancel", {"id": True}, "id"),
        ("$/cancel", {"id": {}}, "id"),
    ],
)
def test_bad_parameters_name_their_field(method: str, params: object, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        host.parse_params(method, params)
    assert caught.value.fields["field"] == field


@pytest.mark.parametrize("request_id", [7, "a", ""])
def test_a_cancel_names_an_open_request(request_id: object) -> None:
    assert host.parse_params("$/cancel", {"id": request_id}) == host.CancelParams(id=request_id)


def test_shutdown_takes_no_parameters() -> None:
    assert host.parse_params("shutdown", None) == host.parse_params("shutdown", {}) == host.ShutdownParams()


def test_only_the_documented_methods_are_known() -> None:
    assert set(host.METHODS) == {"initialize", "shutdown", "tools.list", "tools.call", "$/cancel"}
    with pytest.raises(KeyError):
        host.parse_params("tools.delete", {})


@pytest.mark.parametrize("cls", all_error_classes(), ids=lambda cls: str(cls.code))
def test_an_error_object_has_the_number_of_its_class(cls: type[KnowledgeError]) -> None:
    found: Any = host.error_object(cls("what happened", field="a"))
    assert found["code"] == (-32602 if cls.code == "invalid_argument" else -32000)
    assert found["message"] == "what happened"
    assert found["data"]["code"] == cls.code
    assert found["data"]["retry"] in ("safe", "unknown", "never")


def test_an_unknown_method_has_no_code_of_ours() -> None:
    assert host.method_not_found() == {"code": -32601, "message": "no such method"}


def test_fields_stand_beside_code_and_retry() -> None:
    found: Any = host.error_object(Busy("full", limit=256))
    assert found["data"] == {"code": "busy", "retry": "safe", "limit": 256}
    assert host.error_object(UnknownTool("x"))["code"] == -32000
