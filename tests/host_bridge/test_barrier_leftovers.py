"""Saves that a process could not put in place when it stopped, and the end of a run in the next one.

Source: decisions.md section 6 (a closed store with an unsettled journal has been opened).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from host_bridge.bridge import KnowledgeBridge
from storage import faults
from storage.index_feed import IndexFeed
from storage.session import StoreSession
from storage.store_parts import was_interrupted
from storage.vault import ScanLimits
from tests.host_bridge.test_barrier import end_a_run, on_disk, revoke
from tests.kit.leaks import nothing_left
from tests.kit.store import make_store, only_store, open_bridge, remember


def full(point: str) -> None:
    if point == "place.file":
        raise OSError(28, "No space left on device")


def left_behind(place: Path) -> None:
    """A process that accepts a save, cannot put it in place and stops in order."""
    with open_bridge(place) as bridge:
        remember(bridge, "In place.", 1)
        with faults.installed(full):
            assert remember(bridge, "Accepted.", 2)["state"] == "pending"
            bridge.close()


@pytest.mark.parametrize("take_away", [revoke, end_a_run])
def test_a_save_that_an_earlier_process_could_not_put_in_place_is_in_place_when_the_revocation_returns(
    tmp_path: Path, take_away: Callable[[KnowledgeBridge], None]
) -> None:
    with nothing_left():
        left_behind(tmp_path)
        assert on_disk(tmp_path) == 1
        with open_bridge(tmp_path) as bridge:
            take_away(bridge)
            assert on_disk(tmp_path) == 2, "finished before the answer"


def test_the_end_of_a_run_opens_no_store_that_was_closed_in_order(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        remember(bridge, "In place.", 1)
    assert not was_interrupted(only_store(tmp_path))
    with open_bridge(tmp_path) as bridge:
        end_a_run(bridge)
        assert bridge.health()["stores"] == []


@pytest.mark.parametrize("clean", [True, False])
def test_only_a_clean_stop_takes_the_log_away(tmp_path: Path, clean: bool) -> None:
    layout = make_store(tmp_path / "store")
    assert not was_interrupted(layout)
    session = StoreSession.open(layout, limits=ScanLimits())
    assert was_interrupted(layout)
    assert session.close(clean=clean) is clean
    assert was_interrupted(layout) is not clean
    StoreSession.open(layout, limits=ScanLimits()).close()
    assert not was_interrupted(layout)


def test_a_reader_that_is_the_last_to_close_leaves_the_log_of_an_unclean_stop(tmp_path: Path) -> None:
    layout = make_store(tmp_path / "store")
    session = StoreSession.open(layout, limits=ScanLimits())
    feed = IndexFeed(layout.state_database)
    session.abandon()
    feed.close()
    assert was_interrupted(layout)
