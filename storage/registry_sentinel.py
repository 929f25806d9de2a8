"""``registry.id``: the sentinel that says there was a registry, so that a missing one is never made anew.

Source: stores-and-access.md (Storage layout: a missing or emptied registry needs recovery).
"""

from __future__ import annotations

import errno
import os
from typing import Final

from messages.errors import StorageError, StoreUnavailable
from storage import files
from storage.faults import effect

SENTINEL_MAX_BYTES: Final = 1024
_STAGED_SENTINEL: Final = ".registry.id.new"

FAULT_POINTS: Final = (
    ("registry.sentinel.read", "reading registry.id"),
    ("registry.sentinel.read.read", "reading the bytes of registry.id"),
    ("registry.sentinel.read.stat", "checking that registry.id held still"),
    ("registry.sentinel.stage.open", "creating the next registry.id beside the old one"),
    ("registry.sentinel.stage.write", "writing the next registry.id"),
    ("registry.sentinel.sync", "making the text of registry.id durable"),
    ("registry.sentinel.place", "giving registry.id its name"),
    ("registry.sentinel.unlink", "removing a staged registry.id that a crash left"),
)


def read_sentinel(folder: int) -> str | None:
    """The id in ``registry.id``; ``None`` where there is no such file. Raises ``StoreUnavailable``."""
    try:
        data, _ = files.read_file(folder, "registry.id", limit=SENTINEL_MAX_BYTES, at="registry.sentinel.read")
    except FileNotFoundError:
        return None
    except files.UnsafeFile as error:
        raise refused_registry("registry_foreign", f"registry.id is not a plain file ({error.reason})") from error
    return data.decode("utf-8", "replace").strip()


def write_sentinel(folder: int, registry_id: str) -> None:
    """Write ``registry.id``, durably. There is none: nothing is replaced."""
    files.unlink(folder, _STAGED_SENTINEL, at="registry.sentinel.unlink")
    staged = files.create_file(
        folder, _STAGED_SENTINEL, f"{registry_id}\n".encode(), mode=0o600, at="registry.sentinel.stage"
    )
    try:
        files.fsync(staged, at="registry.sentinel.sync")
    finally:
        files.close(staged)
    try:
        files.move(folder, _STAGED_SENTINEL, folder, "registry.id", at="registry.sentinel.place")
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise StorageError(f"registry.id cannot be written: {error.strerror}") from error
        with effect("registry.sentinel.place"):
            os.rename(_STAGED_SENTINEL, "registry.id", src_dir_fd=folder, dst_dir_fd=folder)
    files.fsync(folder, at="registry.sync")


def refused_registry(reason: str, what: str) -> StoreUnavailable:
    """The refusal of a registry that a person has to look after first."""
    return StoreUnavailable(
        f"{what}. Put the matching registry.sqlite and registry.id back from a backup, or see `knowledge doctor`. "
        "Nothing was changed.",
        reason=reason,
    )


__all__ = ["read_sentinel", "refused_registry", "write_sentinel"]
