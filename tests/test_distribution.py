"""What is handed out: the wheel carries exactly the four packages, the sdist the tests as well."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.tree import CHECKOUT, PACKAGES

pytestmark = pytest.mark.slow


def _tracked() -> list[str]:
    listed = subprocess.run(["git", "-C", str(CHECKOUT), "ls-files", "-z"], capture_output=True, check=True)
    return [name for name in listed.stdout.decode().split("\0") if name and (CHECKOUT / name).exists()]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both files: ``$KNOWLEDGE_DIST`` where they were built already, else built from a copy."""
    given = os.environ.get("KNOWLEDGE_DIST")
    if given:
        return Path(given)
    copy = tmp_path_factory.mktemp("copy")  # a build folder left in the checkout would end up in the wheel
    for name in _tracked():
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((CHECKOUT / name).read_bytes())
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(out), str(copy)], check=True, capture_output=True, timeout=110
    )
    return out


def test_the_wheel_carries_exactly_the_files_of_the_four_packages(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    (info,) = {name.split("/")[0] for name in names if name.split("/")[0].endswith(".dist-info")}
    expected = {name for name in _tracked() if name.split("/")[0] in PACKAGES}
    metadata = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt"}
    assert names == expected | {f"{info}/{name}" for name in metadata}


def test_every_file_of_the_wheel_has_the_bytes_of_the_checkout(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        carried = [name for name in archive.namelist() if name.split("/")[0] in PACKAGES]
        assert carried
        assert [name for name in carried if archive.read(name) != (CHECKOUT / name).read_bytes()] == []


def test_the_wheel_brings_the_command_and_runs_on_every_machine(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    version = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert wheel.name == f"knowledge_runtime-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        (entry,) = [name for name in archive.namelist() if name.endswith("/entry_points.txt")]
        assert archive.read(entry).decode().split() == ["[console_scripts]", "knowledge", "=", "host_bridge.cli:main"]


def test_the_sdist_carries_the_tests_and_pages_too(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    expected = {name for name in _tracked() if name.split("/")[0] in {*PACKAGES, "tests", "stress", "docs", ".ci"}}
    assert expected - names == set()
    assert {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml"} <= names
