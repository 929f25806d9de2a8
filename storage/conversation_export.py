"""Writing a conversation's partition into a folder of its own: its files, its history, and a checksum of each.

::

    <target>/
        export.json        format, store, agent, session, counts
        SHA256SUMS         every other file, as `sha256sum --check` reads it
        files/             the partition's folder: records, evidence, and whatever else lies there
        history.jsonl      one revision a line, the oldest first
        sources.jsonl      what attached originals were described as
        texts/<sha256>     every text that history names

Guarantees: the folder is there complete and durable under its name, or not at all; nothing is replaced; what is written
is what the store holds, or the export fails; nothing of another partition is read. Files are read without following
links; links and devices are left out and counted. Only the owner's user may read it.

The caller holds the owner lock and no lane has the store open; any one thread.

Source: decisions.md section 8 (export); stores-and-access.md (Partitions).
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from messages.errors import InvalidArgument, NotFound, StorageError
from messages.json_types import JsonObject
from messages.vocabulary import Partition
from storage import files
from storage.faults import effect
from storage.files import CHUNK_BYTES
from storage.layout import STAGED_PREFIX, Layout
from storage.records import format_instant
from storage.session import PartitionSession, StoreSession
from storage.state.connection import Database
from storage.trees import remove_tree

FORMAT: Final = "knowledge-export-v1"
_STAGED: Final = ".kr-exporting-"
DEPTH_MAX: Final = 64
"""Folders below one another. Records lie at most 8 deep; more than this is nobody's filing."""

FAULT_POINTS: Final = (
    ("export.look", "looking at the place of an export, or at what is exported"),
    ("export.stage", "removing an export that was cut short"),
    ("export.folder", "making a folder of an export"),
    ("export.read", "reading a file that is exported"),
    ("export.file.open", "creating a file of an export"),
    ("export.file.write", "writing a file of an export"),
    ("export.sync", "making a file or a folder of an export durable"),
    ("export.place", "giving a complete export its name"),
)


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written. ``skipped``: links and devices, which are no part of a partition."""

    path: Path
    records: int
    revisions: int
    files: int
    bytes: int
    skipped: int

    def to_json(self) -> JsonObject:
        return {
            "path": str(self.path),
            "records": self.records,
            "revisions": self.revisions,
            "files": self.files,
            "bytes": self.bytes,
            "skipped": self.skipped,
        }


def plan_export(layout: Layout, target: str) -> Path:
    """The checked place of an export. Raises ``InvalidArgument`` (``field`` ``path``)."""
    place = Path(target)
    if not place.is_absolute():
        raise _refused("Name the folder by its absolute path.", "not_absolute")
    with effect("export.look"):
        place = Path(os.path.realpath(place.parent)) / place.name
        home = Path(os.path.realpath(layout.root))
        is_folder, taken = os.path.isdir(place.parent), os.path.lexists(place)
    if not place.name or place.is_relative_to(home):
        raise _refused("Name a folder outside the state directory.", "inside")
    if not is_folder:
        raise _refused("The folder that is to hold the export does not exist; make it first.", "no_parent")
    if taken:
        raise _refused("Something stands there already; name a folder that does not exist yet.", "taken")
    return place


def require_partition(session: StoreSession, partition: Partition) -> None:
    """Raise ``NotFound`` unless the conversation has ever had anything in this store. Makes nothing."""
    if session.publisher.db.query_one("SELECT 1 FROM partition WHERE key = ?", (partition.key,)) is not None:
        return
    try:
        files.close(files.open_folder(session.publisher.root_fd, partition.key, at="export.look"))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise StorageError(f"The conversation's folder cannot be opened: {error.strerror}.", reason="io") from error
        raise NotFound("This agent's store holds nothing of that conversation.", field="session") from None


def export_conversation(
    session: StoreSession,
    partition: Partition,
    target: Path,
    *,
    agent: str,
    at: int,
    check: Callable[[], None] = lambda: None,
) -> Exported:
    """Write it; ``at`` is now in UTC milliseconds, ``check`` is called between files and may raise.

    Raises ``NotFound``, ``StorageError`` (``retry`` ``safe``; nothing is left), and what refreshing a partition raises.
    """
    require_partition(session, partition)
    opened = session.partition(partition)
    opened.refresh(check)
    try:
        parent = files.open_root(target.parent, at="export.look")
        try:
            return _export(parent, session, opened, target, agent, at, check)
        finally:
            files.close(parent)
    except OSError as error:
        raise StorageError(
            f"The conversation could not be exported: {error.strerror or type(error).__name__}. Nothing was left.",
            reason="file_system",
            errno=error.errno or 0,
        ) from error


def _export(
    parent: int,
    session: StoreSession,
    opened: PartitionSession,
    target: Path,
    agent: str,
    at: int,
    check: Callable[[], None],
) -> Exported:
    partition = opened.partition
    staged = f"{_STAGED}{partition.session_id}"
    remove_tree(parent, staged, at="export.stage")
    writer = _Writer(check)
    try:
        files.make_folder(parent, staged, mode=0o700, at="export.folder")
        root = files.open_folder(parent, staged, at="export.look")
        try:
            writer.make(root, "files")
            if opened.root_fd is not None:
                writer.copy_folder(opened.root_fd, root, "files")
            _require_equal(opened, writer.sums)
            db = session.publisher.db
            revisions = writer.lines(root, "history.jsonl", _history(db, partition))
            writer.lines(root, "sources.jsonl", _sources(db, partition))
            writer.make(root, "texts")
            for digest, text in _texts(db, partition):
                writer.put(root, "texts", digest, text)
            writer.sync_folder(root, "texts")
            records = _count(db, partition)
            found = Exported(target, records, revisions, len(writer.sums), writer.written, writer.skipped)
            shown = found.to_json()
            del shown["path"]
            head: JsonObject = {"format": FORMAT, "vaultId": session.vault_id, "agent": agent}
            head |= {"sessionId": partition.session_id, "exportedAt": format_instant(at), **shown}
            writer.put(root, "", "export.json", orjson.dumps(head, option=orjson.OPT_INDENT_2) + b"\n")
            sums = "".join(_sum_line(path, digest) for path, digest in sorted(writer.sums.items()))
            writer.put(root, "", "SHA256SUMS", os.fsencode(sums))
            files.fsync(root, at="export.sync")
        finally:
            files.close(root)
        _place(parent, staged, target.name)
    except BaseException:
        with suppress(OSError, StorageError):
            remove_tree(parent, staged, at="export.stage")
        raise
    return found


@dataclass(slots=True)
class _Writer:
    check: Callable[[], None]
    sums: dict[str, str] = field(default_factory=dict)
    """Path below the export -> SHA-256 of what was written there."""
    written: int = 0
    skipped: int = 0

    def make(self, root: int, path: str) -> None:
        folder, name = files.split(path)
        above = files.open_folder(root, folder, at="export.look")
        try:
            files.make_folder(above, name, mode=0o700, at="export.folder")
        finally:
            files.close(above)

    def put(self, root: int, folder: str, name: str, data: bytes) -> None:
        self._write(root, folder, name, [data])

    def lines(self, root: int, name: str, rows: Iterator[JsonObject]) -> int:
        """One object a line; how many."""
        count = 0

        def counted() -> Iterator[bytes]:
            nonlocal count
            for row in rows:
                count += 1
                yield orjson.dumps(row) + b"\n"

        self._write(root, "", name, counted())
        return count

    def copy_folder(self, source: int, root: int, path: str) -> None:
        for entry in sorted(files.list_folder(source, at="export.look"), key=lambda one: one.name):
            self.check()
            if entry.name.startswith(STAGED_PREFIX):
                continue  # what is not complete yet is no part of the partition
            below = f"{path}/{entry.name}"
            if entry.kind == "folder":
                if below.count("/") > DEPTH_MAX:
                    raise StorageError(
                        f"A folder of the conversation lies more than {DEPTH_MAX} folders deep; move it up, then "
                        "export again. Nothing was left.",
                        reason="depth",
                        retry="never",
                    )
                self.make(root, below)
                inner = files.open_folder(source, entry.name, at="export.look")
                try:
                    self.copy_folder(inner, root, below)
                finally:
                    files.close(inner)
            elif entry.kind == "file":
                self._copy(source, root, path, entry.name)
            else:
                self.skipped += 1
        self.sync_folder(root, path)

    def _copy(self, source: int, root: int, folder: str, name: str) -> None:
        try:
            fd, _ = files.open_file(source, name, at="export.look")
        except files.UnsafeFile:
            self.skipped += 1
            return
        try:
            self._write(root, folder, name, _chunks(fd))
        finally:
            files.close(fd)

    def _write(self, root: int, folder: str, name: str, chunks: Iterator[bytes] | list[bytes]) -> None:
        above = files.open_folder(root, folder, at="export.look")
        try:
            fd = files.create_file(above, name, b"", mode=0o600, at="export.file")
            digest, size = hashlib.sha256(), 0
            try:
                for chunk in chunks:
                    files.write_at(fd, chunk, size, at="export.file.write")
                    digest.update(chunk)
                    size += len(chunk)
                files.fsync(fd, at="export.sync")
            finally:
                files.close(fd)
        finally:
            files.close(above)
        self.written += size
        self.sums[f"{folder}/{name}" if folder else name] = digest.hexdigest()

    def sync_folder(self, root: int, path: str) -> None:
        fd = files.open_folder(root, path, at="export.look")
        try:
            files.fsync(fd, at="export.sync")
        finally:
            files.close(fd)


def _chunks(fd: int) -> Iterator[bytes]:
    offset = 0
    while chunk := files.read_at(fd, CHUNK_BYTES, offset, at="export.read"):
        yield chunk
        offset += len(chunk)


def _require_equal(opened: PartitionSession, sums: dict[str, str]) -> None:
    """Every file that the catalogue knows was exported with the bytes that history has."""
    for path, known in opened.catalogue.files().items():
        if sums.get(f"files/{path}") != known.hash:
            raise StorageError(
                "A file of the conversation was changed while it was exported; nothing was left. Try again.",
                reason="changed",
            )


def _place(parent: int, staged: str, name: str) -> None:
    try:
        files.move(parent, staged, parent, name, at="export.place")
    except FileExistsError:
        raise _refused("Something stands there by now; name a folder that does not exist yet.", "taken") from None
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        with effect("export.place"):  # a folder is never renamed over one that holds something
            os.rename(staged, name, src_dir_fd=parent, dst_dir_fd=parent)
    files.fsync(parent, at="export.sync")


def _sum_line(path: str, digest: str) -> str:
    """As ``sha256sum`` writes it: a name with a line break must not be read as a line of its own."""
    shown = path.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{'' if shown == path else chr(92)}{digest}  {shown}\n"


def _count(db: Database, partition: Partition) -> int:
    row = db.query_one(
        "SELECT count(*) FROM record r JOIN catalogue_partition p ON p.id = r.partition WHERE p.key = ?",
        (partition.key,),
    )
    return 0 if row is None else int(row[0])


def _history(db: Database, partition: Partition) -> Iterator[JsonObject]:
    rows = db.iterate(
        "SELECT h.sequence, h.operation, h.record_id, h.revision, h.hash, h.path, h.actor, h.at, h.external, "
        "h.request_id, h.lifecycle, p.state FROM history h JOIN partition r ON r.id = h.partition "
        "JOIN publication p ON p.id = h.publication WHERE r.key = ? ORDER BY h.id",
        (partition.key,),
    )
    for sequence, operation, record_id, revision, digest, path, actor, at, external, *more in rows:
        request_id, lifecycle, state = more
        row: JsonObject = {"sequence": sequence, "operation": operation, "id": record_id, "revision": revision}
        row |= {"hash": digest, "path": path, "actor": actor, "at": format_instant(at // 1_000_000)}
        row |= {"external": bool(external), "requestId": request_id, "lifecycle": lifecycle, "state": state}
        yield {name: value for name, value in row.items() if value is not None}


def _sources(db: Database, partition: Partition) -> Iterator[JsonObject]:
    rows = db.iterate(
        "SELECT u.request_id, u.operation, u.actor, u.filename, u.media_type, u.attribution, u.size, u.sha256, u.path, "
        "u.at FROM upload u JOIN partition r ON r.id = u.partition WHERE r.key = ? AND u.path IS NOT NULL "
        "ORDER BY u.request_id",
        (partition.key,),
    )
    for request_id, operation, actor, filename, media_type, attribution, size, digest, path, at in rows:
        row: JsonObject = {"requestId": request_id, "operation": operation, "actor": actor, "filename": filename}
        row |= {"mediaType": media_type, "attribution": attribution, "size": size, "sha256": digest, "path": path}
        row["at"] = format_instant(at // 1_000_000)
        yield {name: value for name, value in row.items() if value is not None}


def _texts(db: Database, partition: Partition) -> Iterator[tuple[str, bytes]]:
    yield from db.iterate(
        "SELECT hash, bytes FROM blob WHERE hash IN (SELECT h.hash FROM history h "
        "JOIN partition r ON r.id = h.partition WHERE r.key = ? AND h.hash IS NOT NULL) ORDER BY hash",
        (partition.key,),
    )


def _refused(message: str, reason: str) -> InvalidArgument:
    return InvalidArgument(message, field="path", reason=reason)


__all__ = ["DEPTH_MAX", "FORMAT", "Exported", "export_conversation", "plan_export", "require_partition"]
