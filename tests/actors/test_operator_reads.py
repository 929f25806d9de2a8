"""Operators' reads on the real runtime: scopes, roles, shared gateways, no store made, and other partitions unseen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_bridge.bridge import KnowledgeBridge
from messages.audience import OwnerPrivate
from messages.errors import Cancelled, Denied, InvalidArgument, NotFound, UnknownTool
from messages.json_types import JsonObject
from messages.operator import LOCAL_OPERATOR, Operator, parse_operator_call
from tests.actors.store.test_operator_reads import ASKED
from tests.actors.test_operators import NOBODY, READER, WRITER, listed, member, operate, refused, save_page
from tests.kit.actors import eventually
from tests.kit.store import GROUP, MAIN, open_bridge, remember, stores, write_note

AGENTS = "agents: {list: [{id: main}, {id: ben}]}"


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[KnowledgeBridge]:
    with open_bridge(tmp_path / "state", AGENTS) as opened:
        yield opened


def reads(bridge: KnowledgeBridge) -> dict[str, JsonObject]:
    """Every read with arguments that the store of agent main has an answer for."""
    page = save_page(bridge, "Pilot")
    request = "00000000-0000-4000-8000-000000000001"
    claim = remember(bridge, "The bell rang.", 1)
    [item] = listed(claim["items"])
    [citation] = listed(member(operate(bridge, "record", given={"id": item["id"]}), "record")["evidence"])
    source: JsonObject = {"id": item["id"], "path": citation["path"], "sha256": citation["sha256"]}
    return {
        **ASKED,
        "record": {"id": item["id"]},
        "connections": {"id": page["id"]},
        "evidence": source,
        "original": {**source, "offset": 0},
        "revision": {"id": page["id"], "sequence": 1},
        "mutation": {"requestId": request},
    }


def test_every_read_is_answered_to_a_reader_and_to_nobody_without_the_scope(bridge: KnowledgeBridge) -> None:
    for name, params in reads(bridge).items():
        for operator in (READER, WRITER, LOCAL_OPERATOR):
            assert operate(bridge, name, operator, params), name
        assert isinstance(refused(bridge, name, NOBODY, params), Denied), name


def test_an_operators_read_never_creates_a_store_and_says_that_there_is_none(bridge: KnowledgeBridge) -> None:
    for name, params in ASKED.items():
        error = refused(bridge, name, READER, params)
        assert isinstance(error, NotFound), name
        assert error.fields["field"] == "agent"
    assert stores(bridge.state_dir) == []


def test_an_operator_reads_the_agents_of_its_role_only(bridge: KnowledgeBridge) -> None:
    remember(bridge, "Said by main.", 1)
    remember(bridge, "Said by ben.", 2, OwnerPrivate("ben"))
    bens = Operator("of ben", frozenset(("operator.read",)), ("ben",))
    for name, params in ASKED.items():
        assert isinstance(refused(bridge, name, bens, {**params, "agent": "main"}), Denied), name
    choices: tuple[JsonObject, ...] = ({}, {"agent": "ben"})
    for chosen in choices:
        [card] = listed(operate(bridge, "records", bens, chosen)["records"])
        assert card["text"] == "Said by ben."
    [card] = listed(operate(bridge, "records", READER)["records"])
    assert card["text"] == "Said by main.", "the first agent of the configuration"


def test_conversations_are_not_exposed_to_operators(bridge: KnowledgeBridge) -> None:
    remember(bridge, "Said in private.", 1)
    remember(bridge, "Said in the group.", 2, GROUP)
    cases: tuple[tuple[str, JsonObject, str], ...] = (
        ("records", {"lifecycle": "all"}, "records"), ("search", {"query": "said"}, "hits"), ("activity", {}, "rows"),
    )  # fmt: skip
    for method, params, key in cases:
        assert len(listed(operate(bridge, method, READER, params)[key])) == 1, method


@pytest.mark.parametrize(
    ("configuration", "may_read", "may_administer"),
    [("operatorRead: false", False, False), ("gateway: {shared: true}", False, True), ("", True, True)],
)
def test_reading_needs_operator_read_switched_on_and_an_admin_where_the_gateway_is_shared(
    tmp_path: Path, configuration: str, may_read: bool, may_administer: bool
) -> None:
    with open_bridge(tmp_path / "state", configuration) as bridge:
        remember(bridge, "It rained.", 1)
        for operator, may in ((READER, may_read), (LOCAL_OPERATOR, may_administer)):
            for name, params in ASKED.items():
                if name in ("evidence", "original", "mutation", "record", "revision", "connections"):
                    continue  # of a record that this store has not: what is tried here is the right
                if may:
                    assert operate(bridge, name, operator, params), name
                else:
                    assert isinstance(refused(bridge, name, operator, params), Denied), name


def test_operators_read_while_writes_are_disabled(tmp_path: Path) -> None:
    with open_bridge(tmp_path / "state") as bridge:
        remember(bridge, "It rained.", 1)
    with open_bridge(tmp_path / "state", "writesEnabled: false") as bridge:
        assert operate(bridge, "search", READER, {"query": "rained"})["total"] == 1


def test_an_edit_by_hand_is_seen_by_the_next_read(bridge: KnowledgeBridge) -> None:
    save_page(bridge, "Pilot")
    [card] = listed(operate(bridge, "recent")["records"])
    [store] = stores(bridge.state_dir)
    write_note(store / "vault" / "private", str(card["path"]), "torn")
    answer = operate(bridge, "recent")
    assert (answer["records"], answer["coverage"]) == ([], {"broken": 1})
    [row, _] = listed(operate(bridge, "activity")["rows"])
    assert (row["external"], row["changes"]) == (True, 1)


def test_a_wrong_argument_is_refused_by_its_name(bridge: KnowledgeBridge) -> None:
    cases: tuple[tuple[str, JsonObject, str], ...] = (
        ("records", {"full": True}, "full"), ("recent", {"limit": 0}, "limit"), ("record", {}, "id"),
        ("search", {"query": ""}, "query"), ("activity", {"before": 0}, "before"), ("record", {"id": "a b"}, "id"),
    )  # fmt: skip
    for method, params, field in cases:
        error = refused(bridge, method, READER, params)
        assert isinstance(error, InvalidArgument)
        assert error.fields["field"] == field


def test_a_program_asks_through_the_bridge_as_itself_or_for_an_operator(bridge: KnowledgeBridge) -> None:
    remember(bridge, "It rained.", 1)
    assert bridge.ask("operator.search", {"query": "rained"})["total"] == 1
    reader: JsonObject = {"id": "ana", "scopes": ["operator.read"], "agents": ["ben"]}
    with pytest.raises(Denied):
        bridge.ask("operator.search", {"query": "rained", "agent": "main", "operator": reader})
    with pytest.raises(Denied):
        bridge.ask("operator.search", {"query": "rained"}, operator=NOBODY)
    with pytest.raises(InvalidArgument) as caught:
        bridge.ask("knowledge_grep", {"query": "rained"})
    assert caught.value.fields["field"] == "method"
    with pytest.raises(InvalidArgument):
        bridge.ask("operator.search", {"query": "rained", "deadlineMs": 0})


def test_agents_have_no_tool_that_shows_complete_responses(bridge: KnowledgeBridge) -> None:
    for name in ASKED:
        with pytest.raises(UnknownTool):
            bridge.call(f"operator.{name}", {}, MAIN)


def test_the_answer_of_a_read_that_was_cancelled_first_is_that(bridge: KnowledgeBridge) -> None:
    remember(bridge, "It rained.", 1)
    call = parse_operator_call("operator.records", {}, peer=READER)
    call.cancellation.cancel()
    pending = bridge.operate(call)
    pending.wait()
    with pytest.raises(Cancelled):
        pending.deliver(lambda _: None)


def test_an_answer_is_not_handed_over_once_the_agent_uses_another_store(tmp_path: Path) -> None:
    with KnowledgeBridge(tmp_path / "state") as bridge:
        remember(bridge, "It rained.", 1)
        pending = bridge.operate(parse_operator_call("operator.records", {}, peer=READER))
        pending.wait()
        (bridge.state_dir / "knowledge.yaml").write_text("stores: {team: {label: Team, agents: [main]}}\n")

        def moved() -> bool:
            try:
                return operate(bridge, "status", READER)["state"] == "none"
            except Denied:  # this look was itself accepted just before
                return False

        eventually(moved)
        with pytest.raises(Denied):
            pending.deliver(lambda _: None)


def test_many_operators_read_side_by_side_with_an_agent_that_saves(bridge: KnowledgeBridge) -> None:
    remember(bridge, "It rained.", 1)
    failures: list[BaseException] = []

    def look() -> None:
        try:
            for _ in range(10):
                assert operate(bridge, "search", READER, {"query": "rained"})["total"] is not None
                assert operate(bridge, "recent", READER)["total"] is not None
        except BaseException as error:  # noqa: BLE001 - told in the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(2, 12):
        remember(bridge, f"It rained again {number}.", number, MAIN)
    for thread in threads:
        thread.join()
    assert failures == []
    assert operate(bridge, "search", READER, {"query": "rained"})["total"] == 11
