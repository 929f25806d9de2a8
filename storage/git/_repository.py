"""What state the vault's repository is in, and how it is made or set aside. Looks before it starts any process.

Source: decisions.md section 4 (Git).
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

from messages.errors import StorageError
from storage import files
from storage.faults import effect
from storage.git._run import run

BRANCH: Final = "refs/heads/main"
_NEW: Final = ".kr-git"
_OBJECT_ID: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_IN_PROGRESS: Final = (
    ("MERGE_HEAD", "a merge"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("BISECT_LOG", "a bisect"),
)
_EXCLUDE: Final = """\
# Retained evidence, the manifest and staged files are no part of the local history.
/vault.json
/private/artifacts/
/conversations/*/artifacts/
.kr-*
/.git.damaged-*
"""


@dataclass(frozen=True, slots=True)
class Ready:
    """``main`` is checked out and nothing is in progress. ``tip`` is its commit; ``None`` before the first."""

    tip: str | None


@dataclass(frozen=True, slots=True)
class Occupied:
    """A person is at work in the repository in a way that we must not disturb."""

    reason: Literal["branch", "detached", "in_progress"]
    message: str


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no repository."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """``.git`` is something that we do not touch: a link, or a pointer to another place."""

    message: str


@dataclass(frozen=True, slots=True)
class Damaged:
    """The repository cannot be used and must be set aside."""

    message: str


State: TypeAlias = Ready | Occupied | Absent | Foreign | Damaged


def inspect(vault: Path) -> State:
    """The state of the repository, from a few small files and, where refs are packed, one process."""
    root = files.open_root(vault, at="git.look")
    try:
        status = files.stat_entry(root, ".git", at="git.look")
        if status is None:
            return Absent()
        if not stat.S_ISDIR(status.st_mode):
            return Foreign(".git is no folder of its own (a link or a pointer to another place), so it is left alone.")
        git = files.open_folder(root, ".git", at="git.look")
    finally:
        files.close(root)
    try:
        for name in ("HEAD", "objects", "refs"):
            if files.stat_entry(git, name, at="git.look") is None:
                return Damaged(f".git/{name} is missing")
        for name, what in _IN_PROGRESS:
            if files.stat_entry(git, name, at="git.look") is not None:
                return Occupied("in_progress", f"{what} is in progress in the vault; checkpoints follow when it ends.")
        return _branch(vault, git)
    finally:
        files.close(git)


def _branch(vault: Path, git: int) -> State:
    head = _small_file(git, "", "HEAD") or ""
    if head.startswith("ref: "):
        target = head.removeprefix("ref: ").strip()
        if target == "refs/heads/.invalid":  # the reference table format keeps HEAD elsewhere
            answer = run(vault, ["symbolic-ref", "-q", "HEAD"], at="git.refs")
            target = answer.output.decode().strip() if answer.ok else ""
        if any(letter < " " or letter == "\x7f" for letter in target):
            return Damaged(".git/HEAD is unreadable")
        if target != BRANCH:
            name = target.removeprefix("refs/heads/") or "no branch"
            return Occupied("branch", f"The branch {name} is checked out in the vault; checkpoints go to main only.")
    elif _OBJECT_ID.fullmatch(head.strip()):
        return Occupied("detached", "HEAD is detached in the vault; checkpoints follow when main is checked out again.")
    else:
        return Damaged(".git/HEAD is unreadable")
    loose = _small_file(git, "refs/heads", "main")
    if loose is not None and not loose.startswith("ref: "):
        tip = loose.strip()
        return Ready(tip) if _OBJECT_ID.fullmatch(tip) else Damaged(".git/refs/heads/main is unreadable")
    answer = run(vault, ["rev-parse", "-q", "--verify", BRANCH], at="git.refs")
    if answer.ok:
        return Ready(answer.output.decode().strip())
    # Without an error the branch is only unborn; a warning is no error.
    return Damaged(answer.error) if "fatal:" in answer.error or "error:" in answer.error else Ready(None)


def in_other_repositories(vault: Path, paths: Iterable[str]) -> frozenset[str]:
    """Those of the paths that lie in a repository inside the vault, such as a submodule: its own history has them, and
    a commit of ours over its folder would take it out of a person's."""
    known: dict[str, bool] = {"": False}
    root = files.open_root(vault, at="git.look")
    try:
        return frozenset(path for path in paths if _is_inside(root, path.rpartition("/")[0], known))
    finally:
        files.close(root)


def _is_inside(root: int, folder: str, known: dict[str, bool]) -> bool:
    found = known.get(folder)
    if found is None:
        found = _is_inside(root, folder.rpartition("/")[0], known) or _has_repository(root, folder)
        known[folder] = found
    return found


def _has_repository(root: int, folder: str) -> bool:
    try:
        fd = files.open_folder(root, folder, at="git.look")
    except OSError:  # gone, or no folder of the vault
        return False
    try:
        return files.stat_entry(fd, ".git", at="git.look") is not None
    finally:
        files.close(fd)


def create(vault: Path) -> None:
    """Make an empty repository whose branch is ``main``: complete under its name, or not there at all.

    Raises ``StorageError``.
    """
    with _typed("The local history cannot be created"):
        _discard(vault / _NEW)
        made = run(
            vault,
            ["-c", "init.defaultBranch=main", "init", "-q", "--template=", "--bare"],
            at="git.init",
            repository=_NEW,
        )
        if not made.ok:
            raise StorageError(f"The local history cannot be created: {made.error}.")
        with effect("git.config"):
            (vault / _NEW / "config").write_text(
                "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tlogAllRefUpdates = true\n"
                "\tfileMode = false\n\tautocrlf = false\n"
            )
            (vault / _NEW / "info").mkdir(exist_ok=True)
            (vault / _NEW / "info/exclude").write_text(_EXCLUDE)
        _move(vault, _NEW, ".git", at="git.place")


def set_aside(vault: Path, now: datetime | None = None) -> str:
    """Rename a damaged repository, so that nothing of it is lost; its new name. Raises ``StorageError``."""
    name = f".git.damaged-{(now or datetime.now(UTC)).strftime('%Y%m%dT%H%M%S.%fZ')}"
    with _typed("The damaged local history cannot be set aside"):
        _move(vault, ".git", name, at="git.aside")
    return name


def _move(vault: Path, source: str, target: str, *, at: str) -> None:
    root = files.open_root(vault, at="git.look")
    try:
        try:
            files.move(root, source, root, target, at=at)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS):
                raise
            with effect(at):  # a folder never replaces anything but an empty folder
                os.rename(source, target, src_dir_fd=root, dst_dir_fd=root)
        files.fsync(root, at="git.sync")
    finally:
        files.close(root)


def _discard(path: Path) -> None:
    with effect("git.discard"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)


def _small_file(git: int, folder: str, name: str) -> str | None:
    try:
        fd = files.open_folder(git, folder, at="git.look")
        try:
            data, _ = files.read_file(fd, name, limit=4_096, at="git.read")
        finally:
            files.close(fd)
    except (OSError, files.UnsafeFile):
        return None
    return data.decode("utf-8", "replace")


@contextmanager
def _typed(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what}: {error.strerror}.") from error
