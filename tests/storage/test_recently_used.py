"""A store may hold thousands of conversations and must not hold a descriptor for each."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from messages.errors import StorageError
from messages.vocabulary import PRIVATE, Partition
from storage import faults
from storage.recently_used import OPEN_PARTITIONS_MAX, RecentlyUsed
from tests.kit.store import Desk, copy_store, make_store, request_id


def test_the_least_recently_used_is_closed_and_what_stays_is_not_counted() -> None:
    closed: list[str] = []
    values: RecentlyUsed[str, str] = RecentlyUsed(2, closed.append, stays=lambda key: key == "home")
    for key in ("home", "a", "b"):
        values.put(key, key)
    assert values.get("a") == "a"
    values.put("c", "c")
    assert closed == ["b"]
    assert values.get("home") == "home"
    values.close()
    assert sorted(closed) == ["a", "b", "c", "home"]


def test_descriptors_do_not_grow_with_the_conversations_of_a_store(tmp_path: Path) -> None:
    desk = Desk(copy_store(make_store(tmp_path / "made" / "store"), tmp_path / "store"))
    try:
        counts = []
        for number in range(OPEN_PARTITIONS_MAX + 20):
            desk.call("status", partition=Partition(request_id(number)))
            counts.append(len(os.listdir("/proc/self/fd")))
        assert counts[-1] <= counts[OPEN_PARTITIONS_MAX]
        assert PRIVATE in {opened.partition for opened in desk.session.opened()}
    finally:
        desk.close()


def test_running_out_of_descriptors_is_not_taken_for_a_store_without_an_ontology(tmp_path: Path) -> None:
    desk = Desk(copy_store(make_store(tmp_path / "made" / "store"), tmp_path / "store"))
    (desk.folder() / "ontology.yaml").write_text("format: knowledge-ontology-v1\nextends: core\n", "utf-8")

    def no_descriptors(point: str) -> None:
        if point == "session.folder":
            raise OSError(errno.EMFILE, "injected")

    try:
        with faults.installed(no_descriptors), pytest.raises(StorageError):
            desk.call("status")
        assert desk.call("status")["partition"] == "private"
    finally:
        desk.close()
