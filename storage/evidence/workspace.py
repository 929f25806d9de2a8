"""A file of the host's workspace, opened so that nothing outside of it can be meant.

Guarantees: the file is opened once, by descriptors from the workspace's root, and everything is judged on that
descriptor; no symbolic link below the root is followed; it is a regular file with one name; no file of ours is given to
anybody. Any thread.

Source: knowledge-more-facts.md section 4 (``knowledge_attach_file``), stores-and-access.md (Limits).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from storage import files
from storage.files import Stamp, UnsafeFile
from storage.vault.naming import Unnamed, locate

FAULT_POINTS: Final = (
    ("workspace.folder", "opening a folder of the workspace"),
    ("workspace.open", "opening the file of the workspace that is to be retained"),
    ("workspace.above", "opening a folder above the workspace, to see whether it is part of our state"),
    ("workspace.stat", "looking whether a folder of the workspace holds state of ours"),
)

# What lies in the folder of all our state, and in that of a store wherever it was moved to.
_STATE_MARKS: Final = (("registry.id", "registry.sqlite"), ("state.sqlite", "vault"))

SourceProblem: TypeAlias = Literal[
    "outside", "missing", "symlink", "hardlink", "not_a_file", "knowledge_state", "changed", "hash_mismatch",
    "no_workspace",
]  # fmt: skip


class SourceRefused(Exception):
    """The file of the workspace cannot be retained; ``problem`` says why. Nothing was kept."""

    def __init__(self, problem: SourceProblem) -> None:
        super().__init__(problem)
        self.problem: SourceProblem = problem


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A regular file of the workspace with one name, open for reading."""

    fd: int
    stamp: Stamp


@contextmanager
def open_source(workspace: Path, path: str) -> Iterator[SourceFile]:
    """The file that ``path`` (relative to the workspace, or absolute below it) names, open until the block ends.

    Raises :class:`SourceRefused`: outside, a symbolic link below the root, a hard link, no regular file, missing, or
    part of a state directory of ours, whose files belong to somebody's partition; so does a workspace inside one.
    """
    try:
        # The host may have named its workspace by a link; below it there is none.
        root = files.open_root(os.path.join(workspace, "."), at="workspace.folder")
    except OSError:
        raise SourceRefused("no_workspace") from None
    try:
        _require_outside(workspace)
        try:
            inner = locate(root, path)
        except Unnamed as unnamed:
            raise SourceRefused(unnamed.problem) from None
        folder_path, name = files.split(inner)
        try:
            _require_foreign(root, folder_path)
            folder = files.open_folder(root, folder_path, at="workspace.folder")
            try:
                fd, status = files.open_file(folder, name, at="workspace.open")
            finally:
                files.close(folder)
        except UnsafeFile as unsafe:
            raise SourceRefused("not_a_file" if unsafe.reason == "too_large" else _KINDS[unsafe.reason]) from None
        except OSError:
            raise SourceRefused("missing") from None  # it was there a moment ago
    finally:
        files.close(root)
    try:
        yield SourceFile(fd, Stamp.of(status))
    finally:
        files.close(fd)


_KINDS: Final[dict[str, SourceProblem]] = {
    "symlink": "symlink", "hardlink": "hardlink", "not_regular": "not_a_file",
}  # fmt: skip


def _require_foreign(root: int, folder_path: str) -> None:
    """Refuse what lies in a state directory: its files belong to agents and partitions, whoever asks."""
    parts = folder_path.split("/") if folder_path else []
    for depth in range(len(parts) + 1):
        folder = files.open_folder(root, "/".join(parts[:depth]), at="workspace.folder")
        try:
            _require_unmarked(folder)
        finally:
            files.close(folder)


def _require_outside(workspace: Path) -> None:
    """Refuse a workspace that lies inside a state directory, below its marks.

    A folder above it that may not be looked into is none of ours: ours are open to us.
    """
    for above in Path(os.path.realpath(workspace)).parents:
        try:
            folder = files.open_root(above, at="workspace.above")
        except OSError:
            continue
        try:
            _require_unmarked(folder)
        finally:
            files.close(folder)


def _require_unmarked(folder: int) -> None:
    for marks in _STATE_MARKS:
        if all(files.stat_entry(folder, mark, at="workspace.stat") is not None for mark in marks):
            raise SourceRefused("knowledge_state")
