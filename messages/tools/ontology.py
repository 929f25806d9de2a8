"""``knowledge_ontology``: the vocabulary of the caller's partition, in four views.

The views themselves are built by the ontology; what is decided here is what may be asked (tools.md, Ontology).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from messages.pieces import Bool, Choice, Integer, Text, refused
from messages.tools._base import READ_CHARS_DEFAULT, TYPE_MAX_CHARS, Offset, ToolRequest

OntologyView: TypeAlias = Literal["catalog", "definitions", "sources", "diagnostics"]

DEFINITIONS_LIMIT: Final = 10
OTHER_LIMIT: Final = 50
SOURCE_PATH_MAX_CHARS: Final = 500


class OntologyRequest(ToolRequest):
    """What to show of the vocabulary; ``page_size`` is ``limit``, else the view's own default."""

    tool: ClassVar[str] = "knowledge_ontology"

    view: Annotated[OntologyView, Choice("catalog", "definitions", "sources", "diagnostics")] = Field(
        default="catalog", description="catalog (default) lists names; definitions gives fields and rules."
    )
    name: Annotated[str, Text(max_units=TYPE_MAX_CHARS, one_line=True)] | None = Field(
        default=None, description="One type, label or alias."
    )
    kind: Annotated[Literal["page", "relationship"], Choice("page", "relationship")] | None = Field(
        default=None, description="Only this kind."
    )
    include_records: Bool = Field(default=False, description="With definitions: add up to 20 records per type.")
    source_path: Annotated[str, Text(max_units=SOURCE_PATH_MAX_CHARS, one_line=True)] | None = Field(
        default=None, description="With sources: the file to read."
    )
    limit: Annotated[int, Integer(1, 100)] | None = Field(
        default=None, description="Rows per page: 10 for definitions, else 50."
    )
    offset: Offset = Field(default=0, description="nextOffset of the previous page.")
    max_chars: Annotated[int, Integer(256, 65_536)] = Field(
        default=READ_CHARS_DEFAULT, description="With sourcePath: window size, default 12000."
    )

    @property
    def page_size(self) -> int:
        if self.limit is not None:
            return self.limit
        return DEFINITIONS_LIMIT if self.view == "definitions" else OTHER_LIMIT

    @model_validator(mode="after")
    def _fits_view(self) -> Self:
        if self.include_records and self.view != "definitions":
            raise refused("conflict", "needs view definitions", ["definitions"], field="includeRecords")
        if self.source_path is not None:
            if self.view != "sources":
                raise refused("conflict", "needs view sources", ["sources"], field="sourcePath")
            if self.source_path.startswith("/") or "\\" in self.source_path or ".." in self.source_path.split("/"):
                raise refused(
                    "malformed", "must be a path that view sources lists", "a listed path", field="sourcePath"
                )
        return self
