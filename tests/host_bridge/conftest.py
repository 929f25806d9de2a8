"""Fixtures of the door tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.host_bridge.processes import Home


@pytest.fixture
def home() -> Iterator[Home]:
    """A state directory whose owners run the fake bridge."""
    place = Home(fake=True)
    yield place
    place.close()
