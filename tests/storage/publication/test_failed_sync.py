"""A sync that failed is never forgotten: the next one would succeed falsely (WRITE-PATH.md hole 25)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from storage import faults
from storage.publication import sync_files
from storage.state.connection import StorageCorrupt
from tests.kit.store import Desk, copy_store, make_store


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(copy_store(make_store(tmp_path / "made" / "store"), tmp_path / "store"))
    desk.page("Plan")
    return desk


def fails_once(point: str, code: int) -> Callable[[str], None]:
    left = [1]

    def handler(passed: str) -> None:
        if passed == point and left[0]:
            left[0] = 0
            raise OSError(code, "injected")

    return handler


def fail_both(first: str, then: str) -> Callable[[str], None]:
    one, two = fails_once(first, errno.EIO), fails_once(then, errno.ENOSPC)

    def handler(passed: str) -> None:
        one(passed)
        two(passed)

    return handler


def test_a_folder_that_could_not_be_synced_takes_the_store_out_of_service(desk: Desk) -> None:
    publisher = desk.session.publisher
    cut = publisher.sync_cut()
    assert cut is not None
    with faults.installed(fails_once("sync.folder", errno.EIO)):
        synced = sync_files(cut)
    assert synced.damaged
    with pytest.raises(StorageCorrupt):
        publisher.prune(synced)
    assert publisher.unpruned > 0


def test_a_failed_file_is_written_again_even_when_a_later_step_fails_too(desk: Desk) -> None:
    publisher = desk.session.publisher
    cut = publisher.sync_cut()
    assert cut is not None
    with faults.installed(fail_both("sync.file", "sync.folder")):
        synced = sync_files(cut)
    assert synced.failed
    assert synced.stopped
    path = desk.folder() / "projects" / "plan.md"
    before = path.stat().st_ino
    pruned = publisher.prune(synced)
    assert (pruned.entries, pruned.again) == (0, True)
    assert path.stat().st_ino != before


def test_a_failure_whose_answer_was_lost_is_told_again(desk: Desk) -> None:
    publisher = desk.session.publisher
    cut = publisher.sync_cut()
    assert cut is not None
    with faults.installed(fails_once("sync.file", errno.EIO)):
        lost = sync_files(cut)
    again = sync_files(cut)
    assert not again.failed
    assert again.after(lost).failed == lost.failed


def test_a_clean_stop_that_cannot_make_a_folder_durable_is_not_called_clean(desk: Desk) -> None:
    with faults.installed(fails_once("sync.folder", errno.EIO)), pytest.raises(StorageCorrupt):
        desk.close()
    reopened = Desk(desk.layout)
    assert reopened.session.publisher.report.kind != "clean"
    reopened.close()


def test_a_folder_that_may_not_be_read_does_not_keep_the_store_from_opening(desk: Desk) -> None:
    desk.close(clean=False)

    def closed_to_us(point: str) -> None:
        if point == "sweep.list":
            raise PermissionError(errno.EACCES, "injected")

    reopened = Desk(desk.layout)
    with faults.installed(closed_to_us):
        assert reopened.session.publisher.report.kind == "process"
    assert reopened.call("lookup", {"query": "Plan"})["state"] == "found"
    reopened.close()
