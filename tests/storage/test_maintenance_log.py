"""What maintenance remembers between processes (decisions.md section 5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from messages.errors import StoreUnavailable
from messages.json_types import JsonObject
from storage.layout import Layout
from storage.maintenance_log import MaintenanceLog
from storage.registry import Isolated, Registry
from storage.registry_audit import By
from storage.registry_recovery import rebuild


def test_a_schedule_a_run_and_results_are_there_after_a_restart(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    registry = Registry.open(layout, at=1)
    entry = registry.ensure(Isolated("main"), at=1)
    log = MaintenanceLog.open(layout)
    assert (log.next_at("daily"), log.last_run(), log.results()) == (None, None, [])
    log.schedule("daily", 77)
    log.note_run({"outcome": "done"})
    result: JsonObject = {"vaultId": entry.vault_id, "outcome": "done"}
    log.note_result(entry.vault_id, {"outcome": "failed"})
    log.note_result(entry.vault_id, result)
    log.close()
    log = MaintenanceLog.open(layout)
    assert (log.next_at("daily"), log.last_run(), log.results()) == (77, {"outcome": "done"}, [result])
    log.close()
    registry.close()


def test_a_time_that_was_reckoned_from_another_rule_does_not_count(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    Registry.open(layout, at=1).close()
    log = MaintenanceLog.open(layout)
    log.schedule("daily at three", 77)
    assert log.next_at("daily at four") is None
    log.close()


def test_nothing_is_noted_of_a_store_that_is_not_registered(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    Registry.open(layout, at=1).close()
    log = MaintenanceLog.open(layout)
    log.note_result("22222222-2222-4222-8222-222222222222", {"outcome": "done"})
    assert log.results() == []
    log.close()


def test_the_log_never_creates_a_registry(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.root.mkdir()
    with pytest.raises(StoreUnavailable):
        MaintenanceLog.open(layout)
    assert list(layout.root.iterdir()) == []


def test_a_log_knows_when_the_registry_was_made_anew(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    Registry.open(layout, at=1).close()
    log = MaintenanceLog.open(layout)
    assert log.in_place()
    layout.registry.rename(layout.registry.with_name("aside"))
    assert not log.in_place()
    rebuild(layout, [], By("a test", "test", 1))
    assert not log.in_place()
    log.close()
    log = MaintenanceLog.open(layout)
    assert log.in_place()
    log.close()
