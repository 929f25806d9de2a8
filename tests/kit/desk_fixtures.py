"""A store to sit at, copied from one that was made once: fixtures that a conftest offers to its folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.layout import StoreLayout
from tests.kit.store import Desk, copy_store, make_store


@pytest.fixture(scope="session")
def made_store(tmp_path_factory: pytest.TempPathFactory) -> StoreLayout:
    return make_store(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def desk(made_store: StoreLayout, tmp_path: Path) -> Iterator[Desk]:
    """Operations on an empty store of its own, without a thread."""
    opened = Desk(copy_store(made_store, tmp_path / "store"))
    try:
        yield opened
    finally:
        opened.close()
