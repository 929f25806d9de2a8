"""``knowledge_publish_batch``: pages, claims and relationships of one source, published together or not at all.

Source: tools.md, Ingestion and dates; decisions.md section 5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Self, TypeAlias

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from messages.arguments import Arguments
from messages.pieces import Bool, DateText, Fields, Hash, Integer, Items, RecordId, Text, Token, refused
from messages.tools._base import REVISION_MAX, ClaimKindArgument, FencedRequest, Kind, Origin, Tag, Title, TypeName
from messages.tools.pages import EvidenceArgument, PageArguments, check_page_fences
from messages.tools.statements import ClaimArguments, RelationshipArguments
from messages.vocabulary import (
    ABOUT_MAX_CHARS,
    ATTRIBUTION_MAX_CHARS,
    BODY_ARGUMENT_MAX_CHARS,
    CLAIM_TEXT_MAX_CHARS,
    RECORD_ID,
)

BATCH_MAX_ITEMS: Final = 50
REF_MAX_CHARS: Final = 64

_REF: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REF_FORM: Final = "1 to 64 letters, digits, - and _, without the $"

BatchContent: TypeAlias = PageArguments | ClaimArguments | RelationshipArguments

_STATEMENT_BODY: Final = Text(max_units=CLAIM_TEXT_MAX_CHARS)
_MODELS: Final[Mapping[str, type[BatchContent]]] = {
    "page": PageArguments,
    "claim": ClaimArguments,
    "relationship": RelationshipArguments,
}


def _accept_ref(value: str) -> str | None:
    return value if _REF.fullmatch(value) else None


def _accept_id_or_ref(value: str) -> str | None:
    named = value[1:] if value.startswith("$") else ""
    return value if RECORD_ID.fullmatch(value) or _REF.fullmatch(named) else None


Ref: TypeAlias = Annotated[str, Token(_accept_ref, _REF_FORM, REF_MAX_CHARS)]
IdOrRef: TypeAlias = Annotated[str, Token(_accept_id_or_ref, "a record id, or $ and the ref of another item", 128)]


class UnknownRef(Exception):
    """A ``$ref`` that no item of the batch bears; ``field`` is its path in its own item."""

    def __init__(self, ref: str, field: str) -> None:
        super().__init__(ref, field)
        self.ref = ref
        self.field = field


class BatchItem(Arguments):
    """One record. An id of it, and ``[[$ref|label]]`` in a page's body, may be ``$`` and the ref of another item."""

    kind: Kind = Field(description="page, claim or relationship; the other arguments are those of its create.")
    ref: Ref | None = Field(default=None, description="A name by which other items call it: $name.")

    id: RecordId | None = Field(default=None, description="Edit this page; leave out to create.")
    expected_revision: Annotated[int, Integer(1, REVISION_MAX)] | None = None
    expected_hash: Hash | None = None
    title: Title | None = None
    type: TypeName | None = None
    body: Annotated[str, Text(max_units=BODY_ARGUMENT_MAX_CHARS, may_be_blank=True)] | None = None
    aliases: Annotated[tuple[Title, ...], Items()] | None = None
    tags: Annotated[tuple[Tag, ...], Items()] | None = None
    fields: Fields | None = None
    attachments: Annotated[tuple[EvidenceArgument, ...], Items()] | None = Field(
        default=None, description="Evidence of a page; a claim or relationship has evidence."
    )
    allow_same_title: Bool | None = None
    dependencies: Annotated[tuple[IdOrRef, ...], Items()] | None = None

    claim_kind: ClaimKindArgument | None = Field(default=None, alias="claim_kind")
    assertion_origin: Origin | None = Field(default=None, alias="assertion_origin")
    attribution: Annotated[str, Text(max_units=ATTRIBUTION_MAX_CHARS)] | None = None
    evidence: Annotated[tuple[EvidenceArgument, ...], Items()] | None = None
    entities: Annotated[tuple[IdOrRef, ...], Items()] | None = None
    owner: IdOrRef | None = None
    occurred_at: DateText | None = Field(default=None, alias="occurred_at")
    due_at: DateText | None = Field(default=None, alias="due_at")
    expires_at: DateText | None = Field(default=None, alias="expires_at")
    source_page: IdOrRef | None = Field(default=None, alias="source_page")
    subject_hint: Annotated[str, Text(max_units=ABOUT_MAX_CHARS)] | None = Field(default=None, alias="subject_hint")
    from_id: IdOrRef | None = Field(default=None, alias="from")
    to_id: IdOrRef | None = Field(default=None, alias="to")
    label: TypeName | None = None

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        model = _MODELS[self.kind]
        for name in type(self).model_fields:
            known = model.model_fields.get(name)
            if name in ("kind", "ref") or (known is None and getattr(self, name) is None):
                continue
            if known is None:
                raise refused("conflict", f"is no argument of a {self.kind}", field=_alias(self, name))
            if known.is_required() and getattr(self, name) is None and name != "evidence":
                raise refused("missing", f"is required for a {self.kind}", field=_alias(self, name))
        if self.kind == "page":
            check_page_fences(self.id, self.expected_revision, self.expected_hash)
            return self
        if not self.evidence:
            raise refused("missing", f"is required for a {self.kind}", field="evidence", code="evidence_invalid")
        if self.body is not None and (self.kind == "claim" or self.body):
            try:
                _STATEMENT_BODY.check(self.body)
            except PydanticCustomError as error:
                raise _of_field(error, "body") from None
        return self

    def content(self, ids: Mapping[str, str]) -> BatchContent:
        """The arguments of the create or edit, with every ``$ref`` replaced by its id; ``ids`` has all refs.

        ``fields`` and the body are not looked into: only the ontology and a parser know what is an id there. Raises
        :class:`UnknownRef` for one that no item bears.
        """
        model = _MODELS[self.kind]
        given = {name: getattr(self, name) for name in model.model_fields}
        filled = {
            name: _filled(value, ids, _alias(self, name)) if name in _ID_FIELDS else value
            for name, value in given.items()
        }
        return model.model_construct(None, **{name: value for name, value in filled.items() if value is not None})


class PublishBatchRequest(FencedRequest):
    """Up to fifty records, all or none."""

    tool: ClassVar[str] = "knowledge_publish_batch"

    items: Annotated[tuple[BatchItem, ...], Items(1, BATCH_MAX_ITEMS)] = Field(
        description="The records, in the order of the receipt."
    )

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        for name in ("ref", "id"):
            seen: dict[str, int] = {}
            for index, item in enumerate(self.items):
                value = getattr(item, name)
                if value is not None and seen.setdefault(value, index) != index:
                    raise refused("conflict", f"is also that of items[{seen[value]}]", field=f"items[{index}].{name}")
        return self


_ID_FIELDS: Final = ("dependencies", "entities", "owner", "source_page", "from_id", "to_id")


def id_of_ref(value: str, ids: Mapping[str, str], field: str) -> str:
    """The id that a value stands for: itself, or that of the item whose ref it names. Raises :class:`UnknownRef`."""
    if not value.startswith("$"):
        return value
    if value[1:] not in ids:
        raise UnknownRef(value[1:], field)
    return ids[value[1:]]


def _filled(value: str | tuple[str, ...] | None, ids: Mapping[str, str], field: str) -> str | tuple[str, ...] | None:
    if isinstance(value, tuple):
        return tuple(id_of_ref(item, ids, f"{field}[{index}]") for index, item in enumerate(value))
    return None if value is None else id_of_ref(value, ids, field)


def _of_field(error: PydanticCustomError, field: str) -> PydanticCustomError:
    """The same problem, of a member of the item."""
    return PydanticCustomError(error.type, "refused", {**(error.context or {}), "field": field})


def _alias(item: BatchItem, name: str) -> str:
    return type(item).model_fields[name].alias or name
