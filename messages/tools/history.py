"""``knowledge_history``, ``_revision``, ``_mutation`` and ``_resume``: what was written, and how to recover it.

Source: tools.md, Receipts, history, and recovery; decisions.md sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from messages.json_types import JsonObject
from messages.pieces import Bool, Choice, Integer, RecordId, Uuid, refused
from messages.text import clip_utf16, utf16_length
from messages.tools._base import READ_CHARS_DEFAULT, Offset, ReadChars, ToolRequest
from messages.tools._rows import ROWS_MAX_BYTES, json_bytes, paging, rows_within
from messages.tools.receipts import git_beside
from messages.tools.records import text_from
from messages.tools.status import GitState

ContentField: TypeAlias = Literal["before", "proposed", "displaced"]

MUTATION_FILES_PER_RESPONSE: Final = 3
SEQUENCE_MAX: Final = 2**53 - 1


class HistoryRequest(ToolRequest):
    """Receipts and revisions of the caller's partition, newest first."""

    tool: ClassVar[str] = "knowledge_history"

    id: RecordId | None = Field(default=None, description="Only this record.")
    limit: Annotated[int, Integer(1, 100)] = Field(default=20, description="Rows per page, default 20.")
    offset: Offset = Field(default=0, description="nextOffset of the previous page.")


class RevisionRequest(ToolRequest):
    """One retained revision's text, in windows."""

    tool: ClassVar[str] = "knowledge_revision"

    id: RecordId = Field(description="Record ID.")
    sequence: Annotated[int, Integer(1, SEQUENCE_MAX)] = Field(description="sequence of a knowledge_history row.")
    offset: Offset = Field(default=0, description="nextOffset of the previous window.")
    max_chars: ReadChars = Field(default=READ_CHARS_DEFAULT, description="Window size, default 12000.")


class MutationRequest(ToolRequest):
    """One publication's complete receipt and its recovery material."""

    tool: ClassVar[str] = "knowledge_mutation"

    request_id: Uuid = Field(description="The write's request ID.")
    include_files: Bool = Field(default=True, description="false: the receipt only.")
    file_offset: Offset = Field(default=0, description="nextFileOffset of the previous response.")
    content_field: Annotated[ContentField, Choice("before", "proposed", "displaced")] | None = Field(
        default=None, description="Continue this one text of the file at fileOffset."
    )
    char_offset: Offset = Field(default=0, description="nextCharOffset of that text.")
    max_chars: ReadChars = Field(
        default=READ_CHARS_DEFAULT, description="Characters of all texts together, default 12000."
    )

    @model_validator(mode="after")
    def _one_text(self) -> Self:
        if self.char_offset and self.content_field is None:
            raise refused("missing", "is required with charOffset", ["contentField"], field="contentField")
        if self.content_field is not None and not self.include_files:
            raise refused("conflict", "needs includeFiles", ["includeFiles"], field="contentField")
        return self


class ResumeRequest(ToolRequest):
    """Finish an interrupted publication, or retry its Git checkpoint; never overwrites a conflict."""

    tool: ClassVar[str] = "knowledge_resume"

    request_id: Uuid = Field(description="The original write's request ID.")


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One history entry; an external edit has no request id. ``path`` and ``commit`` where they are known.

    ``complete`` are the members that only operators are shown.
    """

    sequence: int
    operation: str
    id: str
    revision: int
    hash: str
    at: str
    actor: str
    request_id: str | None = None
    external: bool = False
    state: str = "published"
    path: str | None = None
    commit: str | None = None
    complete: JsonObject | None = None

    def to_json(self) -> JsonObject:
        members: JsonObject = {
            "sequence": self.sequence,
            "requestId": self.request_id,
            "operation": self.operation,
            "id": self.id,
            "revision": self.revision,
            "hash": self.hash,
            "at": self.at,
            "actor": self.actor,
            "external": True if self.external else None,
            "state": None if self.state == "published" else self.state,
            "path": self.path,
            "commit": self.commit,
        }
        shown: JsonObject = {key: member for key, member in members.items() if member is not None}
        return shown if self.complete is None else {**shown, **self.complete}


def history_response(
    rows: Sequence[HistoryRow],
    *,
    total: int,
    offset: int,
    git: GitState,
    snapshot: str | None = None,
    max_bytes: int = ROWS_MAX_BYTES,
) -> JsonObject:
    """One page of history, cut to ``max_bytes``, with the partition's Git summary.

    Newest first, so a write between two pages moves every row on: pages of one ``snapshot`` join without a repeat.
    """
    checkpoint = git.to_json()
    shown = rows_within((row.to_json() for row in rows), max_bytes - json_bytes(checkpoint))
    page = paging(offset=offset, returned=len(shown), total=total, snapshot=snapshot)
    return {"total": total, **page, "git": checkpoint, "rows": shown}


def revision_response(row: HistoryRow, content: str, request: RevisionRequest) -> JsonObject:
    """One window of a retained revision; ``content`` is its complete text.

    Raises :class:`messages.errors.InvalidArgument` for an offset beyond the text or inside a surrogate pair.
    """
    window = clip_utf16(rest := text_from(content, request.offset), request.max_chars)
    shown = row.to_json()
    if len(window) < len(rest):
        shown["nextOffset"] = request.offset + utf16_length(window)
    return {**shown, "content": window}


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationFile:
    """One file of a publication with its texts: before, proposed by us, displaced by us (``None``: there is none)."""

    path: str
    id: str | None = None
    texts: Mapping[ContentField, str | None]


def mutation_response(
    receipt: JsonObject,
    files: Sequence[MutationFile],
    request: MutationRequest,
    *,
    commit: str | None = None,
    git: GitState | None = None,
) -> JsonObject:
    """The complete receipt, then three files at a time; ``max_chars`` is shared evenly by the texts shown.

    With ``content_field`` only that text of the file at ``file_offset`` is continued, from ``char_offset``.
    """
    response: JsonObject = {"receipt": receipt if commit is None else {**receipt, "commit": commit}}
    if git is not None:
        response["git"] = git_beside(git)
    if not request.include_files:
        return response
    count = 1 if request.content_field is not None else MUTATION_FILES_PER_RESPONSE
    window = files[request.file_offset : request.file_offset + count]
    following = request.file_offset + len(window)
    if window and following < len(files) and request.content_field is None:
        response["nextFileOffset"] = following
    shares = sum(len(_texts(file, request)) for file in window)
    units = request.max_chars // max(shares, 1)
    response["files"] = [_mutation_file(file, request, units) for file in window]
    return response


def _mutation_file(file: MutationFile, request: MutationRequest, units: int) -> JsonObject:
    shown: JsonObject = {"path": file.path}
    if file.id is not None:
        shown["id"] = file.id
    for name, text in _texts(file, request).items():
        offset = request.char_offset if request.content_field == name else 0
        window = clip_utf16(rest := text_from(text, offset, field="charOffset"), units)
        more: JsonObject = {"nextCharOffset": offset + utf16_length(window)} if len(window) < len(rest) else {}
        shown[name] = {**more, "text": window}
    return shown


def _texts(file: MutationFile, request: MutationRequest) -> dict[str, str]:
    only = request.content_field
    return {name: text for name, text in file.texts.items() if text is not None and only in (None, name)}
