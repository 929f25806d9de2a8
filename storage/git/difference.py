"""What of the vault's notes ``main`` does not hold as it should, because somebody else wrote to it.

A person who commits before the index has followed our last checkpoint takes that checkpoint back without meaning to,
since the index is what they commit. Their commit stays; a checkpoint on top puts back what is missing.

Source: decisions.md section 4 (Git).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha1, sha256
from typing import Final

from storage.git._run import NOBODY, Opened
from storage.git._stream import Checkpoint, is_versioned

FAULT_POINTS: Final = (
    ("git.difference.who", "asking who wrote the commits since the last look"),
    ("git.difference.status", "comparing the notes with the commit"),
    ("git.difference.tree", "listing what the commit holds"),
)

_NOTE: Final = ".md"


def somebody_else(found: Opened, left_at: str | None, tip: str) -> bool:
    """Whether a commit from ``left_at`` to ``tip`` may be another's; ``True`` where nothing tells."""
    if left_at is None:
        return True
    log = found.run(["log", "--format=%ce", f"{left_at}..{tip}"], at="git.difference.who")
    if not log.ok:
        return True
    # An amended or rebased commit keeps its author and its trailers; the committer is whoever made it.
    return any(line != NOBODY[1] for line in log.output.decode("utf-8", "replace").splitlines())


def differing(found: Opened) -> tuple[str, ...]:
    """The notes of the vault that are not as ``main`` has them, by path. The index must be at ``main``."""
    status = found.run(
        ["status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=all"],
        at="git.difference.status",
    )
    paths = (line[3:].decode("utf-8", "surrogateescape") for line in status.output.split(b"\0") if len(line) > 3)
    return tuple(path for path in paths if path.lower().endswith(_NOTE) and is_versioned(path)) if status.ok else ()


def missing_in(found: Opened, tip: str, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """The checkpoints without what ``tip`` holds already; none that would be empty."""
    listed = found.run(["ls-tree", "-r", "-z", tip], at="git.difference.tree")
    held = {}
    for line in listed.output.split(b"\0"):
        about, _, path = line.partition(b"\t")
        held[path.decode("utf-8", "surrogateescape")] = about.split(b" ")[-1].decode("ascii", "replace")
    kept = [
        replace(
            item, changes=tuple((path, data) for path, data in item.changes if held.get(path) != _blob(data, len(tip)))
        )
        for item in checkpoints
    ]
    return [item for item in kept if item.changes]


def _blob(data: bytes | None, digits: int) -> str | None:
    """The id that Git gives to these bytes in a repository whose ids have so many digits."""
    if data is None:
        return None
    whole = b"blob %d\0%s" % (len(data), data)
    return sha1(whole, usedforsecurity=False).hexdigest() if digits == 40 else sha256(whole).hexdigest()
