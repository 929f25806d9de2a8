"""A readable checkpoint of the vault in Git: what was published, one commit each, beside whatever a person commits.

SQLite's history is the promise; nothing here can lose or refuse a save.
"""

from storage.git._stream import Checkpoint, is_versioned
from storage.git.checkpoint import (
    Committed,
    Outcome,
    Rebuild,
    Unavailable,
    Waiting,
    check,
    commit,
    repository_state,
    set_aside,
)
from storage.git.idle import IndexState, sync_index, tidy

__all__ = [
    "Checkpoint",
    "Committed",
    "IndexState",
    "Outcome",
    "Rebuild",
    "Unavailable",
    "Waiting",
    "check",
    "commit",
    "is_versioned",
    "repository_state",
    "set_aside",
    "sync_index",
    "tidy",
]
