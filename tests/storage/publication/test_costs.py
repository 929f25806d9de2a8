"""What a write costs, counted: one sync in the caller's path, and nothing that grows with the store."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import apsw
import pytest

from storage import faults
from tests.storage.publication.world import World

NewStore = Callable[[], Path]


class Syncs:
    """Counts every sync of the file layer and of SQLite."""

    def __init__(self) -> None:
        self.files = 0
        self.database = 0

    @property
    def total(self) -> int:
        return self.files + self.database

    def fsync(self, fd: int) -> None:
        self.files += 1
        os.fsync(fd)

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)


class _Vfs(apsw.VFS):
    def __init__(self, name: str, syncs: Syncs) -> None:
        super().__init__(name, "")
        self._syncs = syncs

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - its name
        return _File(self._syncs, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, syncs: Syncs, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._syncs = syncs

    def xSync(self, flags: int) -> None:  # noqa: N802 - its name
        super().xSync(flags)
        self._syncs.database += 1


@contextmanager
def counted(new_store: NewStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[World, Syncs]]:
    syncs = Syncs()
    vfs = _Vfs("counting", syncs)
    monkeypatch.setattr("storage.files.os", syncs)
    world = World(new_store(), vfs="counting")
    world.open()
    yield world, syncs
    world.close(clean=False)
    vfs.unregister()


def cost(syncs: Syncs, action: Callable[[], object]) -> int:
    before = syncs.total
    action()
    return syncs.total - before


def test_a_publication_costs_exactly_one_sync_and_a_batch_too(
    new_store: NewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counted(new_store, monkeypatch) as (world, syncs):
        assert cost(syncs, lambda: world.publish({"a.md": "one\n"})) == 1
        assert cost(syncs, lambda: world.publish({"a.md": "two\n"})) == 1
        assert cost(syncs, lambda: world.publish({f"claims/{n}/x.md": "x\n" * 500 for n in range(50)})) == 1
        assert cost(syncs, lambda: world.publish({"a.md": None, "b.md": "moved\n"})) == 1


def test_the_first_publication_after_a_checkpoint_costs_one_sync_too(
    new_store: NewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counted(new_store, monkeypatch) as (world, syncs):
        for number in range(3):
            world.publish({f"{number}.md": "x\n"})
            assert world.sync()
            assert cost(syncs, partial(world.publish, {f"{number}-b.md": "x\n"})) == 1


def test_a_replay_a_lookup_and_a_fold_in_cost_no_sync(new_store: NewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with counted(new_store, monkeypatch) as (world, syncs):
        world.publish({"a.md": "one\n"}, number=5)
        assert cost(syncs, lambda: world.publish({"a.md": "one\n"}, number=5)) == 0
        world.person_saves("a.md", "a person's\n")
        assert cost(syncs, world.fold) == 0
        assert cost(syncs, world.store.verify) == 0


def test_no_checkpoint_ever_runs_in_a_publication(new_store: NewStore) -> None:
    world = World(new_store())
    world.open()
    names: Counter[str] = Counter()
    with faults.installed(lambda name: names.update([name])):
        for number in range(30):
            world.publish({f"{number}.md": f"{number}\n" * 60_000})
    assert names["accept.commit"] == 30
    assert names["state.checkpoint"] == 0
    wal = (world.folder / "state.sqlite-wal").stat().st_size
    assert wal > 1000 * 4096  # past SQLite's automatic limit
    world.close()


def effects(world: World, action: Callable[[], object]) -> Counter[str]:
    """How often each point was passed; a counter of every stat, open, rename, statement and commit."""
    del world
    names: Counter[str] = Counter()
    with faults.installed(lambda name: names.update([name])):
        action()
    return names


@pytest.mark.parametrize("few_many", [(20, 200), pytest.param((1_000, 10_000), marks=pytest.mark.exhaustive)])
def test_a_publication_costs_the_same_however_large_the_store_is(
    new_store: NewStore, few_many: tuple[int, int]
) -> None:
    found = []
    for size in few_many:
        world = World(new_store())
        world.open()
        for start in range(0, size, 50):
            world.publish({f"claims/{start}/{n}.md": f"{start} {n}\n" for n in range(50)})
        world.sync()
        create = effects(world, partial(world.publish, {"new.md": "one\n"}))
        replace = effects(world, partial(world.publish, {"new.md": "two\n"}))
        step = effects(world, world.sync)
        found.append((create, replace, step))
        world.close(clean=False)
    assert found[0] == found[1]


def test_a_publication_costs_the_same_however_many_entries_wait_for_the_background_step(new_store: NewStore) -> None:
    world = World(new_store())
    world.open()
    world.publish({"a.md": "0\n"})
    first = effects(world, lambda: world.publish({"a.md": "1\n"}))
    for number in range(40):
        world.publish({f"{number}.md": "x\n"})
    assert effects(world, lambda: world.publish({"a.md": "2\n"})) == first
    world.close()
