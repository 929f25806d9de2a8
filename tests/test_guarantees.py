"""The page of guarantees names for each promise what would notice that it is broken, and every name is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from stress.judges import JUDGES
from tests.tree import CHECKOUT, PACKAGES, PACKAGES_ROOT

PAGE: Final = (CHECKOUT / "docs" / "guarantees.md").read_text("utf-8")
_CODE: Final = re.compile(r"`([^`]+)`")


def rows() -> list[list[str]]:
    """Promise, place and checkers of each row of the first table."""
    table = PAGE.split("## ", 1)[0]
    found = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return found[1:]


def lies_at(name: str) -> Path:
    """Where a path of the tree lies: the packages may be installed somewhere else."""
    return (PACKAGES_ROOT if name.partition("/")[0] in PACKAGES else CHECKOUT) / name


def paths(cell: str) -> list[str]:
    """What a cell names of the tree; a name without a folder lies in that of the name before it."""
    found, folder = list[str](), ""
    for name in _CODE.findall(cell):
        if "/" in name:
            folder = name if name.endswith("/") else name.rpartition("/")[0] + "/"
            found.append(name)
        elif name.endswith(".py"):
            found.append(folder + name if lies_at(folder + name).exists() or not lies_at(name).exists() else name)
    return found


def others(cell: str) -> list[str]:
    """The judges and the commands that it names."""
    return [name for name in _CODE.findall(cell) if name in JUDGES or name.startswith("python -m stress")]


def test_there_is_a_table_of_promises() -> None:
    assert len(rows()) > 40
    assert all(len(row) == 3 for row in rows()), [row for row in rows() if len(row) != 3]


@pytest.mark.parametrize("row", rows(), ids=lambda row: re.sub(r"\W+", "-", row[0])[:60])
def test_every_promise_names_the_test_or_the_judge_that_proves_it(row: list[str]) -> None:
    tests = [name for name in paths(row[2]) if name.startswith("tests/")]
    assert tests or others(row[2])
    for name in tests:
        path = lies_at(name)
        assert path.is_file() or (path.is_dir() and any(path.rglob("test_*.py"))), f"{name} is not there"


@pytest.mark.parametrize("row", rows(), ids=lambda row: re.sub(r"\W+", "-", row[0])[:60])
def test_every_promise_is_kept_in_a_place_that_is_there(row: list[str]) -> None:
    for name in paths(row[1]):
        assert lies_at(name).exists(), name
