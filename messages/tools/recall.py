"""``knowledge_recall``: the owner's approval of a record for automatic recall, set or cleared.

Source: memory-provider.md (Automatic recall), decisions.md section 5.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Self

from pydantic import Field, model_validator

from messages.pieces import Bool, Integer, Items, Text, refused
from messages.tools._base import RecordFence, WriteRequest

SUMMARY_MAX_CHARS: Final = 500
TRIGGER_MAX_CHARS: Final = 200
PROJECT_MAX_CHARS: Final = 500
LIST_MAX_ITEMS: Final = 20
IMPORTANCE_DEFAULT: Final = 5

Trigger = Annotated[str, Text(max_units=TRIGGER_MAX_CHARS, one_line=True)]
ProjectKey = Annotated[str, Text(max_units=PROJECT_MAX_CHARS, one_line=True)]


class RecallRequest(RecordFence, WriteRequest):
    """One approval, complete, or ``clear``. Who approved and when is the service's to write, never the caller's."""

    tool: ClassVar[str] = "knowledge_recall"

    clear: Bool = Field(default=False, description="true: take the approval back; send none of the following.")
    summary: Annotated[str, Text(max_units=SUMMARY_MAX_CHARS)] | None = Field(
        default=None, description="The approved text, all that recall shows; required unless clear."
    )
    triggers: Annotated[tuple[Trigger, ...], Items(maximum=LIST_MAX_ITEMS)] = Field(
        default=(), description="Phrases that call it to mind."
    )
    importance: Annotated[int, Integer(1, 10)] = Field(
        default=IMPORTANCE_DEFAULT, description="1 to 10 (most), default 5."
    )
    projects: Annotated[tuple[ProjectKey, ...], Items(maximum=LIST_MAX_ITEMS)] = Field(
        default=(), description="The host's keys of projects that it belongs to."
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.clear:
            if self.summary is None:
                raise refused("missing", "is required to approve", ["summary", "clear"], field="summary")
            return self
        for name in ("summary", "triggers", "importance", "projects"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise refused("conflict", "does not go with clear", ["clear"], field=name)
        return self
