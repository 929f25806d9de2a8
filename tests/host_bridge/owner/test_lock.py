"""The owner lock: one holder, no stale lock, no network file system."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import host_bridge
from host_bridge.owner import client
from host_bridge.owner import lock as locks
from host_bridge.owner.lock import NETWORK_FILE_SYSTEMS, take_owner_lock
from messages.errors import OpenElsewhere, StorageError, StoreUnavailable
from tests.host_bridge.processes import ROOT

PIDS = (b"0", b"-1", b"1", b"true", b"1e3", b"2147483648", b"1" + b"0" * 20)
"""Process ids that a file may name: nobody's, that of init, which always lives, and some that no system has."""

_HOLD = """
import sys
from host_bridge.owner.lock import take_owner_lock
lock = take_owner_lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_holder_is_refused_and_told_who_the_first_one_is(tmp_path: Path) -> None:
    first = take_owner_lock(tmp_path)
    with pytest.raises(OpenElsewhere) as refused:
        take_owner_lock(tmp_path, wait=0)
    assert refused.value.fields["pid"] == os.getpid()
    assert refused.value.fields["version"] == host_bridge.__version__
    first.release()
    take_owner_lock(tmp_path, wait=0).release()


def test_the_lock_file_holds_one_object_with_pid_version_and_socket(tmp_path: Path) -> None:
    lock = take_owner_lock(tmp_path, socket="/run/somewhere.sock")
    entry = json.loads((tmp_path / "owner.lock").read_bytes())
    assert entry == {"pid": os.getpid(), "version": host_bridge.__version__, "socket": "/run/somewhere.sock"}
    lock.release()
    assert (tmp_path / "owner.lock").read_bytes() == b""


def test_releasing_twice_never_frees_somebody_elses_lock(tmp_path: Path) -> None:
    first = take_owner_lock(tmp_path)
    first.release()
    second = take_owner_lock(tmp_path)
    first.release()
    with pytest.raises(OpenElsewhere):
        take_owner_lock(tmp_path, wait=0)
    assert second.held
    second.release()


@pytest.mark.parametrize(
    "left_behind",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"pid": 1, "version": "9", "socket": "/nowhere/at/all.sock"}\n',
        b'{"pid": "x"}\n',
        b"[]\n",
        b"[" * 4_000,
        *(b'{"pid": %s, "version": "9", "socket": null}\n' % pid for pid in PIDS),
    ],
)
def test_a_lock_file_left_behind_never_blocks_whatever_it_says(tmp_path: Path, left_behind: bytes) -> None:
    (tmp_path / "owner.lock").write_bytes(left_behind)
    lock = take_owner_lock(tmp_path, wait=0)
    assert json.loads((tmp_path / "owner.lock").read_bytes())["pid"] == os.getpid()
    lock.release()


def test_the_lock_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", _HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(OpenElsewhere) as refused:
            take_owner_lock(tmp_path, wait=0)
        assert refused.value.fields["pid"] == child.pid
        child.kill()
        child.wait(timeout=10)
        take_owner_lock(tmp_path, wait=0).release()


@pytest.mark.parametrize("kind", sorted(NETWORK_FILE_SYSTEMS))
def test_a_network_file_system_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    with pytest.raises(StoreUnavailable, match=kind.replace(".", r"\.")) as refused:
        take_owner_lock(tmp_path, file_system=lambda _: kind)
    assert refused.value.fields["fileSystem"] == kind
    assert not (tmp_path / "owner.lock").exists()


@pytest.mark.parametrize("kind", ["ext4", "btrfs", "xfs", "zfs", "tmpfs", "overlay", "apfs", ""])
def test_a_local_file_system_is_accepted(tmp_path: Path, kind: str) -> None:
    take_owner_lock(tmp_path, file_system=lambda _: kind).release()


def test_the_file_system_of_this_folder_has_a_name(tmp_path: Path) -> None:
    assert locks.file_system_of(str(tmp_path)) != ""


_MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:41 / /home rw - nfs4 server:/home rw
31 30 0:42 / /home/ana/local\\040disk rw master:3 shared:9 - xfs /dev/sdb1 rw
32 22 0:43 / /mnt/share rw - cifs //nas/share rw
33 32 8:1 /x /mnt/share rw - ext4 /dev/sda1 rw
"""


@pytest.mark.parametrize(
    ("path", "device", "kind"),
    [
        ("/var/lib", os.makedev(8, 1), "ext4"),
        ("/home/ana", os.makedev(0, 41), "nfs4"),
        ("/homework", os.makedev(8, 1), "ext4"),
        ("/home/ana/local disk/state", os.makedev(0, 42), "xfs"),
        ("/mnt/share/state", os.makedev(8, 1), "ext4"),
        ("/mnt/share", os.makedev(0, 43), "cifs"),
    ],
)
def test_the_mount_that_holds_a_path_names_its_file_system(path: str, device: int, kind: str) -> None:
    assert locks._from_mountinfo(_MOUNTS, device, path) == kind


def test_an_owner_notices_that_its_directory_was_removed_or_replaced(tmp_path: Path) -> None:
    lock = take_owner_lock(tmp_path / "knowledge")
    assert lock.keep()
    shutil.rmtree(tmp_path / "knowledge")
    assert not lock.keep()
    assert not (tmp_path / "knowledge").exists()
    second = take_owner_lock(tmp_path / "knowledge", wait=0)
    assert second.keep()
    assert not lock.keep()
    lock.release()
    assert second.keep()
    second.release()
    assert not second.keep()


def _remove(path: Path) -> None:
    path.unlink()


def _replace(path: Path) -> None:
    path.with_name("other").write_bytes(b'{"pid": 1, "version": "9", "socket": null}\n')
    path.with_name("other").rename(path)


def _copy_back(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize("lose", [_remove, _replace, _copy_back])
def test_a_lost_lock_file_never_lets_a_second_owner_in_and_is_put_back_by_the_first(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    first = take_owner_lock(tmp_path)
    lose(tmp_path / "owner.lock")
    with pytest.raises(OpenElsewhere):
        take_owner_lock(tmp_path, wait=0)
    assert client.is_held(str(tmp_path))
    assert first.keep()
    holder = client.read_holder(str(tmp_path))
    assert holder is not None
    assert holder.pid == os.getpid()
    with pytest.raises(OpenElsewhere):
        take_owner_lock(tmp_path, wait=0)
    first.release()
    assert not client.is_held(str(tmp_path))
    take_owner_lock(tmp_path, wait=0).release()


def test_a_holder_whose_lock_files_place_is_taken_by_somebody_else_is_no_owner_any_more(tmp_path: Path) -> None:
    lock = take_owner_lock(tmp_path)
    (tmp_path / "owner.lock").unlink()
    other = os.open(tmp_path / "owner.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(other, fcntl.LOCK_EX)
    assert not lock.keep()
    os.close(other)
    (tmp_path / "owner.lock").unlink()
    (tmp_path / "owner.lock").mkdir()
    assert not lock.keep()
    lock.release()


def test_a_lock_file_that_somebody_else_locks_alone_is_respected(tmp_path: Path) -> None:
    other = os.open(tmp_path / "owner.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(OpenElsewhere):
        take_owner_lock(tmp_path, wait=0)
    os.close(other)
    take_owner_lock(tmp_path, wait=0).release()


def test_somebody_who_only_looks_whether_the_lock_is_held_never_keeps_an_owner_from_starting(tmp_path: Path) -> None:
    (tmp_path / "owner.lock").write_bytes(b'{"pid": 1, "version": "9", "socket": null}\n')
    looking = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    enough = threading.Timer(0.05, lambda: os.close(looking))
    enough.start()
    take_owner_lock(tmp_path, wait=10).release()
    enough.join()


def test_a_symbolic_link_in_the_lock_files_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("precious", encoding="utf-8")
    (tmp_path / "knowledge").mkdir()
    (tmp_path / "knowledge" / "owner.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError):
        take_owner_lock(tmp_path / "knowledge")
    assert (tmp_path / "elsewhere").read_text(encoding="utf-8") == "precious"


def test_a_state_directory_that_cannot_exist_is_a_typed_refusal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StorageError) as refused:
        take_owner_lock(tmp_path / "file" / "knowledge")
    assert refused.value.retry == "never"


def test_a_pipe_in_the_lock_files_place_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "owner.lock")
    assert client.read_holder(str(tmp_path)) is None
    with pytest.raises(StorageError):
        take_owner_lock(tmp_path, wait=0)
