"""Records that were parsed already, by the hash of their text: most reads meet the same few again and again.

An entry cannot be out of date, since another text has another hash. Bounded by the bytes of the texts; the least
recently used go first. Records are frozen, so one may be handed out any number of times. One thread.

Source: PERFORMANCE.md (reads inside the lane).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from storage.records import ParsedRecord

KEPT_BYTES: Final = 4 * 1024 * 1024
"""Texts that the kept records were parsed from; a parsed record takes two to three times as much."""
KEPT_ONE_BYTES: Final = 64 * 1024
"""Longer records are few, and one of them would push out hundreds."""


class ParsedRecords:
    """At most ``KEPT_BYTES`` of records."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[ParsedRecord, int]] = OrderedDict()
        self._bytes = 0

    def get(self, digest: str, path: str) -> ParsedRecord | None:
        """The record of a text with this hash in a file of this path (which its findings name)."""
        found = self._kept.get((digest, path))
        if found is None:
            return None
        self._kept.move_to_end((digest, path))
        return found[0]

    def put(self, parsed: ParsedRecord, size: int) -> None:
        """Keep a record that was parsed from ``size`` bytes."""
        key = (parsed.hash, parsed.path)
        if size > KEPT_ONE_BYTES or key in self._kept:
            return
        self._kept[key] = (parsed, size)
        self._bytes += size
        while self._bytes > KEPT_BYTES:
            self._bytes -= self._kept.popitem(last=False)[1][1]

    @property
    def bytes(self) -> int:
        """The bytes of the texts that the kept records were parsed from."""
        return self._bytes
