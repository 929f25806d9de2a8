"""A made store to copy, so that each case starts from the same bytes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.storage.publication.world import World

MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session")
def made_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "stores" / "vault"
    World(folder).create()
    return folder


@pytest.fixture
def fast_path(tmp_path: Path) -> Iterator[Path]:
    """A temporary folder in memory where there is one: hundreds of small stores are hard on a shared disk."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="publication-", dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def new_store(made_store: Path, fast_path: Path) -> Callable[[], Path]:
    """A fresh copy of a made store at each call."""
    number = 0

    def copy() -> Path:
        nonlocal number
        number += 1
        target = fast_path / f"case{number}" / "store"
        shutil.copytree(made_store, target)
        return target

    return copy
