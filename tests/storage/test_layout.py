"""Paths below the state directory (stores-and-access.md, Storage layout; decisions.md sections 1 and 8)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from messages.vocabulary import PRIVATE, Partition
from storage.layout import (
    SOCKET_PATH_MAX_BYTES,
    Layout,
    artifact_folder,
    excerpt_path,
    is_artifact,
    resolve_state_dir,
    socket_path,
)
from tests.tree import PACKAGES_ROOT

SESSION = "33333333-3333-4333-8333-333333333333"
VAULT = "11111111-1111-4111-8111-111111111111"
REQUEST = "00000000-0000-4000-8000-000000000020"


def test_the_state_directory_is_the_explicit_one_then_the_two_variables_then_the_home_folder(tmp_path: Path) -> None:
    explicit, first, second = tmp_path / "explicit", tmp_path / "first", tmp_path / "second"
    environ = {"KNOWLEDGE_STATE_DIR": str(first), "OPENCLAW_STATE_DIR": str(second), "HOME": str(tmp_path)}
    assert resolve_state_dir(explicit, environ) == explicit
    assert resolve_state_dir(None, environ) == first
    del environ["KNOWLEDGE_STATE_DIR"]
    assert resolve_state_dir(None, environ) == second
    del environ["OPENCLAW_STATE_DIR"]
    assert resolve_state_dir(None, environ) == tmp_path / ".knowledge"


def test_a_variable_that_is_set_but_empty_counts_as_unset(tmp_path: Path) -> None:
    environ = {"KNOWLEDGE_STATE_DIR": "", "OPENCLAW_STATE_DIR": "", "HOME": str(tmp_path)}
    assert resolve_state_dir(None, environ) == tmp_path / ".knowledge"


def test_two_names_of_one_directory_resolve_to_one_path_and_one_socket(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    real, alias = resolve_state_dir(tmp_path / "real", {}), resolve_state_dir(tmp_path / "alias", {})
    assert real == alias
    assert socket_path(real, {}) == socket_path(tmp_path / "alias", {})


def test_a_relative_state_directory_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_state_dir(Path("here"), {}) == tmp_path / "here"


def test_the_socket_lies_in_the_runtime_directory_and_differs_per_state_directory(tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": "/run/user/7"}
    one, two = socket_path(tmp_path / "one", environ), socket_path(tmp_path / "two", environ)
    assert one.parent == Path("/run/user/7/knowledge")
    assert one != two


@pytest.mark.parametrize("runtime", ["/" + "long/" * 40, "relative/path", ""])
def test_a_socket_path_never_exceeds_the_length_of_a_socket_address(tmp_path: Path, runtime: str) -> None:
    deep = tmp_path.joinpath(*["folder-with-a-long-name"] * 10)
    path = socket_path(deep, {"XDG_RUNTIME_DIR": runtime})
    assert path.is_absolute()
    assert len(os.fsencode(path)) <= SOCKET_PATH_MAX_BYTES


def test_a_store_is_laid_out_as_documented(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    store = layout.new_store(VAULT)
    partition = Partition(SESSION)
    relative = [
        path.relative_to(tmp_path).as_posix()
        for path in (
            layout.configuration,
            layout.registry,
            layout.registry_sentinel,
            layout.owner_lock,
            layout.owner_log,
            layout.system_memory,
            store.state_database,
            store.search_index(PRIVATE),
            store.search_index(partition),
            store.manifest,
            store.git,
            store.partition(PRIVATE),
            store.partition(partition),
        )
    ]
    assert relative == [
        "knowledge.yaml",
        "knowledge/registry.sqlite",
        "knowledge/registry.id",
        "knowledge/owner.lock",
        "knowledge/owner.log",
        "knowledge/system-memory.sqlite",
        f"knowledge/stores/{VAULT}/state.sqlite",
        f"knowledge/stores/{VAULT}/search/private.sqlite",
        f"knowledge/stores/{VAULT}/search/{SESSION}.sqlite",
        f"knowledge/stores/{VAULT}/vault/vault.json",
        f"knowledge/stores/{VAULT}/vault/.git",
        f"knowledge/stores/{VAULT}/vault/private",
        f"knowledge/stores/{VAULT}/vault/conversations/{SESSION}",
    ]


@pytest.mark.parametrize("bad", ["../x", "", "ABCDEFAB-1111-4111-8111-111111111111", REQUEST + "\n", REQUEST + "/.."])
def test_only_a_lower_case_uuid_becomes_part_of_a_path(tmp_path: Path, bad: str) -> None:
    with pytest.raises(ValueError):
        artifact_folder(bad)
    with pytest.raises(ValueError):
        Layout(tmp_path).new_store(bad)


def test_an_excerpt_is_retained_below_its_request() -> None:
    assert excerpt_path(REQUEST) == f"artifacts/{REQUEST}/excerpt.txt"
    assert is_artifact(excerpt_path(REQUEST))
    assert not is_artifact("people/artifacts.md")


def test_the_layout_imports_nothing_but_the_standard_library() -> None:
    code = "import sys, storage.layout; print(*{name.partition('.')[0] for name in sys.modules})"
    environ = {**os.environ, "PYTHONPATH": str(PACKAGES_ROOT)}  # -S hides an installed package from itself
    run = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert set(run.stdout.split()) - set(sys.stdlib_module_names) <= {"messages", "storage", "__main__"}
