"""Whether the ``recall`` block of a record's file counts: a file cannot vouch for itself, history can.

A block counts while the last publication of ``knowledge_recall`` on this very record set exactly this block. So one
written, changed or copied by hand does not count, nor one that was taken back since; one that was changed and then put
back as it was counts again, whether or not anybody looked in between. Edits of the rest of the record change nothing.
After a rebuild from files alone there is no such publication, and approvals are asked for again.

One query of the record's own history. Source: decisions.md section 2 (A file cannot vouch for itself).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from messages.json_types import JsonValue
from messages.vocabulary import Partition
from storage.records import Finding, frontmatter
from storage.records.frontmatter import same
from storage.state import history
from storage.state.connection import Database

RECALL_OPERATION: Final = "recall"
"""The operation under which history keeps what ``knowledge_recall`` published."""
RECALL_KEY: Final = "recall"


def recall_block(data: bytes) -> JsonValue:
    """The ``recall`` value as a record's file has it, read or not understood; ``None`` where there is none."""
    read = frontmatter.read(data)
    return None if isinstance(read, Finding) else read.values.get(RECALL_KEY)


def approval_counts(
    db: Database, partition: Partition, record_id: str, digest: str, source: Callable[[], bytes]
) -> bool:
    """Whether the block in this record's file is the one that was approved last. Only for a file that has a block.

    ``digest`` is the hash of the file's text; ``source`` gives the text, asked for only where it is needed.
    """
    approved = history.last_approval(db, partition, record_id)
    if approved is None or approved.hash is None:
        return False
    if approved.hash == digest:  # nobody has touched the file since, which is so for nearly all: nothing to compare
        return True
    block = recall_block(source())
    text = None if block is None else history.text(db, approved.hash)
    return text is not None and same(recall_block(text), block)
