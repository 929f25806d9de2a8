from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.system_memory.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "system-memory.sqlite")
    yield made
    made.rankings.close()
    made.system.close()
