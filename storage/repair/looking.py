"""What a run would do, found by reading alone; and which text a truncated one is the beginning of."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from messages.errors import KnowledgeError
from messages.vocabulary import PRIVATE, Partition
from storage import git
from storage.backup.manifest import Finding
from storage.faults import effect
from storage.layout import StoreLayout
from storage.peeking import peek
from storage.publication.table import is_torn
from storage.records import ParsedRecord, parse_record
from storage.repair.examining import agreement, read_text
from storage.repair.model import Part, Repaired
from storage.state import history
from storage.state.connection import StorageCorrupt
from storage.state.upkeep import partitions

_BLOCK: Final = 512


def whole_text(data: bytes, path: str, texts: Sequence[bytes], *, any_prefix: bool) -> bytes | None:
    """The text that a truncated one is the beginning of; ``None`` for one that somebody may have meant."""
    left = data.rstrip(b"\0")
    longer = [text for text in texts if len(text) > len(left) and text.startswith(left) and text != data]
    readable = next((text for text in longer if isinstance(parse_record(text, path), ParsedRecord)), None)
    if readable is None:
        return None
    broken = not isinstance(parse_record(data, path), ParsedRecord)
    return readable if broken or any_prefix or is_torn(data, (readable,), _BLOCK) else None


def look(store: StoreLayout, done: Repaired, parts: Collection[Part]) -> None:
    """What a run would do to a store whose database is sound; approximately, since edits are not taken over."""
    with peek(store.state_database) as database:
        keys: dict[Partition, None] = dict.fromkeys((PRIVATE, *partitions(database)))
        for partition in keys:
            found = agreement(store, database, partition)
            done.restored += [f"{partition.key}/{path}" for path in found.missing]
            for path in found.different:
                data = read_text(store, partition, path)
                texts = list(history.texts_of_path(database, partition, path))
                if data is not None and whole_text(data, path, texts, any_prefix="files" in parts) is not None:
                    done.restored.append(f"{partition.key}/{path}")
                    done.damaged.append(f"{partition.key}/{path}")
                else:
                    done.find("edited", f"{partition.key}/{path}", "Edited outside; it would be taken over as it is.")
            done.findings += [
                Finding("text_lost", f"{partition.key}/{path}", "History has lost the text of this file.")
                for path in found.lost
            ]
            if not index_is_sound(store, partition) or "index" in parts:
                done.indexes.append(partition.key)
    state, why = git.repository_state(store.vault)
    done.git = "to build" if state in ("damaged", "absent") or "git" in parts else state
    if why:
        done.find("git", ".git", why)
    done.catalogue = "catalogue" in parts


def index_is_sound(store: StoreLayout, partition: Partition) -> bool:
    """Whether the index could be used; one that is not there is built by the next search."""
    path = store.search_index(partition)
    with effect("repair.look"):
        if not path.is_file():
            return True
    try:
        with peek(path) as database:
            return database.is_sound(lambda: None)
    except (KnowledgeError, StorageCorrupt, OSError):
        return False


__all__ = ["index_is_sound", "look", "whole_text"]
