"""``prompt.build``: what a host asks for at the beginning of a turn, and what the runtime knows to word it by.

Source: memory-provider.md (Memory prompt, Knowledge index), decisions.md section 7. Plain values; any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, TypeAlias

from messages.dates import instant_ms
from messages.json_types import JsonObject
from messages.pieces import InstantText, Items, Text
from messages.tools import ToolRequest

NAMES_MAX: Final = 1_000
"""Tools or skills that a host may name."""
PROJECT_KEY_MAX_CHARS: Final = 200
LINK_BASE_MAX_CHARS: Final = 500

_Name: TypeAlias = Annotated[str, Text(max_units=200)]


class PromptBuildRequest(ToolRequest):
    """The selected provider's part of a system prompt. Never creates a store.

    ``session_started_at`` is the session's first retained message. ``tools`` and ``skills`` are what the turn has:
    tools left out mean all of them, skills left out none.
    """

    tool: ClassVar[str] = "prompt.build"
    session_started_at: InstantText
    project_key: Annotated[str, Text(max_units=PROJECT_KEY_MAX_CHARS, one_line=True)] | None = None
    tools: Annotated[tuple[_Name, ...], Items(maximum=NAMES_MAX)] | None = None
    skills: Annotated[tuple[_Name, ...], Items(maximum=NAMES_MAX)] | None = None
    link_base: Annotated[str, Text(max_units=LINK_BASE_MAX_CHARS, one_line=True)] | None = None

    @property
    def started_at_ms(self) -> int:
        """The session's start in UTC milliseconds."""
        found = instant_ms(self.session_started_at)
        assert found is not None
        return found


@dataclass(frozen=True, slots=True)
class PromptFacts:
    """What decides the wording beside the request: ``remembers`` whether the session has memory authority at all,
    ``may_save`` whether a save of it would be accepted."""

    remembers: bool
    may_save: bool


PromptWording: TypeAlias = Callable[[PromptBuildRequest, PromptFacts], str]
"""How a door words the prompt. Called under the read lease of the answer; must not block."""


def built(prompt: str, index: str | None) -> JsonObject:
    """The answer: ``prompt`` does not contain the index, which the host appends."""
    return {"prompt": prompt, "index": index}
