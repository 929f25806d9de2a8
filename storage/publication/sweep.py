"""Finding our staged names in a vault after an unclean stop, and taking them over.

Guarantees: afterwards every staged name of an unpruned entry carries this incarnation, so that a thread that was
abandoned under an older one finds none of its names; staged names of requests that were never accepted are gone.

Source: WRITE-PATH.md holes 9 and 18, table 3a (last lines).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from messages.vocabulary import DIRECTORY_MAX_DEPTH
from storage import files
from storage.publication.placing import MANIFEST_ORDINAL
from storage.publication.store import STAGED_PREFIX, Folders, StoreState, staging_folder
from storage.vault import replace

_STAGED: Final = re.compile(
    re.escape(STAGED_PREFIX)
    + r"(?P<publication>[0-9a-f-]{36})\.(?P<ordinal>[0-9a-z-]+)\.(?P<incarnation>\d+)(?P<old>\.old)?"
)

FAULT_POINTS = (
    ("sweep.list", "listing a folder of the vault for staged names"),
    ("sweep.take", "renaming a staged name to this incarnation"),
    ("sweep.unlink", "removing the staged name of a request that was never accepted"),
)


@dataclass(frozen=True, slots=True)
class StagedName:
    """One of our names in the vault; ``ordinal`` is ``None`` for a name that no entry can own."""

    folder: str
    name: str
    publication_id: str
    ordinal: str | None
    old: bool


def staged_names(folders: Folders) -> Iterator[StagedName]:
    """Every name of ours below the vault's root. Costs one listing a folder; evidence folders hold none."""
    yield from _listed(folders, "", 0)


def _listed(folders: Folders, folder: str, depth: int) -> Iterator[StagedName]:
    try:
        fd = folders.find(folder)
        found = [] if fd is None else files.list_folder(fd, at="sweep.list")
    except PermissionError:
        # A person closed it to us. What of ours lies in it stays there, unread and safe; scans name the folder.
        return
    for entry in found:
        path = f"{folder}/{entry.name}" if folder else entry.name
        if entry.name.startswith(STAGED_PREFIX):
            match = _STAGED.fullmatch(entry.name)
            if match is None:
                yield StagedName(folder, entry.name, "", None, old=False)
            else:
                ordinal = match["ordinal"]
                yield StagedName(folder, entry.name, match["publication"], ordinal, old=match["old"] is not None)
        elif entry.kind == "folder" and _may_hold_staged(path, depth):
            yield from _listed(folders, path, depth + 1)


def _may_hold_staged(path: str, depth: int) -> bool:
    if depth == 0:
        return path in ("private", "conversations")
    # ``conversations/<id>`` is two levels above what a partition calls its first.
    if depth > DIRECTORY_MAX_DEPTH + 2 or files.split(path)[1].startswith("."):
        return False
    return staging_folder(f"{path}/x") == path


def take_over(state: StoreState, folders: Folders, known: Set[str]) -> None:
    """Give the staged names of ``known`` publications this incarnation; remove all others."""
    for found in list(staged_names(folders)):
        fd = folders.open(found.folder)
        if found.publication_id not in known or found.ordinal is None or found.ordinal.endswith("-rewrite"):
            remove(folders, found)
            continue
        name = state.staged_name(found.publication_id, found.ordinal) + (replace.OLD_SUFFIX if found.old else "")
        if name == found.name:
            continue
        with suppress(FileNotFoundError, FileExistsError):
            replace.move(state.can, fd, found.name, fd, name, at="sweep.take")


def remove(folders: Folders, found: StagedName) -> None:
    """Remove one of our names; a folder somebody made with such a name stays."""
    with suppress(IsADirectoryError, PermissionError):
        files.unlink(folders.open(found.folder), found.name, at="sweep.unlink")


def is_manifest(found: StagedName) -> bool:
    return found.ordinal == MANIFEST_ORDINAL
