"""What every tool request is, and the argument types that several families share."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import Field

from messages.arguments import Arguments
from messages.dates import date_start
from messages.pieces import Choice, DateText, Hash, Integer, RecordId, Sha256, Text, Uuid, refused
from messages.vocabulary import ASSERTION_ORIGINS, CLAIM_KINDS, RECORD_KINDS, TAG_MAX_CHARS, TITLE_MAX_CHARS

TimeField: TypeAlias = Literal["occurred", "recorded", "updated", "due"]
LifecycleFilter: TypeAlias = Literal["active", "superseded", "all"]

OFFSET_MAX: Final = 10_000_000
REVISION_MAX: Final = 2**53 - 1
SNAPSHOT_MAX_CHARS: Final = 200
TYPE_MAX_CHARS: Final = 100

Kind: TypeAlias = Annotated[Literal["page", "claim", "relationship"], Choice(*RECORD_KINDS)]
ClaimKindArgument: TypeAlias = Annotated[
    Literal["fact", "preference", "decision", "commitment", "event", "belief"], Choice(*CLAIM_KINDS)
]
Origin: TypeAlias = Annotated[Literal["source", "user_belief", "agent_inference"], Choice(*ASSERTION_ORIGINS)]
Lifecycles: TypeAlias = Annotated[LifecycleFilter, Choice("active", "superseded", "all")]
TimeFields: TypeAlias = Annotated[TimeField, Choice("occurred", "recorded", "updated", "due")]
TypeName: TypeAlias = Annotated[str, Text(max_units=TYPE_MAX_CHARS, one_line=True)]
Tag: TypeAlias = Annotated[str, Text(max_units=TAG_MAX_CHARS, one_line=True)]
Title: TypeAlias = Annotated[str, Text(max_units=TITLE_MAX_CHARS, one_line=True)]
Snapshot: TypeAlias = Annotated[str, Text(max_units=SNAPSHOT_MAX_CHARS, one_line=True)]
Offset: TypeAlias = Annotated[int, Integer(0, OFFSET_MAX)]
ReadChars: TypeAlias = Annotated[int, Integer(1_000, 48_000)]

READ_CHARS_DEFAULT: Final = 12_000


class ToolRequest(Arguments):
    """Base of all tool requests: frozen, validated, canonical; ``tool`` and ``schema_version`` are the class's own.

    ``schema_version`` rises whenever an identical payload could mean something else; it is part of the payload hash.
    """

    tool: ClassVar[str]
    schema_version: ClassVar[int] = 1


class WriteRequest(ToolRequest):
    """A request that publishes: its id makes a repeat harmless, the optional fences refuse a changed world."""

    request_id: Uuid = Field(description="New UUID for each new write; repeat it only to retry the identical call.")
    expected_vault_id: Uuid | None = Field(default=None, description="Vault ID from knowledge_status.")
    expected_ontology_fingerprint: Sha256 | None = Field(
        default=None, description="Fingerprint from knowledge_ontology or the last receipt."
    )

    def flush_identity(self) -> tuple[str, ...] | None:
        """The texts that make this write the same one again within a flush; ``None``: its id may not be left out."""
        return None


class FencedRequest(WriteRequest):
    """A write that must name the vault and the ontology that it was prepared against."""

    expected_vault_id: Uuid = Field(description="Vault ID from knowledge_status.")
    expected_ontology_fingerprint: Sha256 = Field(
        description="Fingerprint from knowledge_ontology or the last receipt."
    )


class RecordFence(Arguments):
    """One record at exactly the revision and hash that the caller read."""

    id: RecordId = Field(description="The record.")
    expected_revision: Annotated[int, Integer(1, REVISION_MAX)] = Field(description="Revision you read.")
    expected_hash: Hash = Field(description="Hash you read (16+ characters).")


def check_interval(since: DateText | None, until: DateText | None) -> None:
    """Refuse an interval that can hold nothing: ``until`` is exclusive and must begin after ``since`` does."""
    start = None if since is None else date_start(since)
    end = None if until is None else date_start(until)
    if start is not None and end is not None and end <= start:
        raise refused("conflict", "must be later than since (until is exclusive)", "a later date", field="until")
