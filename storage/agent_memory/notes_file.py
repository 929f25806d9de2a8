"""``MEMORY.md`` on disk, which people have open in editors: read, looked at, and replaced without losing their words.

A path that is a symbolic link is followed: a person may keep the file elsewhere.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from messages.errors import Busy
from storage import files
from storage.agent_memory import notes
from storage.agent_memory.notes import Fact
from storage.faults import effect
from storage.replaced_text import EditedMeanwhile, read_text, replace_text, tidy

logger = logging.getLogger(__name__)

NOTES_NAME: Final = notes.NAME
NOTES_MAX_BYTES: Final = 64 * 1024 * 1024
_STAGED_NAME: Final = f".{NOTES_NAME}.kr-new"
_ATTEMPTS: Final = 8
_FOUND_MAX: Final = 1_000

FAULT_POINTS: Final = (
    ("agent_memory.notes", "looking whether MEMORY.md has changed, and whether somebody is writing it"),
    ("agent_memory.notes.sync", "making a person's MEMORY.md durable before what it lacks is forgotten"),
    ("agent_memory.notes.found", "keeping a text that a crash left beside MEMORY.md"),
)


class NotesFile:
    """``MEMORY.md`` of one directory. For the holder of the directory's lock."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NOTES_NAME
        self.known: object = object()
        """The stamp of the text that was read or put there last; equal to no stamp where others were faster."""

    def stamp(self) -> files.Stamp | None:
        """What changes with the file that the path leads to; ``None`` where there is none."""
        try:
            with effect("agent_memory.notes"):
                return files.Stamp.of(os.stat(self.path))
        except FileNotFoundError:
            return None

    def read(self) -> str:
        """Its text, empty where there is none; bytes that are no UTF-8 are kept as surrogates."""
        data = self._read()
        return "" if data is None else _decoded(data)

    def _read(self) -> bytes | None:
        self.known = self.stamp()  # before it is read: a text that changes meanwhile has another one
        return read_text(self.path, limit=NOTES_MAX_BYTES)

    def is_settled(self, text: str) -> bool:
        """Whether what is missing in ``text`` may be taken for a person's wish: it is text, and nobody has the file
        open for writing, as an editor has that has emptied it and not yet written it. It is durable then: what is
        forgotten for it must not come back with an older text."""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            return False
        real = Path(os.path.realpath(self.path))
        folder = files.open_root(real.parent, at="agent_memory.notes.open")
        try:
            if files.stat_entry(folder, real.name, at="agent_memory.notes.stat") is None:
                return True
            fd, _ = files.open_file(folder, real.name, at="agent_memory.notes.open")
            try:
                with files.read_lease(fd, at="agent_memory.notes.lease") as alone:
                    if alone is False:
                        return False
                files.fsync(fd, at="agent_memory.notes.sync")
            finally:
                files.close(fd)
            files.fsync(folder, at="agent_memory.notes.sync")
            return True
        finally:
            files.close(folder)

    def replace(self, change: Callable[[str], str]) -> None:
        """Put a changed text in place, durable; what a person saves meanwhile is the text that is changed.

        Raises ``Busy`` where the file is being saved all the time.
        """
        for _ in range(_ATTEMPTS):
            before = self._read()
            text = "" if before is None else _decoded(before)
            after = change(text)
            if after == text:
                return
            data = after.encode("utf-8", errors="surrogateescape")
            self.known = object()
            try:
                replace_text(self.path, before, data, limit=NOTES_MAX_BYTES)
            except EditedMeanwhile:
                continue
            if self._read() != data:
                self.known = object()
            return
        raise Busy(f"{NOTES_NAME} is being saved by another program all the time; try again.")

    def forget(self, *, at: str) -> None:
        """Remove the file, and the link that leads to it."""
        real = Path(os.path.realpath(self.path))
        for path in {real, self.path}:
            try:
                folder = files.open_root(path.parent, at=f"{at}.open")
            except FileNotFoundError:  # a link into nowhere
                continue
            try:
                for name in (path.name, f".{path.name}.kr-new"):
                    files.unlink(folder, name, at=at)
                files.fsync(folder, at=at)
            finally:
                files.close(folder)

    def clear_staged(self, current: str, ours: Callable[[], Iterable[Fact]]) -> None:
        """What a crash left beside the file: it goes if every line of it is in ``current`` or of one of these facts,
        else a person wrote it and it is kept aside."""
        real = Path(os.path.realpath(self.path))
        folder = files.open_root(real.parent, at="agent_memory.notes.found")
        staged = f".{real.name}.kr-new"
        try:
            if files.stat_entry(folder, staged, at="agent_memory.notes.found") is None:
                return
            tidy(real, limit=NOTES_MAX_BYTES, is_known=lambda data: _is_kept(_decoded(data), current, ours()))
            if files.stat_entry(folder, staged, at="agent_memory.notes.found") is None:
                return
            for number in range(1, _FOUND_MAX):
                try:
                    files.move(folder, staged, folder, f"{real.stem}.found-{number}.md", at="agent_memory.notes.found")
                except FileExistsError:
                    continue
                logger.warning("a text that a crash left is kept beside MEMORY.md", extra={"number": number})
                return
        finally:
            files.close(folder)


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", errors="surrogateescape")


def _is_kept(left: str, current: str, facts: Iterable[Fact]) -> bool:
    kept = {line.strip() for line in current.split("\n")} | {"", notes.TITLE}
    for category, content in facts:
        kept.add(f"## {category}")
        kept.update(line.strip() for line in notes.bullet(content))
    *whole, last = (line.strip() for line in left.split("\n"))
    return all(line in kept for line in whole) and any(line.startswith(last) for line in kept)
