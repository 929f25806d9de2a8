"""The file layer: nothing is followed, nothing is overwritten, who writes is seen."""

from __future__ import annotations

import errno
import mmap
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import faults, files
from storage.files import Stamp, UnsafeFile


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    fd = files.open_root(tmp_path, at="test")
    yield fd
    files.close(fd)


def make(root: int, name: str, data: bytes = b"text\n") -> None:
    files.close(files.create_file(root, name, data, at="test"))


def read(root: int, name: str) -> bytes:
    return files.read_file(root, name, limit=1_000_000, at="test")[0]


@pytest.mark.parametrize("path", ["a.md", "a/b.md", "é/ü.md", ".hidden"])
def test_a_plain_relative_path_is_accepted(path: str) -> None:
    assert files.checked_relative(path) == path


@pytest.mark.parametrize("path", ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a\0b"])
def test_any_other_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError):
        files.checked_relative(path)


def test_a_create_never_replaces(root: int) -> None:
    make(root, "a", b"first\n")
    with pytest.raises(FileExistsError):
        make(root, "a", b"second\n")
    assert read(root, "a") == b"first\n"


def test_a_create_never_follows_a_symbolic_link(root: int, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError):
        make(root, "link")
    assert not (tmp_path / "target").exists()


def test_a_move_never_replaces_and_an_exchange_keeps_both(root: int) -> None:
    make(root, "a", b"a\n")
    make(root, "b", b"b\n")
    with pytest.raises(FileExistsError):
        files.move(root, "a", root, "b", at="test")
    files.exchange(root, "a", root, "b", at="test")
    assert (read(root, "a"), read(root, "b")) == (b"b\n", b"a\n")
    for missing in (("a", "none"), ("none", "a")):
        with pytest.raises(FileNotFoundError):
            files.exchange(root, missing[0], root, missing[1], at="test")
    assert (read(root, "a"), read(root, "b")) == (b"b\n", b"a\n")


@pytest.mark.parametrize("openat2", [True, False])
def test_no_component_of_a_path_is_followed_or_leads_out(
    root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, openat2: bool
) -> None:
    if not openat2:
        monkeypatch.setattr(files, "_OPENAT2_SYSCALL", 100_000)  # no such system call: ENOSYS
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    files.close(files.open_folder(root, "real/deep", at="test"))
    files.close(files.open_folder(root, "", at="test"))
    for path in ("link", "link/deep", "real/deep/none", "none"):
        with pytest.raises(OSError) as raised:
            files.open_folder(root, path, at="test")
        assert raised.value.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENOENT)
    for path in ("..", "real/../..", "../" + tmp_path.name, str(tmp_path)):
        with pytest.raises(OSError) as raised:
            files.open_folder(root, path, at="test")
        assert raised.value.errno in (errno.EXDEV, errno.ENOENT)


def set_trap(path: Path, kind: str) -> None:
    match kind:
        case "symlink":
            path.symlink_to("elsewhere")
        case "hardlink":
            path.with_name("other").write_bytes(b"x")
            path.hardlink_to(path.with_name("other"))
        case "not_regular":
            os.mkfifo(path)
        case "folder":
            path.mkdir()


@pytest.mark.parametrize("kind", ["symlink", "hardlink", "not_regular", "folder"])
def test_what_is_no_plain_file_is_refused_by_name_and_never_waited_for(root: int, tmp_path: Path, kind: str) -> None:
    set_trap(tmp_path / "a.md", kind)
    with pytest.raises(UnsafeFile) as raised:
        read(root, "a.md")
    assert raised.value.reason == ("not_regular" if kind == "folder" else kind)


def test_a_file_over_the_limit_is_refused_without_being_read(root: int) -> None:
    make(root, "a", b"x" * 1001)
    assert files.read_file(root, "a", limit=1001, at="test")[0] == b"x" * 1001
    with pytest.raises(UnsafeFile) as raised:
        files.read_file(root, "a", limit=1000, at="test")
    assert raised.value.reason == "too_large"


def test_a_file_that_changes_while_it_is_read_is_read_again(root: int, tmp_path: Path) -> None:
    make(root, "a", b"first\n")
    changes = iter([b"second, longer\n"])

    def handler(name: str) -> None:
        if name == "test.read.after":
            for data in changes:
                (tmp_path / "a").write_bytes(data)
                break

    with faults.installed(handler):
        data, stamp = files.read_file(root, "a", limit=100, at="test")
    assert data == b"second, longer\n"
    assert stamp == Stamp.of(os.stat(tmp_path / "a"))


def test_a_file_that_never_stops_changing_is_an_error_and_not_a_torn_read(root: int, tmp_path: Path) -> None:
    make(root, "a", b"x")

    def handler(name: str) -> None:
        if name == "test.read.after":
            with open(tmp_path / "a", "ab") as file:
                file.write(b"x")

    with faults.installed(handler), pytest.raises(OSError) as raised:
        files.read_file(root, "a", limit=100, at="test")
    assert raised.value.errno == errno.EAGAIN


def test_a_stamp_shows_a_rewrite_of_equal_size_with_a_restored_time(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    before = os.stat(path)
    deadline = time.monotonic() + 5
    while Stamp.of(os.stat(path)) == Stamp.of(before) and time.monotonic() < deadline:
        path.write_bytes(b"two")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = os.stat(path)
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert Stamp.of(after) != Stamp.of(before)


def held(root: int, name: str) -> bool | None:
    fd, _ = files.open_file(root, name, at="test")
    try:
        with files.read_lease(fd, at="test") as alone:
            return alone
    finally:
        files.close(fd)


def test_a_lease_sees_everybody_who_can_still_write(root: int, tmp_path: Path) -> None:
    make(root, "a", b"text\n")
    path = tmp_path / "a"
    if held(root, "a") is None:
        pytest.skip("needs a file system with leases")
    assert held(root, "a") is True
    with open(path, "rb"):
        assert held(root, "a") is True
    with open(path, "r+b") as file:
        assert held(root, "a") is False
        mapping = mmap.mmap(file.fileno(), 0)
    assert held(root, "a") is False  # the descriptor is closed, the mapping still writes
    mapping.close()
    assert held(root, "a") is True


def test_breaking_a_lease_never_kills_us_and_the_other_waits_for_its_end(root: int, tmp_path: Path) -> None:
    make(root, "a", b"text\n")
    if held(root, "a") is None:
        pytest.skip("needs a file system with leases")
    assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL
    fd, _ = files.open_file(root, "a", at="test")
    with files.read_lease(fd, at="test"), pytest.raises(BlockingIOError):
        os.open(tmp_path / "a", os.O_WRONLY | os.O_NONBLOCK)
    files.close(fd)
    os.close(os.open(tmp_path / "a", os.O_WRONLY | os.O_NONBLOCK))


def test_attributes_are_copied(root: int, tmp_path: Path) -> None:
    make(root, "a")
    (tmp_path / "a").chmod(0o604)
    source, status = files.open_file(root, "a", at="test")
    target = files.create_file(root, "b", b"new", at="test")
    files.copy_attributes(source, status, target, at="test")
    files.close(source)
    files.close(target)
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o604


def test_removing_says_whether_something_was_there(root: int, tmp_path: Path) -> None:
    make(root, "a")
    assert [files.unlink(root, "a", at="test"), files.unlink(root, "a", at="test")] == [True, False]
    assert [files.make_folder(root, "f", at="test"), files.make_folder(root, "f", at="test")] == [True, False]
    (tmp_path / "f" / "x").touch()
    assert not files.remove_folder(root, "f", at="test")
    (tmp_path / "f" / "x").unlink()
    assert files.remove_folder(root, "f", at="test")
    assert not files.remove_folder(root, "f", at="test")


def test_a_folder_is_listed_without_following_anything(root: int, tmp_path: Path) -> None:
    make(root, "file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    os.mkfifo(tmp_path / "fifo")
    found = {entry.name: entry.kind for entry in files.list_folder(root, at="test")}
    assert found == {"file": "file", "folder": "folder", "link": "other", "fifo": "other"}
