"""``recall.gate``: the question of one turn and its answer, and what the gate asks a store for.

Source: memory-provider.md (Recall gate), decisions.md section 7 (``recall.gate``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from messages.json_types import JsonObject
from messages.pieces import Choice, Integer, Items, RecordId, Text, Token
from messages.tools import ToolRequest

GateMode: TypeAlias = Literal["off", "shadow", "live"]
CandidateMode: TypeAlias = Literal["keyword", "model"]
Outcome: TypeAlias = Literal["injected", "skip-hint", "shadow", "none", "unavailable", "error"]
SkipReason: TypeAlias = Literal["off", "not_user_turn", "not_private", "no_store"]
Tier: TypeAlias = Literal["high", "medium", "none"]
Stage: TypeAlias = Literal["access", "admission", "provider", "candidates", "shortlist", "score", "pages", "publish"]
"""Where a turn stands: who may ask, a place among the turns, the model, and the steps of the gate."""

USER_TRIGGER: Final = "user"
BLOCK_MAX_CHARS: Final = 6_000
"""UTF-16 units of what is put into a turn, header included."""
TURN_ID_MAX_CHARS: Final = 128
LOG_PREFIX: Final = "knowledge recall gate:"
"""How the log line of a turn begins."""
INDEX_CHARS_MAX: Final = 2**31
"""No label index is longer; a configuration that allows more allows all of it."""


def _turn_id(text: str) -> str | None:
    return text if text and all("!" <= char <= "~" for char in text) else None


class RecallGateRequest(ToolRequest):
    """Which stored pages does this user's message need? Never creates a store."""

    tool: ClassVar[str] = "recall.gate"
    message: Annotated[str, Text(may_be_blank=True)]
    turn_id: Annotated[
        str, Token(_turn_id, "an id of printable ASCII characters without spaces", max_chars=TURN_ID_MAX_CHARS)
    ]
    trigger: Annotated[str, Text(max_units=64, one_line=True)] = USER_TRIGGER
    """What began the turn; anything but ``user`` is skipped."""


class GateCandidatesRequest(ToolRequest):
    """To a lane, from the gate: the pages that a message may need, with passages, or the label index."""

    tool: ClassVar[str] = "recall.candidates"
    mode: Annotated[CandidateMode, Choice("keyword", "model")]
    message: Annotated[str, Text(may_be_blank=True)] = ""
    """``keyword``: what words are looked for."""
    limit: Annotated[int, Integer(1, 10)] = 10
    excerpts: Annotated[int, Integer(1, 10)] = 4
    excerpt_chars: Annotated[int, Integer(100, 4_000)] = 1_000
    page_chars: Annotated[int, Integer(200, 6_000)] = 2_800
    max_index_chars: Annotated[int, Integer(1, INDEX_CHARS_MAX)] = 24_000


class GatePagesRequest(ToolRequest):
    """To a lane, from the gate: the beginnings of pages that were chosen by their labels."""

    tool: ClassVar[str] = "recall.pages"
    ids: Annotated[tuple[RecordId, ...], Items(maximum=10)]
    page_chars: Annotated[int, Integer(200, 6_000)] = 2_800


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePage:
    """A page that may be put into a turn. ``name`` is what a lookup finds it by; ``text`` is what would be quoted."""

    id: str
    title: str
    name: str
    type: str = ""
    alias: str | None = None
    text: str = ""

    @property
    def label(self) -> str:
        """The page in the label index: type, title and one exact alias, on one line."""
        return f"{self.type}: {self.title}" + ("" if self.alias is None else f" (also {self.alias})")

    def to_json(self) -> JsonObject:
        return {
            "id": self.id,
            "title": self.title,
            "name": self.name,
            "type": self.type,
            "alias": self.alias,
            "text": self.text,
        }

    @classmethod
    def from_json(cls, page: JsonObject) -> GatePage:
        alias = page["alias"]
        return cls(
            id=str(page["id"]),
            title=str(page["title"]),
            name=str(page["name"]),
            type=str(page["type"]),
            alias=None if alias is None else str(alias),
            text=str(page["text"]),
        )


def pages_to_json(pages: Sequence[GatePage]) -> JsonObject:
    return {"pages": [page.to_json() for page in pages]}


def pages_from_json(answer: JsonObject) -> tuple[GatePage, ...]:
    pages = answer["pages"]
    assert isinstance(pages, list)
    return tuple(GatePage.from_json(page) for page in pages if isinstance(page, dict))


@dataclass(frozen=True, slots=True)
class GateDecision:
    """What the model says of one page; ``score`` is ``None`` where it gave no probability."""

    id: str
    score: float | None
    tier: Tier

    def to_json(self) -> JsonObject:
        return {"id": self.id, "score": self.score, "tier": self.tier}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """How one turn ended. ``stage`` is where an ``unavailable`` or an ``error`` came up; it is logged."""

    outcome: Outcome
    reason: str | None = None
    stage: Stage | None = None
    block: str = ""
    offered: int = 0
    shortlisted: int = 0
    decisions: tuple[GateDecision, ...] = ()

    @property
    def tells(self) -> bool:
        """Whether anything of the store is in it: that no page matched is, too."""
        return bool(self.block or self.offered or self.decisions) or (self.outcome == "none" and self.reason is None)

    def to_json(self, latency_ms: int) -> JsonObject:
        return {
            "outcome": self.outcome,
            **({} if self.reason is None else {"reason": self.reason}),
            "block": self.block,
            "latencyMs": latency_ms,
            "offered": self.offered,
            "shortlisted": self.shortlisted,
            "decisions": [decision.to_json() for decision in self.decisions],
        }
