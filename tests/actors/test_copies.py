"""Copies of workspace files that nobody came to name, on a virtual clock: removed, and never while somebody waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from actors.runtime import RuntimeSettings
from actors.store.lane import Lane
from actors.store.source_keeper import UNCLAIMED_SECONDS, SourceDesk
from messages.errors import DeadlineExceeded
from messages.json_types import JsonObject
from messages.vocabulary import PRIVATE
from tests.actors.test_runtime import House
from tests.kit.moments import at_point
from tests.kit.scheduler import VirtualScheduler
from tests.kit.sources import ATTRIBUTION, descriptor, digest, upload_id
from tests.kit.store import only_store

DATA = b"a report\n" * 1_000
SECONDS = 30.0


@pytest.fixture(autouse=True)
def no_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    # A watcher waits for a descriptor, which takes real time; without one it has nothing to do.
    monkeypatch.setattr(Lane, "_send_descriptor", lambda self: None)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "report.txt").write_bytes(DATA)
    settings = RuntimeSettings(idle=1_000_000.0, git=False, look_round=0.0)
    made = House(tmp_path / "state", settings, VirtualScheduler(seed=5, max_steps=2_000_000))
    made.runtime._workspace = lambda: workspace
    try:
        made.call()
        yield made
    finally:
        assert made.runtime.close().stuck == ()
        assert made.scheduler.alive() == []


def asked() -> JsonObject:
    return {
        "requestId": upload_id(1),
        "filePath": "report.txt",
        "sha256": digest(DATA),
        "filename": "report.txt",
        "attribution": ATTRIBUTION,
        "mediaType": "text/plain",
    }


def artifacts(house: House) -> Path:
    return only_store(house.folder).partition(PRIVATE) / "artifacts"


def copies(house: House) -> list[Path]:
    folder = artifacts(house) / ".kr-copies"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def late(house: House, seconds: float = SECONDS) -> None:
    """The deadline of a call passes when its copy is finished."""
    call = house.submit(tool="attach_file", arguments=asked(), seconds=seconds)
    real = SourceDesk.do
    with pytest.MonkeyPatch.context() as patch:

        def do(*arguments, **more):  # type: ignore[no-untyped-def]
            done = real(*arguments, **more)
            house.scheduler.clock.move_to(house.scheduler.clock.monotonic() + seconds)
            return done

        patch.setattr(SourceDesk, "do", do)
        assert isinstance(house.error(call), DeadlineExceeded)
        house.scheduler.settle()


def test_a_copy_whose_deadline_passed_before_it_was_named_is_removed(house: House) -> None:
    late(house)
    assert len(copies(house)) == 1
    house.scheduler.advance(UNCLAIMED_SECONDS + 1)
    assert copies(house) == []
    assert house.call(tool="attach_file", arguments=asked())["evidence"] == descriptor(1, DATA, "report.txt")


def test_a_repeat_that_comes_in_time_names_the_copy_that_is_there(house: House) -> None:
    late(house)
    [copy] = copies(house)
    inode = copy.stat().st_ino
    assert house.call(tool="attach_file", arguments=asked())["evidence"] == descriptor(1, DATA, "report.txt")
    assert (artifacts(house) / upload_id(1) / "report.txt").stat().st_ino == inode
    assert copies(house) == []
    house.scheduler.advance(10 * SECONDS)
    assert (artifacts(house) / upload_id(1) / "report.txt").read_bytes() == DATA


def test_a_copy_that_another_call_waits_for_is_never_removed(house: House) -> None:
    """The first call's time is over while the second one, which found its copy, is about to name it."""
    late(house)
    [copy] = copies(house)
    second = house.submit(tool="attach_file", arguments=asked(), seconds=10 * SECONDS)
    seen: list[bool] = []

    def time_passes() -> None:
        house.scheduler.clock.move_to(house.scheduler.clock.monotonic() + UNCLAIMED_SECONDS + 1)
        view = house.runtime.gate._view
        assert view is not None
        # Meanwhile the authority has renewed it, many times.
        house.runtime.gate.publish(replace(view, valid_until=house.scheduler.clock.monotonic() + 10))
        seen.append(copy.exists())

    with at_point("workspace.open", time_passes):
        assert house.answer(second)["evidence"] == descriptor(1, DATA, "report.txt")
    assert seen == [True]
    house.scheduler.advance(20 * SECONDS)
    assert copies(house) == []
    assert (artifacts(house) / upload_id(1) / "report.txt").read_bytes() == DATA
