"""What goes into a publication and what comes out of it; nothing here touches a disk.

Source: WRITE-PATH.md sections 2 and 3d, decisions.md section 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import orjson

from messages.json_types import JsonObject
from messages.vocabulary import Lifecycle, Partition
from storage.files import Stamp
from storage.state.connection import Database


@dataclass(frozen=True, slots=True)
class FileChange:
    """One path of the partition from one text to another.

    ``path`` is relative to the partition's folder; ``before`` is the SHA-256 of the text that must stand there
    (``None``: nothing may); ``after`` are the complete new bytes (``None``: remove). ``record_id`` ties it to a
    record's history; ``None`` for a file that is no record, such as an excerpt.
    """

    path: str
    before: str | None
    after: bytes | None
    record_id: str | None = None
    revision: int | None = None
    lifecycle: Lifecycle | None = None


@dataclass(frozen=True, slots=True)
class ExternalChange:
    """A change that a person made to one path, as found by a scan or a watch event.

    ``before`` is the hash that the catalogue had for the path, ``None`` if none; ``after`` the bytes read, ``None``
    when the file is gone; ``stamp`` belongs to exactly those bytes. ``record_id`` is ``None`` for a broken record.
    """

    path: str
    before: str | None
    after: bytes | None
    stamp: Stamp | None = None
    record_id: str | None = None
    revision: int | None = None
    lifecycle: Lifecycle | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    """One publication: validated, complete, and to be applied as a whole or not at all.

    ``receipt`` is the receipt's fixed part, or a function that makes it from the publication's sequence.
    """

    partition: Partition
    request_id: str
    payload_hash: str
    operation: str
    actor: str
    changes: tuple[FileChange, ...]
    receipt: JsonObject | Callable[[int], JsonObject]


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to a publication. ``published`` and ``conflict`` are final and ``encoded`` stays the same for ever;
    ``pending`` is a status."""

    state: Literal["published", "pending", "conflict"]
    request_id: str
    sequence: int
    encoded: str

    @property
    def body(self) -> JsonObject:
        """The stored JSON object."""
        body: JsonObject = orjson.loads(self.encoded)
        return body


class Projection(Protocol):
    """The catalogue, kept in step with the files. Runs inside our transactions on the lane's thread; raising rolls
    the transaction back, so a refusal here is a rejection with nothing stored."""

    def create(self, db: Database) -> None:
        """Make the catalogue's tables, in the transaction that makes the store's."""

    def upgrade(self, db: Database) -> None:
        """Replace the tables of an earlier version by empty new ones, in the transaction that begins an opening."""

    def put(
        self,
        db: Database,
        partition: Partition,
        path: str,
        data: bytes,
        stamp: Stamp | None,
        *,
        revision: int | None = None,
    ) -> None:
        """``path`` (relative to the partition) holds ``data`` now. ``stamp`` is ``None`` while it is not placed yet,
        ``revision`` what the record's history has for it, where the caller knows that."""

    def remove(self, db: Database, partition: Partition, path: str) -> None:
        """``path`` holds nothing any more."""
