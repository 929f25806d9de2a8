"""The repository's index beside a person's Git: explained while it is theirs, brought up once it is free."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.store import helpers
from host_bridge.bridge import KnowledgeBridge
from messages.json_types import JsonObject
from tests.kit.actors import eventually
from tests.kit.leaks import nothing_left
from tests.kit.store import MAIN, only_store, open_bridge, remember


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Idle after a moment."""
    monkeypatch.setattr(helpers, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(helpers, "IDLE_SECONDS_MAX", 0.2)
    with nothing_left():
        yield


def git_state(bridge: KnowledgeBridge) -> JsonObject:
    found = bridge.call("knowledge_status", {}, MAIN)["git"]
    assert isinstance(found, dict)
    return found


def short_status(vault: Path) -> str:
    ran = subprocess.run(["git", "status", "--short"], cwd=vault, capture_output=True, text=True, check=True)
    return ran.stdout


def test_a_left_over_index_lock_is_explained_and_the_index_follows_once_it_is_gone(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        remember(bridge, "It rained.", 1)
        eventually(lambda: git_state(bridge) == {"state": "current", "pending": 0})
        vault = only_store(tmp_path).vault
        eventually(lambda: short_status(vault) == "")
        lock = vault / ".git/index.lock"
        lock.touch()
        remember(bridge, "It stopped.", 2)
        eventually(lambda: "index.lock" in str(git_state(bridge).get("message")))
        assert git_state(bridge)["state"] == "current", "the save has its commit all the same"
        assert lock.exists()
        lock.unlink()
        eventually(lambda: git_state(bridge) == {"state": "current", "pending": 0})
        assert short_status(vault) == ""


def test_what_a_person_has_staged_is_kept_and_the_index_follows_once_it_is_theirs_no_more(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        remember(bridge, "It rained.", 1)
        vault = only_store(tmp_path).vault
        eventually(lambda: (vault / ".git/index").exists() and short_status(vault) == "")
        (vault / "mine.txt").write_text("mine")
        subprocess.run(["git", "add", "mine.txt"], cwd=vault, check=True)
        remember(bridge, "It stopped.", 2)
        eventually(lambda: "staged changes of yours" in str(git_state(bridge).get("message")))
        assert "A  mine.txt" in short_status(vault)
        subprocess.run(["git", "reset", "-q", "mine.txt"], cwd=vault, check=True)
        eventually(lambda: short_status(vault) == "?? mine.txt\n")
        eventually(lambda: "message" not in git_state(bridge))
