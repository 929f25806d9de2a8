"""Fails when a test was skipped for another reason than a platform that this machine is not.

Usage: ``skipped.py REPORT.xml...`` with pytest's JUnit reports. A skip's reason must begin with ``needs `` and one
of the things below that are looked for here; a thing that is there must have been used.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path


def _may_mount() -> bool:
    """Whether this user may lay a file system over a folder here: not everywhere may the superuser."""
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["mount", "-t", "tmpfs", "none", folder], capture_output=True, check=False).returncode != 0:
            return False
        subprocess.run(["umount", folder], check=True)
        return True


def _has_guide() -> bool:
    """Whether the guide to agent memory lies beside the checkout, or where the environment says."""
    beside = Path("shared", "spec", "agent-memory.md")
    return bool(os.environ.get("KNOWLEDGE_AGENT_MEMORY_GUIDE")) or any(
        (above / beside).is_file() for above in Path(__file__).resolve().parents[2:]
    )


def _has_registry() -> bool:
    """Whether a package can be had at all."""
    with tempfile.TemporaryDirectory() as folder:
        fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, "pykka"]
        return subprocess.run(fetch, capture_output=True, check=False).returncode == 0


PRESENT: dict[str, Callable[[], bool]] = {
    "linux": lambda: sys.platform == "linux",
    "macos": lambda: sys.platform == "darwin",
    "windows": lambda: sys.platform == "win32",
    "limits": lambda: os.geteuid() != 0,
    "mounts": _may_mount,
    "wordllama": lambda: importlib.util.find_spec("wordllama") is not None,
    "guide": _has_guide,
    "registry": _has_registry,
    "redis": lambda: shutil.which("redis-server") is not None,
    "chromium": lambda: shutil.which("chromium") is not None,
}
"""``limits``: a user whose access to files has any. ``wordllama``: there is no wheel of it for every machine."""


def excused(reason: str) -> bool:
    match = re.match(r"needs (\w+)", reason.strip())
    there = None if match is None else PRESENT.get(match[1].lower())
    return there is not None and not there()


def main(reports: list[str]) -> int:
    bad = []
    for report in reports:
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
        skipped = [(case, skip) for case in cases for skip in case.iter("skipped")]
        print(f"{report.rsplit('/', 1)[-1]}: {len(cases)} tests, {len(skipped)} skipped")
        if not cases:
            bad.append(f"{report}: no test ran")
        bad += [
            f"{case.get('classname')}::{case.get('name')}: {skip.get('message')}"
            for case, skip in skipped
            if not excused(skip.get("message") or "")
        ]
    for line in bad:
        print(f"skipped although this machine could run it: {line}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
