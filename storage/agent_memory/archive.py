"""A whole memory directory as one blob: what a backend keeps between two requests.

The blob is UTF-8 JSON ``{"version": 1, "files": {PATH: {"encoding": "utf-8" | "base64", "content": TEXT}}}``. It is
looked at as a whole before the first file is written: one bad path or content, and nothing is. A blob that is none is
passed over with a warning, as if nothing had been saved.

Source: agent-memory-contract.md section 7.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from storage import files
from storage.agent_memory.locking import DirectoryLock, make_directory

logger = logging.getLogger(__name__)

VERSION: Final = 1
FILE_MAX_BYTES: Final = 256 * 1024 * 1024
DEPTH_MAX: Final = 16
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_STAGED: Final = ".tmp"

FAULT_POINTS: Final = (
    ("agent_memory.pack", "reading the files of a memory directory for its backend"),
    ("agent_memory.unpack", "writing the files of a memory directory that a backend kept"),
)


def pack(lock: DirectoryLock) -> bytes:
    """Every file below the directory but those that are still being written; empty folders are not kept."""
    with lock.held() as folder:
        packed = {path: _packed(data) for path, data in sorted(_walk(folder, "", 0))}
    return json.dumps({"version": VERSION, "files": packed}, ensure_ascii=False).encode("utf-8")


def unpack(lock: DirectoryLock, data: bytes) -> int:
    """Write the files of a blob over those of the same names, each whole; nothing is deleted. How many there were.

    Raises ``ValueError`` before anything is written for a path that is empty, absolute, or leads out of the directory,
    and for an encoding or a content that cannot be read.
    """
    found = _read(data)
    if found is None:
        return 0
    contents = {_checked(path): _content(path, entry) for path, entry in found.items()}
    with lock.held() as folder:
        for path, content in contents.items():
            _write(folder, path, content)
    return len(contents)


def _read(data: bytes) -> dict[str, object] | None:
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        value = None
    found = value.get("files") if isinstance(value, dict) else None
    if not isinstance(found, dict):
        logger.warning("what the backend keeps is no memory archive; the memory starts anew")
        return None
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
    return "/".join(parts)


def _content(path: str, entry: object) -> bytes:
    encoding = entry.get("encoding") if isinstance(entry, dict) else None
    content = entry.get("content") if isinstance(entry, dict) else None
    if not isinstance(content, str) or encoding not in ("utf-8", "base64"):
        raise ValueError("a file of the archive has no content that can be read")
    try:
        return content.encode("utf-8") if encoding == "utf-8" else base64.b64decode(content, validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise ValueError("a file of the archive has a broken content") from error


def _packed(data: bytes) -> dict[str, str]:
    try:
        return {"encoding": "utf-8", "content": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"encoding": "base64", "content": base64.b64encode(data).decode("ascii")}


def _walk(folder: int, below: str, depth: int) -> Iterator[tuple[str, bytes]]:
    for entry in files.list_folder(folder, at="agent_memory.pack"):
        if entry.kind == "folder" and depth < DEPTH_MAX:
            inner = files.open_folder(folder, entry.name, at="agent_memory.pack.open")
            try:
                yield from _walk(inner, f"{below}{entry.name}/", depth + 1)
            finally:
                files.close(inner)
        elif entry.kind == "file" and not entry.name.endswith(_STAGED):
            yield (
                below + entry.name,
                files.read_file(folder, entry.name, limit=FILE_MAX_BYTES, at="agent_memory.pack")[0],
            )


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


def restore(path: Path, data: bytes) -> int:
    """:func:`unpack` into a directory that nobody has opened yet, and that is made where there is none."""
    make_directory(path)
    return unpack(DirectoryLock(path), data)
