"""Where a search of the host goes on: an opaque text that is good for one search only.

It names the store, the scope, the query and its filters, and the snapshot that the search began on, with a seal under a
secret of the store, so that what it says was said here. Texts are in it as hashes: it tells nobody what was asked.
Pure; any thread.

Source: memory-provider.md (Shared memory reads: cursors).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import math
from dataclasses import astuple, dataclass
from typing import Final

from messages.errors import InvalidArgument, ReferenceForeign

CURSOR_MAX_CHARS: Final = 2_000
_VERSION: Final = 1
_SEAL_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class SearchCursor:
    """``offset`` counts hits; ``best`` is the score of the search's best one. The others say what it is good for."""

    store: str
    scope: str
    query: str
    filters: str
    origin: str
    snapshot: str
    offset: int
    best: float

    def write(self, secret: bytes) -> str:
        """The cursor as the host keeps it."""
        said = json.dumps([_VERSION, *astuple(self)], ensure_ascii=True, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(_seal(said, secret) + said).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class ReadCursor:
    """A cursor as it was sent, its seal not looked at."""

    said: SearchCursor
    _bytes: bytes
    _sealed: bytes

    def is_sealed(self, secret: bytes) -> bool:
        """Whether it was written with this secret."""
        return hmac.compare_digest(self._sealed, _seal(self._bytes, secret))


def read_cursor(text: str) -> ReadCursor:
    """What a cursor says. Raises ``InvalidArgument`` for a text that is none."""
    try:
        raw = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        sealed, said = raw[:_SEAL_BYTES], raw[_SEAL_BYTES:]
        version, store, scope, query, filters, origin, snapshot, offset, best = json.loads(said)
    except (ValueError, TypeError, RecursionError, binascii.Error):
        raise broken_cursor() from None
    texts = (store, scope, query, filters, origin, snapshot)
    if version != _VERSION or not all(type(one) is str for one in texts):
        raise broken_cursor()
    if type(offset) is not int or not 0 <= offset < 2**53 or type(best) is not float or not math.isfinite(best):
        raise broken_cursor()
    return ReadCursor(SearchCursor(*texts, offset, best), said, sealed)


def broken_cursor() -> InvalidArgument:
    """The refusal of what is no cursor of ours."""
    return InvalidArgument(
        "cursor is not one that a search gave; send it exactly as it came, or search again without one.",
        field="cursor",
        reason="malformed",
        allowed="the nextCursor of an earlier page",
    )


def foreign_cursor() -> ReferenceForeign:
    """The refusal of a cursor that another store gave."""
    return ReferenceForeign("The cursor belongs to another store; search again without it.", field="cursor")


def digest(text: str) -> str:
    """What stands in a cursor for a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _seal(said: bytes, secret: bytes) -> bytes:
    return hmac.digest(secret, said, "sha256")[:_SEAL_BYTES]
