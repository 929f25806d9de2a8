"""Cards: the complete list rows that operators get, bounded by bytes and by how many values they hold.

A card that is larger than either is a summary: enough to say what the record is and to open it (tools.md, Listing and
connections). Plain values in, JSON objects out; any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from messages.json_types import JsonObject, JsonValue
from messages.tools._rows import json_bytes

CARD_MAX_BYTES: Final = 16 * 1024
CARD_MAX_VALUES: Final = 250
"""Texts, numbers, lists and objects together."""
CARD_EVIDENCE_SHOWN: Final = 5
PREVIEW_MAX_CHARS: Final = 280
"""Of a page's body, in UTF-16 units, on one line."""

# What a summary keeps: all of these are bounded by themselves.
_SUMMARY: Final = (
    "id", "revision", "hash", "kind", "lifecycle", "current", "valid", "expired", "fixture", "title", "type",
    "claimKind", "assertionOrigin", "label", "day", "recordedAt", "updatedAt", "path", "bodyChars", "evidenceTotal",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Card:
    """One record of an operator's list."""

    members: JsonObject

    def to_json(self) -> JsonObject:
        """The card, or its summary with the names of what was left out."""
        shown: JsonObject = {name: member for name, member in self.members.items() if member is not None}
        if values_in(shown) <= CARD_MAX_VALUES and json_bytes(shown) <= CARD_MAX_BYTES:
            return shown
        kept: JsonObject = {name: shown[name] for name in _SUMMARY if name in shown}
        return {**kept, "summary": True, "omitted": [name for name in shown if name not in kept]}


def values_in(value: JsonValue) -> int:
    """How many values a value holds, itself included."""
    match value:
        case dict():
            return 1 + sum(map(values_in, value.values()))
        case list():
            return 1 + sum(map(values_in, value))
        case _:
            return 1
