"""Creating a store, and opening one whatever happened to it before.

Guarantees: a store is either wholly created or creation goes on where it was cut short; an opened store has passed
table 3c, has no unfinished publication that could be finished, and has a durable mark that says it is in use. A
store whose halves disagree is not touched.

The caller holds the owner lock; everything runs on the thread that will own the store.

Source: WRITE-PATH.md section 2 (Opening), table 3c, holes 7, 16, 17.
"""

from __future__ import annotations

import logging
import os
import stat
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from messages.errors import (
    DatabaseOlderThanVault,
    FailedClosed,
    ForeignVault,
    StoreUnavailable,
    Unavailable,
)
from messages.vocabulary import PRIVATE
from storage import erasure, files
from storage.faults import effect
from storage.manifest import MANIFEST_NAME, Manifest, judge
from storage.publication import machine, placing, sweep, sync
from storage.publication.model import Projection
from storage.publication.report import Notice, RecoveryReport
from storage.publication.store import DATABASE_NAME, VAULT_NAME, Folders, StoreState, read_manifest, reported
from storage.state import journal, notices, schema
from storage.state.connection import CommitUncertain, Database
from storage.state.journal import JournalEntry, Marks
from storage.vault import replace

log = logging.getLogger(__name__)

FAULT_POINTS = (
    ("create.folder", "making the folders of a new store"),
    ("create.schema.begin", "beginning the transaction that makes the tables"),
    ("create.schema.commit", "its durable commit"),
    ("create.manifest", "writing the first vault.json"),
    ("create.sync", "syncing the first vault.json and the folders above it"),
    ("create.made.begin", "beginning the transaction that marks a store as made"),
    ("create.made.commit", "its durable commit"),
    ("machine.read", "reading the identity of this boot and mount"),
    ("state.open", "opening state.sqlite"),
    ("state.statement", "running one statement on state.sqlite"),
    ("state.rollback", "rolling a transaction back"),
    ("state.checkpoint", "checkpointing the write-ahead log"),
    ("state.close", "closing state.sqlite"),
    ("reopen.begin", "beginning the transaction that follows a failed commit"),
    ("reopen.commit", "its durable commit"),
    ("open.begin", "beginning the transaction that takes the next incarnation"),
    ("open.commit", "its commit"),
    ("recovered.begin", "beginning the transaction that ends an opening"),
    ("recovered.commit", "its durable commit"),
    ("clean.begin", "beginning the transaction of a clean stop"),
    ("clean.commit", "its durable commit"),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """What tells a machine stop from a process stop: it stays the same as long as no written byte can be lost."""

    boot_id: str
    mount_id: str


def this_machine(root_fd: int) -> Machine:
    """The identity of this boot and of the mount that holds the vault; empty parts where the system has none."""
    return Machine(_boot_id(), _mount_id(root_fd))


def _boot_id() -> str:
    # Without a boot identity the start of the monotonic clock, to the minute, stands for it.
    return _text("/proc/sys/kernel/random/boot_id").strip() or str(round((time.time() - time.monotonic()) / 60))


def _mount_id(root_fd: int) -> str:
    for line in _text(f"/proc/self/fdinfo/{root_fd}").splitlines():
        if line.startswith("mnt_id:"):
            return line.split()[1]
    return ""


def _text(path: str) -> str:
    try:
        with effect("machine.read"), open(path, encoding="ascii") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def create_store(
    folder: Path,
    *,
    vault_id: str,
    projection: Projection,
    vfs: str | None = None,
    new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
) -> None:
    """Make the store in ``folder``, or go on where an earlier creation was cut short; a made store is left alone.

    Returns when everything is durable. Raises ``ForeignVault`` or ``DatabaseOlderThanVault`` when another vault lies
    there already, ``StorageError``.
    """
    with reported("create the store"):
        _make_folders(folder)
        db = Database.open(folder / DATABASE_NAME, point_prefix="state", create=True, vfs=vfs)
        try:
            if not schema.check_version(db):
                first = new_id()
                with db.transaction(full=True, point="create.schema"):
                    schema.create_schema(db)
                    projection.create(db)
                    db.execute(
                        "INSERT INTO meta (id, vault_id, publication_id, floor_publication_id) VALUES (1, ?, ?, ?)",
                        (vault_id, first, first),
                    )
                    journal.partition_row(db, PRIVATE)
            marks = journal.marks(db)
            if marks.vault_id != vault_id:
                raise ForeignVault("the database belongs to another store", expectedVaultId=vault_id)
            if not marks.made:
                _make_vault(folder, marks)
                with db.transaction(full=True, point="create.made"):
                    db.execute("UPDATE meta SET made = 1")
        finally:
            db.close()


def _make_folders(folder: Path) -> None:
    for path in (folder, folder / VAULT_NAME, folder / VAULT_NAME / PRIVATE.key):
        with effect("create.folder"):
            os.makedirs(path, mode=0o700, exist_ok=True)


def _make_vault(folder: Path, marks: Marks) -> None:
    root_fd = files.open_root(folder / VAULT_NAME, at="open.vault")
    try:
        wanted = Manifest(marks.vault_id, marks.current)
        found, _ = read_manifest(root_fd)
        if found != wanted:
            if isinstance(found, Manifest):
                if found.vault_id != marks.vault_id:
                    raise ForeignVault("another store's vault lies in this folder", foundVaultId=found.vault_id)
                if found.pair.generation > 0:
                    raise DatabaseOlderThanVault(
                        "the vault in this folder has publications that the database lacks: restore the database"
                    )
            # Nothing was ever published: the manifest is from a creation that was cut short, or torn.
            files.unlink(root_fd, MANIFEST_NAME, at="create.manifest")
            name = f".kr-create-{uuid.uuid4()}"
            files.close(files.create_file(root_fd, name, wanted.encode(), at="create.manifest"))
            can = replace.probe(root_fd)
            replace.move(can, root_fd, name, root_fd, MANIFEST_NAME, at="create.manifest")
        fd, _status = files.open_file(root_fd, MANIFEST_NAME, at="create.manifest")
        try:
            files.fsync(fd, at="create.sync")
        finally:
            files.close(fd)
    finally:
        files.close(root_fd)
    # A lost name above the store would lose everything below it.
    vault = folder / VAULT_NAME
    for path in (vault / PRIVATE.key, vault, folder, *_folders_above(folder)):
        fd = files.open_root(path, at="create.sync")
        try:
            files.fsync(fd, at="create.sync")
        finally:
            files.close(fd)


def _folders_above(folder: Path) -> list[Path]:
    """The folders above the store on the same disk that we may sync: any of them may have been made for it."""
    found: list[Path] = []
    with effect("create.folder"):
        device = folder.stat().st_dev
        for path in folder.absolute().parents:
            if path.stat().st_dev != device or not os.access(path, os.R_OK | os.W_OK):
                break
            found.append(path)
    return found


def open_state(
    folder: Path,
    *,
    projection: Projection,
    clock: Callable[[], int] = time.time_ns,
    git: bool = True,
    vfs: str | None = None,
    this: Callable[[int], Machine] = this_machine,
    can: replace.Capabilities | None = None,
) -> tuple[StoreState, RecoveryReport]:
    """Open the store in ``folder``: fence off older incarnations, recover, and mark it as in use.

    Raises the refusals of table 3c with nothing touched, ``StoreUnavailable`` (missing, unfinished, of a newer
    format), ``StorageError``, :class:`StorageCorrupt`. A publication that an I/O error keeps pending does not stop the
    opening. ``can`` overrides what the file system is found to be able to do.
    """
    with reported("open the store"):
        state, marks = open_halves(folder, projection=projection, clock=clock, git=git, vfs=vfs, can=can)
        try:
            report = _recover(state, marks, this(state.root_fd), probe=can is None)
        except BaseException:
            state.close()
            raise
    return state, report


def open_halves(
    folder: Path,
    *,
    projection: Projection,
    clock: Callable[[], int],
    git: bool,
    vfs: str | None,
    can: replace.Capabilities | None = None,
) -> tuple[StoreState, Marks]:
    """Both halves open under the next incarnation and nothing judged yet; the marks as they were before."""
    _require_plain(folder)
    db = _open_database(folder, vfs)
    root_fd = -1
    try:
        marks = journal.marks(db)
        if not marks.made:
            raise StoreUnavailable("the store was never completely created; create it again")
        try:
            root_fd = files.open_root(folder / VAULT_NAME, at="open.vault")
        except (FileNotFoundError, NotADirectoryError):
            raise StoreUnavailable("the vault folder is gone; put it back, or mount its disk again") from None
        schema.bring_forward(db, projection.upgrade)
        with db.transaction(full=False, point="open"):
            db.execute("UPDATE meta SET incarnation = incarnation + 1")
    except BaseException:
        db.close()
        if root_fd >= 0:
            files.close(root_fd)
        raise
    state = StoreState(
        folder=folder,
        db=db,
        root_fd=root_fd,
        vault_id=marks.vault_id,
        incarnation=marks.incarnation + 1,
        can=can or replace.Capabilities(),
        projection=projection,
        clock=clock,
        git=git,
        vfs=vfs,
        pair=marks.current,
    )
    return state, marks


def _require_plain(folder: Path) -> None:
    """Nothing of a store is reached through a link: SQLite would follow one, and a second name would take its writes.

    Raises ``StoreUnavailable`` (``reason`` ``link``). What is missing is for the opening to say.
    """
    try:
        fd = files.open_root(folder, at="open.vault")
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise StoreUnavailable(
            "Something else than a folder stands where the store's folder was (a link?): put the folder back, or name "
            "the place where it lies now with `knowledge store relocate`.",
            reason="link",
        ) from None
    try:
        for name in (DATABASE_NAME, f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm"):
            status = files.stat_entry(fd, name, at="open.database")
            if status is not None and (not stat.S_ISREG(status.st_mode) or status.st_nlink > 1):
                raise StoreUnavailable(
                    f"{name} is a link, or has a second name: put a plain file of its own there.", reason="link"
                )
    finally:
        files.close(fd)


def _open_database(folder: Path, vfs: str | None) -> Database:
    db = Database.open(folder / DATABASE_NAME, point_prefix="state", vfs=vfs)
    try:
        if not schema.check_version(db):
            raise StoreUnavailable("the store was never completely created; create it again")
        # Only a clean stop takes it away: whoever takes access away sees by it which stores may hold a save that is
        # not in place, and opens those alone.
        db.keep_log(True)
    except BaseException:
        db.close()
        raise
    return db


def _recover(state: StoreState, marks: Marks, here: Machine, *, probe: bool) -> RecoveryReport:
    root = files.stat_open(state.root_fd, at="open.vault")
    machine_stop = (
        not marks.clean and bool(marks.boot_id) and (marks.boot_id, marks.mount_id) != (here.boot_id, here.mount_id)
    )
    same_folder = (marks.vault_device, marks.vault_inode) == (root.st_dev, root.st_ino)
    found, stamp = read_manifest(state.root_fd)
    verdict = judge(found, state.binding(machine_stop=machine_stop, same_folder=same_folder))
    if isinstance(verdict, FailedClosed):
        raise verdict
    if probe:
        state.can = replace.probe(state.root_fd)
    # Before anything is read from the vault: what was erased must not come back as edits of a person's.
    erasure.finish(state)
    unpruned = journal.unpruned(state.db)
    state.unpruned = len(unpruned)
    state.manifest_stamp = stamp if verdict == "open" else None
    if marks.clean:
        report = RecoveryReport("clean")
    elif not marks.boot_id:
        # Never opened before: there is nothing to recover but what an interrupted creation left.
        _take_over(state, unpruned)
        report = RecoveryReport("clean")
    elif machine_stop:
        done = machine.replay(state, unpruned)
        report = RecoveryReport("machine", tuple(done.notices), tuple(done.finished))
        _sync_now(state)
    else:
        report = _after_process_stop(state, unpruned)
    with state.transaction(full=True, point="recovered"):
        state.db.execute(
            "UPDATE meta SET clean = 0, boot_id = ?, mount_id = ?, vault_device = ?, vault_inode = ?",
            (here.boot_id, here.mount_id, root.st_dev, root.st_ino),
        )
        if report.notices:
            notices.keep(state.db, state.clock(), report.rows)
    return report


def _after_process_stop(state: StoreState, unpruned: list[JournalEntry]) -> RecoveryReport:
    """Nothing written was lost: finish the one publication that may be pending, by table 3a."""
    _take_over(state, unpruned)
    pending = journal.unsettled_entry(state.db)
    if pending is None:
        return RecoveryReport("process")
    if pending.generation is not None:
        state.previous = journal.pair_before(state.db, pending.generation)
    created: list[str] = []
    try:
        receipt = placing.finish(state, pending, created)
    except (OSError, Unavailable, CommitUncertain) as error:
        log.warning("publication stays pending", extra={"entry": pending.id, "error": type(error).__name__})
        return RecoveryReport("process")
    done = tuple(Notice("created", path) for path in created) if receipt.state == "published" else ()
    return RecoveryReport("process", done, (pending.request_id or "",))


def _take_over(state: StoreState, unpruned: list[JournalEntry]) -> None:
    with Folders(state.root_fd) as folders:
        sweep.take_over(state, folders, {entry.publication_id for entry in unpruned})


def _sync_now(state: StoreState) -> None:
    """After a replay the files are made durable at once, so that a second stop has as little to do as possible."""
    covered = sync.cut(state)
    if covered is not None:
        sync.prune(state, sync.sync_files(covered), minimum_age_ns=0)


__all__ = ["Machine", "RecoveryReport", "create_store", "open_state", "this_machine"]
