"""Adopting a vault as it is: a person's way out when database and vault.json name different publications.

Guarantees: nothing that either half holds is lost. Accepted publications end as they would after a machine stop, but no
file is written back: what differs in the vault becomes an external edit at the next scan. Receipts and request ids stay
as they were. The new pair is above both halves. Interrupted anywhere, the store opens with the new pair, or fails
closed as before and can be adopted again. Another store's vault is never adopted.

The caller holds the owner lock and no lane has the store open; any one thread.

Source: WRITE-PATH.md section 6 (fail-closed manifest states), decisions.md section 4 (Manifest).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from messages.errors import FailedClosed, ForeignVault, InvalidArgument
from messages.json_types import JsonObject
from messages.vocabulary import PRIVATE
from storage import files
from storage.manifest import MANIFEST_NAME, Found, Manifest, Pair, judge
from storage.publication import entries, machine, placing
from storage.publication.model import Projection
from storage.publication.opening import Machine, open_halves, this_machine
from storage.publication.store import StoreState, read_manifest, reported
from storage.state import history, journal
from storage.state.history import Revision
from storage.state.journal import ADOPT_STORE, JournalEntry
from storage.vault import replace

FAULT_POINTS = (
    ("adopt.begin", "beginning the transaction that accepts a vault as it is"),
    ("adopt.commit", "its durable commit, with the new pair"),
    ("adopt.sync", "making the adopted vault.json durable"),
)


@dataclass(frozen=True, slots=True)
class Adoption:
    """What was adopted: why the store had failed closed, and the pairs of then and now (``found``: vault.json's)."""

    code: str
    expected: Pair
    found: Pair | None
    now: Pair
    at_ns: int

    def to_json(self) -> JsonObject:
        """As the receipt and status show it; the key ``at`` is the caller's to add in its own form."""
        shown: JsonObject = {"code": self.code, "database": _shown(self.expected), "now": _shown(self.now)}
        if self.found is not None:
            shown["vault"] = _shown(self.found)
        return shown


def adopt_store(
    folder: Path,
    *,
    projection: Projection,
    actor: str,
    clock: Callable[[], int] = time.time_ns,
    git: bool = True,
    vfs: str | None = None,
    this: Callable[[int], Machine] = this_machine,
) -> Adoption:
    """Give database and vault of the store in ``folder`` one new pair, durably, and close it again.

    The next opening scans and takes over as external edits whatever the vault holds that the database does not.

    Raises ``InvalidArgument`` (``reason`` ``not_failed_closed``: there is nothing to choose), ``ForeignVault``,
    ``StoreUnavailable``, ``StorageError``, and what opening a database raises. Nothing was adopted then.
    """
    with reported("adopt the vault"):
        state, marks = open_halves(folder, projection=projection, clock=clock, git=git, vfs=vfs)
        try:
            found, _ = read_manifest(state.root_fd)
            refusal = _refusal(state, marks, found, this(state.root_fd))
            state.can = replace.probe(state.root_fd)
            return _adopt(state, found, refusal, actor)
        finally:
            state.close()


def _refusal(state: StoreState, marks: journal.Marks, found: Found, here: Machine) -> FailedClosed:
    """Why the store does not open; raises when it does, or when the vault is another store's."""
    stopped = not marks.clean and (marks.boot_id, marks.mount_id) != (here.boot_id, here.mount_id)
    root = files.stat_open(state.root_fd, at="open.vault")
    same_folder = (marks.vault_device, marks.vault_inode) == (root.st_dev, root.st_ino)
    verdict = judge(found, state.binding(machine_stop=stopped, same_folder=same_folder))
    if isinstance(verdict, ForeignVault):
        raise verdict
    if isinstance(verdict, FailedClosed):
        return verdict
    raise InvalidArgument(
        "The store's database and vault belong together; there is nothing to adopt. Edits in the vault are taken over "
        "by themselves.",
        reason="not_failed_closed",
    )


def _adopt(state: StoreState, found: Found, refusal: FailedClosed, actor: str) -> Adoption:
    unpruned = journal.unpruned(state.db)
    # The texts behind our staged names go to history, then accepted entries end; no file is written back.
    machine.settle_as_found(state, unpruned)
    vault = found.pair if isinstance(found, Manifest) else None
    highest = max(state.pair.generation, 0 if vault is None else vault.generation)
    adoption = Adoption(refusal.code, state.pair, vault, Pair(highest + 1, str(uuid.uuid4())), state.clock())
    entry = _accept(state, adoption, unpruned, actor)
    placing.place_manifest(state, entry, force=True)
    _sync_manifest(state.root_fd)
    entries.settle(state, entry, full=True)
    return adoption


def _accept(state: StoreState, adoption: Adoption, unpruned: Sequence[JournalEntry], actor: str) -> JournalEntry:
    """One durable commit: the new pair, an entry that places it, and no older entry left to be replayed."""
    db = state.db
    with state.transaction(full=True, point="adopt"):
        partition_id, last = journal.partition_row(db, PRIVATE)
        identity = journal.insert_entry(
            db,
            publication_id=adoption.now.publication_id,
            partition_id=partition_id,
            sequence=last + 1,
            generation=adoption.now.generation,
            request_id=None,
            payload_hash=None,
            operation=ADOPT_STORE,
            actor=actor,
            accepted_at=adoption.at_ns,
            state="pending",
            fixed=orjson.dumps({"operation": ADOPT_STORE, **adoption.to_json()}).decode(),
        )
        row = Revision(
            last + 1, None, None, None, None, MANIFEST_NAME, ADOPT_STORE, actor, adoption.at_ns, True, None, None
        )
        history.insert(db, partition_id, identity, row)
        # Evidence that was never seen durable may be missing in this vault: its text stays with us.
        journal.keep_texts(db, [entry.id for entry in unpruned])
        journal.prune(db, unpruned, adoption.now)
        journal.advance(db, adoption.now)
        # Not clean, so that the next opening finishes this should we end before we have.
        db.execute("UPDATE meta SET clean = 0")
    state.previous, state.pair = adoption.found, adoption.now
    return journal.by_id(db, identity)


def _sync_manifest(root_fd: int) -> None:
    fd, _ = files.open_file(root_fd, MANIFEST_NAME, at="adopt.sync")
    try:
        files.fsync(fd, at="adopt.sync")
    finally:
        files.close(fd)
    files.fsync(root_fd, at="adopt.sync")


def _shown(pair: Pair) -> JsonObject:
    return {"generation": pair.generation, "publicationId": pair.publication_id}


__all__ = ["Adoption", "adopt_store"]
