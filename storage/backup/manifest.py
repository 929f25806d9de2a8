"""``backup.json``: what belongs to a backup, part by part, and a seal over itself.

Guarantees: a manifest is accepted only as exactly the bytes that :meth:`BackupManifest.encode` gives, so that no
changed bit of it is overlooked, be it in white space.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from messages.errors import InvalidArgument, StorageError
from messages.json_types import JsonObject
from storage import files

BACKUP_FORMAT: Final = "knowledge-backup-v1"
_FORMATS: Final = "knowledge-backup-v"
BACKUP_NAME: Final = "backup.json"
MANIFEST_MAX_BYTES: Final = 512 * 1024 * 1024

FAULT_POINTS: Final = (
    ("backup.manifest.read", "reading backup.json"),
    ("backup.manifest.folder", "opening the folder of a backup"),
)


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a backup. ``path`` is relative to its folder; sizes in bytes."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StoreMark:
    """One store in a backup and the publication that it stands at."""

    vault_id: str
    generation: int
    publication_id: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a person should know of what was copied, by the path that it is about."""

    code: str
    path: str
    message: str

    def to_json(self) -> JsonObject:
        return {"code": self.code, "path": self.path, "message": self.message}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a backup or its restoring is: ``done`` of ``of`` in ``what``, in store number ``store`` of ``stores``."""

    what: str
    store: int
    stores: int
    done: int
    of: int

    def to_json(self) -> JsonObject:
        return {"what": self.what, "store": self.store, "stores": self.stores, "done": self.done, "of": self.of}


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """The content of ``backup.json``. ``whole`` says that every store of the registry is in it."""

    backup_id: str
    taken_at: str
    registry_id: str
    whole: bool
    stores: tuple[StoreMark, ...]
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)

    def encode(self) -> bytes:
        """The bytes that we write; the last member is the SHA-256 of the object without it."""
        content = {
            "format": BACKUP_FORMAT,
            "backupId": self.backup_id,
            "takenAt": self.taken_at,
            "registryId": self.registry_id,
            "whole": self.whole,
            "stores": [
                {"vaultId": store.vault_id, "generation": store.generation, "publicationId": store.publication_id}
                for store in self.stores
            ],
            "parts": [{"path": part.path, "size": part.size, "sha256": part.sha256} for part in self.parts],
        }
        seal = hashlib.sha256(_dumped(content)).hexdigest()
        return _dumped({**content, "sha256": seal}) + b"\n"


def _dumped(content: JsonObject | dict[str, object]) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_INDENT_2)


def parse_manifest(data: bytes) -> BackupManifest:
    """The manifest in ``data``. Raises ``InvalidArgument`` (a newer format), ``StorageError`` (``damaged``)."""
    try:
        content = orjson.loads(data)
        if content.get("format") != BACKUP_FORMAT:
            _refuse_newer(content)
            raise ValueError("no backup")
        found = BackupManifest(
            str(uuid.UUID(content["backupId"])),
            str(content["takenAt"]),
            str(content["registryId"]),
            content["whole"] is True,
            tuple(
                StoreMark(str(s["vaultId"]), int(s["generation"]), str(s["publicationId"])) for s in content["stores"]
            ),
            tuple(Part(str(p["path"]), int(p["size"]), str(p["sha256"])) for p in content["parts"]),
        )
        same = found.encode() == data
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(BACKUP_NAME, "is not readable") from error
    if not same:
        raise damaged(BACKUP_NAME, "differs from what was written")
    _require_plain(found.parts)
    return found


def _refuse_newer(content: dict[str, object]) -> None:
    """A format of a later version is named, where the seal says that it was written so."""
    seal = content.pop("sha256", None)
    name = str(content.get("format", ""))
    if name.startswith(_FORMATS) and seal == hashlib.sha256(_dumped(content)).hexdigest():
        raise InvalidArgument(
            f"The backup has the format {name}, this program reads {BACKUP_FORMAT}: use a newer version of it.",
            field="path",
            reason="newer_format",
        )


def _require_plain(parts: Sequence[Part]) -> None:
    """A sealed manifest of somebody else's making still leads nowhere outside."""
    seen: set[str] = set()
    for part in parts:
        try:
            files.checked_relative(part.path)
        except ValueError as error:
            raise damaged(BACKUP_NAME, "names a file outside the backup") from error
        if part.path in seen:
            raise damaged(BACKUP_NAME, "names a file twice")
        seen.add(part.path)


def read_manifest(folder: Path) -> BackupManifest:
    """The manifest of the backup in ``folder``. Raises ``InvalidArgument`` (no backup), ``StorageError``."""
    try:
        opened = files.open_root(folder, at="backup.manifest.folder")
    except OSError as error:
        raise InvalidArgument(
            f"There is no backup at that place: {error.strerror}.", field="path", reason="missing"
        ) from error
    try:
        data, _ = files.read_file(opened, BACKUP_NAME, limit=MANIFEST_MAX_BYTES, at="backup.manifest.read")
    except FileNotFoundError:
        raise InvalidArgument(
            f"That folder holds no {BACKUP_NAME}: it is no backup, or one that was not finished.",
            field="path",
            reason="no_backup",
        ) from None
    except files.UnsafeFile as error:
        raise damaged(BACKUP_NAME, f"is not a plain file ({error.reason})") from error
    except OSError as error:
        raise StorageError(f"{BACKUP_NAME} cannot be read: {error.strerror}.", reason="io") from error
    finally:
        files.close(opened)
    return parse_manifest(data)


def damaged(path: str, what: str) -> StorageError:
    """The refusal of a backup that is not what was written; nothing of it is put in place."""
    return StorageError(
        f"The backup is damaged: {path} {what}. Nothing was restored; use another copy of this backup.",
        reason="damaged",
        retry="never",
        path=path,
    )


__all__ = [
    "BACKUP_FORMAT",
    "BACKUP_NAME",
    "BackupManifest",
    "Finding",
    "Part",
    "Progress",
    "StoreMark",
    "damaged",
    "parse_manifest",
    "read_manifest",
]
