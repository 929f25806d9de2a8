"""One holder at a time: threads, processes, and forks at the worst moment."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from messages.errors import Busy, StoreUnavailable
from storage.agent_memory.locking import DirectoryLock, make_directory


def test_another_lock_of_the_directory_is_busy_while_it_is_held_and_free_afterwards(tmp_path: Path) -> None:
    one, other = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    with one.held(), one.held(), pytest.raises(Busy), other.held(wait=0):
        pass
    with other.held(wait=0):
        pass


def test_another_thread_of_one_lock_is_busy_while_it_is_held(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    found: list[str] = []

    def ask() -> None:
        try:
            with lock.held(wait=0):
                found.append("held")
        except Busy:
            found.append("busy")

    with lock.held():
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    ask()
    assert found == ["busy", "held"]


def test_a_block_that_raises_lets_go(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with pytest.raises(KeyError), lock.held():
        raise KeyError
    with DirectoryLock(tmp_path).held(wait=0):
        pass


def test_a_directory_that_is_gone_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable), DirectoryLock(tmp_path / "gone").held(wait=0):
        pass
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnavailable):
        make_directory(tmp_path / "file" / "below")


FORKED = """
import os, signal, sys, threading
from pathlib import Path
from messages.errors import Busy
from storage.agent_memory.locking import DirectoryLock

lock, other = DirectoryLock(Path(sys.argv[1])), DirectoryLock(Path(sys.argv[1]))
ready, done = threading.Event(), threading.Event()

def hold():
    with lock.held():
        ready.set()
        done.wait()

def is_free(of):
    try:
        with of.held(wait=0):
            return True
    except Busy:
        return False

thread = threading.Thread(target=hold)
thread.start()
ready.wait()
to_child, child_says = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    # Held by the parent: not ours, whichever lock asks; and it is free as soon as the parent lets go.
    held = (is_free(lock), is_free(other))
    os.write(child_says[1], b"1" if held == (False, False) else b"0")
    os.read(to_child[0], 1)
    os.write(child_says[1], b"1" if is_free(lock) and is_free(other) else b"0")
    os.read(to_child[0], 1)
    os._exit(0)
first = os.read(child_says[0], 1)
done.set()
thread.join()
free = is_free(other)  # although the child lives, and was forked while the lock was held
os.write(to_child[1], b"x")
second = os.read(child_says[0], 1)
os.write(to_child[1], b"x")
os.waitpid(child, 0)
assert (first, free, second) == (b"1", True, b"1"), (first, free, second)
"""


def test_a_fork_while_it_is_held_neither_holds_it_nor_keeps_it_from_others(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", FORKED, str(tmp_path)], timeout=60, check=False).returncode == 0


FORKED_INSIDE = """
import os, sys
from pathlib import Path
from messages.errors import Busy
from storage.agent_memory.locking import DirectoryLock

lock = DirectoryLock(Path(sys.argv[1]))
with lock.held():
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        try:
            with DirectoryLock(Path(sys.argv[1])).held(wait=0):
                sys.exit("the child let go of the parent's lock")
        except Busy:
            pass
try:
    with lock.held(wait=0):
        held = True
except Busy:
    held = False
assert held is bool(child), (held, child)
"""


def test_a_fork_inside_the_block_leaves_the_lock_to_the_parent(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", FORKED_INSIDE, str(tmp_path)], timeout=60, check=False).returncode == 0


def test_a_holder_that_is_killed_lets_go_although_its_child_lives(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from storage.agent_memory.locking import DirectoryLock\n"
        "with DirectoryLock(Path(sys.argv[1])).held():\n"
        "    child = os.fork()\n"
        "    if child: print(child, flush=True); sys.stdin.readline(); os.kill(os.getpid(), signal.SIGKILL)\n"
        "    os.read(int(sys.argv[2]), 1); os._exit(0)\n"
    )
    kept_open, ends = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), str(kept_open)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[kept_open],
        )
        assert process.stdout is not None
        assert int(process.stdout.readline()) > 0
        with pytest.raises(Busy), DirectoryLock(tmp_path).held(wait=0):
            pass
        process.kill()
        process.wait()
        with DirectoryLock(tmp_path).held(wait=5):
            pass
    finally:
        os.close(ends)
        os.close(kept_open)
    process.stdout.close()
    if process.stdin is not None:
        process.stdin.close()
