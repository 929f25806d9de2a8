"""From an accepted entry to files in place, or back: placing, finishing after an interruption, rolling back.

Guarantees: an accepted entry ends ``published`` with every file placed, or ``conflict`` with every file as it was
and each text of a person in a file or in history. An ``OSError`` leaves it as it is, to be finished later; every
function may be interrupted anywhere and called again.

Runs on the lane's thread. Errors: ``OSError``, ``Restarting``, ``FailedClosed`` (vault.json is not the expected one).

Source: WRITE-PATH.md section 2 (steps 5-7, Conflict) and table 3a.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, assert_never

from messages.errors import FailedClosed
from storage import files
from storage.manifest import MANIFEST_MAX_BYTES, MANIFEST_NAME, Absent, Manifest, Pair, judge, parse_manifest
from storage.publication import entries
from storage.publication.model import Receipt
from storage.publication.slot import Observed, Slot, slots
from storage.publication.store import Folders, StoreState, read_manifest
from storage.publication.table import Action, Holds, decide
from storage.state.journal import JournalEntry, Step
from storage.vault import replace

MANIFEST_ORDINAL = "manifest"
_ATTEMPTS = 3

FAULT_POINTS = (
    ("place.back", "moving a displaced text back to its name"),
    ("manifest.stage", "creating and writing the next vault.json"),
    ("manifest.place", "exchanging vault.json with the next one"),
    ("manifest.displaced", "reading the vault.json that was displaced"),
    ("manifest.stat", "taking the stamp of the new vault.json"),
    ("manifest.unlink", "removing a staged or displaced vault.json"),
)


@dataclass(frozen=True, slots=True)
class Conflict:
    """A person got in between, at this step."""

    step: Step
    reason: Literal["changed", "open_elsewhere"]


def complete(state: StoreState, folders: Folders, entry: JournalEntry) -> Receipt:
    """Steps 5-7 of an entry that was accepted a moment ago with everything staged."""
    for slot in slots(state, folders, entry):
        conflict = _place(slot)
        if conflict is not None:
            return roll_back(state, folders, entry, conflict, staged=True)
    place_manifest(state, entry, staged=True)
    return entries.settle(state, entry)


def finish(state: StoreState, entry: JournalEntry, created: list[str] | None = None) -> Receipt:
    """End an entry that was left pending or rolling back, live or after a process stop (table 3a).

    ``created`` takes the paths where nothing stood any more and our text was written again: a person may have removed
    it, which cannot be told from not having placed it.
    """
    final = entries.stored_receipt(entry)
    if final is not None:
        return final
    state.require_current()
    with Folders(state.root_fd) as folders:
        if entry.state == "rolling_back":
            return roll_back(state, folders, entry, None)
        for slot in slots(state, folders, entry):
            conflict = _resolve(slot, created)
            if conflict is not None:
                return roll_back(state, folders, entry, conflict)
        place_manifest(state, entry)
        return entries.settle(state, entry)


def _place(slot: Slot) -> Conflict | None:
    """Put a staged text in place and look at what it displaced; the path is expected to hold the old text."""
    try:
        return _attempt(slot)
    except FileNotFoundError:
        # The target was removed, or our staged name was taken or removed: what stands there decides.
        return _resolve(slot)


def _resolve(slot: Slot, created: list[str] | None = None) -> Conflict | None:
    """One step by table 3a, whatever its two names hold."""
    step = slot.step
    slot.require_current()
    for _ in range(_ATTEMPTS):
        slot.mend()
        action = decide(step.kind, slot.target().holds, slot.behind().holds)
        match action:
            case Action.DONE:
                return None
            case Action.CONFLICT:
                return Conflict(step, "changed")
            case Action.RESTAGE:
                if step.after is not None:
                    slot.restage(step.after)
                if step.kind == "create" and created is not None:
                    created.append(step.path)
            case Action.PLACE:
                pass
            case _:
                assert_never(action)
        try:
            return _attempt(slot)
        except FileNotFoundError:
            continue  # it vanished between the look and the rename: look again
    return Conflict(step, "changed")


def _attempt(slot: Slot) -> Conflict | None:
    """The rename of one step and the look behind it. ``FileNotFoundError`` when one of the two names is missing."""
    step = slot.step
    try:
        if step.kind == "create":
            slot.place_new()
            return None
        displaced = slot.swap(slot.staged) if step.kind == "replace" else slot.move_aside()
    except FileExistsError:
        return Conflict(step, "changed")
    seen, busy = slot.look(displaced)
    if busy:
        return Conflict(step, "open_elsewhere")
    return None if seen.holds is Holds.BEFORE else Conflict(step, "changed")


def roll_back(
    state: StoreState, folders: Folders, entry: JournalEntry, conflict: Conflict | None, *, staged: bool = False
) -> Receipt:
    """Undo every step, advance vault.json, and settle the entry as a conflict, for good."""
    if entry.state == "pending":
        entries.mark_rolling_back(state, entry)
    all_slots = slots(state, folders, entry)
    for slot in reversed(all_slots):
        _undo(slot)
    found: list[entries.Displaced] = []
    for slot in all_slots:
        behind, target = slot.behind(), slot.target()
        if behind.holds is Holds.OTHER and behind.data is not None:
            found.append(entries.Displaced(slot.step, behind.data, at_path=False))
        if not _as_before(slot.step, target) or (conflict is not None and conflict.step == slot.step):
            found.append(entries.Displaced(slot.step, target.data, at_path=True))
    if conflict is not None:
        # The step that failed first leads the answer; the others are what was found beside it.
        found.sort(key=lambda displaced: (displaced.step != conflict.step, not displaced.at_path))
    place_manifest(state, entry, staged=staged)
    return entries.settle_conflict(state, entry, found, conflict.reason if conflict else None)


def _as_before(step: Step, target: Observed) -> bool:
    return target.holds is (Holds.NOTHING if step.before is None else Holds.BEFORE)


def _undo(slot: Slot) -> None:
    match slot.step.kind:
        case "replace":
            _undo_replace(slot)
        case "create":
            _undo_create(slot)
        case "remove":
            _undo_remove(slot)
        case _ as never:
            assert_never(never)


def _undo_replace(slot: Slot) -> None:
    """Where our text stands, exchange it for the displaced one; anything else there is a person's and stays."""
    step = slot.step
    for _ in range(_ATTEMPTS):
        slot.mend()
        target, behind = slot.target(), slot.behind()
        if target.holds is not Holds.AFTER:
            return
        source = behind.name
        if behind.holds in (Holds.NOTHING, Holds.AFTER):
            assert step.before is not None
            slot.restage(step.before)
            source = slot.staged
        try:
            displaced = slot.swap(source)
        except FileNotFoundError:
            continue
        except FileExistsError:
            return
        seen, _busy = slot.look(displaced)
        if seen.holds is not Holds.AFTER:
            # Somebody saved between the reading and the exchange: theirs goes back, and stays.
            with suppress(FileNotFoundError, FileExistsError):
                slot.swap(displaced)
        return


def _undo_create(slot: Slot) -> None:
    """Where our text stands, move it aside; anything else there is a person's and stays."""
    slot.mend()
    if slot.target().holds is not Holds.AFTER:
        return
    behind = slot.behind()
    free = slot.staged
    if behind.holds is Holds.AFTER:
        slot.discard(behind.name)
    elif behind.holds is Holds.OTHER:
        free = slot.aside
    try:
        name = slot.move_aside(free)
    except FileNotFoundError:
        return
    # Open elsewhere is no reason to leave it: what is saved into it later is found when its name is removed.
    seen, _busy = slot.look(name)
    if seen.holds is not Holds.AFTER:
        slot.move_back(name)


def _undo_remove(slot: Slot) -> None:
    """Move what we took away back, unless something new stands there."""
    slot.mend()
    behind = slot.behind()
    if behind.holds is not Holds.NOTHING and slot.target().holds is Holds.NOTHING:
        slot.move_back(behind.name)


def stage_manifest(state: StoreState, publication_id: str, pair: Pair) -> str:
    """Write the next vault.json under its staged name, not synced."""
    name = state.staged_name(publication_id, MANIFEST_ORDINAL)
    data = Manifest(state.vault_id, pair).encode()
    files.close(files.create_file(state.root_fd, name, data, at="manifest.stage"))
    return name


def place_manifest(state: StoreState, entry: JournalEntry, *, staged: bool = False, force: bool = False) -> None:
    """vault.json carries the entry's pair, exchanged, not overwritten; idempotent.

    ``staged``: the next manifest waits under its staged name, written in this very operation. A manifest that is
    neither the pair before nor ours stays where it is, and its refusal is raised: a conflicting checkpoint is never
    replaced. ``force`` (after a machine stop, once table 3c allowed it) replaces what is there.
    """
    assert entry.generation is not None
    wanted = Manifest(state.vault_id, Pair(entry.generation, entry.publication_id))
    put_manifest(state, wanted, entry.publication_id, staged=staged, force=force)


def put_manifest(state: StoreState, wanted: Manifest, publication_id: str, *, staged: bool, force: bool) -> None:
    """Like :func:`place_manifest`, for any manifest of this store."""
    root, name = state.root_fd, state.staged_name(publication_id, MANIFEST_ORDINAL)
    if not staged:
        found, stamp = read_manifest(root)
        if found == wanted:
            state.manifest_stamp = stamp
            return
        if not force:
            _require_expected(state, found)
        files.unlink(root, name, at="manifest.unlink")
        stage_manifest(state, publication_id, wanted.pair)
        if found is Absent.MISSING:
            replace.move(state.can, root, name, root, MANIFEST_NAME, at="manifest.place")
            _note_manifest(state)
            return
    if state.can.exchange:
        files.exchange(root, name, root, MANIFEST_NAME, at="manifest.place")
        if not force:
            _check_displaced(state, name)
    else:
        # vault.json must never be absent, and holds nothing but what the database holds too.
        if staged and not force:
            _require_expected(state, read_manifest(root)[0])
        files.rename_over(root, name, MANIFEST_NAME, at="manifest.place")
    _note_manifest(state)


def _check_displaced(state: StoreState, displaced: str) -> None:
    """Look at the vault.json that was exchanged; one that nothing explains goes back to its place."""
    root = state.root_fd
    found: Manifest | Absent
    try:
        data, _ = files.read_file(root, displaced, limit=MANIFEST_MAX_BYTES, at="manifest.displaced")
        found = parse_manifest(data)
    except files.UnsafeFile:
        found = Absent.UNREADABLE
    if isinstance(found, Manifest) and (found.vault_id, found.pair) == (state.vault_id, state.previous):
        return
    try:
        _require_expected(state, found)
    except FailedClosed:
        files.exchange(root, displaced, root, MANIFEST_NAME, at="manifest.place")
        raise


def _require_expected(state: StoreState, found: Manifest | Absent) -> None:
    verdict = judge(found, state.binding(machine_stop=False))
    if isinstance(verdict, FailedClosed):
        raise verdict


def _note_manifest(state: StoreState) -> None:
    status = files.stat_entry(state.root_fd, MANIFEST_NAME, at="manifest.stat")
    state.manifest_stamp = None if status is None else files.Stamp.of(status)


def discard_staged(state: StoreState, folders: Folders, publication_id: str, steps: tuple[Step, ...]) -> None:
    """Remove what a rejected request staged, and the folders it made. Never raises ``OSError``: leftovers are
    harmless, and the next opening removes them."""
    for step in steps:
        with suppress(OSError):
            Slot(state, folders, publication_id, step).discard(state.staged_name(publication_id, step.ordinal))
    with suppress(OSError):
        files.unlink(state.root_fd, state.staged_name(publication_id, MANIFEST_ORDINAL), at="manifest.unlink")
    folders.discard_made()
