"""An open index for each test that asks for one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.search import SearchIndex
from tests.storage.search.samples import open_index


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed index without documents, to be copied: making one costs several syncs."""
    made = tmp_path_factory.mktemp("empty") / "private.sqlite"
    open_index(made).close()
    return made


@pytest.fixture
def index(tmp_path: Path, empty_file: Path) -> Iterator[SearchIndex]:
    path = tmp_path / "private.sqlite"
    shutil.copy(empty_file, path)
    opened = open_index(path)
    assert not opened.needs_rebuild
    yield opened
    opened.close()
