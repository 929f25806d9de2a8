"""What a thin client may load. Its time is not asserted; what the time goes into is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import host_bridge
from host_bridge import cli
from tests.host_bridge.processes import ROOT, Home

_MODULES = """
import json, sys
sys.path.insert(0, {root!r})
before = set(sys.modules)
{act}
print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)
"""


def _loaded(act: str, home: Home) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", _MODULES.format(root=str(ROOT), act=act)],
        capture_output=True,
        env=home.env,
        timeout=30,
        check=True,
    )
    modules: list[str] = json.loads(done.stderr.splitlines()[-1])
    return set(modules)


@pytest.fixture(scope="module")
def warm() -> Iterator[Home]:
    """A home whose owner is shared until one of its tests stops it."""
    place = Home(fake=True)
    place.call("status")
    yield place
    place.close()


@pytest.mark.parametrize(
    "act",
    [
        "from host_bridge.cli import main; main(['call', 'status', '--state-dir', {state!r}])",
        "from host_bridge.cli import main; main(['status', '--state-dir', {state!r}])",
        "from host_bridge.cli import main; main(['mcp', '--state-dir', {state!r}])",
        "from host_bridge.cli import main; main(['stop', '--state-dir', {state!r}])",
        "from host_bridge.cli import main; main(['skills', '--state-dir', {state!r}])",
        "from host_bridge.cli import main; main(['skills', 'export', {state!r}])",
    ],
)
def test_a_thin_command_loads_the_standard_library_alone_and_little_of_it(warm: Home, act: str) -> None:
    loaded = _loaded(act.format(state=str(warm.state_dir)), warm)
    foreign = {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names}
    assert all(name.partition(".")[0] == "host_bridge" for name in foreign), foreign
    heavy = {"argparse", "asyncio", "concurrent", "dataclasses", "inspect", "logging", "pathlib", "subprocess"}
    heavy |= {"ssl", "tempfile", "typing", "uuid", "importlib.metadata", "hashlib", "threading"}
    assert not loaded & heavy


def test_importing_the_package_loads_nothing_and_its_names_are_still_there(home: Home) -> None:
    assert _loaded("import host_bridge", home) <= {"host_bridge", "__future__"}
    assert sorted(host_bridge.__all__) == list(host_bridge.__all__)
    for name in host_bridge.__all__:
        assert getattr(host_bridge, name) is not None
    with pytest.raises(AttributeError):
        getattr(host_bridge, "nothing_of_this_name")  # noqa: B009 - that it is missing is the point


def test_a_folder_in_the_working_directory_cannot_shadow_a_package(home: Home, tmp_path: Path) -> None:
    (tmp_path / "messages").mkdir()
    (tmp_path / "messages" / "__init__.py").write_text("raise SystemExit('shadowed')\n", encoding="utf-8")
    done = subprocess.run(
        home.command("call", "status", "--json"), capture_output=True, env=home.env, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("name", ["messages", "storage", "actors"])
def test_a_package_found_elsewhere_is_named_at_the_start(home: Home, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("", encoding="utf-8")
    env = {"PYTHONPATH": f"{tmp_path}:{home.env['PYTHONPATH']}"}
    done = home.run("call", "status", env=env)
    assert done.returncode == 1
    assert f"`{name}`" in done.stderr.decode()
    assert "environment of its own" in done.stderr.decode()


def test_windows_is_refused_at_the_start_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert cli.main(["status"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
