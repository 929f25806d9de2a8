"""Whether the three parts of a store are where the registry says: a look at names, which opens nothing.

Any thread. Source: stores-and-access.md (Stores: a store that lost its directory, manifest or database).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from storage.faults import effect
from storage.layout import StoreLayout

Part: TypeAlias = Literal["directory", "manifest", "database"]

FAULT_POINTS: Final = (("parts.look", "looking whether a store's folder, manifest and database are there"),)


def missing_parts(layout: StoreLayout) -> tuple[Part, ...]:
    """What is gone, or is something else than a plain folder or file; without the directory only that is named."""
    if not _is(stat.S_ISDIR, layout.root) or not _is(stat.S_ISDIR, layout.vault):
        return ("directory",)
    found: list[Part] = []
    if not _is(stat.S_ISREG, layout.manifest):
        found.append("manifest")
    if not _is(stat.S_ISREG, layout.state_database):
        found.append("database")
    return tuple(found)


def was_interrupted(layout: StoreLayout) -> bool:
    """Whether the store may hold something unfinished: only a clean stop removes the database's log.

    Meaningful for a store that nobody has open.
    """
    return _is(stat.S_ISREG, layout.state_database.with_name(f"{layout.state_database.name}-wal"))


def _is(kind: Callable[[int], bool], path: os.PathLike[str]) -> bool:
    with effect("parts.look"):
        try:
            mode = os.lstat(path).st_mode
        except OSError:  # a place that cannot be reached holds nothing that could be used
            return False
    return kind(mode)


__all__ = ["Part", "missing_parts", "was_interrupted"]
