"""How ``system-memory.sqlite`` is, found by reading alone: for people who ask what is wrong. Any one thread."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Literal, TypeAlias

import apsw

from messages.errors import KnowledgeError, StoreUnavailable
from storage.faults import effect
from storage.peeking import peek
from storage.state.connection import StorageCorrupt
from storage.system_memory.database import require_ours

Condition: TypeAlias = Literal["none", "sound", "damaged", "foreign", "newer_format", "unreadable"]


def condition(path: Path, *, whole: bool) -> tuple[Condition, str]:
    """How the file is, and what shows it; with ``whole`` all of it is read, which nobody may write meanwhile."""
    name = path.name
    try:
        with effect("system_memory.folder"):
            mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return "none", f"there is no {name} yet"
    except OSError as error:
        return "unreadable", f"{name} cannot be reached: {error.strerror}"
    if not stat.S_ISREG(mode):
        return "foreign", f"{name} is no plain file"
    if not whole:
        return "sound", f"{name} is there"
    try:
        with peek(path) as database:
            require_ours(database)
            if not database.is_sound(lambda: None) or database.query("PRAGMA foreign_key_check"):
                return "damaged", f"SQLite finds {name} damaged"
    except StorageCorrupt as error:
        return "damaged", str(error)
    except StoreUnavailable as error:
        reason = error.fields.get("reason")
        return ("newer_format" if reason == "newer_format" else "foreign"), error.message
    except (KnowledgeError, apsw.Error, OSError) as error:
        return "unreadable", f"{name} cannot be read: {getattr(error, 'message', type(error).__name__)}"
    return "sound", f"{name} is in order"
