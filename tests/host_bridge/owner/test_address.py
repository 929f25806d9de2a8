"""Where an owner's files lie, and that the socket's folder is nobody else's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_bridge.owner import address
from storage import layout


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KNOWLEDGE_STATE_DIR", "OPENCLAW_STATE_DIR", "XDG_RUNTIME_DIR", "TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a name that leaves room for a socket's path; ``tmp_path`` may be long."""
    with tempfile.TemporaryDirectory(prefix="kr-", dir="/tmp") as folder:
        yield Path(folder)


def test_the_option_wins_over_the_variables_and_they_over_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert address.resolve_state_dir() == str(tmp_path / ".knowledge")
    monkeypatch.setenv("OPENCLAW_STATE_DIR", "/second")
    assert address.resolve_state_dir() == "/second"
    monkeypatch.setenv("KNOWLEDGE_STATE_DIR", "/first")
    assert address.resolve_state_dir() == "/first"
    assert address.resolve_state_dir("~/own") == str(tmp_path / "own")


def test_an_empty_variable_counts_as_unset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KNOWLEDGE_STATE_DIR", "")
    assert address.resolve_state_dir() == str(tmp_path / ".knowledge")


def test_a_relative_variable_is_refused_because_hosts_choose_the_working_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KNOWLEDGE_STATE_DIR", "state")
    with pytest.raises(address.UnsafePlace, match="KNOWLEDGE_STATE_DIR"):
        address.resolve_state_dir()


@pytest.mark.parametrize("name", [os.fsdecode(b"/tmp/caf\xe9"), "/tmp/\ud800"])
def test_a_path_that_is_not_utf8_is_refused_with_a_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(address.UnsafePlace, match="not UTF-8"):
        address.resolve_state_dir(name)
    monkeypatch.setenv("KNOWLEDGE_STATE_DIR", os.fsdecode(b"/tmp/caf\xe9"))
    with pytest.raises(address.UnsafePlace, match="not UTF-8"):
        address.resolve_state_dir()


def test_two_names_of_one_directory_give_one_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "state").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "state")
    assert address.socket_path(str(tmp_path / "alias")) == address.socket_path(str(tmp_path / "state"))


@pytest.mark.parametrize("option", [None, "/somewhere/else"])
def test_thin_clients_and_the_runtime_agree_on_every_path(
    option: str | None, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(short))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    theirs = layout.resolve_state_dir(None if option is None else Path(option))
    ours = address.resolve_state_dir(option)
    assert ours == str(theirs)
    drawn = layout.Layout(theirs)
    assert address.knowledge_dir(ours) == str(drawn.root)
    assert address.lock_path(address.knowledge_dir(ours)) == str(drawn.owner_lock)
    assert address.log_path(address.knowledge_dir(ours)) == str(drawn.owner_log)
    assert address.socket_path(ours) == str(layout.socket_path(theirs))


def test_the_sockets_folder_is_made_for_this_user_alone(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    path = address.socket_path("/state")
    assert os.path.dirname(path) == str(short / "knowledge")
    assert os.stat(short / "knowledge").st_mode & 0o777 == 0o700


def test_a_socket_path_never_exceeds_107_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("ż" * 60)
    long.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    path = address.socket_path("/state")
    assert len(os.fsencode(path)) <= 107
    assert not path.startswith(str(long))


def test_a_folder_open_to_others_is_not_used(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (short / "knowledge").mkdir(mode=0o755)
    os.chmod(short / "knowledge", 0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    monkeypatch.setenv("TMPDIR", str(short))
    assert address.socket_path("/state").startswith(str(short / f"knowledge-{os.geteuid()}"))


def test_a_planted_link_or_file_is_not_used_as_the_sockets_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert address.folder_problem(str(tmp_path / "link")) is not None
    assert address.folder_problem(str(tmp_path / "file")) is not None
    assert address.folder_problem(str(tmp_path / "target")) is None


def test_no_safe_folder_at_all_is_an_error_that_names_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "folder_problem", lambda folder: f"{folder} belongs to user 7")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(address.UnsafePlace, match="belongs to user 7"):
        address.socket_path("/state")


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chmod(tmp_path, 0o700)
    assert address.folder_problem(str(tmp_path)) is None
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    assert "belongs to user" in str(address.folder_problem(str(tmp_path)))
