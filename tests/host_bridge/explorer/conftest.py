"""One furnished store for all tests of a module that only look; an empty one for those that change something."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host_bridge.explorer.browser import Reader
from tests.host_bridge.explorer.console import BridgeConsole
from tests.host_bridge.explorer.world import World, furnish, open_world


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_world(tmp_path_factory.mktemp("furnished")) as world:
        furnish(world)
        yield world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_world(tmp_path / "state") as opened:
        yield opened


@pytest.fixture
def reader(furnished: World) -> Reader:
    """Who looks at the furnished store with every right."""
    return Reader(BridgeConsole(furnished.bridge))


@pytest.fixture
def visitor(world: World) -> Reader:
    """Who looks at the empty store."""
    return Reader(BridgeConsole(world.bridge))
