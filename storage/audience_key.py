"""``audience.key``: what tokens of audiences are signed with, beside the registry and in none of its rows.

Guarantees: 32 random bytes, made once and never replaced; only the owner's user may read the file, and one that others
may read is not used. One thread, that of the registry.

Source: decisions.md sections 6 and 7 (audience tokens).
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable
from typing import Final

from messages.errors import StorageError
from storage import files
from storage.faults import effect
from storage.layout import Layout

KEY_NAME: Final = "audience.key"
KEY_BYTES: Final = 32
_STAGED: Final = ".audience.key.new"

FAULT_POINTS: Final = (
    ("token.folder", "opening the folder of audience.key"),
    ("token.key", "opening audience.key"),
    ("token.key.read", "reading audience.key"),
    ("token.key.unlink", "removing a staged audience.key that a crash left"),
    ("token.key.stage.open", "creating audience.key under another name"),
    ("token.key.stage.write", "writing it"),
    ("token.key.sync", "making audience.key, or its name, durable"),
    ("token.key.place", "giving audience.key its name"),
)


def read_key(layout: Layout) -> bytes | None:
    """The key; ``None`` where there is none yet. Raises ``StorageError`` for a file that is not a key of ours."""
    folder = files.open_root(layout.root, at="token.folder")
    try:
        return _read(folder)
    finally:
        files.close(folder)


def make_key(layout: Layout, random: Callable[[int], bytes] = secrets.token_bytes) -> bytes:
    """Make the key, durably, where there is none; the one that is there else. Raises ``StorageError``."""
    folder = files.open_root(layout.root, at="token.folder")
    try:
        found = _read(folder)
        if found is not None:
            return found
        key = random(KEY_BYTES)
        files.unlink(folder, _STAGED, at="token.key.unlink")
        staged = files.create_file(folder, _STAGED, key, mode=0o600, at="token.key.stage")
        try:
            files.fsync(staged, at="token.key.sync")
        finally:
            files.close(staged)
        _place(folder)
        files.fsync(folder, at="token.key.sync")
        return key
    except OSError as error:
        raise StorageError(f"audience.key cannot be written: {error.strerror}.", reason="io") from error
    finally:
        files.close(folder)


def _place(folder: int) -> None:
    try:
        files.move(folder, _STAGED, folder, KEY_NAME, at="token.key.place")
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        with effect("token.key.place"):
            os.rename(_STAGED, KEY_NAME, src_dir_fd=folder, dst_dir_fd=folder)


def _read(folder: int) -> bytes | None:
    try:
        opened, status = files.open_file(folder, KEY_NAME, at="token.key")
    except FileNotFoundError:
        return None
    except files.UnsafeFile as error:
        raise _unsafe(f"is not a plain file ({error.reason})") from error
    try:
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise _unsafe("may be read by others: give it mode 600, or better remove it, which ends every token")
        if status.st_size != KEY_BYTES:
            raise _unsafe("is damaged: remove it, which ends every token, or put it back from a backup")
        return files.read_open(opened, KEY_NAME, status, limit=KEY_BYTES, at="token.key.read")
    finally:
        files.close(opened)


def _unsafe(what: str) -> StorageError:
    return StorageError(f"{KEY_NAME} {what}.", reason="token_key", retry="never")


__all__ = ["KEY_BYTES", "KEY_NAME", "make_key", "read_key"]
