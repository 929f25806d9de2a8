"""How a host names a record that it found: provider, store, id, revision and hash (memory-provider.md, References).

A reference grants nothing: whoever sends one is answered by the rights of their audience alone. Pure; any thread.
"""

from __future__ import annotations

from typing import Annotated, Final

from messages.arguments import Arguments
from messages.errors import ReferenceForeign
from messages.json_types import JsonObject
from messages.pieces import Integer, RecordId, Sha256, Text
from messages.tools import REVISION_MAX

PROVIDER: Final = "knowledge"

_Name = Annotated[str, Text(max_units=200, one_line=True)]


class MemoryReference(Arguments):
    """One record at exactly one revision; every member is required and there are no others."""

    provider: _Name
    store: _Name
    id: RecordId
    revision: Annotated[int, Integer(1, REVISION_MAX)]
    hash: Sha256


def reference(store: str, record_id: str, revision: int, hash: str) -> JsonObject:
    """The reference to a record as a host keeps it."""
    return {"provider": PROVIDER, "store": store, "id": record_id, "revision": revision, "hash": hash}


def foreign_reference(field: str) -> ReferenceForeign:
    """The refusal of a reference that leads to another provider or store."""
    return ReferenceForeign(
        "The reference belongs to another memory than the one that this audience reaches; search again.", field=field
    )
