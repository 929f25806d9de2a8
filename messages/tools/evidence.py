"""Retained sources: ``knowledge_attach`` and ``_attach_file``, ``_attachment`` and ``_evidence_read``, and
``knowledge_reconcile_evidence``.

Source: tools.md (Attachments, Reading records); decisions.md section 5; knowledge-more-facts.md section 4.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Self

from pydantic import Field, model_validator

from messages.errors import InvalidArgument
from messages.json_types import JsonObject
from messages.pieces import Bool, Integer, Items, Piece, RecordId, Sha256, Text, refused
from messages.tools._base import OFFSET_MAX, RecordFence, ToolRequest, WriteRequest
from messages.tools.pages import FILENAME_MAX_CHARS, EvidenceArgument, RetainedPath
from messages.vocabulary import ATTRIBUTION_MAX_CHARS, REASON_MAX_CHARS

ATTACH_CHUNK_MAX_BYTES: Final = 48 * 1024
ATTACHMENT_CHUNK_BYTES: Final = 32 * 1024
FILE_MAX_BYTES: Final = 2**53 - 1
EVIDENCE_SET_MAX: Final = 10_000
FILE_PATH_MAX_CHARS: Final = 4_096
PASSAGE_CHARS_MIN: Final = 256
PASSAGE_CHARS_MAX: Final = 3_000
CURSOR_MAX_CHARS: Final = 400

_NOT_IN_NAMES: Final = "/\\"


@dataclass(frozen=True, slots=True)
class Base64(Piece):
    """Bytes as base64 (RFC 4648 section 4, padded, without line breaks); may be empty."""

    max_bytes: int

    FORM: ClassVar[str] = "padded base64 of the standard alphabet, without line breaks"

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            raise refused("wrong_type", f"must be a string: {self.FORM}", self.FORM)
        if len(value) > (self.max_bytes + 2) // 3 * 4:
            limit = f"at most {self.max_bytes} bytes before encoding"
            raise refused("too_long", f"has more than {self.max_bytes} bytes", limit, code="limit_exceeded")
        try:
            decoded = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise refused("malformed", f"must be {self.FORM}", self.FORM) from None
        if base64.b64encode(decoded).decode() != value:  # two texts of one chunk would be two requests
            raise refused("malformed", f"must be {self.FORM}", self.FORM)
        return value

    def schema(self) -> JsonObject:
        return {"type": "string"}


FileName = Annotated[str, Text(max_units=FILENAME_MAX_CHARS, one_line=True)]
MediaType = Annotated[str, Text(max_units=FILENAME_MAX_CHARS, one_line=True)]
Attribution = Annotated[str, Text(max_units=ATTRIBUTION_MAX_CHARS)]
Line = Annotated[int, Integer(1, OFFSET_MAX)]


def _check_name(filename: str) -> None:
    if filename in (".", "..") or any(character in filename for character in _NOT_IN_NAMES):
        raise refused("not_a_name", "must be a file's name, not a path", "a name without / and \\", field="filename")


class AttachRequest(WriteRequest):
    """One chunk of an original that is to be retained. Filename, media type and attribution stay the same in each."""

    tool: ClassVar[str] = "knowledge_attach"

    filename: FileName = Field(description="The original's own name.")
    media_type: MediaType = Field(description="Its media type, e.g. application/pdf.")
    attribution: Attribution = Field(description="Where the original comes from, in short.")
    offset: Annotated[int, Integer(0, FILE_MAX_BYTES)] = Field(description="Byte offset of this chunk.")
    data: Annotated[str, Base64(ATTACH_CHUNK_MAX_BYTES)] = Field(
        description="The chunk as base64, at most 48 KiB decoded."
    )
    final: Bool = Field(description="true with the last chunk.")

    @property
    def chunk(self) -> bytes:
        return base64.b64decode(self.data)

    @model_validator(mode="after")
    def _sound(self) -> Self:
        _check_name(self.filename)
        if not self.data and not self.final:
            raise refused("blank", "may be empty only with the final chunk", "at least one byte", field="data")
        return self


class AttachFileRequest(WriteRequest):
    """A file of the host's workspace that is to be retained."""

    tool: ClassVar[str] = "knowledge_attach_file"

    file_path: Annotated[str, Text(max_units=FILE_PATH_MAX_CHARS)] = Field(
        description="Path inside the workspace, relative or absolute."
    )
    sha256: Sha256 = Field(description="The file's hash as you observed it.")
    filename: FileName = Field(description="The original's own name.")
    attribution: Attribution = Field(description="Where the original comes from, in short.")
    media_type: MediaType | None = Field(default=None, description="Its media type, e.g. application/pdf.")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        _check_name(self.filename)
        return self


class AttachmentRequest(ToolRequest):
    """One chunk of an original that a record cites."""

    tool: ClassVar[str] = "knowledge_attachment"

    id: RecordId = Field(description="The record that cites the original.")
    path: RetainedPath = Field(description="Retained path from its evidence.")
    sha256: Sha256 = Field(description="The original's full hash.")
    offset: Annotated[int, Integer(0, FILE_MAX_BYTES)] = Field(
        default=0, description="nextOffset of the previous chunk."
    )


class EvidenceReadRequest(ToolRequest):
    """A passage of a source that a record cites, as text."""

    tool: ClassVar[str] = "knowledge_evidence_read"

    id: RecordId = Field(description="The record that cites the source.")
    path: RetainedPath = Field(description="Retained path from its evidence.")
    sha256: Sha256 = Field(description="The source's full hash.")
    start_line: Line | None = Field(default=None, description="First line, inside the cited ones.")
    end_line: Line | None = Field(default=None, description="Last line, inside the cited ones.")
    max_chars: Annotated[int, Integer(PASSAGE_CHARS_MIN, PASSAGE_CHARS_MAX)] = Field(
        default=PASSAGE_CHARS_MAX, description="Characters per response, default 3000."
    )
    cursor: Annotated[str, Text(max_units=CURSOR_MAX_CHARS, one_line=True)] | None = Field(
        default=None, description="nextCursor of the previous response."
    )

    @model_validator(mode="after")
    def _lines(self) -> Self:
        if self.start_line is not None and self.end_line is not None and self.end_line < self.start_line:
            raise refused("conflict", "must not come before startLine", "startLine or later", field="endLine")
        return self


class ReconcileEvidenceRequest(RecordFence, WriteRequest):
    """The complete new evidence of a page."""

    tool: ClassVar[str] = "knowledge_reconcile_evidence"

    evidence: Annotated[tuple[EvidenceArgument, ...], Items(0, EVIDENCE_SET_MAX)] = Field(
        description="All citations that the page is to have; replaces all, empty removes all."
    )
    reason: Annotated[str, Text(max_units=REASON_MAX_CHARS)] = Field(description="Why, for the history.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """What a source was retained as; its keys are those that evidence arguments take."""

    path: str
    sha256: str
    size: int
    filename: str
    media_type: str | None
    attribution: str

    def to_json(self) -> JsonObject:
        shown: JsonObject = {
            "path": self.path,
            "sha256": self.sha256,
            "size": self.size,
            "filename": self.filename,
            "media_type": self.media_type,
            "attribution": self.attribution,
        }
        return {key: member for key, member in shown.items() if member is not None}


def received_response(received: int) -> JsonObject:
    """A chunk is on disk: this many bytes in all."""
    return {"received": received}


def attached_response(descriptor: Descriptor) -> JsonObject:
    """The source is retained; ``evidence`` may be sent back as an attachment or a citation as it is."""
    return {"evidence": descriptor.to_json()}


def attachment_response(data: bytes, *, offset: int, size: int) -> JsonObject:
    """One chunk of an original of ``size`` bytes."""
    following = offset + len(data)
    return {
        "data": base64.b64encode(data).decode(),
        "offset": offset,
        "size": size,
        "nextOffset": following if following < size else None,
    }


def passage_response(text: str, lines: tuple[int, int] | None, cursor: str | None) -> JsonObject:
    """A passage with the lines that it lies in; an empty source has none."""
    shown: JsonObject = {"text": text}
    if lines is not None:
        shown |= {"startLine": lines[0], "endLine": lines[1]}
    if cursor is not None:
        shown["nextCursor"] = cursor
    return shown


@dataclass(frozen=True, slots=True)
class PassageCursor:
    """Where a passage goes on: byte offset and line there, and the lines that are read."""

    offset: int
    line: int
    start_line: int | None
    end_line: int | None

    def encode(self, request: EvidenceReadRequest, origin: str) -> str:
        """A text that is good for this record, path and hash only, in the partition that ``origin`` names."""
        place = [self.offset, self.line, self.start_line, self.end_line]
        written = json.dumps([*place, _bound(request, origin, place)], separators=(",", ":"))
        return base64.urlsafe_b64encode(written.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, request: EvidenceReadRequest, origin: str) -> PassageCursor | None:
        """The cursor of a request; raises :class:`InvalidArgument` for one that another source, range, partition or
        store gave."""
        if request.cursor is None:
            return None
        try:
            padded = request.cursor + "=" * (-len(request.cursor) % 4)
            offset, line, start, end, bound = json.loads(base64.b64decode(padded, b"-_", validate=True))
        except (ValueError, TypeError, RecursionError):
            raise _foreign_cursor() from None
        numbers: Sequence[object] = (offset, line, start, end)
        if not all(value is None or type(value) is int for value in numbers) or None in (offset, line):
            raise _foreign_cursor()
        if bound != _bound(request, origin, numbers):
            raise _foreign_cursor()
        for given, kept in ((request.start_line, start), (request.end_line, end)):
            if given is not None and given != kept:
                raise _foreign_cursor()
        return cls(offset, line, start, end)


def _bound(request: EvidenceReadRequest, origin: str, place: Sequence[object]) -> str:
    text = json.dumps([origin, request.id, request.path, request.sha256, *place])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _foreign_cursor() -> InvalidArgument:
    return InvalidArgument(
        "cursor is not one that this source and these lines gave; begin again without it.",
        field="cursor",
        reason="foreign",
        allowed="nextCursor of the previous response",
    )
