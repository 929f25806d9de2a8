"""Fails when a process that the run started is still there: one whose command line or folder lies below ROOT.

Usage: ``left_over.py ROOT [SECONDS]``. Gives stragglers five seconds to end, or as many as named. Linux only, as
``/proc`` is.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def left_over(root: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if process.name in {str(os.getpid()), str(os.getppid())}:
            continue
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            folder = os.readlink(process / "cwd")
        except OSError:
            continue  # it ended while we looked, or it is not ours to look at
        if root in words or folder.startswith(root):
            found.append(f"{process.name}: {words}")
    return found


def main(root: str, seconds: float = 5.0) -> int:
    deadline = time.monotonic() + seconds
    while (found := left_over(root)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for line in found:
        print(f"left behind: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(float, sys.argv[2:])))
