"""``vault.json``: the vault's half of the pair that ties it to its database.

Guarantees: a manifest is accepted only when it is exactly the documented object, however it is laid out; anything
else is :data:`UNREADABLE`, which a reader must treat like a missing one.

Source: stores-and-access.md (Storage layout), decisions.md section 4 (Manifest), WRITE-PATH.md table 3c.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Set
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, Literal, TypeAlias

from messages.errors import (
    CheckpointConflict,
    DatabaseOlderThanVault,
    FailedClosed,
    ForeignVault,
    ManifestMissing,
    VaultOlderThanDatabase,
)
from messages.vocabulary import VAULT_FORMAT
from storage import files

MANIFEST_NAME: Final = "vault.json"
MANIFEST_MAX_BYTES: Final = 64 * 1024
_KEYS: Final = {"format", "vaultId", "generation", "publicationId"}


class Absent(Enum):
    """Why there is no manifest to compare."""

    MISSING = "missing"
    UNREADABLE = "unreadable"


MISSING: Final = Absent.MISSING
UNREADABLE: Final = Absent.UNREADABLE


@dataclass(frozen=True, slots=True)
class Pair:
    """A publication's place in the store's history: ``generation`` counts accepted publications."""

    generation: int
    publication_id: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of ``vault.json``."""

    vault_id: str
    pair: Pair

    def encode(self) -> bytes:
        """The bytes that we write: one key a line, a final newline."""
        content = {
            "format": VAULT_FORMAT,
            "vaultId": self.vault_id,
            "generation": self.pair.generation,
            "publicationId": self.pair.publication_id,
        }
        return json.dumps(content, indent=2).encode() + b"\n"


Found: TypeAlias = Manifest | Absent


def claimed_vault_id(vault: Path, *, at: str) -> str | None:
    """The vault id that the folder at ``vault`` says it has; ``None`` when nothing there says so, or can be read."""
    try:
        folder = files.open_root(vault, at=at)
    except OSError:
        return None
    try:
        data, _ = files.read_file(folder, MANIFEST_NAME, limit=MANIFEST_MAX_BYTES, at=at)
    except (OSError, files.UnsafeFile):
        return None
    finally:
        files.close(folder)
    found = parse_manifest(data)
    return found.vault_id if isinstance(found, Manifest) else None


def parse_manifest(data: bytes) -> Manifest | Literal[Absent.UNREADABLE]:
    """The manifest in ``data``; :data:`UNREADABLE` when it is not exactly one."""
    if len(data) > MANIFEST_MAX_BYTES:
        return UNREADABLE
    try:
        content = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_object)
    except (ValueError, RecursionError):
        return UNREADABLE
    if not isinstance(content, dict) or content.keys() != _KEYS or content["format"] != VAULT_FORMAT:
        return UNREADABLE
    vault_id, generation, publication_id = content["vaultId"], content["generation"], content["publicationId"]
    if type(generation) is not int or generation < 0 or not (_is_uuid(vault_id) and _is_uuid(publication_id)):
        return UNREADABLE
    return Manifest(vault_id, Pair(generation, publication_id))


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a key occurs twice")
    return content


def _is_uuid(value: object) -> bool:
    try:
        return isinstance(value, str) and str(uuid.UUID(value)) == value
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Binding:
    """What the database knows about the manifest that it expects to find."""

    vault_id: str
    current: Pair
    floor: Pair
    unpruned: Set[Pair]  # of accepted publications whose files may not be durable yet
    before_pending: Pair | None  # the pair before the one pending publication, if there is one
    machine_stop: bool
    same_folder: bool  # the vault folder is the very one (device, inode) that was recorded
    adopting: bool = False  # the pending publication is a person's choice to take the vault as it is


def judge(found: Found, binding: Binding) -> Literal["open", "replay"] | FailedClosed:
    """Table 3c: whether the vault opens, is replayed, or why it fails closed. Pure; returns the error to raise."""
    current = binding.current
    if isinstance(found, Absent):
        if binding.adopting:
            return "replay"
        if binding.machine_stop and binding.same_folder and binding.unpruned:
            return "replay"
        return ManifestMissing(
            f"vault.json is {found.value} and no unfinished publication explains it: restore it from a backup that "
            "matches the database, or adopt the vault as it is with `knowledge store adopt`",
            expected=_shown(current),
        )
    if found.vault_id != binding.vault_id:
        return ForeignVault(
            "the vault belongs to another store: put back the vault of this one, or move the store's folders together",
            expectedVaultId=binding.vault_id,
            foundVaultId=found.vault_id,
        )
    pair = found.pair
    expected, shown = _shown(current), _shown(pair)
    if pair == current:
        return "open"
    if binding.adopting:
        return "replay"
    if pair.generation > current.generation:
        return DatabaseOlderThanVault(
            "the database is older than the vault: restore the database that matches, or adopt the vault as it is "
            "with `knowledge store adopt`",
            expected=expected,
            found=shown,
        )
    if pair == binding.before_pending:
        return "replay"
    known = pair in binding.unpruned or pair == binding.floor
    if known and binding.machine_stop:
        return "replay"
    if known or pair.generation < binding.floor.generation:
        return VaultOlderThanDatabase(
            "the vault is older than the database: restore the vault that matches, or adopt the vault as it is "
            "with `knowledge store adopt`",
            expected=expected,
            found=shown,
        )
    return CheckpointConflict(
        "vault and database name different publications for the same point: restore the half that matches, or adopt "
        "the vault as it is with `knowledge store adopt`",
        expected=expected,
        found=shown,
    )


def _shown(pair: Pair) -> dict[str, str | int]:
    return {"generation": pair.generation, "publicationId": pair.publication_id}
