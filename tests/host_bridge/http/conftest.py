from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.host_bridge.http.world import World, serving
from tests.kit.leaks import nothing_left


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Shared by a module's tests: none of them changes what another sees."""
    with nothing_left(), serving(tmp_path_factory.mktemp("http") / "state") as opened:
        yield opened
