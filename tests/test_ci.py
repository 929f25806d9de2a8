"""The gate itself: what it lets pass and what not."""

from __future__ import annotations

import os
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
