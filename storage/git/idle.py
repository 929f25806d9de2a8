"""What is done for the repository when nobody waits: the index follows, and small packs become few.

Checkpoints do not touch the index, so after them a person's ``git status`` would show our commits as undone. The index
is brought up only when it equals the commit that we left it at: then nothing of a person's is staged in it. A lock of
another Git program, ``.git/index.lock``, is neither waited for nor removed; one of ours tells itself by what is in it.

Blocks on processes, and costs as much as the vault has files: runs on the Git queue's thread, when it is idle.

Source: decisions.md section 4 (Git).
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from storage import files
from storage.git import _repository as repository
from storage.git._repository import Absent, Occupied, Ready
from storage.git._run import GitMissing, Opened, Result
from storage.git.difference import differing, somebody_else

FAULT_POINTS: Final = (
    ("git.index.lock.open", "making a lock file beside its place"),
    ("git.index.lock.write", "marking the lock file as ours"),
    ("git.index.take", "giving the lock file its name"),
    ("git.index.unlock", "removing the index's lock file"),
    ("git.index.copy", "copying the index"),
    ("git.index.copy.open", "making the copy's file"),
    ("git.index.copy.write", "beginning the copy"),
    ("git.index.compare", "comparing the index with a commit"),
    ("git.index.tree", "asking which tree the index holds"),
    ("git.index.find", "looking for the commit that the index was last at"),
    ("git.index.readable", "asking whether the index can be read at all"),
    ("git.index.aside", "setting a damaged index aside"),
    ("git.index.read", "bringing a copy of the index to a commit"),
    ("git.index.refresh", "noting the files' stamps in a copy of the index"),
    ("git.index.place", "giving the new index its name"),
    ("git.index.mark", "giving the note its name of which commit the index was left at"),
    ("git.index.mark.open", "making that note beside its place"),
    ("git.index.mark.write", "writing that note"),
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
_ON_THE_COPY: Final = {"GIT_INDEX_FILE": _COPY}
_WRITING_ELSEWHERE: Final = {
    **_ON_THE_COPY,
    "GIT_OBJECT_DIRECTORY": _OBJECTS,
    "GIT_ALTERNATE_OBJECT_DIRECTORIES": "objects",
}
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
        with repository.look(vault) as state:
            if isinstance(state, Absent):
                return IndexState("left_alone", "The local history is missing; the next save builds it again.")
            if not isinstance(state, Ready) or state.tip is None:
                return IndexState("left_alone", getattr(state, "message", "There is no commit yet."))
            return _sync(Opened(vault, state.git, timeout), state.tip, compare)
    except files.UnsafeFile:
        return IndexState("left_alone", "The index is no plain file of one name and is left as it is.")
    except GitMissing as error:
        return IndexState("left_alone", f"{error}.")
    except OSError as error:
        return IndexState("left_alone", f"The index cannot be brought up to date: {error.strerror}.")


def tidy(vault: Path, *, timeout: float = 600.0) -> bool:
    """Pack the small packs of many runs together when there are too many; whether it was done.

    Nothing is pruned: unreachable objects, a person's reflogs and stashes stay.
    """
    try:
        with repository.look(vault) as state:
            return isinstance(state, Ready | Occupied) and _tidied(Opened(vault, state.git, timeout))
    except (GitMissing, OSError):
        return False


def _tidied(found: Opened) -> bool:
    counted = found.run(["count-objects", "-v"], at="git.count")
    numbers = dict(re.findall(r"^([a-z-]+): ([0-9]+)$", counted.output.decode("ascii", "replace"), re.MULTILINE))
    if int(numbers.get("packs", 0)) <= PACKS_MAX and int(numbers.get("count", 0)) <= LOOSE_MAX:
        return False
    return found.run(["repack", "-d", "-q", "-l", "--geometric=2"], at="git.repack").ok


def _sync(found: Opened, tip: str, compare: bool) -> IndexState:
    git = found.git
    left_at = _read(git, _MARK)
    there = files.stat_entry(git, "index", at="git.look") is not None
    _drop_own_lock(git)
    if there and left_at == tip:
        return IndexState("current")
    # Looked at before it is locked: whoever has something staged shall not find the index locked by us time and again.
    base = _base(found, left_at, tip) if there else None
    if there and base is None:
        return IndexState("left_alone", _STAGED)
    refusal = _take_lock(git)
    if refusal is not None:
        return IndexState("left_alone", refusal)
    try:
        state = _follow(found, base, there, tip)
    finally:
        files.unlink(git, _LOCK, at="git.index.unlock")
    if state.state == "left_alone":
        return state
    if somebody_else(found, left_at, tip):
        if not compare:
            return state
        state = replace(state, differing=differing(found))
    # Last, and by a replacing rename: a lost or older mark only means that the index is compared once more.
    new_mark = f"{_MARK}.new"
    files.unlink(git, new_mark, at="git.index.mark")
    files.close(files.create_file(git, new_mark, f"{tip}\n".encode(), at="git.index.mark"))
    files.rename_over(git, new_mark, _MARK, at="git.index.mark")
    return state


def _follow(found: Opened, base: str | Result | None, there: bool, tip: str) -> IndexState:
    """Bring the index, which is locked, from ``base`` to ``tip``, if it still is at ``base``."""
    if there != (files.stat_entry(found.git, "index", at="git.look") is not None):
        return IndexState("left_alone", _STAGED)
    aside = ""
    if isinstance(base, Result):
        unreadable = _unreadable(found)
        if not unreadable:
            said = f"The index cannot be compared.{_SUSPECT} Git said: {base.error}"
            return IndexState("left_alone", said, suspect=True)
        base, aside = None, _set_aside(found.git, unreadable)
    elif base is not None and not _compared(found, base).ok:
        return IndexState("left_alone", _STAGED)
    if base != tip:
        problem = _build(found, base, tip)
        if problem is not None:
            return IndexState("left_alone", problem, suspect=True)
    return IndexState("current", aside)


def _build(found: Opened, base: str | None, tip: str) -> str | None:
    """Make the new index beside the old one and put it in its place, under the lock; what went wrong."""
    _make_room(found.git)
    if base is not None:
        _copy_index(found.git)  # its stamps spare reading the files that did not change
    trees = ["-i", "-m", base, tip] if base is not None else [tip]
    read = found.run(["read-tree", *trees], at="git.index.read", inside=_ON_THE_COPY)
    if not read.ok:
        return f"The index could not be brought up to date.{_SUSPECT} Git said: {read.error}"
    # Its exit status only says that some files differ, which is a person's to see.
    found.run(["update-index", "-q", "--refresh"], at="git.index.refresh", inside=_ON_THE_COPY)
    files.rename_over(found.git, _COPY, "index", at="git.index.place")
    return None


def _make_room(git: int) -> None:
    """Remove a copy that was left over, and the lock that Git held it with."""
    for left_over in (_COPY, f"{_COPY}.lock"):
        files.unlink(git, left_over, at="git.index.copy")


def _copy_index(git: int) -> None:
    source, status = files.open_file(git, "index", at="git.index.copy")
    try:
        target = files.create_file(git, _COPY, b"", at="git.index.copy")
        try:
            for offset in range(0, status.st_size, files.CHUNK_BYTES):
                chunk = files.read_at(source, files.CHUNK_BYTES, offset, at="git.index.copy")
                files.write_at(target, chunk, offset, at="git.index.copy")
        finally:
            files.close(target)
    finally:
        files.close(source)


def _base(found: Opened, left_at: str | None, tip: str) -> str | Result | None:
    """The commit, or empty tree, that the index holds exactly; ``None`` when something is staged in it, and what Git
    answered when it could not tell.

    That is where we left it, the tip, or a commit made since: a person's own commit, reset or checkout brings the index
    to their commit, and our checkpoints then go on from there.
    """
    compared = None
    for known in (left_at or _EMPTY_TREES[len(tip)], tip):
        compared = _compared(found, known)
        if compared.ok:
            return known
    if compared is not None and compared.code != 1:
        return compared
    tree = _tree(found)
    if tree is None:
        return None
    # Where we never left it anywhere, a person's Git made it, before we were ever idle.
    since = [f"--max-count={_LOOK_BACK}", "--format=%T %H", tip, *([] if left_at is None else [f"^{left_at}"])]
    log = found.run(["log", *since], at="git.index.find")
    made = dict(line.split() for line in reversed(log.output.decode("ascii", "replace").splitlines())) if log.ok else {}
    return made.get(tree)


def _compared(found: Opened, commit: str) -> Result:
    return found.run(["diff-index", "--cached", "--quiet", commit], at="git.index.compare")


def _tree(found: Opened) -> str | None:
    """The id of the tree that the index stands for; ``None`` where it stands for none (unmerged, damaged)."""
    # What it has to write for that is nobody's: it goes into a folder of its own and away. It takes the lock too.
    repository.discard(found.git, _OBJECTS, at="git.index.tree")
    if not files.make_folder(found.git, _OBJECTS, at="git.index.tree"):
        raise FileExistsError(errno.EEXIST, f".git/{_OBJECTS} is in the way", _OBJECTS)
    try:
        _make_room(found.git)
        _copy_index(found.git)
        written = found.run(["write-tree"], at="git.index.tree", inside=_WRITING_ELSEWHERE)
    finally:
        repository.discard(found.git, _OBJECTS, at="git.index.tree")
    return written.output.decode("ascii", "replace").strip() if written.ok else None


def _unreadable(found: Opened) -> str:
    """Why Git cannot read the index; empty when it can."""
    listed = found.run(["ls-files", "--", _COPY], at="git.index.readable")
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
