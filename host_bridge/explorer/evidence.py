"""A citation where it stands: the lines of the original with the cited ones marked, and the verdict on its bytes.

The original is read as operators read it, so each look verifies its hash anew. Source: knowledge-more-facts.md section
8; tools.md (Attachments).
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from host_bridge.explorer.record import heading
from host_bridge.explorer.site import Look, rows
from messages.errors import InvalidArgument, KnowledgeError, NotFound
from messages.json_types import JsonObject

WHOLE_MAX_BYTES: Final = 192 * 1024
"""An original up to this size is shown whole; of a larger one the cited passage."""
AROUND_LINES: Final = 12
LINES_SHOWN: Final = 2_000
PASSAGES_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an original. ``before``, ``quoted``, ``after``: the line, cut at the quotation."""

    number: int
    cited: bool
    before: str
    quoted: str = ""
    after: str = ""


async def evidence(look: Look) -> Response:
    """One citation of a record."""
    record_id, citation = await _citation(look)
    problem = str(citation.get("problem", ""))
    lines: Sequence[Line] = ()
    part, unreadable = False, ""
    try:
        lines, part = await _lines(look, record_id, citation)
    except UnicodeDecodeError:
        unreadable = "This original is no text; save it to look at it."
    except KnowledgeError as error:
        unreadable = error.message
    return look.page(
        "evidence.html",
        record=await heading(look, record_id),
        citation=citation,
        number=look.whole("n"),
        lines=lines,
        part=part,
        unreadable=unreadable,
        problem=problem,
    )


async def original(look: Look) -> Response:
    """The retained bytes, as a file to save: never shown by the browser, whatever they are."""
    record_id, citation = await _citation(look)
    first = await _chunk(look, record_id, citation, 0)
    name = quote(str(citation.get("filename") or "original"), safe="")
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        "Content-Length": str(first["size"]),
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return StreamingResponse(_bytes(look, record_id, citation, first), 200, headers, "application/octet-stream")


async def _citation(look: Look) -> tuple[str, JsonObject]:
    record_id, number = str(look.request.path_params["id"]), look.whole("n")
    found = await look.ask("operator.record", {"id": record_id, "evidenceOffset": number or None})
    record = found.get("record")
    cited = rows(record, "evidence") if isinstance(record, dict) else []
    if not cited:
        raise NotFound("This record has no such citation any more; open the record again.", field="n", id=record_id)
    return record_id, cited[0]


async def _lines(look: Look, record_id: str, citation: JsonObject) -> tuple[Sequence[Line], bool]:
    """The lines to show, and whether they are only a part of the original."""
    first = await _chunk(look, record_id, citation, 0)
    size, start, end = first["size"], citation.get("start_line"), citation.get("end_line")
    from_line = start if isinstance(start, int) else None
    to_line = end if isinstance(end, int) else from_line
    quotation = str(citation.get("quote") or "")
    if isinstance(size, int) and size <= WHOLE_MAX_BYTES:
        data = b"".join([piece async for piece in _bytes(look, record_id, citation, first)])
        text = data.decode("utf-8-sig")
        if "\x00" in text:
            raise UnicodeDecodeError("utf-8", data, 0, 1, "a NUL")
        return _window(numbered(text, 1, from_line, to_line, quotation), from_line, to_line)
    text, number = await _passage(look, record_id, citation)
    return numbered(text, number, from_line, to_line, quotation)[:LINES_SHOWN], True


def numbered(text: str, first: int, start: int | None, end: int | None, quotation: str) -> list[Line]:
    """The lines of a text that begins with line ``first``; those from ``start`` to ``end`` are cited, all without."""
    lines = text.split("\n")
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    at = _quoted(text, quotation, first, start)
    shown: list[Line] = []
    offset = 0
    for number, line in enumerate(lines, first):
        cited = start is None or (start <= number <= (end or start))
        begin, stop = max(at[0] - offset, 0), min(at[1] - offset, len(line))
        offset += len(line) + 1
        line = line.removesuffix("\r")
        if begin < stop:
            shown.append(Line(number, cited, line[:begin], line[begin:stop], line[stop:]))
        else:
            shown.append(Line(number, cited, line))
    return shown


def _quoted(text: str, quotation: str, first: int, start: int | None) -> tuple[int, int]:
    """Where the quotation stands, in or after the first cited line; nowhere if it cannot be found as it is."""
    if not quotation:
        return 0, 0
    begin = 0
    for _ in range((start or first) - first):
        begin = text.find("\n", begin) + 1
    found = text.find(quotation, begin)
    return (0, 0) if found < 0 else (found, found + len(quotation))


def _window(lines: Sequence[Line], start: int | None, end: int | None) -> tuple[Sequence[Line], bool]:
    """Everything where that is little; else the cited lines with some around them."""
    if len(lines) <= LINES_SHOWN and (start is None or len(lines) <= 400):
        return lines, False
    begin = max((start or 1) - 1 - AROUND_LINES, 0)
    window = lines[begin : min((end or begin + LINES_SHOWN) + AROUND_LINES, begin + LINES_SHOWN)]
    return window, len(window) < len(lines)


async def _passage(look: Look, record_id: str, citation: JsonObject) -> tuple[str, int]:
    """The cited passage of a large original, and the number of its first line."""
    asked: JsonObject = {"id": record_id, "path": citation["path"], "sha256": citation["sha256"]}
    asked |= {name: citation[key] for name, key in (("startLine", "start_line"), ("endLine", "end_line"))
              if key in citation}  # fmt: skip
    found = await look.ask("operator.evidence", asked)
    number = found.get("startLine")
    texts = [str(found.get("text", ""))]
    while "nextCursor" in found and len(texts) < PASSAGES_MAX:
        found = await look.ask("operator.evidence", {**asked, "cursor": found["nextCursor"]})
        texts.append(str(found.get("text", "")))
    return "".join(texts), number if isinstance(number, int) else 1


async def _chunk(look: Look, record_id: str, citation: JsonObject, offset: int) -> JsonObject:
    asked: JsonObject = {"id": record_id, "path": citation["path"], "sha256": citation["sha256"], "offset": offset}
    return await look.ask("operator.original", asked)


async def _bytes(look: Look, record_id: str, citation: JsonObject, first: JsonObject) -> AsyncIterator[bytes]:
    found = first
    while True:
        yield base64.b64decode(str(found["data"]))
        following = found.get("nextOffset")
        if not isinstance(following, int):
            return
        found = await _chunk(look, record_id, citation, following)
        if found.get("size") != first.get("size"):
            raise InvalidArgument("The original changed while it was read.", field="path", reason="hash_mismatch")
