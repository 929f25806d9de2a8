"""Attaching originals in tests: the calls of one upload, and what a descriptor must say."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterator

from messages.json_types import JsonObject, JsonValue
from tests.kit.store import Desk, request_id

CHUNK = 48 * 1024
ATTRIBUTION = "Robin, board meeting, 2026-11-02"


def upload_id(number: int) -> str:
    """The request id of the upload with that number, which no other write of a test has."""
    return request_id(7_000 + number)


def chunk(
    number: int, offset: int, data: bytes, *, final: bool = False, filename: str = "notes.txt", **more: JsonValue
) -> JsonObject:
    """The arguments of one chunk of the upload with that number."""
    return {
        "requestId": upload_id(number),
        "filename": filename,
        "mediaType": "text/plain",
        "attribution": ATTRIBUTION,
        "offset": offset,
        "data": base64.b64encode(data).decode(),
        "final": final,
        **more,
    }


def chunks(number: int, data: bytes, *, size: int = CHUNK, **more: JsonValue) -> Iterator[JsonObject]:
    """The calls of a whole upload, in their order."""
    starts = range(0, max(len(data), 1), size)
    for start in starts:
        piece = data[start : start + size]
        yield {**chunk(number, start, piece, final=start == starts[-1]), **more}


def attach(desk: Desk, number: int, data: bytes, *, size: int = CHUNK, **more: JsonValue) -> JsonObject:
    """Upload ``data`` as a whole; the descriptor."""
    *_, last = [desk.call("attach", call) for call in chunks(number, data, size=size, **more)]
    found = last["evidence"]
    assert isinstance(found, dict)
    return found


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def descriptor(number: int, data: bytes, filename: str = "notes.txt") -> JsonObject:
    """What an upload of text with that file name answers."""
    return {
        "path": f"artifacts/{upload_id(number)}/{filename}",
        "sha256": digest(data),
        "size": len(data),
        "filename": filename,
        "media_type": "text/plain",
        "attribution": ATTRIBUTION,
    }


def long_after() -> int:
    """The clock (ns since 1970) of a day after the files of a test were written: by then their stamps prove them."""
    return time.time_ns() + 86_400 * 10**9
