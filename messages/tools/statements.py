"""``knowledge_create_claim``, ``knowledge_create_relationship``, ``knowledge_annotate``: sourced statements.

Source: tools.md, Claims and relationships; decisions.md section 5.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from messages.arguments import Arguments
from messages.pieces import Bool, Choice, DateText, Fields, Items, RecordId, Text, refused
from messages.tools._base import ClaimKindArgument, FencedRequest, Origin, RecordFence, Title, TypeName
from messages.tools.pages import EvidenceArgument
from messages.vocabulary import (
    ABOUT_MAX_CHARS,
    ATTRIBUTION_MAX_CHARS,
    CLAIM_TEXT_MAX_CHARS,
    REASON_MAX_CHARS,
)

ConfidenceArgument: TypeAlias = Annotated[Literal["low", "medium", "high"], Choice("low", "medium", "high")]
EvidenceList: TypeAlias = Annotated[tuple[EvidenceArgument, ...], Items(1, lacking="evidence_invalid")]

_ANNOTATIONS = (
    "source_page", "identity_uncertainty", "attribution_confidence", "continuity", "fixture", "entities", "evidence",
)  # fmt: skip


class StatementArguments(Arguments):
    """What a claim and a relationship have in common: who says it, since when, on what evidence."""

    attribution: Annotated[str, Text(max_units=ATTRIBUTION_MAX_CHARS)] = Field(
        description="Who said it, where and when, in short."
    )
    evidence: EvidenceList = Field(description="The sources that support it; verified before anything is saved.")
    owner: RecordId | None = Field(default=None, description="Page ID of who is responsible.")
    occurred_at: DateText | None = Field(
        default=None, alias="occurred_at", description="When it happened: YYYY, YYYY-MM, YYYY-MM-DD or RFC 3339."
    )
    due_at: DateText | None = Field(default=None, alias="due_at", description="Due date of a commitment.")
    expires_at: DateText | None = Field(default=None, alias="expires_at", description="When it stops being true.")
    source_page: RecordId | None = Field(default=None, alias="source_page", description="Page ID of the source.")
    subject_hint: Annotated[str, Text(max_units=ABOUT_MAX_CHARS)] | None = Field(
        default=None, alias="subject_hint", description="Your own words for what it concerns."
    )
    dependencies: Annotated[tuple[RecordId, ...], Items()] = Field(
        default=(), description="IDs of records that this rests on."
    )


class ClaimArguments(StatementArguments):
    """One claim, as it is created or replaces another."""

    title: Title | None = Field(default=None, description="A short name; by default the first sentence.")
    body: Annotated[str, Text(max_units=CLAIM_TEXT_MAX_CHARS)] = Field(
        description="One self-contained claim, no broader than its evidence."
    )
    claim_kind: ClaimKindArgument = Field(alias="claim_kind")
    assertion_origin: Origin = Field(
        alias="assertion_origin", description="source; user_belief for an opinion; agent_inference for your own."
    )
    entities: Annotated[tuple[RecordId, ...], Items()] = Field(
        default=(), description="Page IDs of what it is about, the subject first."
    )


class RelationshipArguments(StatementArguments):
    """One typed relationship between two pages."""

    from_id: RecordId = Field(alias="from", description="Page ID of the first end.")
    to_id: RecordId = Field(alias="to", description="Page ID of the second end.")
    label: TypeName = Field(description="Ontology relationship label, e.g. works_at.")
    title: Title | None = Field(default=None, description="A short name; by default both ends and the label.")
    body: Annotated[str, Text(max_units=CLAIM_TEXT_MAX_CHARS)] | None = Field(
        default=None, description="What the sources say of it."
    )
    fields: Fields | None = Field(default=None, description="Ontology fields of the label.")
    assertion_origin: Origin = Field(default="source", alias="assertion_origin", description="As for a claim.")


class CreateClaimRequest(ClaimArguments, FencedRequest):
    """A new claim with its evidence; it never overwrites another."""

    tool: ClassVar[str] = "knowledge_create_claim"


class CreateRelationshipRequest(RelationshipArguments, FencedRequest):
    """A new relationship with its evidence; several evidenced ones may join the same two pages."""

    tool: ClassVar[str] = "knowledge_create_relationship"


class AnnotateRequest(RecordFence, FencedRequest):
    """Metadata beside a record's words: they and its lifecycle stay as they are."""

    tool: ClassVar[str] = "knowledge_annotate"

    reason: Annotated[str, Text(max_units=REASON_MAX_CHARS)] = Field(description="Why, for the history.")
    source_page: RecordId | None = Field(default=None, alias="source_page", description="Page ID of the source.")
    identity_uncertainty: Annotated[str, Text(max_units=REASON_MAX_CHARS)] | None = Field(
        default=None, alias="identity_uncertainty", description="What is unsure about who or what is meant."
    )
    attribution_confidence: ConfidenceArgument | None = Field(
        default=None, alias="attribution_confidence", description="How sure it is who said it."
    )
    continuity: Annotated[tuple[RecordId, ...], Items()] | None = Field(
        default=None, description="IDs of records that this one continues; replaces all."
    )
    fixture: Bool | None = Field(default=None, description="true: test data, left out of current reads.")
    entities: Annotated[tuple[RecordId, ...], Items()] | None = Field(
        default=None, description="Page IDs of what it is about, the subject first; replaces all."
    )
    evidence: Annotated[tuple[EvidenceArgument, ...], Items()] | None = Field(
        default=None, description="Evidence to add."
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if all(getattr(self, name) is None for name in _ANNOTATIONS):
            raise refused("missing", "is required: annotate adds at least one of these", _ANNOTATIONS)
        return self
