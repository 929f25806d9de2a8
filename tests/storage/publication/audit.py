"""The audit after a crash: the invariants of the write path, checked against the record of what happened.

Source: WRITE-PATH.md section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from messages.vocabulary import PRIVATE
from storage.manifest import Manifest, parse_manifest
from storage.publication import Machine, Publisher, open_store, sync_files
from storage.publication.table import is_torn
from storage.state import history, journal
from storage.state.journal import digest
from tests.kit.unsynced import UNSYNCED, without_syncs
from tests.storage.publication.world import HERE, Event, Shown, read_vault, shown, staged

ELSEWHERE = "private/elsewhere"


class AuditFailure(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True, slots=True)
class Write:
    """One text that reached, or may have reached, a path."""

    text: str | None  # hash, None = removed
    data: bytes
    ours: bool
    certain: bool  # it is there unless something came after it


def audit(
    folder: Path,
    events: Sequence[Event],
    *,
    machine_stop: bool,
    this: Machine = HERE,
    held: frozenset[str] = frozenset(),
    ambiguous: frozenset[str] = frozenset(),
) -> None:
    """Open the store and check every invariant; raises :class:`AuditFailure`.

    ``held`` are the hashes of a person's texts that the disk still held before the opening (after a machine stop).
    ``ambiguous`` paths may also have been created again (section 6).
    """
    with without_syncs():
        _audit(folder, events, machine_stop, this, held, ambiguous)


def _audit(
    folder: Path,
    events: Sequence[Event],
    machine_stop: bool,
    this: Machine,
    held: frozenset[str],
    ambiguous: frozenset[str],
) -> None:
    store = open_store(folder, projection=Shown(), this=lambda _fd: this, vfs=UNSYNCED)
    try:
        _check(store, folder, events, machine_stop, held, ambiguous)
        before = dict(read_vault(folder / "vault"))
        receipts = _receipts(store)
    finally:
        store.close(False)
    again = open_store(folder, projection=Shown(), this=lambda _fd: this, vfs=UNSYNCED)
    try:
        _require(dict(read_vault(folder / "vault")) == before, "a second opening changed a file")
        _require(_receipts(again) == receipts, "a second opening changed a receipt")
        covered = again.sync_cut()
        if covered is not None:
            pruned = again.prune(sync_files(covered), minimum_age_ns=0)
            _require(not pruned.again, "the background step could not prune everything")
        _require(staged(folder / "vault") == [], f"staged names are left: {staged(folder / 'vault')}")
        _require(dict(read_vault(folder / "vault")) == before, "the background step changed a file")
        _texts_are_kept(again, events, before, machine_stop, held)
    finally:
        again.close(False)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise AuditFailure(what)


def _receipts(store: Publisher) -> list[tuple[object, ...]]:
    return store.db.query("SELECT request_id, state, receipt, sequence FROM publication ORDER BY id")


def _check(
    store: Publisher,
    folder: Path,
    events: Sequence[Event],
    machine_stop: bool,
    held: frozenset[str],
    ambiguous: frozenset[str],
) -> None:
    _require(store.pending() is None, "something is pending after the opening")
    states = _receipts_hold(store, events)
    vault = dict(read_vault(folder / "vault"))
    _manifest_holds(store, folder)
    _paths_hold(events, states, vault, machine_stop, ambiguous)
    _texts_are_kept(store, events, vault, machine_stop, held)
    for path, text in shown(store.db).items():
        known = history.text(store.db, text)
        _require(known is not None or path.startswith("private/artifacts/"), f"the catalogue shows a lost text: {path}")


def _receipts_hold(store: Publisher, events: Sequence[Event]) -> dict[str, str]:
    """Invariant 1; the final state of every request."""
    states: dict[str, str] = {}
    for event in events:
        if event.kind == "begin":
            receipt = store.lookup(PRIVATE, event.request, f"payload {event.request}", "remember")
            states[event.request] = "none" if receipt is None else receipt.state
            _require(states[event.request] != "pending", "a request is still pending")
    for event in events:
        if event.kind == "ack":
            receipt = store.lookup(PRIVATE, event.request, f"payload {event.request}", "remember")
            _require(receipt is not None, f"an acknowledged request is unknown: {event.request}")
            _require(
                receipt is not None and receipt.encoded == event.receipt,
                f"an acknowledged receipt changed: {event.receipt} -> {receipt.encoded if receipt else None}",
            )
        elif event.kind == "rejected":
            _require(states[event.request] == "none", "a rejected request left a row")
    return states


def _manifest_holds(store: Publisher, folder: Path) -> None:
    """Invariant 5."""
    manifest = parse_manifest((folder / "vault" / "vault.json").read_bytes())
    _require(isinstance(manifest, Manifest), "vault.json is unreadable")
    assert isinstance(manifest, Manifest)
    marks = journal.marks(store.db)
    _require(manifest.pair == marks.current == store.pair, "vault.json and the database differ")
    counted = store.db.query_one("SELECT count(*) FROM publication WHERE generation IS NOT NULL")
    assert counted is not None
    _require(marks.current.generation == counted[0], "the generation is not the number of accepted publications")


def _writes(events: Sequence[Event], states: dict[str, str]) -> dict[str, list[Write]]:
    """Every text of every path in the order in which the last one wins: a publication counts from its beginning,
    since a person who saves after that either makes it a conflict or saves on top."""
    acknowledged = {event.request for event in events if event.kind == "ack"}
    done = [index for index, event in enumerate(events) if event.kind == "person done"]
    writes: dict[str, list[Write]] = {}
    for index, event in enumerate(events):
        if event.kind == "begin" and states[event.request] == "published":
            for path, text in event.texts.items():
                certain = event.request in acknowledged or states[event.request] == "published"
                writes.setdefault(path, []).append(Write(_hash(text), _bytes(text), True, certain))
        elif event.kind == "person":
            finished = any(index < other for other in done)
            for path, text in event.texts.items():
                writes.setdefault(path, []).append(Write(_hash(text), _bytes(text), False, finished))
    return writes


def _bytes(text: str | None) -> bytes:
    return b"" if text is None else text.encode()


def _hash(text: str | None) -> str | None:
    return None if text is None else digest(text.encode())


def _paths_hold(
    events: Sequence[Event],
    states: dict[str, str],
    vault: dict[str, bytes],
    machine_stop: bool,
    ambiguous: frozenset[str],
) -> None:
    """Invariants 2 and 4."""
    durable = _durable_folds(events)
    writes = _writes(events, states)
    # What an editor wrote into an inode that had no name of its own just then: a roll-back may bring it to its path.
    wandering = {write.text for write in writes.pop(ELSEWHERE, [])}
    for path in writes.keys() | vault.keys():
        data = vault.get(path)
        holds = None if data is None else digest(data)
        allowed: set[str | None] = set()
        unsynced: list[bytes] = []  # of a person: the power may have torn it, and nobody else has it
        for write in reversed(writes.get(path, [])):
            allowed.add(write.text)
            if machine_stop and not write.ours and (path, write.text) not in durable:
                unsynced.append(write.data)
            # A person's save is not durable by itself, unless it was folded in and a durable commit followed.
            if write.certain and (write.ours or not machine_stop or (path, write.text) in durable):
                break
        else:
            allowed.add(None)
        allowed |= wandering
        if path in ambiguous:
            allowed |= {write.text for write in writes.get(path, []) if write.ours}
        if data is not None and unsynced and is_torn(data, unsynced, 512):
            continue
        _require(holds in allowed, f"{path} holds {_short(holds)}, allowed {sorted(map(_short, allowed))}")


def _short(text: str | None) -> str:
    return "nothing" if text is None else text[:12]


def _durable_folds(events: Sequence[Event]) -> set[tuple[str, str | None]]:
    found: set[tuple[str, str | None]] = set()
    waiting: set[tuple[str, str | None]] = set()
    for event in events:
        if event.kind == "folded":
            waiting |= {(path, _hash(text)) for path, text in event.texts.items()}
        elif event.kind in ("ack", "durable"):
            found |= waiting
            waiting = set()
    return found


def _texts_are_kept(
    store: Publisher, events: Sequence[Event], vault: dict[str, bytes], machine_stop: bool, held: frozenset[str]
) -> None:
    """Invariants 2 (every published text is in history) and 3 (every text of a person is in a file or in history)."""
    standing = {digest(data) for data in vault.values()}
    rows = {row[0] for row in store.db.query("SELECT hash FROM history WHERE hash IS NOT NULL")}
    blobs = {row[0] for row in store.db.query("SELECT hash FROM blob")}
    _require(rows <= blobs, "history names a text that is gone")
    destroyed = _destroyed_by_persons(events)
    for event in events:
        for path, text in event.texts.items():
            name = _hash(text)
            if name is None:
                continue
            if event.kind == "begin" and not path.startswith("private/artifacts/"):
                receipt = store.lookup(PRIVATE, event.request, f"payload {event.request}", "remember")
                if receipt is not None:
                    _require(name in blobs, f"a text of {event.request} is lost")
                if receipt is not None and receipt.state == "published":
                    _require(name in rows, f"a published text of {event.request} is not in history")
            elif event.kind == "person":
                wanted = name in held if machine_stop else name not in destroyed
                _require(not wanted or name in standing or name in blobs, f"a person's text at {path} is lost")


def _destroyed_by_persons(events: Sequence[Event]) -> set[str]:
    """Texts that a person overwrote or removed before anybody took them over, and the one whose saving a crash
    interrupted."""
    found = {text for event in events for text in event.destroyed}
    last_done = max((index for index, event in enumerate(events) if event.kind == "person done"), default=-1)
    for event in events[last_done + 1 :]:
        if event.kind == "person":
            found |= {name for name in map(_hash, event.texts.values()) if name is not None}
    return found
