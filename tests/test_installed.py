"""What is installed, from a checkout or from the wheel: each module, each data file and the command are there."""

from __future__ import annotations

import importlib
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path

import pytest

from host_bridge.cli import main
from tests.tree import CHECKOUT, PACKAGES, PACKAGES_ROOT, sources


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_can_be_imported_and_comes_from_where_the_others_do(package: str) -> None:
    names = [source.name for source in sources() if source.name.partition(".")[0] == package]
    assert names
    for name in names:
        if not name.endswith("__main__"):
            found = importlib.import_module(name).__file__
            assert found is not None
            assert Path(found).resolve().is_relative_to(PACKAGES_ROOT), name


def declared() -> dict[str, list[str]]:
    """The patterns of each package's data files, as they are packaged."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))
    found: dict[str, list[str]] = project["tool"]["setuptools"]["package-data"]
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_every_pattern_of_data_files_has_files_and_every_data_file_can_be_read(package: str) -> None:
    root = PACKAGES_ROOT / package
    matched: set[Path] = set()
    for pattern in declared()[package]:
        kept = {path for path in root.glob(f"{pattern}/*" if pattern.endswith("**") else pattern) if path.is_file()}
        assert kept, pattern
        matched |= kept
    there = {path for path in root.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"}}
    assert there == matched
    for path in there:
        read = files(package).joinpath(*path.relative_to(root).parts).read_bytes()
        assert read or path.name == "py.typed", path


def test_the_command_is_installed_and_is_the_function_of_the_package() -> None:
    [entry] = entry_points(group="console_scripts", name="knowledge")
    assert entry.load() is main
    script = Path(sysconfig.get_path("scripts")) / "knowledge"
    command = [sys.executable, "-P", str(script), "--help"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "knowledge serve" in ran.stdout
