"""Exporting and erasing a conversation through the real runtime: who may, the audit, and how the store goes on."""

from __future__ import annotations

import json
import subprocess
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from actors.authority import Permit, authority
from actors.calls import PendingCall
from host_bridge.bridge import KnowledgeBridge
from messages.audience import Audience
from messages.envelope import Call, Deadline
from messages.errors import Denied, InvalidArgument, KnowledgeError, NotFound, StorageError, StoreOpening
from messages.json_types import JsonObject, JsonValue
from messages.operator import LOCAL_OPERATOR, Operator, parse_operator_call
from messages.vocabulary import Partition
from storage import faults
from tests.actors.test_operators import answer, listed
from tests.kit.actors import eventually
from tests.kit.leaks import nothing_left
from tests.kit.store import GROUP, GROUP_PARTITION, MAIN, only_store, open_bridge, remember, stores, total

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


def ask(bridge: KnowledgeBridge, method: str, operator: Operator = LOCAL_OPERATOR, **params: JsonValue) -> JsonObject:
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


# --- erasing ---------------------------------------------------------------------------------------------------------


def erasures(bridge: KnowledgeBridge) -> list[JsonObject]:
    return [row for row in listed(bridge.ask("access.audit", {})["rows"]) if row["action"] == "conversation.erase"]


def committed(bridge: KnowledgeBridge) -> bool:
    git = bridge.call("knowledge_status", {}, MAIN)["git"]
    return isinstance(git, dict) and git.get("state") == "current"


def logged(bridge: KnowledgeBridge) -> str:
    """Every commit of the local history, with the names of its files."""
    vault = only_store(bridge.state_dir).vault
    done = subprocess.run(
        ["git", "log", "--all", "--name-only"], cwd=vault, capture_output=True, text=True, check=False
    )
    return done.stdout


def test_an_erased_conversation_is_gone_and_everything_else_goes_on(bridge: KnowledgeBridge) -> None:
    eventually(lambda: SESSION in logged(bridge))
    looked = ask(bridge, "eraseConversation", session=SESSION, dryRun=True)
    assert (looked["state"], looked["records"], looked["revisions"]) == ("dry_run", 1, 1)
    assert total(bridge, GROUP) == 1
    assert erasures(bridge) == []
    shown = ask(bridge, "eraseConversation", session=SESSION)
    assert shown == {**looked, "state": "erased"}
    [row] = erasures(bridge)
    assert (row["actor"], row["door"], row["agent"], row["sessionId"]) == (
        "operator:local", "socket", "main", SESSION,
    )  # fmt: skip
    assert total(bridge, GROUP) == 0
    assert total(bridge) == 1
    assert not only_store(bridge.state_dir).partition(Partition(SESSION)).exists()
    assert isinstance(refused(bridge, "eraseConversation", session=str(uuid.UUID(int=9))), NotFound)
    remember(bridge, "Ours again.", 2, GROUP)  # the request id is free again
    assert total(bridge, GROUP) == 1


def test_the_local_history_is_built_again_from_what_is_left_without_waiting_for_a_save(
    bridge: KnowledgeBridge,
) -> None:
    eventually(lambda: SESSION in logged(bridge))
    ask(bridge, "eraseConversation", session=SESSION)
    total(bridge)
    eventually(lambda: "private/claims" in logged(bridge))
    assert SESSION not in logged(bridge)
    eventually(lambda: committed(bridge))
    history = listed(bridge.call("knowledge_history", {}, MAIN)["rows"])
    [revision] = history
    remember(bridge, "More.", 3)
    eventually(lambda: logged(bridge).count("private/claims") == 2)
    assert revision["operation"] == "remember"


def test_an_erasure_that_would_take_a_persons_commits_along_is_refused_unless_it_is_said(
    bridge: KnowledgeBridge,
) -> None:
    eventually(lambda: SESSION in logged(bridge))
    whose = ["-c", "user.name=Ana", "-c", "user.email=ana@example.org"]
    commit = ["git", *whose, "commit", "--allow-empty", "--no-verify", "-m", "By hand"]
    vault = only_store(bridge.state_dir).vault
    # As a person does whose commit met ours: once more.
    eventually(lambda: subprocess.run(commit, cwd=vault, check=False, capture_output=True).returncode == 0)
    error = refused(bridge, "eraseConversation", session=SESSION)
    assert isinstance(error, InvalidArgument)
    assert (error.fields["field"], error.fields["commits"]) == ("discardGit", 1)
    assert total(bridge, GROUP) == 1
    assert erasures(bridge) == []
    assert "By hand" in logged(bridge)
    ask(bridge, "eraseConversation", session=SESSION, discardGit=True)
    assert total(bridge, GROUP) == 0


def test_only_an_administrator_within_the_role_erases(bridge: KnowledgeBridge) -> None:
    for operator in (
        Operator("ana", frozenset(["operator.read", "operator.write"])),
        Operator("ben", frozenset(["operator.admin"]), agents=("research",)),
    ):
        error = refused(bridge, "eraseConversation", operator, agent="main", session=SESSION)
        assert isinstance(error, Denied)
    assert isinstance(refused(bridge, "eraseConversation", agent="research", session=SESSION), NotFound)
    assert total(bridge, GROUP) == 1


def test_an_erasure_that_cannot_be_noted_in_the_audit_does_not_begin(bridge: KnowledgeBridge) -> None:
    def fail(point: str) -> None:
        if point == "registry.change.begin":
            raise OSError(28, "No space left on device")

    with faults.installed(fail):
        refused(bridge, "eraseConversation", session=SESSION)
    assert total(bridge, GROUP) == 1


def test_an_erasure_that_stopped_half_way_serves_nothing_until_it_is_finished(bridge: KnowledgeBridge) -> None:
    broken = True

    def fail(point: str) -> None:
        if broken and point == "erase.files":
            raise OSError(5, "Input/output error")

    with faults.installed(fail):
        error = refused(bridge, "eraseConversation", session=SESSION)
        assert isinstance(error, StorageError)
        assert (error.fields["reason"], error.retry) == ("erasure_unfinished", "unknown")
        with pytest.raises(KnowledgeError):
            bridge.call("knowledge_records", {}, GROUP, deadline_ms=2_000)
        broken = False
        eventually(lambda: answered(bridge))
    assert total(bridge, GROUP) == 0
    assert total(bridge) == 1


def answered(bridge: KnowledgeBridge) -> bool:
    try:
        bridge.call("knowledge_records", {}, GROUP, deadline_ms=2_000)
    except KnowledgeError:
        return False
    return True


# --- a barrier -------------------------------------------------------------------------------------------------------


def asked(bridge: KnowledgeBridge, audience: Audience) -> PendingCall:
    """A call whose answer is computed and not handed over."""
    pending = bridge.submit(Call("knowledge_records", {}, audience, Deadline.after(20)))
    assert isinstance(pending, PendingCall)
    pending.wait()
    return pending


def served(bridge: KnowledgeBridge, audience: Audience) -> bool:
    """Whether the store answers; while it rests it says so."""
    try:
        return total(bridge, audience) == 1
    except StoreOpening:
        return False


def test_an_answer_that_was_computed_before_an_erasure_never_leaves_after_it(bridge: KnowledgeBridge) -> None:
    ours, owners = asked(bridge, GROUP), asked(bridge, MAIN)
    ask(bridge, "eraseConversation", session=SESSION)
    left: list[JsonObject] = []
    with pytest.raises(Denied) as refusal:
        ours.deliver(left.append)
    assert (refusal.value.fields["reason"], refusal.value.retry, left) == ("erased", "never", [])
    owners.deliver(left.append)
    assert left[0]["total"] == 1, "nobody else's is held up"
    assert total(bridge, GROUP) == 0, "the conversation goes on, from nothing"
    remember(bridge, "Again.", 9, GROUP)
    assert total(bridge, GROUP) == 1


def test_an_erasure_is_answered_only_when_no_answer_from_before_is_being_handed_over(bridge: KnowledgeBridge) -> None:
    ours = asked(bridge, GROUP)
    inside, go_on = threading.Event(), threading.Event()

    def hand_over(answer: JsonObject) -> None:
        inside.set()
        assert go_on.wait(20)

    with ThreadPoolExecutor(2) as pool:
        delivered = pool.submit(ours.deliver, hand_over)
        assert inside.wait(20)
        erased = pool.submit(ask, bridge, "eraseConversation", session=SESSION)
        eventually(lambda: not only_store(bridge.state_dir).partition(GROUP_PARTITION).exists())
        eventually(lambda: served(bridge, MAIN))
        assert not erased.done()
        go_on.set()
        delivered.result(20)
        assert erased.result(20)["state"] == "erased"


def test_an_erasure_says_when_an_answer_from_before_does_not_end_leaving(
    bridge: KnowledgeBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authority, "BARRIER_SECONDS", 0.05)
    told: list[KnowledgeError] = []
    asked(bridge, GROUP).deliver(lambda answer: told.append(refused(bridge, "eraseConversation", session=SESSION)))
    assert (told[0].code, told[0].retry) == ("revocation_pending", "unknown")
    assert isinstance(refused(bridge, "eraseConversation", session=SESSION, dryRun=True), NotFound)


def test_an_erasure_that_is_decided_and_stops_half_way_is_a_barrier_too(bridge: KnowledgeBridge) -> None:
    ours = asked(bridge, GROUP)

    def full(point: str) -> None:
        if point == "erase.files":
            raise OSError(28, "No space left on device")

    with faults.installed(full):
        error = refused(bridge, "eraseConversation", session=SESSION)
    assert error.retry == "unknown"
    with pytest.raises(Denied):
        ours.deliver(lambda answer: None)


def test_a_save_that_was_accepted_under_a_right_from_before_is_refused_after_an_erasure(
    bridge: KnowledgeBridge,
) -> None:
    gate = bridge._runtime.gate
    before = gate.resolve(GROUP, write=True)
    assert isinstance(before, Permit)
    ask(bridge, "eraseConversation", session=SESSION)
    with pytest.raises(Denied), gate.fence(before):
        raise AssertionError("it was let in")
    after = gate.resolve(GROUP, write=True)
    assert isinstance(after, Permit)
    with gate.fence(after):
        pass
