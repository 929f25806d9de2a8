"""``access.runs.end`` and ``sessions.announce`` over the host protocol: by the host itself, and by operators.

Judged at the far end of the pipe, as ``test_barrier``. decisions.md sections 6 and 7.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from actors.access import AccessDesk
from actors.authority import PermitGate
from host_bridge.bridge import KnowledgeBridge
from messages.json_types import JsonObject, JsonValue
from messages.operator import LOCAL_OPERATOR
from storage import faults, known_conversations
from tests.actors.test_operators import listed
from tests.host_bridge.test_barrier import (
    AUDIENCE,
    BEFORE,
    CHAT,
    INSIDE,
    SECRET,
    Host,
    Paused,
    claims,
    code,
    killed_between_commit_and_rename,
    on_disk,
)
from tests.kit.actors import eventually
from tests.kit.leaks import nothing_left
from tests.kit.store import open_bridge, remember, total

RUN: JsonObject = {"kind": "owner-private", "agent": "main", "runId": "run 1"}
OTHER_RUN: JsonObject = {**RUN, "runId": "run 2"}


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[KnowledgeBridge]:
    with nothing_left(), open_bridge(tmp_path, "agents: {list: [{id: main}, {id: research}]}") as opened:
        remember(opened, f"{SECRET} is private.", 1)
        yield opened


@pytest.fixture(params=["stdio", "socket"])
def host(bridge: KnowledgeBridge, request: pytest.FixtureRequest) -> Iterator[Host]:
    """A host: on stdio it is nobody else, over the owner's socket an operator too."""
    made = Host(bridge, operator=LOCAL_OPERATOR if request.param == "socket" else None)
    made.audience = RUN
    made.read()
    yield made
    made.close()


def end(host: Host, run_id: str = "run 1") -> int:
    return host.send("access.runs.end", {"runId": run_id})


def ended(bridge: KnowledgeBridge) -> bool:
    return "run 1" in bridge._runtime.gate.ended_runs


# --- the end of a run ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", BEFORE)
def test_a_save_that_stood_before_its_commit_when_its_run_ended_never_happens(
    bridge: KnowledgeBridge, host: Host, point: str
) -> None:
    paused = Paused(point)
    with faults.installed(paused):
        saving = host.save("Too late.")
        assert paused.reached.wait(20)
        assert host.answer(end(host))[1]["result"] == {}
        paused.go_on.set()
        assert code(host.answer(saving)[1]) == "audience_stale"
    assert claims(bridge) == {f"{SECRET} is private."}


@pytest.mark.parametrize("point", INSIDE)
def test_the_end_of_a_run_is_answered_after_a_save_that_it_met_inside_the_commit(
    bridge: KnowledgeBridge, host: Host, point: str
) -> None:
    paused = Paused(point)
    with faults.installed(paused):
        saving = host.save("In time.")
        assert paused.reached.wait(20)
        ending = end(host)
        eventually(lambda: ended(bridge))
        assert not host.answered(ending)
        paused.go_on.set()
        place, message = host.answer(ending)
        assert "result" in message
        after = claims(bridge)
        answered, told = host.answer(saving)
        assert "error" in told or answered < place
    assert claims(bridge) == after == {f"{SECRET} is private.", "In time."}


def test_without_the_fence_a_save_follows_the_end_of_its_run(
    bridge: KnowledgeBridge, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PermitGate, "fence", lambda self, permit, unfinished=None: nullcontext())
    monkeypatch.setattr(PermitGate, "check", lambda self, permit, *, write: None)
    paused = Paused(BEFORE[-1])
    with faults.installed(paused):
        saving = host.save("Too late.")
        assert paused.reached.wait(20)
        host.answer(end(host))
        paused.go_on.set()
        host.answer(saving)
    assert "Too late." in claims(bridge)


def test_other_runs_and_children_of_other_runs_go_on_and_children_of_the_run_do_not(host: Host) -> None:
    host.answer(end(host))
    host.answer(end(host))  # again, because its answer got lost
    outcomes = {}
    audiences: dict[str, JsonValue] = {
        "run": RUN,
        "child": {**OTHER_RUN, "root": RUN},
        "other": OTHER_RUN,
        "no run": {"kind": "owner-private", "agent": "main"},
    }
    for name, audience in audiences.items():
        host.audience = audience
        outcomes[name] = "result" in host.answer(host.look())[1]
    assert outcomes == {"run": False, "child": False, "other": True, "no run": True}


def test_a_store_that_a_crash_left_with_a_save_has_been_opened_when_the_end_of_a_run_returns(tmp_path: Path) -> None:
    killed_between_commit_and_rename(tmp_path)
    with nothing_left(), open_bridge(tmp_path) as bridge:
        bridge.ask("access.runs.end", {"runId": "any"})
        assert on_disk(tmp_path) == 1, "finished before the answer"


def test_without_the_opening_the_save_would_appear_after_the_end_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_between_commit_and_rename(tmp_path)
    monkeypatch.setattr(AccessDesk, "_narrowed", lambda self, message: ())
    with nothing_left(), open_bridge(tmp_path) as bridge:
        bridge.ask("access.runs.end", {"runId": "any"})
        assert on_disk(tmp_path) == 0
        total(bridge)
        assert on_disk(tmp_path) == 1


def operator(*scopes: str, **more: JsonValue) -> JsonObject:
    return {"operator": {"id": "ana", "scopes": list(scopes), **more}}


@pytest.mark.parametrize(
    ("method", "params", "refused"),
    [
        ("access.runs.end", {}, "invalid_argument"),
        ("access.runs.end", {"runId": ""}, "invalid_argument"),
        ("access.runs.end", {"runId": "r" * 129}, "limit_exceeded"),
        ("access.runs.end", {"runId": "r", "agent": "main"}, "invalid_argument"),
        ("access.runs.end", {"runId": "r", **operator("operator.write")}, "denied"),
        ("access.runs.end", {"runId": "r", **operator("operator.admin", agents=["main"])}, "denied"),
        ("sessions.announce", {}, "invalid_argument"),
        ("sessions.announce", {"sessions": [{"agent": "main"}]}, "invalid_argument"),
        ("sessions.announce", {"sessions": [{"agent": "main", "sessionKey": "k", "x": 1}]}, "invalid_argument"),
        ("sessions.announce", {"sessions": [{"agent": "stranger", "sessionKey": "k"}]}, "denied"),
        ("sessions.announce", {"sessions": [], "agent": "main"}, "invalid_argument"),
        ("sessions.announce", {"sessions": [], **operator("operator.write")}, "denied"),
        (
            "sessions.announce",
            {
                "sessions": [{"agent": "main", "sessionKey": "k"}],
                **operator("operator.admin", agents=["research"]),
            },
            "denied",
        ),
    ],
)
def test_what_may_not_be_ended_or_announced_is_refused_and_changes_nothing(
    bridge: KnowledgeBridge, host: Host, method: str, params: JsonObject, refused: str
) -> None:
    assert code(host.ask(method, params)) == refused
    assert bridge._runtime.gate.ended_runs == frozenset()
    assert known(bridge) == []


def test_an_administrator_of_every_agent_ends_a_run(bridge: KnowledgeBridge, host: Host) -> None:
    assert host.ask("access.runs.end", {"runId": "run 1", **operator("operator.admin")})["result"] == {}
    assert ended(bridge)


# --- conversations that the host has --------------------------------------------------------------------------------


def known(bridge: KnowledgeBridge, agent: str = "main") -> list[str]:
    found = bridge.ask("access.grants.list", {"agent": agent})
    return [str(row["sessionKey"]) for row in listed(found["conversations"])]


def announce(host: Host, *keys: str, agent: str = "main") -> JsonObject:
    return host.ask("sessions.announce", {"sessions": [{"agent": agent, "sessionKey": key} for key in keys]})


def test_known_conversations_are_the_announced_ones_and_those_that_called(
    bridge: KnowledgeBridge, host: Host, tmp_path: Path
) -> None:
    assert announce(host, "chat:1", "chat:2", "chat:1")["result"] == {"announced": 2}
    announce(host, "chat:9", agent="research")
    host.audience = AUDIENCE
    host.answer(host.look())
    for key in ("chat:2", "chat:3"):
        bridge.ask("access.grants.set", {"agent": "main", "sessionKey": key, "access": "read"})
    assert sorted(known(bridge)) == ["chat:1", "chat:2", CHAT.session_key]
    assert known(bridge, "research") == ["chat:9"]
    grants = listed(bridge.ask("access.grants.list", {"agent": "main"})["grants"])
    assert {row["sessionKey"]: row["known"] for row in grants} == {"chat:2": True, "chat:3": False}


def test_an_announced_conversation_has_no_access_by_that(bridge: KnowledgeBridge, host: Host) -> None:
    announce(host, CHAT.session_key)
    assert total(bridge, CHAT) == 0


def test_announcing_again_forgets_nobody_and_is_bounded(
    bridge: KnowledgeBridge, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(host, "chat:1")
    announce(host)
    assert known(bridge) == ["chat:1"]
    monkeypatch.setattr(known_conversations, "KNOWN_MAX", 3)
    announce(host, *(f"chat:{number}" for number in range(10)))
    assert len(known(bridge)) == 3


@pytest.mark.parametrize("point", ["registry.seen.begin", "registry.seen.commit"])
def test_an_announcement_that_cannot_be_kept_is_refused(bridge: KnowledgeBridge, host: Host, point: str) -> None:
    def fail(name: str) -> None:
        if name == point:
            raise OSError(28, "No space left on device")

    with faults.installed(fail):
        assert code(announce(host, "chat:1")) == "storage_error"
    assert known(bridge) == []
