"""A small world around one real store: it publishes, a person edits, and everything that happened is on record."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from messages.errors import KnowledgeError
from messages.json_types import JsonObject
from messages.vocabulary import PRIVATE, Partition
from storage import files
from storage.files import Stamp
from storage.publication import (
    ExternalChange,
    FileChange,
    Intent,
    Machine,
    Publisher,
    Receipt,
    create_store,
    open_store,
    sync_files,
)
from storage.state.connection import Database
from storage.state.journal import digest
from storage.vault.replace import Capabilities

VAULT_ID = "11111111-1111-4111-8111-111111111111"
HERE = Machine("this boot", "this mount")
OTHER_BOOT = Machine("another boot", "this mount")


def request(number: int) -> str:
    """The request id of a number, the same in every run."""
    return str(uuid.UUID(int=number, version=4))


class Shown:
    """A catalogue of the smallest kind: which path shows which text, in a table of the store's own database."""

    def create(self, db: Database) -> None:
        db.execute("CREATE TABLE shown (path TEXT PRIMARY KEY, hash TEXT NOT NULL) STRICT")

    def upgrade(self, db: Database) -> None:
        raise AssertionError("no test of publications opens an earlier version")

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
        db.execute(
            "INSERT INTO shown VALUES (?, ?) ON CONFLICT DO UPDATE SET hash = excluded.hash",
            (f"{partition.key}/{path}", digest(data)),
        )

    def remove(self, db: Database, partition: Partition, path: str) -> None:
        db.execute("DELETE FROM shown WHERE path = ?", (f"{partition.key}/{path}",))


def shown(db: Database) -> dict[str, str]:
    """Path relative to the vault to the hash that the catalogue shows there."""
    return dict(db.query("SELECT path, hash FROM shown"))


@dataclass(slots=True)
class Event:
    """One thing that happened. ``texts`` maps paths (relative to the vault) to the new text, ``None`` = removed;
    ``destroyed`` are the hashes of texts that a person overwrote or removed with it."""

    kind: Literal["begin", "accepted", "ack", "rejected", "person", "person done", "folded", "durable"]
    request: str = ""
    texts: dict[str, str | None] = field(default_factory=dict)
    receipt: str = ""
    destroyed: list[str] = field(default_factory=list)

    def line(self) -> bytes:
        return json.dumps([self.kind, self.request, self.texts, self.receipt, self.destroyed]).encode() + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> Event:
        return cls(*json.loads(line))


class World:
    """One store, its publisher, and the record of events. ``log_fd`` also writes each event at once, unbuffered."""

    def __init__(
        self,
        folder: Path,
        *,
        this: Machine = HERE,
        log_fd: int | None = None,
        vfs: str | None = None,
        can: Capabilities | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.folder = folder
        self.vault = folder / "vault"
        self.events: list[Event] = []
        self._log_fd = log_fd
        self._vfs = vfs
        self._can = can
        self._this = this
        self._clock = clock
        self.publisher: Publisher | None = None
        self.requests = 0

    # --- the store -------------------------------------------------------------------------------------

    def create(self) -> None:
        create_store(self.folder, vault_id=VAULT_ID, projection=Shown(), vfs=self._vfs)

    def open(self) -> Publisher:
        self.publisher = open_store(
            self.folder,
            projection=Shown(),
            clock=self._clock,
            vfs=self._vfs,
            this=lambda _fd: self._this,
            can=self._can,
        )
        return self.publisher

    @property
    def store(self) -> Publisher:
        assert self.publisher is not None
        return self.publisher

    def close(self, *, clean: bool = True) -> bool:
        if self.publisher is None:
            return False
        try:
            return self.publisher.close(clean)
        finally:
            self.publisher = None

    def note(self, event: Event) -> None:
        self.events.append(event)
        if self._log_fd is not None:
            os.write(self._log_fd, event.line())

    # --- publishing ------------------------------------------------------------------------------------

    def change(self, path: str, text: str | None, *, record: bool = True) -> FileChange:
        """A change of a path from what the catalogue shows to ``text``."""
        row = self.store.db.query_one("SELECT hash FROM shown WHERE path = ?", (f"private/{path}",))
        return FileChange(
            path,
            None if row is None else row[0],
            None if text is None else text.encode(),
            f"id of {path}" if record else None,
            1,
            "active",
        )

    def publish(self, texts: dict[str, str | None], *, number: int | None = None) -> Receipt:
        """Publish these texts of the private partition; the outcome is on record. Raises what publishing raises."""
        if number is None:
            self.requests += 1
            number = self.requests
        identity = request(number)
        changes = tuple(
            self.change(path, text, record=not path.startswith("artifacts/")) for path, text in texts.items()
        )
        self.note(Event("begin", identity, {f"private/{path}": text for path, text in texts.items()}))
        try:
            receipt = self.store.publish(intent(identity, *changes), fence=nullcontext(), check=lambda: None)
        except KnowledgeError as error:
            if error.retry != "unknown":
                self.note(Event("rejected", identity))
            raise
        if receipt.state != "pending":
            self.note(Event("ack", identity, receipt=receipt.encoded))
        return receipt

    def fold(self, *, only: set[str] | None = None) -> None:
        """Find what a person changed and take it over, as a scan would."""
        looked_at = self._clock()
        db = self.store.db
        known = shown(db)
        found = dict(read_vault(self.vault))
        changes, texts = [], dict[str, str | None]()
        for path in sorted(known.keys() | found.keys()):
            if only is not None and path not in only:
                continue
            data = found.get(path)
            before = known.get(path)
            if (None if data is None else digest(data)) == before:
                continue
            inner = path.removeprefix("private/")
            changes.append(ExternalChange(inner, before, data, None, f"id of {inner}", 1, "active"))
            texts[path] = None if data is None else data.decode("utf-8", "replace")
        if changes:
            self.store.fold_in(PRIVATE, changes, looked_at=looked_at)
            self.note(Event("folded", texts=texts))

    def sync(self, *, age: int = 0) -> bool:
        """One whole background step; whether everything is pruned."""
        covered = self.store.sync_cut()
        if covered is None:
            return True
        self.note(Event("durable"))
        return not self.store.prune(sync_files(covered), minimum_age_ns=age).again

    # --- a person --------------------------------------------------------------------------------------

    def person_saves(self, path: str, text: str, *, how: Literal["rename", "in place"] = "rename") -> None:
        """An editor saves, by a rename over the name or in place."""
        target = self.vault / "private" / path
        # A save of the very text that stands there says nothing: a publication over that text is no conflict.
        says = self.read(path) != text
        if says:
            self.note(Event("person", texts={f"private/{path}": text}, destroyed=self._standing(path)))
        target.parent.mkdir(parents=True, exist_ok=True)
        if how == "rename":
            temporary = target.with_name(f".{target.name}.swp")
            temporary.write_bytes(text.encode())
            os.replace(temporary, target)
        else:
            target.write_bytes(text.encode())
        if says:
            self.note(Event("person done"))

    def person_deletes(self, path: str) -> None:
        self.note(Event("person", texts={f"private/{path}": None}, destroyed=self._standing(path)))
        (self.vault / "private" / path).unlink(missing_ok=True)
        self.note(Event("person done"))

    def _standing(self, path: str) -> list[str]:
        text = self.read(path)
        return [] if text is None else [digest(text.encode())]

    def read(self, path: str) -> str | None:
        try:
            return (self.vault / "private" / path).read_text("utf-8")
        except FileNotFoundError:
            return None


def intent(identity: str, *changes: FileChange, payload: str = "payload", operation: str = "remember") -> Intent:
    fixed: JsonObject = {"id": changes[0].record_id if changes else None}
    return Intent(PRIVATE, identity, f"{payload} {identity}", operation, "main", changes, fixed)


def read_vault(vault: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of the vault but ours and the manifest, with its bytes, by its path relative to the vault."""
    for folder, _folders, names in os.walk(vault):
        for name in names:
            path = Path(folder) / name
            if not name.startswith(".") and name != "vault.json":
                yield str(path.relative_to(vault)), path.read_bytes()


def staged(vault: Path) -> list[str]:
    """The names of ours that are left in a vault."""
    return sorted(str(p.relative_to(vault)) for p in vault.rglob(".kr-*"))


__all__ = [
    "HERE",
    "OTHER_BOOT",
    "VAULT_ID",
    "Event",
    "Shown",
    "World",
    "files",
    "intent",
    "read_vault",
    "request",
    "shown",
    "staged",
]
