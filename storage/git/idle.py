"""What is done for the repository when nobody waits: the index follows, and small packs become few.

Checkpoints do not touch the index, so after them a person's ``git status`` would show our commits as undone. The index
is brought up only when it equals the commit that we left it at: then nothing of a person's is staged in it.

Blocks on processes, and costs as much as the vault has files: runs on the Git queue's thread, when it is idle.

Source: decisions.md section 4 (Git).
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from storage import files
from storage.faults import effect
from storage.git import _repository as repository
from storage.git._repository import Absent, Ready
from storage.git._run import GitMissing, Result, run
from storage.git.difference import differing, somebody_else

FAULT_POINTS: Final = (
    ("git.index.lock.open", "making a lock file beside its place"),
    ("git.index.lock.write", "marking the lock file as ours"),
    ("git.index.take", "giving the lock file its name"),
    ("git.index.unlock", "removing the index's lock file"),
    ("git.index.copy", "copying the index"),
    ("git.index.compare", "comparing the index with a commit"),
    ("git.index.tree", "asking which tree the index holds"),
    ("git.index.find", "looking for the commit that the index was last at"),
    ("git.index.readable", "asking whether the index can be read at all"),
    ("git.index.aside", "setting a damaged index aside"),
    ("git.index.read", "bringing a copy of the index to a commit"),
    ("git.index.refresh", "noting the files' stamps in a copy of the index"),
    ("git.index.place", "giving the new index its name"),
    ("git.index.mark", "noting which commit the index was left at"),
    ("git.count", "counting packs"),
    ("git.repack", "packing small packs together"),
)

PACKS_MAX: Final = 40
LOOSE_MAX: Final = 2_000

_LOCK: Final = "index.lock"
_OUR_LOCK: Final = "knowledge-index.lock"
_LOCK_TEXT: Final = b"held by the knowledge runtime while it brings the index up to date\n"
_COPY: Final = "knowledge-index.new"
_MARK: Final = "knowledge-index"
_OBJECTS: Final = "knowledge-index.objects"
_LOOK_BACK: Final = 1_000
_SUSPECT: Final = " If objects are damaged, the next save sets the repository aside and builds it again."
_STAGED: Final = "The index holds staged changes of yours and is left as it is."
_EMPTY_TREES: Final = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}


@dataclass(frozen=True, slots=True)
class IndexState:
    """``current``: a person's ``git status`` shows only what they did themselves. Else ``message`` says why not.

    ``suspect``: Git could not read what it needed, so that the next checkpoint has to look at every object first.
    ``differing``: notes that ``main`` does not hold as they are, since somebody else has committed.
    """

    state: Literal["current", "left_alone"]
    message: str = ""
    suspect: bool = False
    differing: tuple[str, ...] = ()


def sync_index(vault: Path, *, compare: bool = True, timeout: float = 300.0) -> IndexState:
    """Bring the index to ``main`` if it is as we left it; never wait for, and never undo, what a person does.

    Where somebody else has committed, the notes are compared with ``main``; without ``compare`` that is left to the
    next time.
    """
    try:
        state = repository.inspect(vault)
        if isinstance(state, Absent):
            return IndexState("left_alone", "The local history is missing; the next save builds it again.")
        if not isinstance(state, Ready) or state.tip is None:
            return IndexState("left_alone", getattr(state, "message", "There is no commit yet."))
        git = files.open_root(vault / ".git", at="git.look")
        try:
            return _sync(vault, git, state.tip, compare, timeout)
        finally:
            files.close(git)
    except GitMissing as error:
        return IndexState("left_alone", f"{error}.")
    except OSError as error:
        return IndexState("left_alone", f"The index cannot be brought up to date: {error.strerror}.")


def tidy(vault: Path, *, timeout: float = 600.0) -> bool:
    """Pack the small packs of many runs together when there are too many; whether it was done.

    Nothing is pruned: unreachable objects, a person's reflogs and stashes stay.
    """
    try:
        counted = run(vault, ["count-objects", "-v"], at="git.count", timeout=timeout)
        numbers = dict(re.findall(r"^([a-z-]+): ([0-9]+)$", counted.output.decode("ascii", "replace"), re.MULTILINE))
        if int(numbers.get("packs", 0)) <= PACKS_MAX and int(numbers.get("count", 0)) <= LOOSE_MAX:
            return False
        packed = run(vault, ["repack", "-d", "-q", "-l", "--geometric=2"], at="git.repack", timeout=timeout)
        return packed.ok
    except (GitMissing, OSError):
        return False


def _sync(vault: Path, git: int, tip: str, compare: bool, timeout: float) -> IndexState:
    left_at = _read(git, _MARK)
    there = files.stat_entry(git, "index", at="git.look") is not None
    _drop_own_lock(git)
    if there and left_at == tip:
        return IndexState("current")
    # Looked at before it is locked: whoever has something staged shall not find the index locked by us time and again.
    base = _base(vault, left_at, tip, timeout) if there else None
    if there and base is None:
        return IndexState("left_alone", _STAGED)
    refusal = _take_lock(git)
    if refusal is not None:
        return IndexState("left_alone", refusal)
    try:
        state = _follow(vault, git, base, there, tip, timeout)
    finally:
        files.unlink(git, _LOCK, at="git.index.unlock")
    if state.state == "left_alone":
        return state
    if somebody_else(vault, left_at, tip, timeout):
        if not compare:
            return state
        state = replace(state, differing=differing(vault, timeout))
    # Last, and by a replacing rename: a lost or older mark only means that the index is compared once more.
    with effect("git.index.mark"):
        (vault / ".git" / f"{_MARK}.new").write_text(f"{tip}\n")
        os.rename(f"{_MARK}.new", _MARK, src_dir_fd=git, dst_dir_fd=git)
    return state


def _follow(vault: Path, git: int, base: str | Result | None, there: bool, tip: str, timeout: float) -> IndexState:
    """Bring the index, which is locked, from ``base`` to ``tip``, if it still is at ``base``."""
    if there != (files.stat_entry(git, "index", at="git.look") is not None):
        return IndexState("left_alone", _STAGED)
    aside = ""
    if isinstance(base, Result):
        unreadable = _unreadable(vault, timeout)
        if not unreadable:
            said = f"The index cannot be compared.{_SUSPECT} Git said: {base.error}"
            return IndexState("left_alone", said, suspect=True)
        base, aside = None, _set_aside(git, unreadable)
    elif base is not None and not _compared(vault, base, timeout).ok:
        return IndexState("left_alone", _STAGED)
    if base != tip:
        problem = _build(vault, git, base, tip, timeout)
        if problem is not None:
            return IndexState("left_alone", problem, suspect=True)
    return IndexState("current", aside)


def _build(vault: Path, git: int, base: str | None, tip: str, timeout: float) -> str | None:
    """Make the new index beside the old one and put it in its place, under the lock; what went wrong."""
    copy = vault / ".git" / _COPY
    environ = {"GIT_INDEX_FILE": str(copy)}
    with effect("git.index.copy"):
        for left_over in (copy, copy.with_name(f"{_COPY}.lock")):
            left_over.unlink(missing_ok=True)
        if base is not None:
            shutil.copyfile(vault / ".git/index", copy)  # its stamps spare reading the files that did not change
    trees = ["-i", "-m", base, tip] if base is not None else [tip]
    read = run(vault, ["read-tree", *trees], at="git.index.read", timeout=timeout, environ=environ)
    if not read.ok:
        return f"The index could not be brought up to date.{_SUSPECT} Git said: {read.error}"
    # Its exit status only says that some files differ, which is a person's to see.
    run(vault, ["update-index", "-q", "--refresh"], at="git.index.refresh", timeout=timeout, environ=environ)
    with effect("git.index.place"):
        os.rename(_COPY, "index", src_dir_fd=git, dst_dir_fd=git)
    return None


def _base(vault: Path, left_at: str | None, tip: str, timeout: float) -> str | Result | None:
    """The commit, or empty tree, that the index holds exactly; ``None`` when something is staged in it, and what Git
    answered when it could not tell.

    That is where we left it, the tip, or a commit made since: a person's own commit, reset or checkout brings the index
    to their commit, and our checkpoints then go on from there.
    """
    compared = None
    for known in (left_at or _EMPTY_TREES[len(tip)], tip):
        compared = _compared(vault, known, timeout)
        if compared.ok:
            return known
    if compared is not None and compared.code != 1:
        return compared
    tree = _tree(vault, timeout)
    if tree is None:
        return None
    # Where we never left it anywhere, a person's Git made it, before we were ever idle.
    since = [f"--max-count={_LOOK_BACK}", "--format=%T %H", tip, *([] if left_at is None else [f"^{left_at}"])]
    log = run(vault, ["log", *since], at="git.index.find", timeout=timeout)
    made = dict(line.split() for line in reversed(log.output.decode("ascii", "replace").splitlines())) if log.ok else {}
    return made.get(tree)


def _compared(vault: Path, commit: str, timeout: float) -> Result:
    return run(vault, ["diff-index", "--cached", "--quiet", commit], at="git.index.compare", timeout=timeout)


def _tree(vault: Path, timeout: float) -> str | None:
    """The id of the tree that the index stands for; ``None`` where it stands for none (unmerged, damaged)."""
    objects, copy = vault / ".git" / _OBJECTS, vault / ".git" / _COPY
    # What it has to write for that is nobody's: it goes into a folder of its own and away. It takes the lock too.
    environ = {
        "GIT_INDEX_FILE": str(copy),
        "GIT_OBJECT_DIRECTORY": str(objects),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(vault / ".git/objects"),
    }
    with effect("git.index.tree"):
        shutil.rmtree(objects, ignore_errors=True)
        objects.mkdir()
        copy.with_name(f"{_COPY}.lock").unlink(missing_ok=True)
        shutil.copyfile(vault / ".git/index", copy)
    try:
        written = run(vault, ["write-tree"], at="git.index.tree", timeout=timeout, environ=environ)
    finally:
        with effect("git.index.tree"):
            shutil.rmtree(objects, ignore_errors=True)
    return written.output.decode("ascii", "replace").strip() if written.ok else None


def _unreadable(vault: Path, timeout: float) -> str:
    """Why Git cannot read the index; empty when it can."""
    listed = run(vault, ["ls-files", "--", _COPY], at="git.index.readable", timeout=timeout)
    return listed.error if listed.code > 0 else ""


def _set_aside(git: int, reason: str) -> str:
    """Rename a damaged index, so that nothing of it is lost; what a person is told."""
    name = f"index.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    files.move(git, "index", git, name, at="git.index.aside")
    return (
        f"Git could not read the index ({reason.splitlines()[0]}). It was set aside as .git/{name} and built again; "
        "what you had staged in it has to be staged anew."
    )


def _drop_own_lock(git: int) -> None:
    """Remove a lock left by a process of ours that was killed: there is one owner of the vault, and that is us."""
    if _read(git, _LOCK) == _LOCK_TEXT.decode().strip():
        files.unlink(git, _LOCK, at="git.index.unlock")


def _take_lock(git: int) -> str | None:
    """Hold the index as any Git program does; why it cannot be held."""
    # Complete before it has its name: so a lock of ours can be told from any other, whenever we were killed.
    files.unlink(git, _OUR_LOCK, at="git.index.unlock")
    files.close(files.create_file(git, _OUR_LOCK, _LOCK_TEXT, at="git.index.lock"))
    try:
        files.move(git, _OUR_LOCK, git, _LOCK, at="git.index.take")
        return None
    except FileExistsError:
        files.unlink(git, _OUR_LOCK, at="git.index.unlock")
    status = files.stat_entry(git, _LOCK, at="git.look")
    since = "" if status is None else f" since {datetime.fromtimestamp(status.st_mtime, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return (
        f"Another Git program has held .git/{_LOCK}{since}. If none is running, it was stopped and left the file "
        "behind: remove it."
    )


def _read(git: int, name: str) -> str | None:
    try:
        data, _ = files.read_file(git, name, limit=4_096, at="git.read")
    except (OSError, files.UnsafeFile):
        return None
    return data.decode("utf-8", "replace").strip()
