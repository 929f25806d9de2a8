"""The repository's index beside a person's Git: explained while it is theirs, brought up once it is free."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.store import helpers
from host_bridge.bridge import KnowledgeBridge
from messages.json_types import JsonObject
from messages.vocabulary import PRIVATE
from storage.faults import installed
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


def person(vault: Path, *arguments: str) -> None:
    settings = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", *settings, *arguments], cwd=vault, check=True, capture_output=True)


def is_idle(bridge: KnowledgeBridge, vault: Path) -> bool:
    return (
        git_state(bridge) == {"state": "current", "pending": 0}
        and short_status(vault) == ""
        and not (vault / ".git/index.lock").exists()
    )


def test_a_persons_commit_that_took_a_save_back_unawares_stays_and_the_save_comes_back_on_top(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_bridge(tmp_path) as bridge:
        remember(bridge, "It rained.", 1)
        vault = only_store(tmp_path).vault
        eventually(lambda: (vault / ".git/index").exists() and is_idle(bridge, vault))
        lock = vault / ".git/index.lock"
        lock.touch()  # the index does not follow
        remember(bridge, "It stopped.", 2)
        eventually(lambda: git_state(bridge)["pending"] == 0)
        (vault / "mine.txt").write_text("mine")
        lock.unlink()
        index = {"GIT_INDEX_FILE": str(tmp_path / "index")}
        subprocess.run(["git", "read-tree", "main~1"], cwd=vault, check=True, env={**os.environ, **index})
        subprocess.run(["git", "add", "mine.txt"], cwd=vault, check=True, env={**os.environ, **index})
        monkeypatch.setenv("GIT_INDEX_FILE", index["GIT_INDEX_FILE"])
        person(vault, "commit", "-q", "-m", "mine")
        monkeypatch.delenv("GIT_INDEX_FILE")
        (tmp_path / "index").replace(vault / ".git/index")  # what a slow index and `git commit` come to
        remember(bridge, "It snowed.", 3)
        eventually(lambda: is_idle(bridge, vault))
        log = subprocess.run(["git", "log", "--format=%s"], cwd=vault, capture_output=True, text=True, check=True)
        assert log.stdout.splitlines() == ["restore", "remember", "mine", "remember", "remember"]


def test_a_store_that_is_opened_after_a_kill_brings_the_index_up_without_a_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_bridge(tmp_path) as bridge:
        remember(bridge, "It rained.", 1)
        vault = only_store(tmp_path).vault
        eventually(lambda: (vault / ".git/index").exists() and is_idle(bridge, vault))
    # As a process leaves it that was killed between the checkpoint and the index.
    (vault / ".git/index").unlink()
    (vault / ".git/knowledge-index").unlink()
    assert short_status(vault) != ""
    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        eventually(lambda: is_idle(bridge, vault))


def test_a_checkpoint_whose_run_failed_after_main_had_moved_is_not_committed_again(tmp_path: Path) -> None:
    failures = iter([OSError(5, "Input/output error")])

    def fail(point: str) -> None:
        if point == "git.update.after" and (failure := next(failures, None)) is not None:
            raise failure

    with open_bridge(tmp_path) as bridge:
        remember(bridge, "It rained.", 1)
        eventually(lambda: git_state(bridge) == {"state": "current", "pending": 0})
        with installed(fail):
            remember(bridge, "It stopped.", 2)
            eventually(lambda: git_state(bridge) == {"state": "current", "pending": 0})
        assert next(failures, None) is None, "failed once"
        vault = only_store(tmp_path).vault
        log = subprocess.run(["git", "log", "--format=%s"], cwd=vault, capture_output=True, text=True, check=True)
        assert log.stdout.splitlines() == ["remember", "remember"]


def test_a_damaged_repository_that_maintenance_found_is_set_aside_at_the_next_save(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        remember(bridge, "It rained.", 1)
        vault = only_store(tmp_path).vault
        eventually(lambda: (vault / ".git/index").exists() and is_idle(bridge, vault))
        for pack in (vault / ".git/objects/pack").glob("*.pack"):
            pack.chmod(0o644)
            data = bytearray(pack.read_bytes())
            data[-26] ^= 0xFF
            pack.write_bytes(data)
        bridge.ask("operator.runMaintenance", {})
        eventually(lambda: maintained(bridge))
        remember(bridge, "It stopped.", 2)
        eventually(lambda: list(vault.glob(".git.damaged-*")) != [] and is_idle(bridge, vault))
        subprocess.run(["git", "fsck", "--strict"], cwd=vault, check=True, capture_output=True)


def test_a_repository_that_is_built_again_holds_exactly_the_files_that_there_are(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        remember(bridge, "It rained.", 1)
        store = only_store(tmp_path)
        (claim,) = store.partition(PRIVATE).glob("claims/**/*.md")
        copy = claim.with_name("copy.md")
        copy.write_bytes(claim.read_bytes())  # of two equal files with one id history cannot say which one moved
        bridge.call("knowledge_status", {}, MAIN)
        claim.rename(claim.with_name("moved.md"))
        bridge.call("knowledge_status", {}, MAIN)
        eventually(lambda: (store.vault / ".git/index").exists() and is_idle(bridge, store.vault))
        shutil.rmtree(store.vault / ".git")
        remember(bridge, "It stopped.", 2)
        eventually(lambda: (store.vault / ".git/index").exists() and is_idle(bridge, store.vault))


def maintained(bridge: KnowledgeBridge) -> bool:
    found = bridge.ask("operator.maintenance", {})
    stores = found["stores"]
    assert isinstance(stores, list)
    return any(isinstance(store, dict) and store.get("outcome") == "done" for store in stores)
