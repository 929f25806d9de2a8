"""The repository speaks of the product alone: no paths of somebody's machine, no leftovers, one version."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import host_bridge
from tests.tree import CHECKOUT, PACKAGES, PACKAGES_ROOT

_MACHINE_PATH = re.compile(r"(?<![\w.<>{}$~/-])/(?:work|root|mnt/[a-z]|tmp/(?!\.\.\.)\w+)/[\w.-]+")
_CACHES = {"__pycache__", ".hypothesis", ".pytest_cache", ".mypy_cache", ".ruff_cache"}
_LEFTOVERS = re.compile(r"(?<!\w)(?:TO[D]O|FIX[M]E)(?!\w)")


def files() -> list[Path]:
    """Every text file of the repository: the tracked and the new ones, or all of them beside an installed wheel."""
    listed = subprocess.run(
        ["git", "-C", str(CHECKOUT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, check=False,
    )
    if listed.returncode == 0 and (CHECKOUT / ".git").exists():
        found = [CHECKOUT / name for name in listed.stdout.decode().split("\0") if name]
    else:
        found = [path for path in CHECKOUT.rglob("*") if path.is_file() and _CACHES.isdisjoint(path.parts)]
        found += [path for name in PACKAGES for path in (PACKAGES_ROOT / name).rglob("*.py")]
    return [path for path in found if path.exists() and b"\0" not in path.read_bytes()[:8192]]


def found(pattern: re.Pattern[str]) -> list[str]:
    hits = []
    for path in files():
        for number, line in enumerate(path.read_bytes().decode("utf-8", "replace").splitlines(), 1):
            hits += [f"{path.name}:{number}: {match[0]}" for match in pattern.finditer(line)]
    return hits


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    assert found(_MACHINE_PATH) == []


def test_nothing_is_left_for_later_in_a_comment() -> None:
    assert found(_LEFTOVERS) == []


def test_no_merge_marker_was_committed() -> None:
    assert found(re.compile(r"^(?:<{7}|>{7}) ")) == []


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
    changelog = re.search(r"^## (\d+\.\d+\.\d+)", (CHECKOUT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert changelog
    assert host_bridge.__version__ == project["version"] == changelog[1]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_that_it_is_typed(package: str) -> None:
    assert (PACKAGES_ROOT / package / "py.typed").exists()


def test_every_silenced_check_gives_its_reason() -> None:
    bare = re.compile(r"#\s*(?:type:\s*ignore|noqa)(?:\[[^\]]*\]|:\s*[A-Z0-9, ]+)?\s*$")
    silent = []
    for path in files():
        if path.suffix == ".py" and "tests" not in path.parts:
            lines = path.read_text("utf-8").splitlines()
            silent += [
                f"{path.name}:{number + 1}"
                for number, line in enumerate(lines)
                if bare.search(line) and not (number and lines[number - 1].lstrip().startswith("#"))
            ]
    assert silent == []
