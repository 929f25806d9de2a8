"""``knowledge_remember``: discrete claims from a conversation, with the passage that supports them.

Source: tools.md, Remembering claims; decisions.md section 5 (limits, result keys).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from messages.arguments import Arguments
from messages.json_types import JsonObject
from messages.pieces import Bool, Choice, DateText, Items, Text
from messages.tools._base import ClaimKindArgument, WriteRequest
from messages.tools._rows import Found
from messages.vocabulary import (
    ABOUT_MAX_CHARS,
    ATTRIBUTION_MAX_CHARS,
    CLAIM_TEXT_MAX_CHARS,
    EXCERPT_MAX_BYTES,
    REMEMBER_MAX_ITEMS,
    TITLE_MAX_CHARS,
)

RememberOrigin = Literal["source", "user_belief"]

_ORIGIN = Choice(
    "source",
    "user_belief",
    hints={"agent_inference": "an agent's own inference is not remembered: write it on a page as analysis"},
)


class RememberItem(Arguments):
    """One claim to save."""

    text: Annotated[str, Text(max_units=CLAIM_TEXT_MAX_CHARS)] = Field(
        description="One self-contained claim, no broader than the excerpt."
    )
    kind: ClaimKindArgument
    subject: Annotated[str, Text(max_units=TITLE_MAX_CHARS)] | None = Field(
        default=None, description="Exact page ID, title or alias the claim is about."
    )
    about: Annotated[str, Text(max_units=ABOUT_MAX_CHARS)] | None = Field(
        default=None, description="Your own words for what it concerns; needs no page."
    )
    origin: Annotated[RememberOrigin, _ORIGIN] = Field(
        default="source", description="source (default), or user_belief for the user's opinion."
    )
    occurred_at: DateText | None = Field(
        default=None, alias="occurred_at", description="When it happened: YYYY, YYYY-MM, YYYY-MM-DD or RFC 3339."
    )
    due_at: DateText | None = Field(default=None, alias="due_at", description="Due date of a commitment.")
    expires_at: DateText | None = Field(default=None, alias="expires_at", description="When it stops being true.")
    infer_subject: Bool = Field(
        default=True, alias="infer_subject", description="false: do not guess a page when subject is left out."
    )


class RememberRequest(WriteRequest):
    """One to twenty claims with one excerpt, saved as one publication."""

    tool: ClassVar[str] = "knowledge_remember"

    attribution: Annotated[str, Text(max_units=ATTRIBUTION_MAX_CHARS)] = Field(
        description="Who said it, where and when, in short."
    )
    excerpt: Annotated[str, Text(max_bytes=EXCERPT_MAX_BYTES)] = Field(
        description="The supporting passage, quoted word for word, at most 16 KiB."
    )
    items: Annotated[tuple[RememberItem, ...], Items(1, REMEMBER_MAX_ITEMS)] = Field(description="The claims.")

    def flush_identity(self) -> tuple[str, ...]:
        return tuple(item.text for item in self.items)


@dataclass(frozen=True, slots=True)
class Subject:
    """How an item's subject was resolved; ``id`` is the page it was linked to."""

    state: Found
    id: str | None = None

    def to_json(self) -> JsonObject:
        return {"state": self.state} if self.id is None else {"state": self.state, "id": self.id}


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedItem:
    """One item of the receipt, in input order; a duplicate carries the existing claim's id, revision and hash."""

    id: str
    revision: int
    hash: str
    subject: Subject
    duplicate: bool = False

    def to_json(self) -> JsonObject:
        shown: JsonObject = {"id": self.id, "revision": self.revision, "hash": self.hash}
        if self.duplicate:
            shown["duplicate"] = True
        shown["subject"] = self.subject.to_json()
        return shown


def all_duplicates(items: Sequence[RememberedItem], *, ontology_fingerprint: str) -> JsonObject:
    """The answer when nothing was new: nothing was published or retained, and the request id stays free."""
    return {"ontologyFingerprint": ontology_fingerprint, "items": [item.to_json() for item in items]}
