"""What the lane asks of its helpers about retained sources, and what they answer. All frozen.

Source: DESIGN.md (One request: prepare and commit), tools.md (Attachments, Reading records).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from actors.supervision import Request
from messages.vocabulary import Partition
from storage.evidence import NoWindow, Point, Staged, Window
from storage.files import Stamp


@dataclass(frozen=True, slots=True)
class Complete:
    """A complete source in its request's folder; ``None``: there is none of the expected size."""

    staged: Staged | None


@dataclass(frozen=True, slots=True)
class HashUpload(Request[Complete]):
    """To the source keeper: hash the received file, or the one that has the name it is to get already."""

    partition: Partition
    request_id: str
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class CopyFile(Request[Complete]):
    """To the source keeper: copy a file of the workspace. Answers the typed refusal of ``knowledge_attach_file``."""

    partition: Partition
    request_id: str
    workspace: Path
    path: str
    sha256: str
    name: str
    """What the file is called in its request's folder, once it is retained."""


SourceWork: TypeAlias = HashUpload | CopyFile


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a passage, or why there is none."""

    found: Window | NoWindow


@dataclass(frozen=True, slots=True)
class ReadPassage(Request[Passage]):
    """To the verifier: text of the lines of a source that has this stamp, from a point on."""

    partition: Partition
    path: str
    stamp: Stamp
    lines: tuple[int | None, int | None]
    point: Point | None
    max_chars: int
