"""How the whole suite runs: what is shared out, where it writes, and what its processes need not do again."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

import pytest

MEMORY: Final = Path("/dev/shm")
ROOM: Final = 2 * 2**30
QUICK: Final = "not slow and not exhaustive"

# The suite starts hundreds of processes, each of which would compile every module again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def has_room(folder: Path) -> bool:
    """Whether the folder is one that programs can be started from, with more room than a run needs."""
    try:
        return (
            os.access(folder, os.W_OK)
            and not os.statvfs(folder).f_flag & os.ST_NOEXEC
            and shutil.disk_usage(folder).free >= ROOM
        )
    except OSError:
        return False


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """The quick tests write to memory where there is enough, since thousands of stores sync all the time.

    A ``TMPDIR`` or ``--basetemp`` of one's own is kept to, and what takes long runs on the disk.
    """
    chosen = "TMPDIR" in os.environ or config.option.basetemp is not None
    if not chosen and config.option.markexpr == QUICK and sys.platform == "linux" and has_room(MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def pytest_cmdline_main(config: pytest.Config) -> None:
    """Each worker takes one half in its order and helps the other at the end: what a module shares is made once."""
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist = "worksteal"
