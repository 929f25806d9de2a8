"""What of the vault's repository is a person's: commits and references that are not checkpoints of ours.

Source: decisions.md section 4 (Git: a person's commits become parents and are never rewritten).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from storage.git import _repository as repository
from storage.git._repository import BRANCH, Absent, Foreign
from storage.git._run import GitMissing, Opened
from storage.git._stream import PUBLICATION_TRAILER

FAULT_POINTS: Final = (("git.whose", "looking whose commits the repository holds"),)

_OURS: Final = (BRANCH, "refs/knowledge/")


@dataclass(frozen=True, slots=True)
class Others:
    """How many commits and references are not ours; ``known`` is false where that cannot be told."""

    commits: int = 0
    references: int = 0
    known: bool = True

    @property
    def any(self) -> bool:
        return bool(self.commits or self.references or not self.known)


def others(vault: Path, *, timeout: float = 60.0) -> Others:
    """What a person would lose with the repository. One that we leave alone, or that is not there, holds nothing."""
    try:
        with repository.look(vault) as state:
            if isinstance(state, Absent | Foreign):
                return Others()
            opened = Opened(vault, state.git, timeout)
            found = opened.run(["for-each-ref", "--format=%(refname)"], at="git.whose")
            trailer = f"--format=%x1e%(trailers:key={PUBLICATION_TRAILER},valueonly)"
            log = opened.run(["log", "--all", trailer], at="git.whose")
    except (GitMissing, OSError):
        return Others(known=False)
    if not found.ok or not log.ok:
        return Others(known=False)
    names = found.output.decode("utf-8", "replace").split()
    commits = log.output.decode("utf-8", "replace").split("\x1e")[1:]
    return Others(sum(not commit.strip() for commit in commits), sum(not name.startswith(_OURS) for name in names))


def is_missing(vault: Path) -> bool:
    """Whether the vault has no repository at all. Starts no process."""
    try:
        with repository.look(vault) as state:
            return isinstance(state, Absent)
    except (GitMissing, OSError):
        return False


__all__ = ["Others", "is_missing", "others"]
