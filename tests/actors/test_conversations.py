"""Exporting a conversation through the real runtime: who may, and how the store waits meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_bridge.bridge import KnowledgeBridge
from messages.errors import Denied, InvalidArgument, KnowledgeError, NotFound, StorageError
from messages.json_types import JsonObject, JsonValue
from messages.operator import LOCAL_OPERATOR, Operator, parse_operator_call
from storage import faults
from tests.actors.test_operators import answer
from tests.kit.leaks import nothing_left
from tests.kit.store import GROUP, open_bridge, remember, stores, total

SESSION = GROUP.session_id
AGENTS = "agents: {list: [{id: main}, {id: research}]}"


@pytest.fixture(autouse=True)
def leaks() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[KnowledgeBridge]:
    with open_bridge(tmp_path / "state", AGENTS) as opened:
        remember(opened, "Private.", 1)
        remember(opened, "Ours.", 2, GROUP)
        yield opened


def ask(
    bridge: KnowledgeBridge, method: str, operator: Operator = LOCAL_OPERATOR, **params: JsonValue
) -> JsonObject:
    return answer(bridge.operate(parse_operator_call(f"operator.{method}", params, peer=operator)))


def refused(
    bridge: KnowledgeBridge, method: str, operator: Operator = LOCAL_OPERATOR, **params: JsonValue
) -> KnowledgeError:
    try:
        found = ask(bridge, method, operator, **params)
    except KnowledgeError as error:
        return error
    raise AssertionError(f"answered: {sorted(found)}")


def test_a_conversation_is_exported_and_its_store_goes_on(bridge: KnowledgeBridge, tmp_path: Path) -> None:
    target = tmp_path / "chat"
    shown = ask(bridge, "exportConversation", session=SESSION, path=str(target))
    assert (shown["agent"], shown["sessionId"], shown["records"], shown["revisions"]) == ("main", SESSION, 1, 1)
    assert json.loads((target / "export.json").read_text())["agent"] == "main"
    assert total(bridge, GROUP) == 1
    remember(bridge, "More.", 3, GROUP)
    error = refused(bridge, "exportConversation", session=SESSION, path=str(target))
    assert isinstance(error, InvalidArgument)
    assert error.fields["reason"] == "taken"
    assert ask(bridge, "exportConversation", session=SESSION, path=f"{target}-2")["records"] == 2


def test_only_an_administrator_within_the_role_exports(bridge: KnowledgeBridge, tmp_path: Path) -> None:
    target = str(tmp_path / "chat")
    for operator in (
        Operator("ana", frozenset(["operator.read", "operator.write"])),
        Operator("ben", frozenset(["operator.admin"]), agents=("research",)),
    ):
        error = refused(bridge, "exportConversation", operator, agent="main", session=SESSION, path=target)
        assert isinstance(error, Denied)
    assert isinstance(refused(bridge, "exportConversation", agent="research", session=SESSION, path=target), NotFound)
    assert len(stores(bridge.state_dir)) == 1, "looking creates none"
    assert not Path(target).exists()


def test_an_export_that_fails_leaves_nothing_and_the_store_goes_on(bridge: KnowledgeBridge, tmp_path: Path) -> None:
    def full(point: str) -> None:
        if point == "export.file.write":
            raise OSError(28, "No space left on device")

    with faults.installed(full):
        error = refused(bridge, "exportConversation", session=SESSION, path=str(tmp_path / "chat"))
    assert isinstance(error, StorageError)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state"]
    assert total(bridge, GROUP) == 1
