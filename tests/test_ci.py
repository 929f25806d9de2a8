"""The gate itself: what it lets pass and what not."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tree import CHECKOUT


def skipped(report: Path) -> int:
    main: Callable[[list[str]], int] = runpy.run_path(str(CHECKOUT / ".ci" / "skipped.py"))["main"]
    return main([str(report)])


def report(tmp_path: Path, *cases: str) -> Path:
    path = tmp_path / "report.xml"
    path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>", "utf-8")
    return path


def case(inside: str = "") -> str:
    return f'<testcase classname="tests.test_x" name="test_y">{inside}</testcase>'


def test_a_run_without_skips_passes(tmp_path: Path) -> None:
    assert skipped(report(tmp_path, case())) == 0


def test_a_run_without_tests_fails(tmp_path: Path) -> None:
    assert skipped(report(tmp_path)) == 1


@pytest.mark.parametrize("reason", ["", "flaky", "needs a better day", f"needs {sys.platform}", "linux"])
def test_a_skip_that_this_machine_does_not_explain_fails(tmp_path: Path, reason: str) -> None:
    assert skipped(report(tmp_path, case(), case(f'<skipped message="{reason}"/>'))) == 1


def test_a_skip_for_another_platform_passes(tmp_path: Path) -> None:
    other = "macos" if sys.platform == "linux" else "linux"
    assert skipped(report(tmp_path, case(f'<skipped message="needs {other}"/>'))) == 0


def test_a_process_that_stays_behind_is_found(tmp_path: Path) -> None:
    command = [sys.executable, str(CHECKOUT / ".ci" / "left_over.py"), "0.2"]
    marked = os.environ | {"KNOWLEDGE_CI_RUN": str(tmp_path)}
    child = subprocess.Popen([sys.executable, "-c", "input()"], env=marked, stdin=subprocess.PIPE)
    try:
        found = subprocess.run(command, env=marked, capture_output=True, text=True, timeout=30, check=False)
        assert found.returncode == 1
        assert str(child.pid) in found.stderr
    finally:
        child.communicate(b"\n", timeout=10)
    assert subprocess.run(command, env=marked, timeout=30, check=False).returncode == 0


def test_the_gate_is_one_script_that_parses() -> None:
    subprocess.run(["bash", "-n", str(CHECKOUT / ".ci" / "run")], check=True, timeout=10)


def wheel_tests() -> set[str]:
    """The test files that the gate runs against the wheel."""
    gate = (CHECKOUT / ".ci" / "run").read_text("utf-8")
    block = re.search(r"^wheel_tests=\(\n(.+?)^\)$", gate, re.MULTILINE | re.DOTALL)
    assert block is not None
    found: set[str] = set()
    for pattern in block[1].split():
        paths = list(CHECKOUT.glob(pattern))
        assert paths, f"{pattern} names nothing"
        for path in paths:
            inside = path.rglob("test_*.py") if path.is_dir() else [path]
            found |= {str(file.relative_to(CHECKOUT)) for file in inside}
    return found


@pytest.mark.parametrize(
    ("what", "test"),
    [
        ("every module", "tests/test_installed.py"),
        ("every data file", "tests/test_installed.py"),
        ("the shell", "tests/host_bridge/cli/test_commands.py"),
        ("the owner", "tests/host_bridge/test_real_owner.py"),
        ("JSON-RPC", "tests/host_bridge/test_real_stdio.py"),
        ("MCP", "tests/host_bridge/cli/test_mcp.py"),
        ("Python", "tests/host_bridge/test_bridge.py"),
        ("demo_data", "tests/host_bridge/test_demo.py"),
        ("skills", "tests/host_bridge/test_skills.py"),
        ("templates and static files", "tests/host_bridge/explorer/test_pages.py"),
        ("core.yaml", "tests/storage/ontology/test_views.py"),
        ("*.sql", "tests/storage/state/test_schema.py"),
        ("a process of the product's own", "tests/storage/test_index_builder.py"),
        ("the pages", "tests/test_docs.py"),
    ],
)
def test_against_the_wheel_every_door_and_every_kind_of_data_file_is_used(what: str, test: str) -> None:
    assert test in wheel_tests(), what


def test_the_whole_suite_runs_from_the_command_of_the_readme() -> None:
    """The wheel's selection is no reason to leave a test out of both runs."""
    gate = (CHECKOUT / ".ci" / "run").read_text("utf-8")
    assert 'bash -euo pipefail -c "$tests"' in gate
    assert '"${wheel_tests[@]}"' in gate
