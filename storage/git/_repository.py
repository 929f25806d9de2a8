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
from storage.git._run import GIT_NAME, NEW_NAME, run, stands_at

BRANCH: Final = "refs/heads/main"
_OBJECT_ID: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_IN_PROGRESS: Final = (
    ("MERGE_HEAD", "a merge"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("BISECT_LOG", "a bisect"),
)
_CONFIG: Final = """\
[core]
	repositoryformatversion = 0
	bare = false
	logAllRefUpdates = true
	fileMode = false
	autocrlf = false
"""
_FOREIGN: Final = ".git is no folder of its own (a link or a pointer to another place), so it is left alone."
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
    """``main`` is checked out and nothing is in progress. ``tip`` is its commit; ``None`` before the first. ``git``,
    here and below, is the repository's folder, open as long as it is looked at."""

    tip: str | None
    git: int


@dataclass(frozen=True, slots=True)
class Occupied:
    """A person is at work in the repository in a way that we must not disturb."""

    reason: Literal["branch", "detached", "in_progress"]
    message: str
    git: int


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
    git: int


State: TypeAlias = Ready | Occupied | Absent | Foreign | Damaged


@contextmanager
def look(vault: Path) -> Iterator[State]:
    """The state of the repository, from a few small files and, where refs are packed, one process, with its folder,
    open: what is run on that is run on what was looked at."""
    root = files.open_root(vault, at="git.look")
    try:
        status = files.stat_entry(root, GIT_NAME, at="git.look")
        git = _open(root) if status is not None and stat.S_ISDIR(status.st_mode) else None
    finally:
        files.close(root)
    if git is None:
        yield Absent() if status is None else Foreign(_FOREIGN)
        return
    try:
        yield _state_of(vault, git)
    finally:
        files.close(git)


def _open(root: int) -> int | None:
    try:
        return files.open_folder(root, GIT_NAME, at="git.look")
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None  # it was a folder a moment ago
        raise


def _state_of(vault: Path, git: int) -> State:
    for name in ("HEAD", "objects", "refs"):
        status = files.stat_entry(git, name, at="git.look")
        if status is None:
            return Damaged(f".git/{name} is missing", git)
        if name != "HEAD" and stat.S_ISLNK(status.st_mode):
            return Foreign(f".git/{name} is a link to another place, so the repository is left alone.")
    for name, what in _IN_PROGRESS:
        if files.stat_entry(git, name, at="git.look") is not None:
            message = f"{what} is in progress in the vault; checkpoints follow when it ends."
            return Occupied("in_progress", message, git)
    return _branch(vault, git)


def _branch(vault: Path, git: int) -> State:
    head = _small_file(git, "", "HEAD") or ""
    if head.startswith("ref: "):
        target = head.removeprefix("ref: ").strip()
        if target == "refs/heads/.invalid":  # the reference table format keeps HEAD elsewhere
            answer = run(vault, ["symbolic-ref", "-q", "HEAD"], at="git.refs", git=git)
            target = answer.output.decode().strip() if answer.ok else ""
        if any(letter < " " or letter == "\x7f" for letter in target):
            return Damaged(".git/HEAD is unreadable", git)
        if target != BRANCH:
            name = target.removeprefix("refs/heads/") or "no branch"
            message = f"The branch {name} is checked out in the vault; checkpoints go to main only."
            return Occupied("branch", message, git)
    elif _OBJECT_ID.fullmatch(head.strip()):
        message = "HEAD is detached in the vault; checkpoints follow when main is checked out again."
        return Occupied("detached", message, git)
    else:
        return Damaged(".git/HEAD is unreadable", git)
    loose = _small_file(git, "refs/heads", "main")
    if loose is not None and not loose.startswith("ref: "):
        tip = loose.strip()
        return Ready(tip, git) if _OBJECT_ID.fullmatch(tip) else Damaged(".git/refs/heads/main is unreadable", git)
    answer = run(vault, ["rev-parse", "-q", "--verify", BRANCH], at="git.refs", git=git)
    if answer.ok:
        return Ready(answer.output.decode().strip(), git)
    if answer.code < 0:  # that says nothing of the branch
        raise OSError(errno.EAGAIN, answer.error)
    # Without an error the branch is only unborn; a warning is no error.
    broken = "fatal:" in answer.error or "error:" in answer.error
    return Damaged(answer.error, git) if broken else Ready(None, git)


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


@contextmanager
def create(vault: Path) -> Iterator[int]:
    """Make an empty repository whose branch is ``main``: complete under its name, or not there at all. Yields its
    folder, open.

    Raises ``StorageError``.
    """
    with _typed("The local history cannot be created"):
        git = _begin(vault)
    try:
        with _typed("The local history cannot be created"):
            _fill(vault, git)
            if not _move(vault, NEW_NAME, GIT_NAME, at="git.place", only=git):
                raise StorageError(f"The local history cannot be created: something else stands at {NEW_NAME}.")
        yield git
    finally:
        files.close(git)


def _begin(vault: Path) -> int:
    root = files.open_root(vault, at="git.look")
    try:
        discard(root, NEW_NAME, at="git.discard")
        files.make_folder(root, NEW_NAME, at="git.init")
        return files.open_folder(root, NEW_NAME, at="git.look")
    finally:
        files.close(root)


def _fill(vault: Path, git: int) -> None:
    made = run(
        vault,
        ["-c", "init.defaultBranch=main", "init", "-q", "--template=", "--bare"],
        at="git.init",
        git=git,
        work_tree=False,
    )
    if not made.ok:
        raise StorageError(f"The local history cannot be created: {made.error}.")
    files.unlink(git, "config", at="git.config")
    files.close(files.create_file(git, "config", _CONFIG.encode(), at="git.config"))
    files.make_folder(git, "info", at="git.config")
    info = files.open_folder(git, "info", at="git.config")
    try:
        files.close(files.create_file(info, "exclude", _EXCLUDE.encode(), at="git.config"))
    finally:
        files.close(info)


def set_aside(vault: Path, git: int, now: datetime | None = None) -> str | None:
    """Rename a damaged repository, so that nothing of it is lost; its new name, ``None`` where another folder has taken
    its place. Raises ``StorageError``."""
    name = f".git.damaged-{(now or datetime.now(UTC)).strftime('%Y%m%dT%H%M%S.%fZ')}"
    with _typed("The damaged local history cannot be set aside"):
        moved = _move(vault, GIT_NAME, name, at="git.aside", only=git)
    return name if moved else None


def is_in_place(vault: Path, git: int) -> bool:
    """Whether the open folder still is the vault's repository."""
    root = files.open_root(vault, at="git.look")
    try:
        return stands_at(root, GIT_NAME, git)
    finally:
        files.close(root)


def _move(vault: Path, source: str, target: str, *, at: str, only: int) -> bool:
    """Rename the open folder ``only``; ``False`` where something else has the name ``source`` by now."""
    root = files.open_root(vault, at="git.look")
    try:
        if not stands_at(root, source, only):
            return False
        try:
            files.move(root, source, root, target, at=at)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS):
                raise
            with effect(at):  # a folder never replaces anything but an empty folder
                os.rename(source, target, src_dir_fd=root, dst_dir_fd=root)
        files.fsync(root, at="git.sync")
        return True
    finally:
        files.close(root)


def discard(folder: int, name: str, *, at: str) -> None:
    """Remove a folder of ours with all that is in it; what else has the name stays, and no link is followed."""
    status = files.stat_entry(folder, name, at="git.look")
    with effect(at):
        if status is not None and stat.S_ISDIR(status.st_mode):
            shutil.rmtree(name, dir_fd=folder)


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
