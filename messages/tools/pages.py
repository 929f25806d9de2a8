"""``knowledge_save_page`` and ``knowledge_edit_body``: a page as a whole, or one exact range of its body.

Source: tools.md, Pages and body edits, Page budgets; decisions.md sections 4 (same title) and 5.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Self, TypeAlias

from pydantic import Field, model_validator

from messages.arguments import Arguments
from messages.pieces import Bool, Fields, Hash, Integer, Items, RecordId, Sha256, Text, Token, refused
from messages.tools._base import (
    OFFSET_MAX,
    REVISION_MAX,
    FencedRequest,
    Offset,
    RecordFence,
    Tag,
    Title,
    TypeName,
    WriteRequest,
)
from messages.vocabulary import ATTRIBUTION_MAX_CHARS, BODY_ARGUMENT_MAX_CHARS, REASON_MAX_CHARS

PATH_MAX_CHARS: Final = 500
FILENAME_MAX_CHARS: Final = 255
QUOTE_MAX_CHARS: Final = 4_000
PATH_FORM: Final = "the path of a retained source: artifacts/<requestId>/<file>"


def _accept_artifact(value: str) -> str | None:
    parts = value.split("/")
    plain = len(parts) == 3 and parts[0] == "artifacts" and all(part not in ("", ".", "..") for part in parts)
    return value if plain and value.isprintable() and "\\" not in value else None


RetainedPath: TypeAlias = Annotated[str, Token(_accept_artifact, PATH_FORM, PATH_MAX_CHARS)]


class EvidenceArgument(Arguments):
    """A citation of a retained source, in the keys in which receipts and reads give it."""

    path: RetainedPath = Field(description="Retained path from a receipt or read.")
    sha256: Sha256 = Field(description="The file's full hash.")
    size: Annotated[int, Integer(0, REVISION_MAX)] | None = None
    attribution: Annotated[str, Text(max_units=ATTRIBUTION_MAX_CHARS)] | None = None
    filename: Annotated[str, Text(max_units=FILENAME_MAX_CHARS, one_line=True)] | None = None
    media_type: Annotated[str, Text(max_units=FILENAME_MAX_CHARS, one_line=True)] | None = Field(
        default=None, alias="media_type"
    )
    start_line: Annotated[int, Integer(1, OFFSET_MAX)] | None = Field(
        default=None, alias="start_line", description="First line cited."
    )
    end_line: Annotated[int, Integer(1, OFFSET_MAX)] | None = Field(
        default=None, alias="end_line", description="Last line cited."
    )
    quote: Annotated[str, Text(max_units=QUOTE_MAX_CHARS)] | None = Field(
        default=None, description="Exact words inside the lines."
    )

    @model_validator(mode="after")
    def _lines(self) -> Self:
        if self.end_line is not None and self.start_line is None:
            raise refused("missing", "is required with end_line", ["start_line"], field="start_line")
        if self.end_line is not None and self.start_line is not None and self.end_line < self.start_line:
            raise refused("conflict", "must not come before start_line", "start_line or later", field="end_line")
        return self


class PageArguments(Arguments):
    """A complete page, new or edited. Left-out collections are kept, empty ones cleared, given ones replaced."""

    id: RecordId | None = Field(default=None, description="Edit this page; leave out to create.")
    expected_revision: Annotated[int, Integer(1, REVISION_MAX)] | None = Field(
        default=None, description="Revision you read; required with id."
    )
    expected_hash: Hash | None = Field(default=None, description="Hash you read (16+ characters); required with id.")
    title: Title = Field(description="The page's name.")
    type: TypeName = Field(description="Ontology page type, e.g. person or project.")
    body: Annotated[str, Text(max_units=BODY_ARGUMENT_MAX_CHARS, may_be_blank=True)] = Field(
        description="The complete Markdown body, without frontmatter."
    )
    aliases: Annotated[tuple[Title, ...], Items()] | None = Field(
        default=None, description="Other exact names; replaces all."
    )
    tags: Annotated[tuple[Tag, ...], Items()] | None = Field(default=None, description="Replaces all tags.")
    dependencies: Annotated[tuple[RecordId, ...], Items()] | None = Field(
        default=None, description="IDs of records this page rests on; replaces all."
    )
    fields: Fields | None = Field(
        default=None, description="Domain fields of the type; replaces all; null clears a field."
    )
    attachments: Annotated[tuple[EvidenceArgument, ...], Items()] | None = Field(
        default=None, description="Evidence to add."
    )
    allow_same_title: Bool = Field(default=False, description="true: create beside an active page of this title.")

    @model_validator(mode="after")
    def _fenced(self) -> Self:
        check_page_fences(self.id, self.expected_revision, self.expected_hash)
        return self


def check_page_fences(record_id: str | None, revision: int | None, digest: str | None) -> None:
    """Refuse an edit without both fences, and a create with one."""
    fences = {"expectedRevision": revision, "expectedHash": digest}
    for name, fence in fences.items():
        if record_id is not None and fence is None:
            raise refused("missing", "is required to edit a page: read it first", ["id", *fences], field=name)
        if record_id is None and fence is not None:
            raise refused("conflict", "needs id: a new page has no revision yet", ["id", *fences], field=name)


class SavePageRequest(PageArguments, WriteRequest):
    """One page, created or edited."""

    tool: ClassVar[str] = "knowledge_save_page"

    @property
    def creates(self) -> bool:
        return self.id is None

    def flush_identity(self) -> tuple[str, ...]:
        return (self.title,)


class EditBodyRequest(RecordFence, FencedRequest):
    """One range of a page's body, replaced at exact UTF-16 offsets; equal offsets insert, an empty text deletes."""

    tool: ClassVar[str] = "knowledge_edit_body"

    start: Offset = Field(description="First UTF-16 offset of the range, over the full body.")
    end: Offset = Field(description="Offset after the range; equal to start to insert.")
    replacement: Annotated[str, Text(max_units=BODY_ARGUMENT_MAX_CHARS, may_be_blank=True)] = Field(
        description="The new text of the range; empty to delete."
    )
    reason: Annotated[str, Text(max_units=REASON_MAX_CHARS)] = Field(description="Why, for the history.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.end < self.start:
            raise refused("conflict", "must not be before start", "start or later", field="end")
        return self
