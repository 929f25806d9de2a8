"""Puts settled publications into the vault's Git history, one commit each, several a run.

Guarantees: ``main`` moves only from the commit that we built on to ours, in one step; a person's commits become
parents and are never rewritten; nothing is committed while they are on another branch or in the middle of a merge; the
index, the work tree, other branches and stashes are not touched; a commit that is reported is durable. Git is a
readable checkpoint: SQLite's history is the promise, so every failure here is a state, not an error.

Cost: proportional to the paths that change and their folders' sizes, not to the vault. Blocks on processes: runs on
the Git queue's thread, never in a lane. One run at a time a vault.

Source: decisions.md section 4 (Git); PERFORMANCE.md (Git); WRITE-PATH.md hole 26.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Final, Literal, TypeAlias, assert_never

from messages.errors import StorageError
from storage.git import _repository as repository
from storage.git._repository import BRANCH, Absent, Damaged, Foreign, Occupied, Ready
from storage.git._run import GitMissing, Opened, Result
from storage.git._stream import INCOMING_REF, PUBLICATION_TRAILER, Checkpoint, encode
from storage.git.difference import missing_in

FAULT_POINTS: Final = (
    ("git.look", "looking at the repository's own files"),
    ("git.read", "opening a small file of the repository"),
    ("git.read.read", "reading a small file of the repository"),
    ("git.read.stat", "checking that a small file of the repository held still"),
    ("git.refs", "asking Git for a branch"),
    ("git.init", "making a repository beside its place"),
    ("git.config", "making room for the new repository's settings"),
    ("git.config.open", "making the files of those settings"),
    ("git.config.write", "writing those settings"),
    ("git.place", "giving the new repository its name"),
    ("git.discard", "removing a repository that was never finished"),
    ("git.aside", "setting a damaged repository aside"),
    ("git.sync", "making a name in the vault's folder durable"),
    ("git.log", "looking for publications that are committed already"),
    ("git.import", "building commits"),
    ("git.update", "moving main to the new commits"),
    ("git.check", "checking a repository that failed"),
)

CHECK_SECONDS: Final = 600.0
RUN_MAX_BYTES: Final = 32 * 1024 * 1024
_LOOK_BACK: Final = 500
_ATTEMPTS: Final = 3
_TAKEN: Final = "Another folder has taken the place of the local history; it is looked at again."


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit of each publication that is durable now. It may be fewer than were given: a run is bounded."""

    commits: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing was committed; try again later. ``message`` is for a person."""

    reason: Literal["branch", "detached", "in_progress", "locked", "moved", "storage", "failed"]
    message: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """There can be no local history here as things are."""

    message: str


@dataclass(frozen=True, slots=True)
class Rebuild:
    """There is no usable repository (any more): give the whole history again, with ``whole_history=True``."""

    message: str
    set_aside: str | None


Outcome: TypeAlias = Committed | Waiting | Unavailable | Rebuild


def commit(
    vault: Path,
    checkpoints: Sequence[Checkpoint],
    *,
    whole_history: bool,
    look_back: bool,
    suspect: bool = False,
    restores: bool = False,
    timeout: float = 60.0,
) -> Outcome:
    """Commit as many of the oldest ``checkpoints`` as one run holds.

    ``whole_history`` says that they begin with the store's first publication, so that a missing repository may be made.
    ``look_back`` finds those that an earlier run had committed already: set it for the first run after opening, and
    after a run that did not end as :class:`Committed`.
    ``suspect``: something could not be read; every object is looked at before anything is put on top of it.
    ``restores``: they are no publications but what somebody else's commit took back, and only what is missing counts.
    """
    try:
        if suspect:
            found = _set_aside_if_broken(vault, CHECK_SECONDS)
            if found is not None:
                return found
        outcome = _attempt(vault, checkpoints, whole_history, look_back, restores, timeout)
        for _ in range(_ATTEMPTS - 1):
            if isinstance(outcome, Waiting) and outcome.reason == "moved":
                # Looked back at: what was built in a folder that was taken away may be back with it.
                outcome = _attempt(vault, checkpoints, whole_history, True, restores, timeout)
        return outcome
    except GitMissing as error:
        return Unavailable(f"No local history is kept: {error}.")
    except StorageError as error:
        return Waiting("storage", error.message)
    except OSError as error:
        return Waiting("storage", f"The local history cannot be reached: {error.strerror}.")


def _attempt(
    vault: Path,
    checkpoints: Sequence[Checkpoint],
    whole_history: bool,
    look_back: bool,
    restores: bool,
    timeout: float,
) -> Outcome:
    with repository.look(vault) as state:
        match state:
            case Foreign(message):
                return Unavailable(message)
            case Occupied(reason, message):
                return Waiting(reason, message)
            case Damaged(message, git):
                return _set_aside(Opened(vault, git, timeout), message)
            case Absent():
                if not whole_history:
                    return Rebuild("The local history is missing and is built again from the store's own.", None)
                with repository.create(vault) as made:
                    return _build(Opened(vault, made, timeout), None, checkpoints, look_back, restores)
            case Ready(tip, git):
                if tip is None and not whole_history:
                    return Rebuild("The local history is empty and is built again from the store's own.", None)
                return _build(Opened(vault, git, timeout), tip, checkpoints, look_back, restores)
            case other:
                assert_never(other)


def _build(
    found: Opened, tip: str | None, checkpoints: Sequence[Checkpoint], look_back: bool, restores: bool
) -> Outcome:
    known: dict[str, str] = {}
    if look_back and tip is not None:
        known = _already_there(found, tip, len(checkpoints))
    done = {item.publication_id: known[item.publication_id] for item in checkpoints if item.publication_id in known}
    if restores:
        checkpoints = [] if tip is None else missing_in(found, tip, checkpoints)
    batch = _one_run([item for item in checkpoints if item.publication_id not in known])
    if not batch:
        return Committed(done)
    foreign = repository.in_other_repositories(found.vault, [path for item in batch for path, _ in item.changes])
    if foreign:
        batch = [replace(item, changes=tuple(one for one in item.changes if one[0] not in foreign)) for item in batch]
    built = found.run(["fast-import", "--quiet", "--force"], at="git.import", stdin=encode(batch, tip))
    commits = built.output.decode("ascii", "replace").split()
    if not built.ok or len(commits) != len(batch):
        return _failure(found, tip, built)
    # Both in one transaction, and main only if it still is where we found it.
    moves = f"update {BRANCH} {commits[-1]} {tip or '0' * len(commits[-1])}\ndelete {INCOMING_REF}\n"
    moved = found.run(["update-ref", "-m", "knowledge checkpoint", "--stdin"], at="git.update", stdin=moves.encode())
    if not moved.ok:
        return _failure(found, tip, moved)
    if not repository.is_in_place(found.vault, found.git):
        return Waiting("moved", _TAKEN)
    return Committed({**done, **{item.publication_id: oid for item, oid in zip(batch, commits, strict=True)}})


def check(vault: Path, *, timeout: float = CHECK_SECONDS) -> str | None:
    """What is wrong with the repository, or ``None``; reads every object that ``main`` needs. For maintenance."""
    try:
        with repository.look(vault) as state:
            match state:
                case Damaged(message) | Foreign(message):
                    return message
                case Ready(tip, git) if tip is not None:
                    return _broken(Opened(vault, git, timeout), tip)
                case _:
                    return None
    except GitMissing as error:
        return str(error)
    except OSError as error:
        return f"it cannot be reached: {error.strerror}"


def repository_state(vault: Path) -> tuple[Literal["sound", "absent", "damaged", "foreign", "occupied"], str]:
    """How the repository is, and why; the same look as :func:`check`, with what to do about it apart."""
    try:
        with repository.look(vault) as state:
            match state:
                case Absent():
                    return "absent", ""
                case Foreign(message):
                    return "foreign", message
                case Occupied(_, message):
                    return "occupied", message
                case Damaged(message):
                    broken: str | None = message
                case Ready(tip, git):
                    broken = None if tip is None else _broken(Opened(vault, git, CHECK_SECONDS), tip)
                case other:
                    assert_never(other)
    except GitMissing as error:
        return "occupied", f"The local history cannot be looked at: {error}."
    except OSError as error:
        return "occupied", f"The local history cannot be looked at: {error.strerror}."
    return ("sound", "") if broken is None else ("damaged", broken)


def set_aside(vault: Path) -> str:
    """Rename the repository, so that nothing of it is lost; its new name. Raises ``StorageError``."""
    try:
        with repository.look(vault) as state:
            name = None if isinstance(state, Absent | Foreign) else repository.set_aside(vault, state.git)
    except (GitMissing, OSError) as error:
        raise StorageError(f"The local history cannot be set aside: {error}.") from error
    if name is None:
        raise StorageError(_TAKEN)
    return name


def _one_run(checkpoints: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
    sizes = accumulate(item.size for item in checkpoints)
    return checkpoints[: max(1, sum(1 for _ in takewhile(lambda size: size <= RUN_MAX_BYTES, sizes)))]


def _already_there(found: Opened, tip: str, batch: int) -> dict[str, str]:
    """Publication ids of the newest commits, found by their trailer."""
    log = found.run(
        [
            "log",
            f"--max-count={batch + _LOOK_BACK}",
            f"--format=%H %(trailers:key={PUBLICATION_TRAILER},valueonly)",
            tip,
        ],
        at="git.log",
    )
    if not log.ok:
        return {}  # a damaged history shows in the import that follows
    pairs = (line.split() for line in log.output.decode("utf-8", "replace").splitlines())
    return {pair[1]: pair[0] for pair in pairs if len(pair) == 2}


def _failure(found: Opened, tip: str | None, failed: Result) -> Outcome:
    said = failed.error
    if "but expected" in said or "reference already exists" in said:
        return Waiting("moved", "Somebody committed at the same moment; the checkpoint is built again on top of it.")
    if ".lock" in said and "File exists" in said:
        return Waiting(
            "locked",
            "Another Git program is at work in the vault, or one was stopped and left a lock file behind. If none is "
            f"running, remove that file. Git said: {said}",
        )
    if failed.code < 0 or any(words in said for words in ("No space left", "Read-only file", "Permission denied")):
        return Waiting("storage", f"The checkpoint could not be written. Git said: {said}")
    broken = None if tip is None else _broken(found, tip)
    if broken is not None:
        return _set_aside(found, broken)
    return Waiting("failed", f"The checkpoint failed. Git said: {said}")


def _broken(found: Opened, tip: str) -> str | None:
    """What is wrong with an object that ``tip`` needs; each is read, since one may be there and hold other bytes.

    Not ``git fsck``: with ``--connectivity-only`` it passes over a pack that it cannot open, and without it it also
    judges what a person keeps beside ``main``.
    """
    result = found.run(["rev-list", "--objects", "--verify-objects", "--quiet", tip], at="git.check")
    if result.code in (0, -1):
        return None
    said = result.error.partition("\n")[0]
    return f"objects are missing or damaged ({said})"


def _set_aside_if_broken(vault: Path, timeout: float) -> Rebuild | Waiting | None:
    with repository.look(vault) as state:
        if not isinstance(state, Ready) or state.tip is None:
            return None
        found = Opened(vault, state.git, timeout)
        broken = _broken(found, state.tip)
        return None if broken is None else _set_aside(found, broken)


def _set_aside(found: Opened, message: str) -> Rebuild | Waiting:
    name = repository.set_aside(found.vault, found.git)
    if name is None:
        return Waiting("moved", _TAKEN)
    return Rebuild(f"The local history was damaged ({message}). It was set aside as {name} and is built again.", name)
