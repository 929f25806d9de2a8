"""Who may ask what as an operator, and how a request of one is read."""

from __future__ import annotations

import pytest

from messages.audience import OwnerPrivate
from messages.errors import InvalidArgument, LimitExceeded
from messages.json_types import JsonObject
from messages.operator import (
    ADOPT_MAX_PATHS,
    LOCAL_OPERATOR,
    OPERATOR_METHODS,
    SCOPES,
    AdoptNotesRequest,
    Operator,
    RelocateStoreRequest,
    parse_operator,
    parse_operator_call,
    parse_subscription,
)
from messages.tools.operator_reads import OPERATOR_READS

REQUEST_ID = "00000000-0000-4000-8000-000000000020"


def test_each_scope_contains_those_before_it() -> None:
    for held in range(len(SCOPES)):
        operator = Operator("x", frozenset((SCOPES[held],)))
        assert [operator.may(scope) for scope in SCOPES] == [needed <= held for needed in range(len(SCOPES))]
    assert not Operator("x", frozenset()).may("operator.read")


def test_the_sockets_peer_may_everything_for_everybody() -> None:
    assert all(LOCAL_OPERATOR.may(scope) for scope in SCOPES)
    assert LOCAL_OPERATOR.agents is None


def test_every_method_has_its_request_and_only_looking_needs_less_than_an_admin() -> None:
    assert all(model.tool == method for method, (model, _) in OPERATOR_METHODS.items())
    read = {method for method, (_, scope) in OPERATOR_METHODS.items() if scope == "operator.read"}
    looking = {"operator.status", "operator.diagnostics", "access.stores.list", "access.grants.list"}
    assert read == looking | {request.tool for request in OPERATOR_READS}


def test_an_operator_is_read_exactly() -> None:
    given: JsonObject = {"id": "ana", "scopes": ["operator.read", "operator.admin"], "agents": ["main"]}
    assert parse_operator(given) == Operator("ana", frozenset(("operator.read", "operator.admin")), ("main",))


@pytest.mark.parametrize(
    "given", [None, [], "ana", {"id": "", "scopes": []}, {"scopes": []}, {"id": "a", "scopes": "x"}]
)
def test_a_malformed_operator_is_refused_by_field(given: object) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_operator(given)
    assert str(caught.value.fields["field"]).startswith("operator")


def test_the_request_is_read_apart_from_who_asks() -> None:
    params: JsonObject = {"requestId": REQUEST_ID, "paths": ["a.md"], "agent": "ben", "deadlineMs": 1_000}
    call = parse_operator_call("operator.adopt", params, peer=LOCAL_OPERATOR)
    assert isinstance(call.request, AdoptNotesRequest)
    assert (call.request.paths, call.agent, call.operator, call.scope) == (
        ("a.md",), "ben", LOCAL_OPERATOR, "operator.admin",
    )  # fmt: skip
    assert 0 < call.deadline.remaining() <= 1.0


def test_a_store_is_named_by_its_uuid_whatever_its_case() -> None:
    params: JsonObject = {"store": REQUEST_ID.upper(), "path": "/x"}
    call = parse_operator_call("operator.relocateStore", params, peer=LOCAL_OPERATOR)
    assert isinstance(call.request, RelocateStoreRequest)
    assert call.request.store == REQUEST_ID


@pytest.mark.parametrize(
    ("method", "params", "field"),
    [
        ("operator.adopt", {"paths": ["a.md"]}, "requestId"),
        ("operator.adopt", {"requestId": REQUEST_ID, "paths": []}, "paths"),
        ("operator.adopt", {"requestId": REQUEST_ID, "paths": ["a\0"]}, "paths[0]"),
        ("operator.relocateStore", {"store": "x", "path": "/x"}, "store"),
        ("operator.diagnostics", {"limit": 0}, "limit"),
        ("operator.status", {"store": "x"}, "store"),
    ],
)
def test_a_wrong_request_is_refused_by_field(method: str, params: JsonObject, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_operator_call(method, params, peer=LOCAL_OPERATOR)
    assert caught.value.fields["field"] == field


def test_at_most_a_thousand_files_are_adopted_at_once() -> None:
    paths = [f"{number}.md" for number in range(ADOPT_MAX_PATHS + 1)]
    with pytest.raises(LimitExceeded):
        parse_operator_call("operator.adopt", {"requestId": REQUEST_ID, "paths": list(paths)}, peer=LOCAL_OPERATOR)


def test_who_subscribes_is_the_requests_own_then_the_connections() -> None:
    main, ben = OwnerPrivate("main"), {"kind": "owner-private", "agent": "ben"}
    assert parse_subscription({}, caller=main, peer=LOCAL_OPERATOR).subscriber.audience == main
    assert parse_subscription({"audience": ben}, caller=main, peer=None).subscriber.audience == OwnerPrivate("ben")
    of_agent = parse_subscription({"agent": "ben"}, caller=main, peer=LOCAL_OPERATOR).subscriber
    assert (of_agent.operator, of_agent.agent) == (LOCAL_OPERATOR, "ben")
    with pytest.raises(InvalidArgument):
        parse_subscription({}, caller=None, peer=None)
