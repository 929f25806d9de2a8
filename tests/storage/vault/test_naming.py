"""A path that a person names leads to one file inside the partition, or to a reason why not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.vault.naming import Unnamed, locate


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "private"
    (root / "people").mkdir(parents=True)
    (root / "people" / "ada.md").write_text("# Ada\n")
    (tmp_path / "stranger.md").write_text("elsewhere\n")
    return root


@pytest.fixture
def fd(root: Path) -> Iterator[int]:
    descriptor = os.open(root, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def problem(fd: int, path: str) -> str:
    with pytest.raises(Unnamed) as caught:
        locate(fd, path)
    return caught.value.problem


def test_a_file_is_found_by_its_relative_and_by_its_absolute_path(root: Path, fd: int) -> None:
    assert locate(fd, "people/ada.md") == "people/ada.md"
    assert locate(fd, str(root / "people" / "ada.md")) == "people/ada.md"
    assert locate(fd, str(root / "people" / ".." / "people" / "ada.md")) == "people/ada.md"


def test_the_partition_may_be_reached_through_a_link(root: Path, fd: int, tmp_path: Path) -> None:
    (tmp_path / "shortcut").symlink_to(root)
    assert locate(fd, str(tmp_path / "shortcut" / "people" / "ada.md")) == "people/ada.md"


@pytest.mark.parametrize("path", ["../stranger.md", "people/../../stranger.md", "", ".", "people//ada.md", "a\0b"])
def test_a_relative_path_never_leads_out(fd: int, path: str) -> None:
    assert problem(fd, path) == "outside"


def test_an_absolute_path_outside_is_refused(root: Path, fd: int, tmp_path: Path) -> None:
    assert problem(fd, str(tmp_path / "stranger.md")) == "outside"
    assert problem(fd, str(root)) == "outside"
    assert problem(fd, "/") == "outside"


def test_links_below_the_partition_are_refused_wherever_they_stand(root: Path, fd: int, tmp_path: Path) -> None:
    (root / "link.md").symlink_to("people/ada.md")
    (root / "out").symlink_to(tmp_path)
    assert problem(fd, "link.md") == "symlink"
    assert problem(fd, "out/stranger.md") == "symlink"
    assert problem(fd, str(root / "out" / "stranger.md")) == "symlink"


def test_what_is_no_single_regular_file_is_refused(root: Path, fd: int) -> None:
    os.link(root / "people" / "ada.md", root / "twin.md")
    os.mkfifo(root / "pipe.md")
    assert problem(fd, "people/ada.md") == "hardlink"
    assert problem(fd, "people") == "not_a_file"
    assert problem(fd, "pipe.md") == "not_a_file"
    assert problem(fd, "no.md") == "missing"
    assert problem(fd, "no/such.md") == "missing"
