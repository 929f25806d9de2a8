"""Every fault point of storage in one table: ``python -m storage.fault_points`` prints it with its count.

Each module declares the points of its own effects in ``FAULT_POINTS``; this module gathers them. For a declared
``<name>`` the handler of :mod:`storage.faults` is called with ``<name>`` before the effect and ``<name>.after`` once it
succeeded; a compound effect adds a part, as ``<name>.open`` and ``<name>.write`` for a file that is created.

Source: WRITE-PATH.md section 5.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator

import storage

# What the functions of storage.files, storage.whole_files, storage.vault.replace and storage.state.connection add to a
# point's name.
DERIVED_PARTS = (
    "open", "write", "read", "stat", "aside", "unlink", "lease", "release", "begin", "commit", "remove", "stage",
    "sync", "place",
)  # fmt: skip


def all_fault_points() -> dict[str, str]:
    """Name to one line of every declared point, sorted by name. ``ValueError`` when two modules declare one name."""
    found: dict[str, str] = {}
    for name, line in _declared():
        if found.setdefault(name, line) != line:
            raise ValueError(f"declared twice: {name}")
    return dict(sorted(found.items()))


def _declared() -> Iterator[tuple[str, str]]:
    for module in sorted(info.name for info in pkgutil.walk_packages(storage.__path__, "storage.")):
        if module == __name__:
            continue
        for point in vars(importlib.import_module(module)).get("FAULT_POINTS", ()):
            yield (point, "") if isinstance(point, str) else point


def declared_name(point: str, names: dict[str, str]) -> str | None:
    """The declared name that a point as a handler sees it belongs to, ``None`` when it belongs to none."""
    base = point.removesuffix(".after")
    if base in names:
        return base
    for part in DERIVED_PARTS:
        head = base.removesuffix(f".{part}")
        if head != base and (head in names or declared_name(head, names) is not None):
            return declared_name(head, names)
    return None


def main() -> int:
    """Print the table."""
    points = all_fault_points()
    width = max(map(len, points))
    for name, line in points.items():
        print(f"{name:<{width}}  {line}".rstrip())
    print(f"{len(points)} fault points")
    return 0


if __name__ == "__main__":
    sys.exit(main())
