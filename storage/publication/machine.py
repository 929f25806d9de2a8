"""Recovery after a machine stop: the power went, so any file may be missing, torn or older than it was.

Guarantees: every path of the unpruned entries ends at its last accepted text, or at something a person put there
later; what is overwritten and not known is in history first, durably. May be killed anywhere and run again.

Runs on the lane's thread before the store answers.

Source: WRITE-PATH.md table 3b, holes 4, 6, 8, 19, 20.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal

from storage import files
from storage.manifest import Manifest
from storage.publication import entries, sweep
from storage.publication.placing import put_manifest
from storage.publication.report import Happened, Notice
from storage.publication.slot import Observed, Slot
from storage.publication.store import READ_LIMIT_BYTES, Folders, StoreState, staging_folder
from storage.publication.table import Holds, is_torn
from storage.state import journal
from storage.state.journal import JournalEntry, Step, digest

FAULT_POINTS = (
    ("replay.staged", "reading a staged name that the stop left behind"),
    ("replay.list", "listing a folder to find a file that was moved by hand"),
    ("replay.stranger", "reading a file that may be one moved by hand"),
)

Verdict = Literal["right", "write", "torn", "older", "left", "moved"]
_SAFE_BLOCK: Final = 512


@dataclass(frozen=True, slots=True)
class Chain:
    """All unpruned changes of one path, oldest first, and where they end."""

    entry: JournalEntry  # the newest
    step: Step
    texts: tuple[str, ...]  # every state the path had, as hashes
    absent: bool  # one of those states was "no file"
    last: str | None  # the final state; ``None`` = no file


@dataclass(slots=True)
class Replayed:
    """What replay did, and the requests that got their final receipt."""

    notices: list[Notice] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)


def chains(unpruned: Sequence[JournalEntry]) -> list[Chain]:
    """One chain a path over all unpruned entries. A rolled-back text is a legal old state, but never the last."""
    found: dict[str, Chain] = {}
    for entry in unpruned:
        undone = entry.state in ("rolling_back", "conflict")
        for step in entry.steps:
            other = found.get(step.key)
            texts = other.texts if other else ()
            states = (step.before, step.after)
            # An undone entry leaves the path where the chain had it, which is its own before.
            last = step.before if undone else step.after
            found[step.key] = Chain(
                entry,
                step,
                tuple(dict.fromkeys((*texts, *(text for text in states if text is not None)))),
                (other.absent if other else False) or None in states,
                last,
            )
    return list(found.values())


def judge_path(chain: Chain, found: Observed, known: Mapping[str, bytes], *, block: int, moved: bool) -> Verdict:
    """Table 3b for one path. ``moved``: another file, in no chain, holds a text of this one."""
    if found.holds is Holds.NOTHING:
        if chain.last is None:
            return "right"
        return "moved" if moved else "write"
    if found.hash is None or found.data is None:
        return "left"  # a link or a folder: somebody's, and nothing of ours
    if found.hash == chain.last:
        return "right"
    if found.hash in chain.texts:
        return "write"
    if is_torn(found.data, known.values(), block):
        return "torn" if found.data else "write"
    if found.stamp is not None and found.stamp.ctime_ns < chain.entry.accepted_at:
        # It was not there at the first look of the last entry, so it is an older version that came back.
        return "older"
    return "left"


_HAPPENED: Final[Mapping[Verdict, Happened]] = {
    "write": "restored",
    "torn": "fragment",
    "older": "older",
    "left": "edited",
    "moved": "moved",
}


def replay(state: StoreState, unpruned: Sequence[JournalEntry]) -> Replayed:
    """Bring files, vault.json and the journal to the state that was accepted."""
    result = Replayed()
    with Folders(state.root_fd) as folders:
        _clear_staged(state, folders, unpruned, result)
        all_chains = chains(unpruned)
        block = max(_SAFE_BLOCK, min(4096, files.block_size(state.root_fd, at="replay.read")))
        strangers = _Strangers(folders, {chain.step.key for chain in all_chains}, state)
        due: list[tuple[Chain, Slot, Observed, Verdict]] = []
        keeping: list[tuple[JournalEntry, Step, bytes]] = []
        for chain in all_chains:
            slot = Slot(state, folders, chain.entry.publication_id, chain.step)
            found = slot.target()
            known: dict[str, bytes] = {}
            if found.hash is not None and found.hash not in chain.texts:
                known = {text: journal.blob(state.db, text) for text in chain.texts}
            moved = found.holds is Holds.NOTHING and chain.last is not None and strangers.hold(chain)
            verdict = judge_path(chain, found, known, block=block, moved=moved)
            due.append((chain, slot, found, verdict))
            if verdict in ("torn", "older") and found.data is not None:
                keeping.append((chain.entry, chain.step, found.data))
        kept = iter(entries.keep(state, keeping))
        for chain, slot, found, verdict in due:
            revision = next(kept) if verdict in ("torn", "older") else None
            if verdict in ("write", "torn", "older") and not _write_last(state, chain, slot, found):
                verdict = "left"  # a person changed it meanwhile, and theirs stayed
            happened = _HAPPENED.get(verdict)
            if happened is not None:
                result.notices.append(Notice(happened, chain.step.path, chain.entry.accepted_at, revision))
    marks = journal.marks(state.db)
    put_manifest(
        state,
        Manifest(state.vault_id, marks.current),
        marks.current.publication_id,
        staged=False,
        force=True,
    )
    _settle(state, unpruned, result)
    return result


def settle_as_found(state: StoreState, unpruned: Sequence[JournalEntry]) -> Replayed:
    """End every accepted entry without touching a file: for a vault that a person chose to take as it is."""
    result = Replayed()
    with Folders(state.root_fd) as folders:
        _clear_staged(state, folders, unpruned, result)
    _settle(state, unpruned, result)
    return result


def _clear_staged(state: StoreState, folders: Folders, unpruned: Sequence[JournalEntry], result: Replayed) -> None:
    """Unknown texts behind staged names of accepted entries go to history; then all staged names go."""
    owners = {entry.publication_id: entry for entry in unpruned}
    block = max(_SAFE_BLOCK, min(4096, files.block_size(state.root_fd, at="replay.staged")))
    found = list(sweep.staged_names(folders))
    keeping: list[tuple[JournalEntry, Step, bytes]] = []
    for name in found:
        entry = owners.get(name.publication_id)
        if entry is None or name.ordinal is None or not name.ordinal.isdecimal():
            continue
        step = next((step for step in entry.steps if step.ordinal == int(name.ordinal)), None)
        if step is None:
            continue
        try:
            data, _ = files.read_file(folders.open(name.folder), name.name, limit=READ_LIMIT_BYTES, at="replay.staged")
        except (FileNotFoundError, files.UnsafeFile):
            continue
        texts = [text for text in (step.before, step.after) if text is not None]
        if journal.has_blob(state.db, digest(data)):
            continue
        if is_torn(data, [journal.blob(state.db, text) for text in texts], block):
            continue
        keeping.append((entry, step, data))
    for (entry, step, _), revision in zip(keeping, entries.keep(state, keeping), strict=True):
        result.notices.append(Notice("displaced", step.path, entry.accepted_at, revision))
    for name in found:
        sweep.remove(folders, name)


def _write_last(state: StoreState, chain: Chain, slot: Slot, found: Observed) -> bool:
    """Bring the path to its last text; ``False`` when a person changed it meanwhile, and theirs stayed."""
    try:
        if chain.last is None:
            name = slot.move_aside()
        else:
            slot.restage(chain.last)
            if found.holds is Holds.NOTHING:
                slot.place_new()
                return True
            name = slot.swap(slot.staged)
    except (FileNotFoundError, FileExistsError):
        return False
    seen, busy = slot.look(name)
    if seen.hash == found.hash:
        if not busy:
            slot.discard(name)
        return True
    with suppress(FileNotFoundError, FileExistsError):
        if chain.last is None:
            slot.move_back(name)
        else:
            slot.swap(name)
            slot.discard(name)
    return False


def _settle(state: StoreState, unpruned: Sequence[JournalEntry], result: Replayed) -> None:
    """After a machine stop an accepted entry is published, unless it was rolling back; durably."""
    for entry in unpruned:
        if entry.state == "pending":
            entries.settle(state, entry, full=True)
        elif entry.state == "rolling_back":
            entries.settle_conflict(state, entry, [], None)
        else:
            continue
        result.finished.append(entry.request_id or "")


class _Strangers:
    """Files outside every chain, read only when a path is missing: was it moved by hand?"""

    def __init__(self, folders: Folders, keys: set[str], state: StoreState) -> None:
        self._folders = folders
        self._keys = keys
        self._state = state
        self._by_size: dict[str, dict[int, list[str]]] = {}

    def hold(self, chain: Chain) -> bool:
        """Whether some file of the same partition, in no chain, holds a text of this one.

        Evidence is left out: two requests may retain the same excerpt, so an equal text proves no move.
        """
        if staging_folder(chain.step.path) != files.split(chain.step.path)[0]:
            return False
        partition = chain.entry.partition.key
        sizes = self._by_size.get(partition)
        if sizes is None:
            sizes = self._by_size[partition] = {}
            for path, size in self._listed(partition):
                sizes.setdefault(size, []).append(path)
        for text in chain.texts:
            for path in sizes.get(len(journal.blob(self._state.db, text)), ()):
                folder, name = files.split(path)
                with suppress(FileNotFoundError, files.UnsafeFile):
                    data, _ = files.read_file(
                        self._folders.open(folder), name, limit=READ_LIMIT_BYTES, at="replay.stranger"
                    )
                    if digest(data) == text:
                        return True
        return False

    def _listed(self, folder: str) -> Iterator[tuple[str, int]]:
        fd = self._folders.find(folder)
        if fd is None:
            return
        for entry in files.list_folder(fd, at="replay.list"):
            path = f"{folder}/{entry.name}"
            if entry.name.startswith("."):
                continue
            if entry.kind == "folder" and staging_folder(f"{path}/x") == path:
                yield from self._listed(path)
            elif entry.kind == "file" and path not in self._keys:
                status = files.stat_entry(fd, entry.name, at="replay.list")
                if status is not None:
                    yield path, status.st_size
