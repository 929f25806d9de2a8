"""What an erasure of a conversation would take, and carrying it out. See :mod:`storage.erasure`.

The caller holds the owner lock and no lane has the store open; any one thread.

Source: decisions.md sections 4 and 8 (erase).
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from typing import Final

from messages.errors import KnowledgeError, PublicationPending, StorageError
from messages.json_types import JsonObject
from messages.vocabulary import Partition
from storage import erasure, files
from storage.conversation_export import DEPTH_MAX, require_partition
from storage.git.ownership import Others, others
from storage.layout import StoreLayout
from storage.session import StoreSession
from storage.state.connection import CommitUncertain
from storage.vault import ScanLimits

FAULT_POINTS: Final = (("erase.count", "counting what a conversation has on disk"),)


@dataclass(frozen=True, slots=True)
class Erasable:
    """What goes. ``git`` is what of the local history is a person's and would go with it; ``copies`` stay."""

    records: int
    revisions: int
    files: int
    bytes: int
    git: Others
    copies: tuple[str, ...]

    def to_json(self) -> JsonObject:
        return {
            "records": self.records,
            "revisions": self.revisions,
            "files": self.files,
            "bytes": self.bytes,
            "git": {"commits": self.git.commits, "references": self.git.references, "known": self.git.known},
            "copies": [*self.copies],
        }


def look(layout: StoreLayout, partition: Partition, *, limits: ScanLimits, git: bool) -> Erasable:
    """What an erasure would take. Raises ``NotFound``, and what opening the store raises. Changes nothing."""
    session = StoreSession.open(layout, limits=limits, git=git)
    try:
        require_partition(session, partition)
        counted = session.publisher.db.query_one(
            "SELECT (SELECT count(*) FROM record r JOIN catalogue_partition p ON p.id = r.partition WHERE p.key = ?1), "
            "(SELECT count(*) FROM history h JOIN partition p ON p.id = h.partition WHERE p.key = ?1)",
            (partition.key,),
        )
        assert counted is not None
        number, size = _on_disk(session.publisher.root_fd, partition.key)
        return Erasable(counted[0], counted[1], number, size, others(layout.vault), erasure.copies(layout))
    finally:
        session.close()


def erase(layout: StoreLayout, partition: Partition, *, limits: ScanLimits, git: bool) -> None:
    """Leave nothing of the conversation in the store, durably. Long for a large Git history.

    Raises ``NotFound``, ``PublicationPending`` (nothing was done), and what opening the store raises. An error with
    ``retry`` ``unknown`` says that it is decided and goes on with the next opening.
    """
    session = StoreSession.open(layout, limits=limits, git=git)
    try:
        require_partition(session, partition)
    except BaseException:
        session.close()
        raise
    if not session.close():
        raise PublicationPending(
            "The store has a save that cannot be finished now, so nothing is erased; see `knowledge status`, then try "
            "again."
        )
    try:
        erasure.begin(layout, partition)
    except OSError as error:
        raise StorageError(
            f"The conversation could not be erased: {error.strerror or type(error).__name__}. Send it again.",
            reason="io",
            retry="unknown",
        ) from error
    try:
        StoreSession.open(layout, limits=limits, git=git).close()
    except (KnowledgeError, CommitUncertain) as error:
        why = error.message if isinstance(error, KnowledgeError) else "a commit failed"
        raise StorageError(
            f"The erasure has begun and goes on when the store is next opened; until then it serves nothing: {why}",
            reason="erasure_unfinished",
            retry="unknown",
        ) from error


def _on_disk(folder: int, path: str, depth: int = 0) -> tuple[int, int]:
    """Files and bytes below a folder, as far as an export would reach."""
    if depth > DEPTH_MAX:
        return 0, 0
    try:
        below = files.open_folder(folder, path, at="erase.count")
    except OSError:
        return 0, 0
    number = size = 0
    try:
        for entry in files.list_folder(below, at="erase.count"):
            if entry.kind == "folder":
                inner = _on_disk(below, entry.name, depth + 1)
                number, size = number + inner[0], size + inner[1]
                continue
            status = files.stat_entry(below, entry.name, at="erase.count")
            number += 1
            size += status.st_size if status is not None and stat.S_ISREG(status.st_mode) else 0
    finally:
        files.close(below)
    return number, size


__all__ = ["Erasable", "erase", "look"]
