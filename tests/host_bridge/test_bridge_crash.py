"""Crashes: of the process, of the lane, of a request, of a database; through the Python door."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_bridge.bridge import KnowledgeBridge
from host_bridge.cli.doctor import quarantines
from messages.audience import OwnerPrivate
from messages.errors import InternalError, NotFound, Poison, Quarantined
from messages.json_types import JsonObject
from storage import faults
from storage.state.connection import StorageCorrupt
from tests.kit.actors import eventually
from tests.kit.leaks import nothing_left
from tests.kit.store import (
    GROUP,
    GROUP_PARTITION,
    MAIN,
    failure,
    items_of,
    only_store,
    open_bridge,
    remember,
    remembering,
    request_id,
    stores,
    total,
    write_note,
)
from tests.tree import CHECKOUT

AGENTS = "agents: {list: [{id: main}, {id: research}]}\n"
RESEARCH = OwnerPrivate("research")


@pytest.fixture(autouse=True)
def leaks() -> Iterator[None]:
    with nothing_left():
        yield


# --- the process is killed --------------------------------------------------------------------------------------------

CHILD = """
import json, os, signal, sys
from pathlib import Path
from storage import faults
from tests.kit.store import MAIN, open_bridge, remembering, request_id

state_dir, point = Path(sys.argv[1]), sys.argv[2]

def kill(reached):
    if reached == point:
        os.kill(os.getpid(), signal.SIGKILL)

with open_bridge(state_dir) as bridge:
    first = {**remembering("First."), "requestId": request_id(1)}
    print(json.dumps(bridge.call("knowledge_remember", first, MAIN)), flush=True)
    with faults.installed(kill):
        bridge.call("knowledge_remember", {**remembering("Second.", "Third."), "requestId": request_id(2)}, MAIN)
"""


@pytest.mark.parametrize(
    ("point", "accepted"),
    [
        pytest.param("stage.file.write.after", False, marks=pytest.mark.slow),
        ("accept.commit", False),
        ("accept.commit.after", True),
        pytest.param("place.file.after", True, marks=pytest.mark.slow),
        pytest.param("settle.commit.after", True, marks=pytest.mark.slow),
    ],
)
def test_after_a_kill_the_store_is_whole_and_every_replay_gives_what_was_promised(
    tmp_path: Path, point: str, accepted: bool
) -> None:
    child = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(CHILD), str(tmp_path), point],
        cwd=CHECKOUT, env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, stdout=subprocess.PIPE, timeout=60, check=False,
    )  # fmt: skip
    assert child.returncode == -signal.SIGKILL
    first = json.loads(child.stdout)
    with open_bridge(tmp_path) as bridge:
        assert remember(bridge, "First.", 1) == first
        assert total(bridge) == (3 if accepted else 1)
        request = {**remembering("Second.", "Third."), "requestId": request_id(2)}
        second = bridge.call("knowledge_remember", request, MAIN)
        assert "state" not in second
        assert bridge.call("knowledge_remember", request, MAIN) == second
        assert all("duplicate" not in item for item in items_of(second)), "its own receipt, not a second save"
        assert total(bridge) == 3
        hits = bridge.call("knowledge_grep", {"query": "second"}, MAIN)
        assert hits["total"] == 1
    assert list(only_store(tmp_path).vault.rglob(".kr-*")) == []


# --- the lane crashes -------------------------------------------------------------------------------------------------


class Crash:
    """A defect at a point, some times."""

    def __init__(self, point: str, times: int = 1) -> None:
        self.point = point
        self.times = times

    def __call__(self, point: str) -> None:
        if point == self.point and self.times:
            self.times -= 1
            raise RuntimeError("a defect of ours")


def test_a_lane_that_crashes_answers_typed_without_the_text_of_the_defect_and_serves_the_next_call(
    tmp_path: Path,
) -> None:
    with open_bridge(tmp_path) as bridge:
        # A conversation, since the watch of the private partition makes the lane read there on its own.
        remember(bridge, "First.", 1, GROUP)
        with faults.installed(Crash("edits.read")):
            write_note(only_store(tmp_path).partition(GROUP_PARTITION), "a.md", "x")
            error = failure(bridge, "records", {}, GROUP)
        assert isinstance(error, InternalError)
        assert error.retry == "safe", "a read changes nothing, whether it ran or not"
        assert "a defect of ours" not in str(error.to_data()) + error.message
        assert total(bridge, GROUP) == 1
        assert remember(bridge, "First.", 1, GROUP)["items"]


@pytest.mark.parametrize("point", ["stage.file.write.after", "accept.begin.after", "place.file", "settle.commit"])
def test_a_save_whose_lane_crashes_is_there_once_when_it_is_repeated(tmp_path: Path, point: str) -> None:
    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        request = {**remembering("A fact."), "requestId": request_id(1)}
        with faults.installed(Crash(point)):
            error = failure(bridge, "remember", request)
        assert isinstance(error, InternalError)
        assert error.retry == "unknown"
        done = bridge.call("knowledge_remember", request, MAIN)
        assert "state" not in done
        assert "duplicate" not in items_of(done)[0]
        assert bridge.call("knowledge_remember", request, MAIN) == done
        assert total(bridge) == 1
        rows = bridge.call("knowledge_history", {}, MAIN)["rows"]
        assert isinstance(rows, list)
        assert len(rows) == 1


def test_a_request_that_crashes_its_lane_twice_is_poison_and_others_go_on(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        request = {**remembering("A fact."), "requestId": request_id(1)}
        with faults.installed(Crash("stage.file.write.after", times=2)):
            for _ in range(2):
                assert isinstance(failure(bridge, "remember", request), InternalError)
        error = failure(bridge, "remember", request)
        assert isinstance(error, Poison)
        assert error.fields["requestId"] == request_id(1)
        remember(bridge, "Another.", 2)
        assert total(bridge) == 1
    with open_bridge(tmp_path) as bridge:
        assert "state" not in bridge.call("knowledge_remember", request, MAIN), "poison lasts as long as the process"


def test_a_revocation_after_a_lane_crashed_inside_its_commit_waits_for_the_recovery(tmp_path: Path) -> None:
    run = OwnerPrivate("main", run_id="run 1")
    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        with faults.installed(Crash("place.file")):
            error = failure(bridge, "remember", {**remembering("A fact."), "requestId": request_id(1)}, run)
        assert isinstance(error, InternalError)
        bridge.end_run("run 1")
        rows = bridge.call("knowledge_history", {}, MAIN)["rows"]
        assert isinstance(rows, list)
        assert len(rows) == 1, "committed before end_run returned, and finished by the recovery"


@pytest.mark.parametrize(
    "helper", ["indexer", "evidence verifier", "source keeper", "file sync", "git queue", "watcher"]
)
def test_a_helper_that_crashes_is_started_again_and_the_lane_lives_on(tmp_path: Path, helper: str) -> None:
    with open_bridge(tmp_path) as bridge:
        remember(bridge, "A fact about the harbor.", 1)
        [store] = stores(tmp_path)
        runtime = bridge._runtime
        handle = runtime._tree.handle(f"store {store.name}/helpers/{helper}")
        eventually(lambda: handle.health().state == "ready" and handle.health().incarnation == 1)
        handle.tell(object())  # no helper takes that
        eventually(lambda: handle.health().incarnation == 2)
        found = bridge.call("knowledge_grep", {"query": "harbor"}, MAIN)
        assert found["total"] == 1
        claim = items_of(remember(bridge, "A fact about the harbor.", 1))[0]["id"]
        shown = bridge.call("knowledge_record", {"id": claim, "includeEvidence": True}, MAIN)["record"]
        assert isinstance(shown, dict)
        assert shown["evidence"]
        lane = runtime._tree.handle(f"store {store.name}/lane")
        assert lane.health().incarnation == 1


# --- a database is damaged --------------------------------------------------------------------------------------------


def damage(store: Path) -> None:
    database = store / "state.sqlite"
    size = database.stat().st_size
    for side in ("-wal", "-shm"):
        (store / f"state.sqlite{side}").unlink(missing_ok=True)
    database.write_bytes(os.urandom(size))


def test_a_damaged_database_is_quarantined_and_other_stores_go_on(tmp_path: Path) -> None:
    with open_bridge(tmp_path, AGENTS) as bridge:
        remember(bridge, "A fact.", 1)
        [mine] = stores(tmp_path)
        remember(bridge, "A fact.", 1, RESEARCH)
    damage(mine)
    before = (mine / "state.sqlite").read_bytes()
    with open_bridge(tmp_path, AGENTS) as bridge:
        # While the store goes down a call may meet it stopping or restarting, which did not run either.
        for _ in range(3):
            eventually(lambda: isinstance(failure(bridge, "status", {}), Quarantined))
            assert total(bridge, RESEARCH) == 1
        error = failure(bridge, "records", {}, GROUP)
        assert isinstance(error, Quarantined)
        assert "corruption" in error.message
        for _ in range(3):
            assert total(bridge, RESEARCH) == 1
        remember(bridge, "Another.", 2, RESEARCH)
        assert "quarantine" in str(bridge.health())
    assert (mine / "state.sqlite").read_bytes() == before


def test_a_database_that_turns_out_damaged_while_it_runs_is_quarantined(tmp_path: Path) -> None:
    def corrupt(point: str) -> None:
        if point == "accept.begin":
            raise StorageCorrupt("state.sqlite is damaged")

    with open_bridge(tmp_path, AGENTS) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        bridge.call("knowledge_status", {}, RESEARCH)
        with faults.installed(corrupt):
            assert isinstance(
                failure(bridge, "remember", {**remembering("A fact."), "requestId": request_id(1)}), Quarantined
            )
        # While the store goes down it is stopping, which did not run either.
        eventually(lambda: isinstance(failure(bridge, "status", {}), Quarantined))
        assert total(bridge, RESEARCH) == 0


def test_a_revocation_does_not_wait_for_a_store_that_is_quarantined(tmp_path: Path) -> None:
    def corrupt(point: str) -> None:
        if point == "accept.commit":
            raise StorageCorrupt("state.sqlite is damaged")

    run = OwnerPrivate("main", run_id="run 1")
    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        with faults.installed(corrupt):
            error = failure(bridge, "remember", {**remembering("A fact."), "requestId": request_id(1)}, run)
        assert isinstance(error, Quarantined)
        bridge.end_run("run 1", deadline_ms=5_000)


def test_a_store_is_released_from_quarantine_once_the_reason_is_gone(tmp_path: Path) -> None:
    def corrupt(point: str) -> None:
        if point == "accept.begin":
            raise StorageCorrupt("state.sqlite is damaged")

    def release(bridge: KnowledgeBridge) -> JsonObject:
        return bridge.ask("operator.releaseStore", {"store": vault})

    with open_bridge(tmp_path, AGENTS) as bridge:
        remember(bridge, "A fact.", 1)
        [mine] = stores(tmp_path)
        vault = mine.name
        assert release(bridge) == {"vaultId": vault, "released": False}
        with faults.installed(corrupt):
            failure(bridge, "remember", {**remembering("Another."), "requestId": request_id(2)})
        eventually(lambda: isinstance(failure(bridge, "status", {}), Quarantined))
        [finding] = quarantines({"health": bridge.health()})
        assert (finding["code"], finding["vaultId"]) == ("quarantined", vault)
        assert "knowledge repair" in str(finding["mend"])
        assert release(bridge) == {"vaultId": vault, "released": True}
        assert total(bridge) == 1
        assert quarantines({"health": bridge.health()}) == []
        remember(bridge, "Another.", 2)
        assert total(bridge) == 2
        with pytest.raises(NotFound):
            bridge.ask("operator.releaseStore", {"store": str(uuid.UUID(int=5, version=4))})
