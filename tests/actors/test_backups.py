"""Backups through the runtime: one at a time, with edits taken over first, and every refusal typed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from host_bridge.bridge import KnowledgeBridge
from messages.errors import Busy, Denied, InvalidArgument
from messages.json_types import JsonObject
from messages.operator import Operator
from storage import faults
from tests.kit.actors import eventually
from tests.kit.store import open_bridge, remember, stores


def state(bridge: KnowledgeBridge) -> JsonObject:
    return bridge.ask("operator.backupStatus", {})


def finished(bridge: KnowledgeBridge) -> JsonObject:
    eventually(lambda: state(bridge)["state"] != "running")
    return state(bridge)


def begin(bridge: KnowledgeBridge, path: Path, **more: JsonObject | str | bool) -> JsonObject:
    return bridge.ask("operator.backup", {"path": str(path), **more})


def test_a_backup_is_begun_answered_at_once_and_asked_for(tmp_path: Path) -> None:
    with open_bridge(tmp_path / "state") as bridge:
        assert state(bridge) == {"state": "none"}
        remember(bridge, "A fact.", 1)
        [store] = stores(tmp_path / "state")
        [note] = (store / "vault" / "private" / "claims").rglob("*.md")
        edited = note.read_bytes() + b"By hand.\n"
        note.write_bytes(edited)
        assert begin(bridge, tmp_path / "backup")["state"] in ("running", "done")
        done = finished(bridge)
        assert (done["state"], done["vaultIds"], done["findings"]) == ("done", [store.name], [])
        [copied] = (tmp_path / "backup").rglob(note.name)
        assert copied.read_bytes() == edited


def test_a_second_backup_waits_its_turn_and_a_full_disk_is_told(tmp_path: Path) -> None:
    held, goes_on = threading.Event(), threading.Event()

    def hold(name: str) -> None:
        if name == "backup.source.copy":
            held.set()
            goes_on.wait(30)
        elif name == "backup.write":
            raise OSError(28, "No space left on device")

    with open_bridge(tmp_path / "state") as bridge:
        remember(bridge, "A fact.", 1)
        with faults.installed(hold):
            begin(bridge, tmp_path / "backup")
            assert held.wait(30)
            assert state(bridge)["state"] == "running"
            with pytest.raises(Busy):
                begin(bridge, tmp_path / "another")
            # Agents go on meanwhile.
            remember(bridge, "Another.", 2)
            goes_on.set()
            failed = finished(bridge)
        error = failed["error"]
        assert isinstance(error, dict)
        assert (failed["state"], error["code"], error["errno"]) == ("failed", "storage_error", 28)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["state"]
        begin(bridge, tmp_path / "backup")
        assert finished(bridge)["state"] == "done"


def test_a_runtime_that_stops_ends_its_backup_and_leaves_nothing(tmp_path: Path) -> None:
    held, goes_on = threading.Event(), threading.Event()

    def hold(name: str) -> None:
        if name == "backup.source.copy":
            held.set()
            goes_on.wait(30)

    with faults.installed(hold):
        with open_bridge(tmp_path / "state") as bridge:
            remember(bridge, "A fact.", 1)
            begin(bridge, tmp_path / "backup")
            assert held.wait(30)
            bridge._runtime._backups.stop()
            goes_on.set()
            failed = finished(bridge)
    error = failed["error"]
    assert isinstance(error, dict)
    assert (failed["state"], error["code"]) == ("failed", "stopping")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state"]


def test_a_place_that_cannot_be_and_an_operator_of_some_agents_are_refused(tmp_path: Path) -> None:
    some = Operator("ben", frozenset(("operator.admin",)), ("main",))
    reader = Operator("ana", frozenset(("operator.read",)))
    with open_bridge(tmp_path / "state") as bridge:
        remember(bridge, "A fact.", 1)
        [store] = stores(tmp_path / "state")
        with pytest.raises(InvalidArgument) as caught:
            begin(bridge, tmp_path / "state" / "knowledge" / "inside")
        assert caught.value.fields["field"] == "path"
        params: JsonObject = {"path": str(tmp_path / "backup")}
        for operator in (some, reader):
            with pytest.raises(Denied):
                bridge.ask("operator.backup", params, operator=operator)
        assert state(bridge) == {"state": "none"}
        bridge.ask("operator.backup", {**params, "store": store.name}, operator=some)
        assert finished(bridge)["whole"] is False
        assert bridge.ask("operator.backupStatus", {}, operator=some)["state"] == "done"
        begin(bridge, tmp_path / "everything")
        finished(bridge)
        with pytest.raises(Denied):
            bridge.ask("operator.backupStatus", {}, operator=some)
