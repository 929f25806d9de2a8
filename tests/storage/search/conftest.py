"""An open index for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.search import SearchIndex
from tests.storage.search.samples import open_index


@pytest.fixture
def index(tmp_path: Path) -> Iterator[SearchIndex]:
    opened = open_index(tmp_path / "search" / "private.sqlite")
    yield opened
    opened.close()
