"""``knowledge_correct``, ``_withdraw``, ``_merge`` and ``_unmerge``: explicit changes of lifecycle.

Originals and history stay in all of them. Source: knowledge-more-facts.md section 3, decisions.md section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from messages.pieces import Choice, Fields, Items, RecordId, Sha256, Text, refused
from messages.tools._base import (
    ClaimKindArgument,
    FencedRequest,
    Origin,
    RecordFence,
    Title,
    TypeName,
    WriteRequest,
)
from messages.tools.statements import ClaimArguments, RelationshipArguments, StatementArguments
from messages.vocabulary import BODY_ARGUMENT_MAX_CHARS, CLAIM_TEXT_MAX_CHARS, REASON_MAX_CHARS

StatementKind = Annotated[Literal["claim", "relationship"], Choice("claim", "relationship")]

_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "claim": ("body", "claim_kind", "assertion_origin"),
    "relationship": ("from_id", "to_id", "label"),
}
_OWN: Final[Mapping[str, tuple[str, ...]]] = {
    "claim": ("claim_kind", "entities"),
    "relationship": ("from_id", "to_id", "label", "fields"),
}


class Replacement(StatementArguments):
    """A whole claim or relationship, as for its create: one flat object, since hosts take no unions."""

    kind: StatementKind = Field(description="The kind of the record that is corrected.")
    title: Title | None = None
    body: Annotated[str, Text(max_units=CLAIM_TEXT_MAX_CHARS)] | None = Field(
        default=None, description="The corrected claim; for a relationship what the sources say of it."
    )
    assertion_origin: Origin | None = Field(default=None, alias="assertion_origin")
    claim_kind: ClaimKindArgument | None = Field(default=None, alias="claim_kind")
    entities: Annotated[tuple[RecordId, ...], Items()] | None = Field(
        default=None, description="Page IDs of what a claim is about, the subject first."
    )
    from_id: RecordId | None = Field(default=None, alias="from")
    to_id: RecordId | None = Field(default=None, alias="to")
    label: TypeName | None = Field(default=None, description="Ontology label of a relationship.")
    fields: Fields | None = Field(default=None, description="Ontology fields of the label.")

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        for name in _NEEDED[self.kind]:
            if getattr(self, name) is None:
                raise refused("missing", f"is required for a {self.kind}", field=_written(name))
        other = "relationship" if self.kind == "claim" else "claim"
        for name in _OWN[other]:
            if getattr(self, name) is not None:
                raise refused("conflict", f"belongs to a {other}, not to a {self.kind}", field=_written(name))
        return self

    def statement(self) -> ClaimArguments | RelationshipArguments:
        """The arguments of the create that it stands for; their values are checked already."""
        model = ClaimArguments if self.kind == "claim" else RelationshipArguments
        given = {name: getattr(self, name) for name in model.model_fields}
        return model.model_construct(**{name: value for name, value in given.items() if value is not None})


def _written(name: str) -> str:
    return name.removesuffix("_id")


class CorrectRequest(RecordFence, WriteRequest):
    """A wrong claim or relationship, and the complete statement that takes its place."""

    tool: ClassVar[str] = "knowledge_correct"

    expected_ontology_fingerprint: Sha256 = Field(
        description="Fingerprint from knowledge_ontology or the last receipt."
    )
    reason: Annotated[str, Text(max_units=REASON_MAX_CHARS)] = Field(description="Why the record was wrong.")
    replacement: Replacement = Field(description="The complete new statement, of the same kind.")


class WithdrawRequest(RecordFence, WriteRequest):
    """One record that shall count no more. There is no way back but a new record."""

    tool: ClassVar[str] = "knowledge_withdraw"

    reason: Annotated[str, Text(max_units=REASON_MAX_CHARS)] = Field(description="Why it is withdrawn.")


class MergeRequest(FencedRequest):
    """Two pages of one thing: the source leads to the destination from now on."""

    tool: ClassVar[str] = "knowledge_merge"

    source: RecordFence = Field(description="The page that is given up, as you read it.")
    destination: RecordFence = Field(description="The page that stays, as you read it.")
    reason: Annotated[str, Text(max_units=REASON_MAX_CHARS)] = Field(description="Why they are the same.")
    body: Annotated[str, Text(max_units=BODY_ARGUMENT_MAX_CHARS, may_be_blank=True)] | None = Field(
        default=None, description="The combined body of the destination; left out, its own stays."
    )

    @model_validator(mode="after")
    def _two_pages(self) -> Self:
        if self.source.id == self.destination.id:
            raise refused("conflict", "must be another page than source", field="destination.id")
        return self


class UnmergeRequest(RecordFence, WriteRequest):
    """A merged page that is a thing of its own after all."""

    tool: ClassVar[str] = "knowledge_unmerge"

    reason: Annotated[str, Text(max_units=REASON_MAX_CHARS)] = Field(description="Why they are not the same.")
