"""Mending one store, part by part: what is wrong is found by reading first, then put right, then compared again.

Guarantees: a text takes a file's place only when history has what stands there, or nothing stands there; what history
lacks is recorded as an outside edit first. A dry run reads and changes nothing. The store's identity stays.

The caller holds the owner lock and nobody has the store open; one thread. Source: decisions.md sections 4 and 5.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from messages.errors import IndexUnavailable, StorageError, StoreUnavailable
from messages.vocabulary import PRIVATE, Partition
from storage import files, git
from storage.backup.manifest import Progress
from storage.faults import effect
from storage.git import Checkpoint, Committed
from storage.index_feed import IndexFeed
from storage.layout import StoreLayout
from storage.publication.store import Folders, reported
from storage.records import ParsedRecord, parse_record
from storage.repair.database import rebuild_database
from storage.repair.examining import agreement, database_state, read_text
from storage.repair.looking import look, whole_text
from storage.repair.model import REBUILT, Part, Repaired
from storage.search import SearchIndex
from storage.session import PartitionSession, StoreSession
from storage.state import git_queue, history, journal
from storage.state.catalogue import catalogue_identity, replace_catalogue
from storage.state.connection import StorageCorrupt
from storage.state.git_history import jobs_from_history
from storage.state.upkeep import partitions
from storage.vault import ScanLimits, replace

SUSPECTS_MAX: Final = 10_000
_GIT_JOBS: Final = 256

FAULT_POINTS: Final = (
    ("repair.look", "looking for the folders of conversations"),
    ("repair.catalogue.begin", "beginning to make the catalogue anew"),
    ("repair.catalogue.commit", "committing that"),
    ("repair.write", "writing a text from history beside its place"),
    ("repair.put", "giving a text from history its name"),
    ("repair.index", "removing a keyword index that is built anew"),
    ("repair.git.begin", "beginning to note which publications are in Git"),
    ("repair.git.commit", "committing that"),
)


def repair(
    store: StoreLayout,
    vault_id: str,
    parts: Collection[Part] = (),
    *,
    dry_run: bool = False,
    rebuild: bool = True,
    report: Callable[[Progress], None] = lambda progress: None,
    limits: ScanLimits | None = None,
    new_id: Callable[[], uuid.UUID] = uuid.uuid4,
) -> Repaired:
    """Put right what is wrong with one store; ``parts`` names the parts that are made anew whatever they look like.

    Without ``parts`` only what is found wrong is touched. Without ``rebuild`` a database that would have to be built
    anew is left, and the answer is that of a dry run: what that loses is for a person to decide.

    Raises ``StoreUnavailable`` (no vault, a link, another store's halves, a newer format), ``StorageError``, and the
    fail-closed errors, which only a person may settle.
    """
    done = Repaired(vault_id, dry_run)
    try:
        with reported("mend the store"):
            _repair(store, done, parts, report, limits or ScanLimits(), new_id if rebuild else None)
    except StorageCorrupt as error:
        raise StoreUnavailable(
            f"The database turned out damaged on the way ({error}); build it anew: "
            f"`knowledge repair --store {vault_id} database --yes`.",
            reason="damaged",
        ) from error
    except files.UnsafeFile as error:
        raise StorageError(f"A file in the vault is no plain file: {error.reason}.", reason=error.reason) from error
    return done


def _repair(
    store: StoreLayout,
    done: Repaired,
    parts: Collection[Part],
    report: Callable[[Progress], None],
    limits: ScanLimits,
    new_id: Callable[[], uuid.UUID] | None,
) -> None:
    vault_id, dry_run = done.vault_id, done.dry_run
    report(Progress("examining", 0, 1, 0, 1))
    state, why = database_state(store, lambda: report(Progress("examining", 0, 1, 0, 1)))
    if state not in ("sound", *REBUILT):
        raise StoreUnavailable(f"The store cannot be mended here: {why}. Nothing was changed.", reason=state)
    if state in REBUILT or "database" in parts:
        done.database = state if state in REBUILT else "damaged"
        if dry_run or new_id is None:
            done.dry_run = True
            aside = "" if state == "missing" else "set aside and "
            what = f"{why or 'As you said'}: it would be {aside}built anew."
            done.find("database", store.state_database.name, what)
            return
        done.set_aside = rebuild_database(store, vault_id, new_id=new_id)
    if dry_run:
        look(store, done, parts)
        return
    session = StoreSession.open(store, limits=limits)
    try:
        _mend(store, session, done, parts, report)
    except BaseException:
        session.abandon()
        raise
    session.close()


def _mend(
    store: StoreLayout,
    session: StoreSession,
    done: Repaired,
    parts: Collection[Part],
    report: Callable[[Progress], None],
) -> None:
    db = session.publisher.db
    all_parts = not parts or "database" in parts
    if "catalogue" in parts:
        with session.publisher.transaction(full=True, point="repair.catalogue"):
            replace_catalogue(db)
            db.execute("UPDATE file SET device = NULL, inode = NULL, size = NULL, mtime_ns = NULL, ctime_ns = NULL")
        done.catalogue = True
    keys = list(dict.fromkeys((PRIVATE, *partitions(db), *_folders(store))))
    for number, partition in enumerate(keys):
        report(Progress("reading", 0, 1, number, len(keys)))
        before = agreement(store, db, partition)
        if before.missing and (all_parts or "files" in parts):
            _restore_missing(store, session, partition, before.missing, done)
        opened = session.partition(partition)
        opened.refresh()
        _compare(store, session, opened, done)
        if all_parts or "files" in parts:
            suspects = (*before.different, *opened.broken_files(SUSPECTS_MAX))
            _restore_damaged(session, opened, dict.fromkeys(suspects), done, any_prefix="files" in parts)
    for number, partition in enumerate(keys):
        report(Progress("index", 0, 1, number, len(keys)))
        if all_parts or "index" in parts:
            _index(store, session, partition, done, anew="index" in parts)
    if all_parts or "git" in parts:
        report(Progress("git", 0, 1, 0, 1))
        _git(store, session, done, anew="git" in parts)


def _folders(store: StoreLayout) -> Iterator[Partition]:
    """Conversations that have a folder, whatever the database knows of them."""
    with effect("repair.look"):
        try:
            names = sorted(os.listdir(store.vault / "conversations"))
        except (FileNotFoundError, NotADirectoryError):
            return
    for name in names:
        with suppress(ValueError):
            yield Partition.parse(f"conversations/{name}")


# --- files -------------------------------------------------------------------------------------------------------


def _restore_missing(
    store: StoreLayout, session: StoreSession, partition: Partition, missing: Iterable[str], done: Repaired
) -> None:
    """Files that the catalogue has and the disk has not, whose record no other file carries by now."""
    db = session.publisher.db
    moved = set(_moved_ids(store, session, partition))
    for path in missing:
        row = db.query_one(
            "SELECT f.hash, r.id FROM file f JOIN catalogue_partition p ON p.id = f.partition "
            "LEFT JOIN record r ON r.partition = f.partition AND r.path = f.path WHERE p.key = ? AND f.path = ?",
            (partition.key, path),
        )
        text = None if row is None else history.text(db, row[0])
        if text is None or row is None:
            done.find("text_lost", f"{partition.key}/{path}", "The file is gone, and history has lost its text.")
        elif row[1] not in moved:
            _put(session, f"{partition.key}/{path}", text, done)


def _moved_ids(store: StoreLayout, session: StoreSession, partition: Partition) -> Iterator[str]:
    """Records whose file has a name that the catalogue does not know: moved or renamed by hand."""
    known = set(session.partition(partition).catalogue.paths_below(""))
    with effect("repair.look"):
        found = [path for path in (store.partition(partition)).rglob("*.md") if path.is_file()]
    for each in found:
        path = each.relative_to(store.partition(partition)).as_posix()
        text = None if path in known else read_text(store, partition, path)
        parsed = None if text is None else parse_record(text, path)
        if isinstance(parsed, ParsedRecord):
            yield parsed.record.id


def _compare(store: StoreLayout, session: StoreSession, opened: PartitionSession, done: Repaired) -> None:
    """A change that left no trace in a file's times is taken over like every other."""
    found = agreement(store, session.publisher.db, opened.partition)
    if found.different:
        opened.read_again(found.different)
    for path in found.lost:
        _keep_text(store, session, opened.partition, path, done)


def _keep_text(store: StoreLayout, session: StoreSession, partition: Partition, path: str, done: Repaired) -> None:
    """History has lost a text that the file still has."""
    known = session.partition(partition).catalogue.file(path)
    data = read_text(store, partition, path)
    if known is None or data is None or journal.digest(data) != known.hash:
        done.find("text_lost", f"{partition.key}/{path}", "History has lost the text of this file.")
        return
    with session.publisher.transaction(full=True, point="repair.catalogue"):
        db = session.publisher.db
        db.execute("DELETE FROM blob WHERE hash = ?", (known.hash,))
        journal.put_blob(db, known.hash, data, kept=True)
    done.restored.append(f"history of {partition.key}/{path}")


def _restore_damaged(
    session: StoreSession, opened: PartitionSession, suspects: Iterable[str], done: Repaired, *, any_prefix: bool
) -> None:
    """Files that hold the beginning of a text that they had: what is left is in history by now."""
    db, partition = session.publisher.db, opened.partition
    mended = []
    for path in suspects:
        known = opened.catalogue.file(path)
        data = None if known is None else history.text(db, known.hash)
        if data is None:
            continue
        texts = list(history.texts_of_path(db, partition, path))
        earlier = whole_text(data, path, texts, any_prefix=any_prefix)
        if earlier is not None and _put(session, f"{partition.key}/{path}", earlier, done, over=data):
            mended.append(path)
    if mended:
        done.damaged += [f"{partition.key}/{path}" for path in mended]
        opened.read_again(mended)


def _put(session: StoreSession, path: str, text: bytes, done: Repaired, *, over: bytes | None = None) -> bool:
    """Give a file a text from history: where nothing stands, or only ``over``, which history has."""
    root_fd = session.publisher.root_fd
    can = replace.probe(root_fd)
    with Folders(root_fd) as folders:
        folder_path, name = files.split(path)
        folder = folders.make(folder_path)
        staged = f".kr-repair-{uuid.uuid4()}"
        fd = files.create_file(folder, staged, text, at="repair.write")
        try:
            files.fsync(fd, at="repair.sync")
        finally:
            files.close(fd)
        try:
            if over is None:
                replace.move(can, folder, staged, folder, name, at="repair.put")
            else:
                if not can.exchange:
                    return _replace_known(folder, staged, name, over) and _noted(path, done)
                files.exchange(folder, staged, folder, name, at="repair.put")
                held, _ = files.read_file(folder, staged, limit=2 * len(text) + len(over) + 1, at="examine.read")
                if held != over:  # somebody saved just now: theirs stands
                    files.exchange(folder, staged, folder, name, at="repair.put")
                    return False
        except FileExistsError:
            return False
        finally:
            files.unlink(folder, staged, at="repair.stage")
        files.fsync(folder, at="repair.sync")
    return _noted(path, done)


def _replace_known(folder: int, staged: str, name: str, over: bytes) -> bool:
    """Where names cannot be exchanged: what stands there is looked at, then replaced. History has it."""
    held, _ = files.read_file(folder, name, limit=len(over) + 1, at="examine.read")
    if held == over:
        files.rename_over(folder, staged, name, at="repair.put")
        files.fsync(folder, at="repair.sync")
    return held == over


def _noted(path: str, done: Repaired) -> bool:
    if path not in done.restored:
        done.restored.append(path)
    return True


# --- index -------------------------------------------------------------------------------------------------------


def _index(store: StoreLayout, session: StoreSession, partition: Partition, done: Repaired, *, anew: bool) -> None:
    """Bring the keyword index up to the catalogue; a damaged one, or any when ``anew``, is built from nothing."""
    path = store.search_index(partition)
    if anew:
        with effect("repair.index"):
            for suffix in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    os.unlink(path.with_name(f"{path.name}{suffix}"))
    identity = catalogue_identity(session.publisher.db)
    with effect("repair.index"):
        there = path.is_file()
    wanted = session.partition(partition).catalogue.change
    if not there and not wanted:
        return
    with _feed(store) as feed:
        index = SearchIndex.open(path, vault_id=session.vault_id, partition=partition.key, catalogue=identity)
        try:
            position = before = index.position()
            while position < wanted:
                found = feed.after(partition, position)
                index.apply(found.changes, found.position)
                if found.position <= position:
                    raise IndexUnavailable("The keyword index cannot be brought up.")
                position = found.position
        finally:
            index.close()
    if before == 0 and wanted:
        done.indexes.append(partition.key)


@contextmanager
def _feed(store: StoreLayout) -> Iterator[IndexFeed]:
    feed = IndexFeed(store.state_database)
    try:
        yield feed
    finally:
        feed.close()


# --- Git ---------------------------------------------------------------------------------------------------------


def _git(store: StoreLayout, session: StoreSession, done: Repaired, *, anew: bool) -> None:
    state, why = git.repository_state(store.vault)
    done.git = state
    if state in ("foreign", "occupied"):
        done.find("git", ".git", why)
        return
    if state == "sound" and not anew:
        return
    if state != "absent":
        done.git_set_aside = git.set_aside(store.vault)
    db = session.publisher.db
    after, first = 0, True
    while jobs := jobs_from_history(db, after, _GIT_JOBS):
        checkpoints = [Checkpoint.of(job, lambda name: journal.blob(db, name)) for job in jobs]
        outcome = git.commit(store.vault, checkpoints, whole_history=first, look_back=False)
        if not isinstance(outcome, Committed) or not outcome.commits:
            done.git = "unavailable"
            done.find("git", ".git", getattr(outcome, "message", "Git made no commit."))
            return
        numbers = {job.publication_id: job.publication for job in jobs}
        commits = {numbers[name]: commit for name, commit in outcome.commits.items()}
        with session.publisher.transaction(full=False, point="repair.git"):
            git_queue.done(db, commits)
        after, first = max(commits), False
    done.git = "built" if after else state


__all__ = ["repair"]
