"""Erasing a conversation from a store, so that a crash on the way is finished by the next opening.

``erasing.json`` in the store's folder is the decision: before it is there nothing has happened, from then on the store
does not open until nothing of the conversation is left. What goes: its rows in ``state.sqlite`` (texts that no other
partition has, revisions, receipts, request ids, catalogue), its folder in the vault, its keyword index, and the local
Git history, which is built again from what history has left. Deleted rows are overwritten and the write-ahead log is
cut, so that no free page holds a text.

Not reached: copies that something else made: a backup, an export, an upgrade, and what mending set aside.
:func:`copies` names those that lie in the store.

The caller holds the owner lock; the thread that owns the store. Before :func:`begin` the store was closed cleanly, so
that no entry waits for its files.

Source: decisions.md section 4 (erasure shapes storage from the start), section 8 (erase).
"""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import Final

from messages.errors import StoreUnavailable
from messages.vocabulary import PRIVATE, Partition
from storage import files
from storage.layout import StoreLayout
from storage.publication.store import StoreState
from storage.state.connection import Database
from storage.trees import remove_tree
from storage.whole_files import put_whole

NOTE_NAME: Final = "erasing.json"
NOTE_MAX_BYTES: Final = 4_096
_STAGED: Final = ".erasing.json.new"
_DATABASE_FILES: Final = ("", "-wal", "-shm", "-journal")

FAULT_POINTS: Final = (
    ("erase.look", "looking whether a conversation is being erased"),
    ("erase.note.read", "reading which one"),
    ("erase.note.stage", "writing that decision beside its name"),
    ("erase.note.sync", "making it durable, or its end"),
    ("erase.note.place", "giving it its name"),
    ("erase.note.remove", "removing it, when nothing is left of the conversation"),
    ("erase.begin", "beginning to delete a conversation's rows"),
    ("erase.commit", "making that durable"),
    ("erase.files", "removing a conversation's folder, name by name"),
    ("erase.search", "removing its keyword index"),
    ("erase.git", "removing the local Git history, name by name"),
    ("erase.sync", "making removed names durable"),
)

_TEXTS = """
    SELECT hash AS text FROM history WHERE partition {is} :journal AND hash IS NOT NULL
    UNION SELECT before FROM history WHERE partition {is} :journal AND before IS NOT NULL
    UNION SELECT s.before FROM step s JOIN publication p ON p.id = s.publication
        WHERE p.partition {is} :journal AND s.before IS NOT NULL
    UNION SELECT s.after FROM step s JOIN publication p ON p.id = s.publication
        WHERE p.partition {is} :journal AND s.after IS NOT NULL
    UNION SELECT s.displaced FROM step s JOIN publication p ON p.id = s.publication
        WHERE p.partition {is} :journal AND s.displaced IS NOT NULL
    UNION SELECT hash FROM file WHERE partition {is} :catalogue
    UNION SELECT hash FROM record WHERE partition {is} :catalogue
"""
# In an order in which no row is left that refers to one that is gone.
_JOURNAL: Final = (
    "DELETE FROM git_queue WHERE publication IN (SELECT id FROM publication WHERE partition = ?)",
    "DELETE FROM step WHERE publication IN (SELECT id FROM publication WHERE partition = ?)",
    "DELETE FROM history WHERE partition = ?",
    "DELETE FROM publication WHERE partition = ?",
    "DELETE FROM upload WHERE partition = ?",
    "DELETE FROM standing_index WHERE partition = ?",
    "DELETE FROM partition WHERE id = ?",
)
_CATALOGUE: Final = (
    "name", "tag", "reference", "citation", "finding", "removed", "page", "degree", "body_link", "tie", "neighbour",
    "ontology_file", "record", "file",
)  # fmt: skip


def begin(layout: StoreLayout, partition: Partition) -> None:
    """Decide, durably, that nothing of the conversation is to be left; :func:`finish` comes with the next opening."""
    if partition == PRIVATE:
        raise ValueError("the private partition is not erased")
    folder = files.open_root(layout.root, at="erase.look")
    try:
        data = json.dumps({"format": 1, "partition": partition.key}).encode() + b"\n"
        put_whole(folder, NOTE_NAME, data, staged=_STAGED, at="erase.note")
    finally:
        files.close(folder)


def finish(state: StoreState) -> Partition | None:
    """Remove what is left of a conversation whose erasure was decided, durably; which one, ``None`` without any.

    For the opening of a store whose halves belong together, before anything of it is recovered or read. Raises
    ``OSError`` and what the database raises: then the erasure goes on with the next opening.
    """
    layout = StoreLayout(state.folder)
    folder = files.open_root(layout.root, at="erase.look")
    try:
        partition = _decided(folder)
        if partition is None:
            return None
        with state.transaction(full=True, point="erase"):
            _delete_rows(state.db, partition)
        _remove_files(state.root_fd, partition)
        _remove_index(folder, layout, partition)
        _remove_git(state.root_fd)
        # Committed pages go into the file, where what they replace is overwritten, and the log is cut to nothing.
        state.db.checkpoint("TRUNCATE")
        files.unlink(folder, NOTE_NAME, at="erase.note.remove")
        files.fsync(folder, at="erase.note.sync")
        return partition
    finally:
        files.close(folder)


def decided(layout: StoreLayout) -> Partition | None:
    """The conversation whose erasure is decided and not finished. Raises ``OSError``, ``StoreUnavailable`` (the note
    cannot be read, so that the store does not open). Changes nothing."""
    folder = files.open_root(layout.root, at="erase.look")
    try:
        return _decided(folder)
    finally:
        files.close(folder)


def _decided(folder: int) -> Partition | None:
    try:
        data, _ = files.read_file(folder, NOTE_NAME, limit=NOTE_MAX_BYTES, at="erase.note.read")
        partition = Partition.parse(str(json.loads(data)["partition"]))
        if partition == PRIVATE:
            raise ValueError(partition.key)
        return partition
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, files.UnsafeFile) as error:
        raise StoreUnavailable(
            f"{NOTE_NAME} in the store's folder cannot be read; it says which conversation was being erased. Remove it "
            "and erase the conversation again.",
            reason="erasure_note",
        ) from error


def _delete_rows(db: Database, partition: Partition) -> None:
    journal = _number(db, "partition", partition)
    catalogue = _number(db, "catalogue_partition", partition)
    texts = _TEXTS.replace(":journal", "?1").replace(":catalogue", "?2")
    db.execute(
        f"DELETE FROM blob WHERE hash IN ({texts.replace('{is}', '=')}) "
        f"AND hash NOT IN ({texts.replace('{is}', '<>')})",
        (journal, catalogue),
    )
    for statement in _JOURNAL:
        db.execute(statement, (journal,))
    for table in _CATALOGUE:
        db.execute(f"DELETE FROM {table} WHERE partition = ?", (catalogue,))
    db.execute("DELETE FROM catalogue_partition WHERE id = ?", (catalogue,))
    prefix = f"{partition.key}/"
    db.execute("DELETE FROM recovery_notice WHERE substr(path, 1, ?) = ?", (len(prefix), prefix))
    # The commits that held them are gone; the repository is built again from history.
    db.execute("UPDATE publication SET git_commit = NULL")
    if db.query_one("SELECT 1 FROM publication WHERE pruned = 0") is None:
        # The pair that an entry replaces is looked up among the entries, of which some are gone: the floor names it.
        db.execute("UPDATE meta SET floor_generation = generation, floor_publication_id = publication_id")


def _number(db: Database, table: str, partition: Partition) -> int:
    """The partition's number in that table; one that nobody has where it is not there."""
    row = db.query_one(f"SELECT id FROM {table} WHERE key = ?", (partition.key,))
    return -1 if row is None else int(row[0])


def _remove_files(root: int, partition: Partition) -> None:
    above, name = files.split(partition.key)
    try:
        folder = files.open_folder(root, above, at="erase.look")
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return  # what lies behind a link was never this partition's
        raise
    try:
        if remove_tree(folder, name, at="erase.files"):
            files.fsync(folder, at="erase.sync")
    finally:
        files.close(folder)


def _remove_index(folder: int, layout: StoreLayout, partition: Partition) -> None:
    path = layout.search_index(partition)
    try:
        search = files.open_folder(folder, path.parent.name, at="erase.look")
    except FileNotFoundError:
        return
    try:
        for suffix in _DATABASE_FILES:
            files.unlink(search, f"{path.name}{suffix}", at="erase.search")
        files.fsync(search, at="erase.sync")
    finally:
        files.close(search)


def _remove_git(root: int) -> None:
    for name in (".git", ".kr-git"):
        status = files.stat_entry(root, name, at="erase.look")
        if status is not None and stat.S_ISDIR(status.st_mode):  # a link or a pointer is not ours, and holds none of it
            remove_tree(root, name, at="erase.git")
    files.fsync(root, at="erase.sync")


def copies(layout: StoreLayout) -> tuple[str, ...]:
    """Names of copies beside the store that may hold what was erased, relative to its folder.

    They come from an upgrade, and from mending (:mod:`storage.repair`).
    """
    found: list[str] = []
    database = layout.state_database.name
    beside = (f"{database}.format-", f"{database}.damaged-", "staged.damaged-")
    for path, prefixes in ((layout.root, beside), (layout.vault, (".git.damaged-",))):
        folder = files.open_root(path, at="erase.look")
        try:
            names = [entry.name for entry in files.list_folder(folder, at="erase.look")]
        finally:
            files.close(folder)
        below = "" if path == layout.root else f"{os.path.basename(path)}/"
        found += [f"{below}{name}" for name in sorted(names) if name.startswith(prefixes)]
    return tuple(found)


__all__ = ["begin", "copies", "decided", "finish"]
