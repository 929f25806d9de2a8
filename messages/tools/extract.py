"""``knowledge_extract_section``: one heading section of a page moves to another page.

Source: tools.md, Extract a section; decisions.md section 4 (same title).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Self

from pydantic import Field, model_validator

from messages.arguments import Arguments
from messages.pieces import Bool, Hash, Integer, Items, RecordId, Text, refused
from messages.tools._base import REVISION_MAX, FencedRequest, Offset, RecordFence, Title, TypeName
from messages.tools.pages import EvidenceArgument
from messages.vocabulary import REASON_MAX_CHARS, SUMMARY_MAX_CHARS

_NEW: Final = ("title", "type")
_EXISTING: Final = ("id", "expectedRevision", "expectedHash")


class DestinationPage(Arguments):
    """A new page, or an existing one that is connected to the source."""

    title: Title | None = Field(default=None, description="New page: its name.")
    type: TypeName | None = Field(default=None, description="New page: its ontology type.")
    aliases: Annotated[tuple[Title, ...], Items()] | None = Field(
        default=None, description="New page: other exact names."
    )
    allow_same_title: Bool = Field(
        default=False, description="New page: true creates it beside an active page of this title."
    )
    id: RecordId | None = Field(default=None, description="Existing page, connected to the source.")
    expected_revision: Annotated[int, Integer(1, REVISION_MAX)] | None = Field(
        default=None, description="Existing page: revision you read."
    )
    expected_hash: Hash | None = Field(default=None, description="Existing page: hash you read (16+ characters).")

    @property
    def creates(self) -> bool:
        return self.id is None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        new: dict[str, object] = {"title": self.title, "type": self.type}
        fences: dict[str, object] = {"expectedRevision": self.expected_revision, "expectedHash": self.expected_hash}
        more: dict[str, object] = {"aliases": self.aliases, "allowSameTitle": self.allow_same_title or None}
        if self.id is None:
            for name in (name for name, value in new.items() if value is None):
                allowed = [f"{' + '.join(_NEW)} (a new page)", f"{' + '.join(_EXISTING)} (an existing page)"]
                raise refused("missing", "is required for a new page", allowed, field=name)
            for name in (name for name, value in fences.items() if value is not None):
                raise refused("conflict", "needs id: a new page has no revision yet", list(_EXISTING), field=name)
        else:
            for name in (name for name, value in fences.items() if value is None):
                raise refused("missing", "is required for an existing page: read it first", list(_EXISTING), field=name)
            for name in (name for name, value in (new | more).items() if value is not None):
                raise refused("conflict", "is for a new page only, and id names one", list(_EXISTING), field=name)
        return self


class ExtractSectionRequest(FencedRequest):
    """Move the section that begins at an offset; its heading, a summary and a link stay."""

    tool: ClassVar[str] = "knowledge_extract_section"

    source: RecordFence = Field(description="The page that has the section.")
    section_start: Offset = Field(
        description="UTF-16 offset of the heading line, from a rejection's sections or a fresh full read."
    )
    destination: DestinationPage = Field(description="title and type for a new page, or id and fences of an existing.")
    summary: Annotated[str, Text(max_units=SUMMARY_MAX_CHARS)] = Field(
        description="What stays under the heading, before the link to the destination."
    )
    reason: Annotated[str, Text(max_units=REASON_MAX_CHARS)] = Field(description="Why, for the history.")
    evidence: Annotated[tuple[EvidenceArgument, ...], Items()] | None = Field(
        default=None, description="Evidence to add to the destination."
    )
