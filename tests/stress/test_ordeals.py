"""Damages while clients work: each comes again and again and is undone; who fell is told from who withstood."""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from storage.vault._inotify import Inotify
from stress.damages import NotHere, Patient
from stress.ledger import Caller, Ledger, Life, Operation, Struck
from stress.lives import answered_again, falls
from stress.ordeals import ORDEALS, ordeals, somebody
from stress.owner import Owner, Usage
from stress.subject import deafen

CALLER: Final = Caller("ana", "store0")


class Somebody(Owner):
    """An owner whose process is a given one."""

    def __init__(self, folder: Path, pid: int = 0) -> None:
        super().__init__(folder, {}, folder / "log")
        self._pid = pid

    @property
    def pid(self) -> int:
        return self._pid

    def start(self) -> None:
        self.starts += 1

    def stop(self) -> int:
        return 0

    def kill(self) -> None:
        """Nothing is killed here."""

    def usage(self) -> Usage | None:
        return Usage(0.0, 1, 64, 0) if self._pid else None


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.kill()
    process.communicate()


def patient(tmp_path: Path, pid: int = 0) -> Patient:
    folder = tmp_path / "store"
    notes = folder / "vault" / "private" / "notes"
    notes.mkdir(parents=True)
    (folder / "vault" / ".git").mkdir()
    (notes / "a.md").write_text("---\nid: x\n---\n\nText.\n")
    (folder / "state.sqlite").write_bytes(bytes(range(256)) * 64)
    return somebody(Somebody(tmp_path, pid), CALLER, folder, lambda files: files[0])


def test_a_seed_decides_the_damages_and_every_one_comes_before_one_comes_again() -> None:
    first, again, other = (list(itertools.islice(ordeals(seed), 3 * len(ORDEALS))) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    for turn in range(3):
        assert set(first[turn * len(ORDEALS) : (turn + 1) * len(ORDEALS)]) == set(ORDEALS)


def test_a_store_without_a_file_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(NotHere, match="no file yet"):
        somebody(Somebody(tmp_path), CALLER, tmp_path, lambda files: files[0])


def test_of_a_corrupt_database_the_first_page_alone_is_left_and_then_all_of_it(tmp_path: Path) -> None:
    found = patient(tmp_path)
    database = found.folder / "state.sqlite"
    before = database.read_bytes()
    with ORDEALS["corrupt pages in state.sqlite"].treat(found):
        during = database.read_bytes()
        assert during[:4_096] == before[:4_096]
        for page in range(4_096, len(before), 4_096):
            assert during[page : page + 4_096] != before[page : page + 4_096]
    assert database.read_bytes() == before


def test_a_lock_is_left_and_taken_away_and_somebody_elses_is_not_touched(tmp_path: Path) -> None:
    found = patient(tmp_path)
    lock = found.vault / ".git" / "index.lock"
    with ORDEALS["an index.lock left behind"].treat(found):
        assert lock.exists()
        with pytest.raises(NotHere), ORDEALS["an index.lock left behind"].treat(found):
            pass
        assert lock.exists()
    assert not lock.exists()


def test_a_vault_takes_no_write_and_then_does_or_is_skipped(tmp_path: Path) -> None:
    found = patient(tmp_path)
    try:
        with ORDEALS["a read-only vault"].treat(found):
            with pytest.raises(OSError, match="Read-only"):
                (found.vault / "b.md").touch()
            assert found.path.exists()
    except NotHere as reason:
        pytest.skip(str(reason))
    (found.vault / "b.md").touch()
    assert not os.path.ismount(found.vault)


def test_a_process_opens_nothing_more_and_then_does(tmp_path: Path, sleeper: int) -> None:
    before = resource.prlimit(sleeper, resource.RLIMIT_NOFILE)
    with ORDEALS["no descriptor left"].treat(patient(tmp_path, sleeper)):
        assert resource.prlimit(sleeper, resource.RLIMIT_NOFILE) == (64, before[1])
    assert resource.prlimit(sleeper, resource.RLIMIT_NOFILE) == before


def test_a_watch_hears_nothing_any_more_and_nothing_tells_it_so(tmp_path: Path) -> None:
    kernel = Inotify()
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        kernel.add(folder)
        (tmp_path / "heard").touch()
        assert kernel.queued()
        assert deafen(tmp_path.stat().st_ino) == 1
        (tmp_path / "unheard").touch()
        assert kernel.queued() == 0
        assert deafen(tmp_path.stat().st_ino) == 0
    finally:
        os.close(folder)
        kernel.close()


def test_when_a_store_answers_again_is_seen_by_who_asked_after_the_crash() -> None:
    ledger = Ledger()
    ledger.add(Struck("lane crashes", "root/store v/lane: journal.commit", 10.0, 7))
    for what, at in (("started", 1.0), ("ended", 10.1), ("started", 10.2)):
        ledger.add(Life("started" if what == "started" else "ended", "root/store v/lane", 1, at, 7))
    other = Caller("ben", "store1")
    for caller, began, ended, code in (
        (CALLER, 9.0, 10.05, "ok"),
        (CALLER, 10.1, 10.15, "restarting"),
        (other, 10.1, 10.2, "ok"),
        (CALLER, 10.2, 10.4, "ok"),
        (CALLER, 10.3, 10.5, "ok"),
    ):
        ledger.add(Operation(0, "c", "socket", caller, "knowledge_status", {}, began, ended, None, code, "never"))
    found = falls(ledger, [], 100.0)
    assert [fall.problems for fall in found] == [()]
    assert answered_again(ledger, found, {"v": "store0"}) == [pytest.approx(0.4)]
