"""A whole memory directory as one blob: what a backend keeps between two requests.

The blob is UTF-8 JSON ``{"version": 1, "files": {PATH: {"encoding": "utf-8" | "base64", "content": TEXT}}}``. It is
looked at as a whole before the first file is written: one bad path or content, and nothing is. A blob that is none is
passed over with a warning, as if nothing had been saved.

Source: agent-memory-contract.md section 7.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

from storage import files
from storage.agent_memory import notes
from storage.agent_memory.daily_logs import LOGS_NAME
from storage.agent_memory.file_store import ENTRIES_NAME
from storage.agent_memory.ledger import FACTS_NAME, FLOOR_NAME, STORE_NAME
from storage.agent_memory.locking import DirectoryLock, make_directory
from storage.agent_memory.released import ORIGINALS_NAME
from storage.faults import effect

logger = logging.getLogger(__name__)

VERSION: Final = 1
FILE_MAX_BYTES: Final = 256 * 1024 * 1024
FILES_MAX: Final = 100_000
DEPTH_MAX: Final = 16
NAME_MAX_BYTES: Final = 255 - len(".tmp")
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_STAGED: Final = ".tmp"
_FOLDERS: Final = frozenset({LOGS_NAME, ORIGINALS_NAME})
_FILES: Final = frozenset({notes.NAME, ENTRIES_NAME, FACTS_NAME, FLOOR_NAME, STORE_NAME})

FAULT_POINTS: Final = (
    ("agent_memory.pack", "reading the files of a memory directory for its backend"),
    ("agent_memory.unpack", "writing the files of a memory directory that a backend kept"),
)


def pack(lock: DirectoryLock) -> bytes:
    """Every file below the directory but those that are still being written; empty folders are not kept, nor is, with
    a warning, what could not be restored: a name that is no UTF-8, or that another system would read otherwise."""
    with lock.reporting() as folder:
        packed = {path: _packed(data) for path, data in sorted(_walk(folder, "", 1))}
    return json.dumps({"version": VERSION, "files": packed}, ensure_ascii=False).encode("utf-8")


def unpack(lock: DirectoryLock, data: bytes) -> int:
    """Write the files of a blob over those of the same names, each whole; nothing is deleted. How many there were.

    Raises ``ValueError`` before anything is written: for a path that is empty, absolute, or leads out of the directory;
    for two that mean one file, or one that is a folder of another; for one where something else stands than a file in
    real folders; for an encoding or a content that cannot be read.
    """
    found = _read(data)
    if found is None:
        return 0
    if len(found) > FILES_MAX:
        raise ValueError("an archive holds too many files")
    contents: dict[str, bytes] = {}
    for path, entry in found.items():
        name = _checked(path)
        if name in contents:
            raise ValueError("two paths of the archive mean one file")
        if _is_amiss(name):
            raise ValueError("a path of the archive has a file where a memory has a folder, or a folder for a file")
        contents[name] = _content(path, entry)
    _check_together(contents, lock.path)
    with lock.reporting() as folder:
        for path in contents:
            _check_place(folder, path)
        for path, content in contents.items():
            if not path.endswith(_STAGED):  # never packed; and it could be the name of one that is being written
                _write(folder, path, content)
    return len(contents)


def _read(data: bytes) -> dict[str, object] | None:
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_once)
    except _Twice:
        raise ValueError("an object of the archive holds a name twice") from None
    except (ValueError, RecursionError):
        value = None
    found = value.get("files") if isinstance(value, dict) else None
    if not isinstance(found, dict):
        logger.warning("what the backend keeps is no memory archive; the memory starts anew")
        return None
    return found


class _Twice(Exception):
    """One object, two equal names: which of them counts, each reader of JSON decides for itself."""


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Twice
    return found


def _checked(path: str) -> str:
    """The path without detours. Raises ``ValueError``."""
    if not path or "\0" in path or path.startswith(("/", "\\")) or _DRIVE.match(path):
        raise ValueError("an archive holds relative paths only")
    parts: list[str] = []
    for part in path.replace("\\", "/").split("/"):
        if part == "..":
            if not parts:
                raise ValueError("a path of the archive leads out of the directory")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    if not parts or len(parts) > DEPTH_MAX:
        raise ValueError("a path of the archive names no file in the directory")
    try:
        sizes = [len(part.encode("utf-8")) for part in parts]
    except UnicodeEncodeError as error:
        raise ValueError("a path of the archive is no UTF-8") from error
    if max(sizes) > NAME_MAX_BYTES:
        raise ValueError("a name of the archive is too long for a file")
    return "/".join(parts)


def _is_amiss(path: str) -> bool:
    first, _, below = path.partition("/")
    return first in _FILES if below else first in _FOLDERS


def _check_together(paths: Collection[str], directory: Path) -> None:
    """No path is a folder of another, nor, where the file system does not tell case, another's twin."""
    key = _folded if _folds_case(directory) else str
    names = {key(path) for path in paths}
    if len(names) < len(paths):
        raise ValueError("two paths of the archive mean one file here")
    for name in names:
        parts = name.split("/")
        if any("/".join(parts[:end]) in names for end in range(1, len(parts))):
            raise ValueError("a path of the archive is a file and a folder at once")


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _folds_case(directory: Path) -> bool:
    whole = Path(os.path.abspath(directory))
    try:
        with effect("agent_memory.unpack"):
            return whole.name != whole.name.swapcase() and os.path.samefile(whole, whole.parent / whole.name.swapcase())
    except OSError:
        return False


def _check_place(folder: int, path: str) -> None:
    """That a file can be put there: real folders or nothing above it, a plain file or nothing at its name."""
    *folders, name = path.split("/")
    opened = files.open_folder(folder, "", at="agent_memory.unpack.open")
    try:
        for part in folders:
            status = files.stat_entry(opened, part, at="agent_memory.unpack.stat")
            if status is None:
                return
            if not stat.S_ISDIR(status.st_mode):
                raise ValueError("something else stands where the archive has a folder")
            inner = files.open_folder(opened, part, at="agent_memory.unpack.open")
            files.close(opened)
            opened = inner
        for one, is_fine in ((name, stat.S_ISREG), (name + _STAGED, lambda mode: not stat.S_ISDIR(mode))):
            status = files.stat_entry(opened, one, at="agent_memory.unpack.stat")
            if status is not None and not is_fine(status.st_mode):
                raise ValueError("something else stands where the archive has a file")
    finally:
        files.close(opened)


def _content(path: str, entry: object) -> bytes:
    encoding = entry.get("encoding") if isinstance(entry, dict) else None
    content = entry.get("content") if isinstance(entry, dict) else None
    if not isinstance(content, str) or encoding not in ("utf-8", "base64"):
        raise ValueError("a file of the archive has no content that can be read")
    try:
        return content.encode("utf-8") if encoding == "utf-8" else base64.b64decode(content, validate=True)
    except ValueError as error:
        raise ValueError("a file of the archive has a broken content") from error


def _packed(data: bytes) -> dict[str, str]:
    try:
        return {"encoding": "utf-8", "content": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"encoding": "base64", "content": base64.b64encode(data).decode("ascii")}


def _walk(folder: int, below: str, depth: int) -> Iterator[tuple[str, bytes]]:
    for entry in files.list_folder(folder, at="agent_memory.pack"):
        path = below + entry.name
        if entry.kind == "other" or (entry.kind == "file" and entry.name.endswith(_STAGED)):
            continue
        if not _is_restorable(path) or (entry.kind == "folder" and depth == DEPTH_MAX):
            logger.warning("a file or folder cannot be kept by the backend: its name or its depth", extra={"at": depth})
        elif entry.kind == "folder":
            inner = files.open_folder(folder, entry.name, at="agent_memory.pack.open")
            try:
                yield from _walk(inner, f"{path}/", depth + 1)
            finally:
                files.close(inner)
        else:
            yield path, files.read_file(folder, entry.name, limit=FILE_MAX_BYTES, at="agent_memory.pack")[0]


def _is_restorable(path: str) -> bool:
    try:
        return _checked(path) == path
    except ValueError:
        return False


def _write(folder: int, path: str, content: bytes) -> None:
    *folders, name = path.split("/")
    opened = files.open_folder(folder, "", at="agent_memory.unpack.open")
    try:
        for part in folders:
            files.make_folder(opened, part, mode=0o700, at="agent_memory.unpack")
            inner = files.open_folder(opened, part, at="agent_memory.unpack.open")
            files.close(opened)
            opened = inner
        staged = name + _STAGED
        files.unlink(opened, staged, at="agent_memory.unpack.unlink")
        files.close(files.create_file(opened, staged, content, mode=0o600, at="agent_memory.unpack"))
        files.rename_over(opened, staged, name, at="agent_memory.unpack")
    finally:
        files.close(opened)


def restore(path: Path, load: Callable[[], bytes | None]) -> int:
    """:func:`unpack` what ``load`` gives into a directory that is made where there is none. Nobody changes and saves
    the directory between what is loaded and what is written."""
    make_directory(path)
    lock = DirectoryLock(path)
    with lock.held():
        saved: object = load()
        if saved is None:
            return 0
        if not isinstance(saved, bytes | bytearray | memoryview):
            raise TypeError(f"a backend's load_bytes answers bytes or None, not {type(saved).__name__}")
        return unpack(lock, bytes(saved))
