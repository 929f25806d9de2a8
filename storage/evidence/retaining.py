"""How a source gets into ``artifacts/<request id>/``: chunk by chunk, or copied from the host's workspace.

Guarantees: what is being received or copied lies under a name that nothing can cite; every byte that is acknowledged is
synced, and so is every folder above it; a file gets its own name only when it is complete, and never over another.
Memory does not grow with the size of a file.

Chunks are written and names given on the lane's thread; hashing and copying run on a helper's (:class:`RunningHashes`
belongs to one thread). Errors: ``OSError``, and what ``check`` raises.

Source: decisions.md sections 2 and 4, WRITE-PATH.md hole 28, knowledge-more-facts.md section 4.
"""

from __future__ import annotations

import hashlib
import os
import stat
import uuid
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from messages.vocabulary import Partition
from storage import files
from storage.evidence.workspace import SourceFile, SourceRefused
from storage.files import CHUNK_BYTES, Stamp, UnsafeFile
from storage.layout import ARTIFACTS_NAME, COPIES_NAME, STAGED_PREFIX, artifact_folder
from storage.publication import Publisher
from storage.publication.store import Folders
from storage.state import uploads
from storage.state.uploads import Upload
from storage.vault import replace

if TYPE_CHECKING:
    from hashlib import _Hash

FAULT_POINTS: Final = (
    ("upload.create", "creating the file that an upload is received into"),
    ("upload.open", "opening a file that is being received"),
    ("upload.list", "listing a folder for what a crash left of uploads and copies"),
    ("upload.write", "writing a received or copied piece"),
    ("upload.truncate", "cutting off what a failed write left behind the received bytes"),
    ("upload.sync", "syncing received bytes, or a folder that got a new name"),
    ("upload.read", "reading received bytes again, or a piece of the file that is copied"),
    ("upload.stat", "looking at a received file, or whether the copied one held still"),
    ("upload.place", "giving a complete source its name"),
    ("upload.unlink", "removing a file that was received or copied in vain"),
    ("upload.begin", "beginning the transaction that notes how far an upload has come"),
    ("upload.commit", "the commit of that note, without a sync: the bytes are synced before"),
    ("retain.begin", "beginning the transaction that makes a complete source citable"),
    ("retain.commit", "its durable commit"),
)

PARTIAL_NAME: Final = ".kr-upload"
RUNNING_MAX: Final = 64

@dataclass(frozen=True, slots=True)
class Staged:
    """A complete, synced file: its name, its size in bytes, hash and stamp.

    It lies in its request's folder or, ``copied``, among the copies that have no name of their own yet.
    """

    name: str
    size: int
    sha256: str
    stamp: Stamp
    copied: bool = False


@dataclass(frozen=True, slots=True)
class Shelf:
    """The folder of one request, below an open vault folder."""

    vault_fd: int
    partition: Partition
    request_id: str

    @property
    def path(self) -> str:
        return f"{self.partition.key}/{artifact_folder(self.request_id)}"

    @property
    def copies(self) -> str:
        """The partition's folder of copies; each begins with its request's id."""
        return _copies(self.partition)

    # --- the lane ----------------------------------------------------------------------------------------

    def write_chunk(self, data: bytes, offset: int) -> None:
        """The bytes before ``offset`` and ``data`` are all that the received file holds, and are synced.

        A file that something else left under that name is removed before the first chunk. Raises
        ``FileNotFoundError`` when the file of a later chunk is gone, :class:`UnsafeFile` when it is none of ours.
        """
        with Folders(self.vault_fd) as folders:
            try:
                folder = folders.make(self.path)
                if offset:
                    _write_behind(folder, data, offset)
                    return
                files.unlink(folder, PARTIAL_NAME, at="upload.unlink")
                fd = files.create_file(folder, PARTIAL_NAME, data, mode=0o600, at="upload.create")
                try:
                    files.fsync(fd, at="upload.sync")
                finally:
                    files.close(fd)
                _sync_folders(folders, self.path)
            except BaseException as error:
                if offset == 0 and isinstance(error, Exception):
                    with suppress(OSError):
                        files.unlink(folders.open(self.path), PARTIAL_NAME, at="upload.unlink")
                    folders.discard_made()
                raise

    def received(self, name: str, size: int, offset: int) -> bytes | None:
        """Bytes of a file of this folder; ``None`` when it is gone."""
        with Folders(self.vault_fd) as folders:
            folder = folders.find(self.path)
            if folder is None:
                return None
            try:
                fd, _ = files.open_file(folder, name, at="upload.open")
            except (FileNotFoundError, UnsafeFile):
                return None
            try:
                return files.read_at(fd, size, offset, at="upload.read")
            finally:
                files.close(fd)

    def size_of(self, name: str) -> int | None:
        """The size of a file of this folder in bytes; ``None`` when there is none."""
        status = self._status(self.path, name)
        return None if status is None else status.st_size

    def is_still(self, staged: Staged) -> bool:
        """Whether the file is the one that was hashed."""
        status = self._status(self._home(staged), staged.name)
        return status is not None and Stamp.of(status) == staged.stamp

    def place(self, can: replace.Capabilities, staged: Staged, name: str) -> None:
        """Give a complete file its name, durably. Raises ``FileExistsError`` for a name that is taken.

        Where it has its name already, whoever gave it, a received file stands beside it in vain and is removed.
        """
        with Folders(self.vault_fd) as folders:
            if staged.copied:
                self._place_copy(can, folders, staged, name)
                return
            folder = folders.open(self.path)
            if staged.name != name:
                replace.move(can, folder, staged.name, folder, name, at="upload.place")
                files.fsync(folder, at="upload.sync")
                return
            fd, _ = files.open_file(folder, name, at="upload.open")
            try:
                files.fsync(fd, at="upload.sync")
            finally:
                files.close(fd)
            _sync_folders(folders, self.path)
            files.unlink(folder, PARTIAL_NAME, at="upload.unlink")

    def _place_copy(self, can: replace.Capabilities, folders: Folders, staged: Staged, name: str) -> None:
        home = folders.open(self.copies)
        try:
            replace.move(can, home, staged.name, folders.make(self.path), name, at="upload.place")
        except BaseException:
            folders.discard_made()
            raise
        _sync_folders(folders, self.path)
        # Or the old name might be there again after a power cut, and the file would have two.
        files.fsync(home, at="upload.sync")

    def mend(self, name: str) -> None:
        """Where a crash came between the two steps of giving a received file its ``name``, take the second one.

        Only a file system that cannot rename without replacing needs two (:func:`storage.vault.replace.move`).
        """
        received = self._status(self.path, PARTIAL_NAME)
        if received is None or received.st_nlink == 1:
            return
        named = self._status(self.path, name)
        if named is not None and os.path.samestat(received, named):
            with Folders(self.vault_fd) as folders:
                files.unlink(folders.open(self.path), PARTIAL_NAME, at="upload.unlink")

    def discard(self, staged: Staged) -> None:
        """Remove a copy that was made in vain. Never raises ``OSError``. A file that has its own name stays."""
        if not staged.copied:
            return
        with suppress(OSError), Folders(self.vault_fd) as folders:
            home = folders.find(self.copies)
            if home is not None:
                files.unlink(home, staged.name, at="upload.unlink")

    def tidy(self) -> None:
        """Remove what a crash left of a source whose bytes are retained elsewhere. Never raises ``OSError``."""
        with suppress(OSError), Folders(self.vault_fd) as folders:
            folder = folders.find(self.path)
            if folder is not None:
                for entry in files.list_folder(folder, at="upload.list"):
                    if entry.kind == "file" and entry.name.startswith(STAGED_PREFIX):
                        files.unlink(folder, entry.name, at="upload.unlink")
                folders.made.append(self.path)
                folders.discard_made()

    def _home(self, staged: Staged) -> str:
        return self.copies if staged.copied else self.path

    def _status(self, path: str, name: str) -> os.stat_result | None:
        with Folders(self.vault_fd) as folders:
            folder = folders.find(path)
            status = None if folder is None else files.stat_entry(folder, name, at="upload.stat")
        return status if status is not None and stat.S_ISREG(status.st_mode) else None

    # --- a helper ----------------------------------------------------------------------------------------

    def copy_in(self, source: SourceFile, sha256: str, check: Callable[[], None]) -> Staged:
        """Copy an open file of the workspace among the copies, synced, under a name of its own.

        Raises :class:`SourceRefused` when the bytes are not those of ``sha256`` or change meanwhile; nothing is left.
        """
        name = f"{self.request_id}.{uuid.uuid4()}"
        with Folders(self.vault_fd) as folders:
            try:
                folder = folders.make(self.copies)
                target = files.create_file(folder, name, b"", mode=0o600, at="upload.create")
                try:
                    digest, size = hashlib.sha256(), 0
                    while chunk := files.read_at(source.fd, CHUNK_BYTES, size, at="upload.read"):
                        check()
                        if size + len(chunk) > source.stamp.size:
                            raise SourceRefused("changed")  # it grows, perhaps for ever
                        digest.update(chunk)
                        files.write_at(target, chunk, size, at="upload.write")
                        size += len(chunk)
                    after = files.stat_open(source.fd, at="upload.stat")
                    if Stamp.of(after) != source.stamp or size != source.stamp.size:
                        raise SourceRefused("changed")
                    if digest.hexdigest() != sha256:
                        raise SourceRefused("hash_mismatch")
                    files.fsync(target, at="upload.sync")
                    stamp = Stamp.of(files.stat_open(target, at="upload.stat"))
                finally:
                    files.close(target)
                return Staged(name, size, sha256, stamp, copied=True)
            except BaseException as error:
                if isinstance(error, Exception):
                    with suppress(OSError):
                        files.unlink(folders.open(self.copies), name, at="upload.unlink")
                raise


def sweep_copies(vault_fd: int, partition: Partition) -> None:
    """Remove every copy that has no name of its own. Never raises ``OSError``.

    For a store that is being opened, before its helpers make copies: one that an abandoned helper is still making is
    not looked for any more, and nothing refers to it.
    """
    with suppress(OSError), Folders(vault_fd) as folders:
        home = folders.find(_copies(partition))
        if home is not None:
            for entry in files.list_folder(home, at="upload.list"):
                if entry.kind == "file":
                    files.unlink(home, entry.name, at="upload.unlink")


def note(
    publisher: Publisher,
    partition: Partition,
    upload: Upload,
    *,
    check: Callable[[], None],
) -> None:
    """Commit how far an upload has come; ``check`` raises when the right to save has ended.

    Whoever calls this holds the commit fence, since before the first byte or name of it was written.

    One that is retained is durable when this returns, and citable. Of one that is received the row may be lost with
    the power, never be ahead of its bytes.
    """
    if upload.path is None:
        transaction = publisher.transaction(full=False, point="upload")
    else:
        transaction = publisher.transaction(full=True, point="retain")
    with transaction:
        check()
        uploads.put(publisher.db, partition, upload)


class RunningHashes:
    """Hashes of received files, kept while they are unfinished, so that a call that ran out of time loses nothing."""

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: OrderedDict[tuple[str, Stamp], tuple[_Hash, int]] = OrderedDict()

    def placed(self, shelf: Shelf, name: str, size: int, sha256: str, check: Callable[[], None]) -> Staged | None:
        """The file that has its own name already, if it holds these bytes: its row was lost in a crash."""
        _, found = self._look(shelf, name, size, check)
        return found if found is not None and found.sha256 == sha256 else None

    def hash(self, shelf: Shelf, name: str, size: int, check: Callable[[], None]) -> Staged | None:
        """The received file, or the one that has its ``name`` already, hashed if it has ``size`` bytes, else ``None``.

        Where both hold the same bytes, it is the one with the name: its row was lost in a crash, and the bytes were
        sent again. ``None`` too when it changes. ``check`` runs once a mebibyte and may raise; the next call goes on
        where this one ended.
        """
        there, received = self._look(shelf, PARTIAL_NAME, size, check)
        if there and received is None:
            return None
        _, named = self._look(shelf, name, size, check)
        if received is None or (named is not None and named.sha256 == received.sha256):
            return named
        return received

    def _look(self, shelf: Shelf, name: str, size: int, check: Callable[[], None]) -> tuple[bool, Staged | None]:
        """Whether there is such a file, and its hash if it has ``size`` bytes and holds still."""
        with Folders(shelf.vault_fd) as folders:
            folder = folders.find(shelf.path)
            if folder is None:
                return False, None
            try:
                fd, status = files.open_file(folder, name, at="upload.open")
            except FileNotFoundError:
                return False, None
            except UnsafeFile:
                return True, None
            try:
                if status.st_size != size:
                    return True, None
                return True, self._hash(shelf, name, fd, Stamp.of(status), check)
            finally:
                files.close(fd)

    def _hash(self, shelf: Shelf, name: str, fd: int, stamp: Stamp, check: Callable[[], None]) -> Staged | None:
        key = (f"{shelf.path}/{name}", stamp)
        digest, at = self._running.pop(key, (hashlib.sha256(), 0))
        try:
            while at < stamp.size:
                check()
                chunk = files.read_at(fd, CHUNK_BYTES, at, at="upload.read")
                if not chunk:
                    break
                digest.update(chunk)
                at += len(chunk)
        finally:
            self._running[key] = (digest, at)
            while len(self._running) > RUNNING_MAX:
                self._running.popitem(last=False)
        # A complete hash stays too: two calls that end one upload at once read it once.
        if Stamp.of(files.stat_open(fd, at="upload.stat")) != stamp or at != stamp.size:
            return None
        return Staged(name, stamp.size, digest.hexdigest(), stamp)


def _copies(partition: Partition) -> str:
    return f"{partition.key}/{ARTIFACTS_NAME}/{COPIES_NAME}"


def _write_behind(folder: int, data: bytes, offset: int) -> None:
    fd, status = files.open_to_write(folder, PARTIAL_NAME, at="upload.open")
    try:
        if status.st_size < offset:
            raise FileNotFoundError(PARTIAL_NAME)
        files.write_at(fd, data, offset, at="upload.write")
        if status.st_size > offset + len(data):
            files.truncate(fd, offset + len(data), at="upload.truncate")
        files.fsync(fd, at="upload.sync")
    finally:
        files.close(fd)


def _sync_folders(folders: Folders, path: str) -> None:
    """Every name on the way to ``path`` is durable."""
    while True:
        files.fsync(folders.open(path), at="upload.sync")
        if not path:
            return
        path = files.split(path)[0]
