"""Which folder a watch stands for, whatever comes, goes and moves; found without a look at all the others."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.vault._folders import WatchedFolders
from storage.vault._inotify import Inotify


@pytest.fixture
def kernel() -> Iterator[Inotify]:
    opened = Inotify()
    yield opened
    opened.close()


def watch(watched: WatchedFolders, root: Path, folder: str) -> None:
    (root / folder).mkdir(parents=True, exist_ok=True)
    fd = os.open(root / folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        watched.add(folder, fd)
    finally:
        os.close(fd)


def test_forgetting_a_folder_forgets_what_lies_below_it_and_nothing_beside_it(kernel: Inotify, tmp_path: Path) -> None:
    watched = WatchedFolders(kernel)
    for folder in ("", "a", "a/b", "a/b/c", "ab", "ab/c"):
        watch(watched, tmp_path, folder)
    watched.forget_below("a")
    assert set(watched._watch_of) == {"", "ab", "ab/c"}


def test_a_folder_whose_parent_is_not_watched_is_forgotten_with_the_parent(kernel: Inotify, tmp_path: Path) -> None:
    watched = WatchedFolders(kernel)
    watch(watched, tmp_path, "a/b/c")
    watched.forget_below("a")
    assert len(watched) == 0


@pytest.mark.parametrize("seed", range(20))
def test_what_is_watched_equals_a_plain_set_of_paths_and_no_note_is_left_over(
    seed: int, kernel: Inotify, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    watched, expected = WatchedFolders(kernel), set[str]()
    names = [f"{a}/{b}/{c}" for a in "xy" for b in "xy" for c in "xy"]
    paths = sorted({"/".join(name.split("/")[:depth]) for name in names for depth in (1, 2, 3)})
    for _ in range(120):
        path = rng.choice(paths)
        match rng.randrange(4):
            case 0 | 1:
                watch(watched, tmp_path, path)
                expected.add(path)
            case 2:
                watched.forget_below(path)
                expected = {p for p in expected if p != path and not p.startswith(f"{path}/")}
            case _:
                kept = set(rng.sample(paths, 9))
                watched.keep_only(kept)
                expected &= kept
        assert set(watched._watch_of) == expected
    watched.keep_only(set())
    assert watched._inside == {}
