"""Replacing a person's file as a whole, without losing what somebody wrote into it meanwhile.

The new text is complete and durable beside the file before one rename puts it there. What stood there is looked at: a
text that is not the one our change was made from is put back, and :class:`EditedMeanwhile` says so.

A path that is a symbolic link keeps being one: the file that it leads to is replaced. Mode, owner and extended
attributes stay. Any thread. Source: stores-and-access.md (Stores: moves edit the configuration).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from messages.errors import StorageError
from storage import files
from storage.faults import effect

_UNABLE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
_NEW_MODE: Final = 0o600

FAULT_POINTS: Final = (
    ("text.folder", "opening the folder of a person's file that is replaced"),
    ("text.read", "reading that file"),
    ("text.stage", "writing its next text beside it"),
    ("text.attributes", "giving the next text the mode and owner of the file"),
    ("text.sync", "making the next text, or the name of the file, durable"),
    ("text.place", "exchanging the next text with the file, or naming it where there is none"),
    ("text.back", "putting back what somebody wrote meanwhile"),
    ("text.remove", "removing the text that was replaced, or one that a crash left"),
)


class EditedMeanwhile(Exception):
    """The file is not what it was when the change was made; it stays as it is."""


def read_text(path: Path, *, limit: int) -> bytes | None:
    """The bytes of the file; ``None`` where there is none. Raises ``StorageError``."""
    folder, name = _open(path)
    try:
        return files.read_file(folder, name, limit=limit, at="text.read")[0]
    except FileNotFoundError:
        return None
    except (OSError, files.UnsafeFile) as error:
        raise _failed(path, "read", error) from error
    finally:
        files.close(folder)


def replace_text(path: Path, before: bytes | None, after: bytes, *, limit: int) -> None:
    """Put ``after`` in the place of ``before``; durable when it returns.

    Raises :class:`EditedMeanwhile` (the file holds what somebody wrote) or ``StorageError`` (it holds one of the two).
    """
    folder, name = _open(path)
    staged = _staged(name)
    try:
        _remove_staged(folder, staged, (before, after), limit)
        try:
            _stage(folder, staged, name, before, after)
            _place(folder, staged, name, before, limit)
        except BaseException:
            with suppress(OSError, StorageError):
                _remove_staged(folder, staged, (before, after), limit)
            raise
        files.fsync(folder, at="text.sync")
        files.unlink(folder, staged, at="text.remove")
    except (FileExistsError, FileNotFoundError) as error:
        raise EditedMeanwhile from error
    except (OSError, files.UnsafeFile) as error:
        raise _failed(path, "written", error) from error
    finally:
        files.close(folder)


def tidy(path: Path, *, limit: int, is_known: Callable[[bytes], bool]) -> None:
    """Remove what a crash left beside the file, if it is a text that is known; anything else stays."""
    folder, name = _open(path)
    try:
        staged = _staged(name)
        if is_known(files.read_file(folder, staged, limit=limit, at="text.read")[0]):
            files.unlink(folder, staged, at="text.remove")
    except (OSError, files.UnsafeFile):
        pass  # nothing is there, or nothing that is ours to remove
    finally:
        files.close(folder)


def _staged(name: str) -> str:
    return f".{name}.kr-new"


def _remove_staged(folder: int, staged: str, ours: tuple[bytes | None, bytes], limit: int) -> None:
    """Remove a staged text of ours, complete or cut short; one that could not be put back is somebody's."""
    try:
        found = files.read_file(folder, staged, limit=limit, at="text.read")[0]
    except FileNotFoundError:
        return
    except files.UnsafeFile as error:
        raise StorageError(f"{staged} stands in the way; look at it and move it away.", reason="staged") from error
    if found == ours[0] or ours[1].startswith(found):
        files.unlink(folder, staged, at="text.remove")
        return
    raise StorageError(
        f"{staged} holds a text that was written while the configuration was edited; look at it and move it away.",
        reason="staged",
    )


def _stage(folder: int, staged: str, name: str, before: bytes | None, after: bytes) -> None:
    fd = files.create_file(folder, staged, after, mode=_NEW_MODE, at="text.stage")
    try:
        if before is not None:
            original, status = files.open_file(folder, name, at="text.read")
            try:
                files.copy_attributes(original, status, fd, at="text.attributes")
            finally:
                files.close(original)
        files.fsync(fd, at="text.sync")
    finally:
        files.close(fd)


def _place(folder: int, staged: str, name: str, before: bytes | None, limit: int) -> None:
    if before is None:
        try:
            files.move(folder, staged, folder, name, at="text.place")
        except OSError as error:
            if error.errno not in _UNABLE:
                raise
            files.link(folder, staged, folder, name, at="text.place")
        return
    try:
        files.exchange(folder, staged, folder, name, at="text.place")
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
        if files.read_file(folder, name, limit=limit, at="text.read")[0] != before:
            raise EditedMeanwhile from None
        files.rename_over(folder, staged, name, at="text.place")
        return
    try:
        displaced: bytes | None = files.read_file(folder, staged, limit=limit, at="text.read")[0]
    except files.UnsafeFile:
        displaced = None
    if displaced != before:
        files.exchange(folder, staged, folder, name, at="text.back")
        raise EditedMeanwhile


def _open(path: Path) -> tuple[int, str]:
    """The open folder of the file that ``path`` leads to, and its name there."""
    with effect("text.folder"):
        real = Path(os.path.realpath(path))
    try:
        return files.open_root(real.parent, at="text.folder"), real.name
    except OSError as error:
        raise _failed(path, "reached", error) from error


def _failed(path: Path, what: str, error: OSError | files.UnsafeFile) -> StorageError:
    why = error.reason if isinstance(error, files.UnsafeFile) else error.strerror
    return StorageError(f"{path.name} cannot be {what}: {why}.", reason="file", file=path.name)


__all__ = ["EditedMeanwhile", "read_text", "replace_text", "tidy"]
