"""Fails when a process of this run is still there: one whose environment carries the run's mark.

Usage: ``KNOWLEDGE_CI_RUN=mark left_over.py [SECONDS]``. Gives stragglers five seconds to end, or as many as named.
Linux only, as ``/proc`` is.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

VARIABLE = "KNOWLEDGE_CI_RUN"


def left_over() -> list[str]:
    mark = f"{VARIABLE}={os.environ[VARIABLE]}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if process.name in {str(os.getpid()), str(os.getppid())}:
            continue
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                found.append(f"{process.name}: {words}")
        except OSError:
            continue  # it ended while we looked, or it is not ours to look at
    return found


def main(seconds: float = 5.0) -> int:
    deadline = time.monotonic() + seconds
    while (found := left_over()) and time.monotonic() < deadline:
        time.sleep(0.1)
    for line in found:
        print(f"left behind: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:])))
