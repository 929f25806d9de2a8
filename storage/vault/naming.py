"""Which file of a partition a person means by a path, however they reached it.

Guarantees: the answer lies inside the partition folder that is open, no symbolic link below it is followed, and it is a
regular file with one name. Any thread.

Source: decisions.md section 2 (`knowledge adopt`), stores-and-access.md (Limits).
"""

from __future__ import annotations

import os
import stat
from typing import Final, Literal, TypeAlias

from storage import files
from storage.faults import effect
from storage.files import UnsafeFile

FAULT_POINTS: Final = (
    ("name.look", "asking which folder a path that a person named leads through"),
    ("name.open", "opening the file that a person named, to see what it is"),
)

NamingProblem: TypeAlias = Literal["outside", "missing", "symlink", "hardlink", "not_a_file"]


class Unnamed(Exception):
    """The path names no file that could be meant; ``problem`` says why."""

    def __init__(self, problem: NamingProblem) -> None:
        super().__init__(problem)
        self.problem: NamingProblem = problem


def locate(root_fd: int, path: str) -> str:
    """The path relative to the partition folder ``root_fd`` of the file that ``path`` names.

    ``path`` is relative to that folder, or absolute; the folder itself may be reached through symbolic links. Raises
    :class:`Unnamed`.
    """
    inner = _inside(root_fd, path) if os.path.isabs(path) else path
    try:
        files.checked_relative(inner)
    except ValueError:
        raise Unnamed("outside") from None
    folder, name = files.split(inner)
    try:
        fd = files.open_folder(root_fd, folder, at="name.open")
    except OSError:
        raise Unnamed("symlink" if _leads_through_link(root_fd, folder) else "missing") from None
    try:
        opened, _ = files.open_file(fd, name, at="name.open")
    except FileNotFoundError:
        raise Unnamed("missing") from None
    except UnsafeFile as error:
        raise Unnamed(
            error.reason if error.reason == "symlink" or error.reason == "hardlink" else "not_a_file"
        ) from None
    except OSError:
        raise Unnamed("not_a_file") from None
    finally:
        files.close(fd)
    files.close(opened)
    return inner


def _inside(root_fd: int, path: str) -> str:
    root = files.stat_open(root_fd, at="name.look")
    inner: list[str] = []
    place = os.path.normpath(path)
    while True:
        above, name = os.path.split(place)
        if not name:
            raise Unnamed("outside")
        inner.insert(0, name)
        with effect("name.look"):
            try:
                status = os.stat(above)
            except OSError:
                status = None
        if status is not None and (status.st_dev, status.st_ino) == (root.st_dev, root.st_ino):
            return "/".join(inner)
        place = above


def _leads_through_link(root_fd: int, folder: str) -> bool:
    """Whether the first component that is no folder of its own is a symbolic link, as far as anybody may look."""
    above = ""
    for part in folder.split("/"):
        try:
            fd = files.open_folder(root_fd, above, at="name.look")
            try:
                status = files.stat_entry(fd, part, at="name.look")
            finally:
                files.close(fd)
        except OSError:  # a name that no file system takes, a folder that may not be entered
            return False
        if status is None or not stat.S_ISDIR(status.st_mode):
            return status is not None and stat.S_ISLNK(status.st_mode)
        above = f"{above}/{part}" if above else part
    return False
