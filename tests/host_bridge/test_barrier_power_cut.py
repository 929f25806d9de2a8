"""A power cut in the middle of a save, and access taken away as the first thing afterwards (decisions.md section 6)."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from host_bridge.bridge import KnowledgeBridge
from storage.layout import StoreLayout
from storage.publication import opening
from storage.state.connection import Database
from tests.host_bridge.barrier_world import visible
from tests.host_bridge.test_barrier import end_a_run, on_disk, revoke
from tests.kit.leaks import nothing_left
from tests.kit.powercut import MODES, Disk, Mode, watched
from tests.kit.store import Desk, only_store, open_bridge, remember, total

POINTS = ("accept.commit.after", "place.file", "place.file.after", "manifest.place.after", "settle.commit.after")


@contextmanager
def on(disk: Disk) -> Iterator[None]:
    """Databases that are opened in the block lie on the disk."""
    usual = Database.open

    def opened(path: Path, *, vfs: str | None = None, **how: Any) -> Database:
        return usual(path, vfs=disk.vfs, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "open", opened)
        yield


def settle_in(layout: StoreLayout) -> None:
    """Record the vault's folder of a copy, which has another inode than the original; its log stays."""
    database = Database.open(layout.state_database, point_prefix="state")
    database.keep_log(True)
    status = layout.vault.stat()
    with database.transaction(full=False, point="test"):
        database.execute("UPDATE meta SET vault_device = ?, vault_inode = ?", (status.st_dev, status.st_ino))
    database.close()


@pytest.fixture(scope="module")
def cuts(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, Mode], Path]:
    """State directories as a power cut at each point of a save may leave them."""
    place = tmp_path_factory.mktemp("cuts")
    with nothing_left(), open_bridge(place / "whole") as bridge:
        remember(bridge, "In place.", 900)
    layout = only_store(place / "whole")
    disk = Disk(layout.root)
    disk.adopt_databases()
    found: dict[tuple[str, Mode], Path] = {}
    begun: list[bool] = []
    rng = random.Random(5)

    def cut(point: str) -> None:
        for mode in MODES:
            if point in POINTS and (point, mode) not in found:
                found[point, mode] = place / f"{len(found)}"
                shutil.copytree(place / "whole", found[point, mode])
                image = only_store(found[point, mode]).root
                shutil.rmtree(image)
                disk.image(image, mode, rng)

    with on(disk), watched(disk, lambda point: cut(point) if begun else None):
        desk = Desk(layout)
        desk.remember("Opened and warm.")
        begun.append(True)
        desk.remember("Accepted.")
        desk.close(clean=False)
    return found


@pytest.mark.parametrize("take_away", [revoke, end_a_run])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", [POINTS[0], *(pytest.param(point, marks=pytest.mark.slow) for point in POINTS[1:])])
def test_a_save_that_a_power_cut_met_after_its_commit_is_in_place_when_the_revocation_returns(
    cuts: dict[tuple[str, Mode], Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    point: str,
    mode: Mode,
    take_away: Callable[[KnowledgeBridge], None],
) -> None:
    place = shutil.copytree(cuts[point, mode], tmp_path / "state")
    settle_in(only_store(place))
    monkeypatch.setattr(opening, "_text", lambda path: "another start of the machine")
    with nothing_left(), open_bridge(place) as bridge:
        take_away(bridge)
        after = visible(place)
        assert on_disk(place) == 3, "finished before the answer"
        assert total(bridge) == 3
        assert visible(place) == after, "nothing landed after the answer to the revocation"
