"""Every guard between an attempt and private data stops its attempt, and nothing else does.

Each attempt runs on a real runtime: with its guards on it is refused with its stable code, or answered without what it
is after; with all of them off it succeeds. Where several stand in the way of one attempt (defence in depth), each of
them alone suffices.

Source: stores-and-access.md (Partitions, Caller authority); decisions.md section 6; docs/access.md (Guards).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.host_bridge.guards import access, doors, folders, http, partitions, system_memory
from tests.host_bridge.guards.kit import Attempt, Guard, Made, World, make, told
from tests.kit.leaks import nothing_left
from tests.tree import CHECKOUT

TABLES: Final = (access, partitions, folders, doors, http, system_memory)
GUARDS: Final[dict[str, Guard]] = {guard.name: guard for table in TABLES for guard in table.GUARDS}
ATTEMPTS: Final[list[Attempt]] = [attempt for table in TABLES for attempt in table.ATTEMPTS]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def shared(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with nothing_left(), made.world(tmp_path_factory.mktemp("shared") / "state") as world:
        yield world


@contextmanager
def world_of(attempt: Attempt, made: Made, shared: World, folder: Path) -> Iterator[World]:
    if not attempt.alone and not attempt.configuration and attempt.before is None:
        yield shared
        return
    with made.world(folder / str(next(_numbers)), attempt.configuration, attempt.before) as world:
        yield world


def tried(attempt: Attempt, off: tuple[str, ...], made: Made, shared: World, folder: Path) -> tuple[str, str]:
    """What the caller is told with these guards switched off."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in off:
            GUARDS[name].off(monkeypatch)
        with world_of(attempt, made, shared, folder) as world:
            return told(world, attempt)


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
def test_each_guard_alone_stops_the_attempt_that_succeeds_without_them(
    attempt: Attempt, made: Made, shared: World, tmp_path: Path
) -> None:
    code, answer = tried(attempt, (), made, shared, tmp_path)
    assert (code, attempt.reached(answer)) == (attempt.refused, False), answer
    for guard in attempt.guards if len(attempt.guards) > 1 else ():
        others = tuple(name for name in attempt.guards if name != guard)
        _, answer = tried(attempt, others, made, shared, tmp_path)
        assert not attempt.reached(answer), f"{guard} alone: {answer}"
    _, answer = tried(attempt, attempt.guards, made, shared, tmp_path)
    assert attempt.reached(answer), answer


def test_every_guard_of_the_page_has_its_rows_and_every_row_its_guard_on_the_page() -> None:
    page = (CHECKOUT / "docs" / "access.md").read_text("utf-8").partition("\n## Guards\n")[2]
    listed = re.findall(r"^\| \*\*(.+?)\*\* \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(GUARDS)
    assert {name for attempt in ATTEMPTS for name in attempt.guards} == set(GUARDS)


def test_there_are_at_least_sixty_attempts_each_under_a_name_of_its_own() -> None:
    assert len(ATTEMPTS) >= 60
    assert len({attempt.name for attempt in ATTEMPTS}) == len(ATTEMPTS)
