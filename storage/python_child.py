"""How a child of ours in Python is started: the same interpreter, the same packages. Standard library only."""

from __future__ import annotations

import os
import sys


def command(module: str, *arguments: str) -> list[str]:
    """The command line that runs ``module``: ``-P``, so that no folder of the working directory shadows a package.

    Raises ``FileNotFoundError`` where Python does not know its own path, as in a program that embeds it.
    """
    if not sys.executable:
        raise FileNotFoundError("Python does not know its own path")
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """The child's environment: it must find the same packages, wherever this process found them."""
    child = dict(os.environ)
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.basename(root) not in ("site-packages", "dist-packages"):
        rest = child.get("PYTHONPATH", "")
        child["PYTHONPATH"] = root + os.pathsep + rest if rest else root
    child.pop("PYTHONSTARTUP", None)
    return child
