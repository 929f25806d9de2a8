"""The two tools by which a model uses a :class:`~host_bridge.KnowledgeMemory`: ``remember`` and ``recall``.

A tool has ``name``, ``description``, ``parameters`` and ``function``; its schemas are flat and use no feature that a
provider lacks. Each also takes its arguments as text, as models often send them.

Source: agent-memory.md (Auto-Registered Tools), agent-memory-contract.md sections 8 and 9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from messages.json_types import JsonObject
from storage.agent_memory import KnowledgeEntry, KnowledgeStore
from storage.agent_memory.entry import GENERAL
from storage.agent_memory.notes import one_line
from storage.agent_memory.recall import Ranking, recalled

RECALL_LIMIT: Final = 5
POOL: Final = 500
_TRUE: Final = ("true", "yes", "1")

T = TypeVar("T")


class Memory(Protocol):
    """What the tools need of a memory: that of this package, or of the released one."""

    @property
    def store(self) -> KnowledgeStore: ...
    def remember(self, content: str, category: str = ..., persistent: bool = ...) -> str: ...


@dataclass(frozen=True, slots=True)
class ToolParameter:
    """``param_type``: what ``function`` always takes; ``schema``: what a model is told."""

    name: str
    param_type: type
    description: str
    required: bool
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MemoryTool:
    """A tool for a model; ``function`` takes the parameters by name and answers text."""

    name: str
    description: str
    parameters: tuple[ToolParameter, ...]
    function: Callable[..., str]

    def input_schema(self) -> JsonObject:
        """The arguments as JSON Schema."""
        return {
            "type": "object",
            "properties": {
                one.name: {**one.schema, "description": one.description} for one in self.parameters
            },
            "required": [one.name for one in self.parameters if one.required],
            "additionalProperties": False,
        }

    def to_openai(self) -> JsonObject:
        """As OpenAI's chat completions take it."""
        return {
            "type": "function",
            "function": {
                "name": self.name, "description": self.description, "parameters": self.input_schema(),
            },
        }  # fmt: skip

    def to_anthropic(self) -> JsonObject:
        """As Anthropic's messages take it."""
        return {"name": self.name, "description": self.description, "input_schema": self.input_schema()}

    def to_mcp(self) -> JsonObject:
        """As an MCP server lists it."""
        return {"name": self.name, "description": self.description, "inputSchema": self.input_schema()}


def make_remember_tool(km: Memory) -> MemoryTool:
    """``remember(content, category, persistent)``: what the memory's own answers, the id or ``""``. A blank text, which
    models send now and then, is kept by no memory: ``""``."""

    def remember(content: str, category: str | None = GENERAL, persistent: str | bool | None = False) -> str:
        if not content.strip():
            return ""
        return km.remember(content, category=category or GENERAL, persistent=_is_true(persistent))

    return MemoryTool(
        "remember",
        "Store a fact, a preference or an instruction in long-term memory, so that later conversations have it.",
        (
            ToolParameter("content", str, "What to remember, as one statement that stands alone.", True, _TEXT),
            ToolParameter(
                "category", str, "One word to file it under, such as preferences or personal; general by default.",
                False, _TEXT,
            ),
            ToolParameter(
                "persistent", str, "true for what should be kept for good; other notes go after some weeks.",
                False, {"type": "boolean"},
            ),
        ),
        remember,
    )  # fmt: skip


def make_recall_tool(km: Memory, ranking: Ranking = "bm25") -> MemoryTool:
    """``recall(query, limit)``: the entries that match best, numbered, as text. ``ranking``: see
    :mod:`storage.agent_memory.recall`; ``"tokens"`` looks at the 500 most important entries only."""

    def recall(query: str, limit: str | int | None = RECALL_LIMIT) -> str:
        return found_text(recalled(_entries(km, ranking), query, limit_of(limit), ranking), query)

    return MemoryTool(
        "recall",
        "Search long-term memory and retrieve what was remembered in earlier conversations, the best matches first.",
        (
            ToolParameter("query", str, "Words to look for; empty for what is most important.", True, _TEXT),
            ToolParameter(
                "limit", str, f"How many to answer at most; {RECALL_LIMIT} by default.", False,
                {"type": "integer", "minimum": 1},
            ),
        ),
        recall,
    )  # fmt: skip


_TEXT: Final = {"type": "string"}


def add_memory_tools(tools: Iterable[T], km: Memory) -> list[T | MemoryTool]:
    """The tools and, after them, ``remember`` and ``recall`` of the memory, but for a name that is taken. The caller's
    collection is not changed; a tool is an object with a ``name``, or a schema of OpenAI, Anthropic or MCP."""
    present: list[T | MemoryTool] = list(tools)
    taken = {_name(tool) for tool in present}
    return [*present, *(tool for tool in (make_remember_tool(km), make_recall_tool(km)) if tool.name not in taken)]


def found_text(found: list[KnowledgeEntry], query: str) -> str:
    """What was found, as a model reads it. Further lines of a text are indented: none can pass for another entry."""
    if not found:
        return f"No memories found matching '{query}'."
    head = "Found 1 memory:" if len(found) == 1 else f"Found {len(found)} memories:"
    return "\n".join([head, *(f"{number}. {_shown(entry)}" for number, entry in enumerate(found, 1))])


def limit_of(value: object) -> int:
    """A whole number above 0, also as text; anything else means the default."""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value != value:
        return RECALL_LIMIT
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return RECALL_LIMIT
    return number if number >= 1 else RECALL_LIMIT


def _entries(km: Memory, ranking: Ranking) -> list[KnowledgeEntry]:
    from host_bridge.knowledge_memory import KnowledgeMemory

    if ranking == "bm25" and isinstance(km, KnowledgeMemory):
        return km.live_entries()
    return km.store.query(limit=POOL)


def _shown(entry: KnowledgeEntry) -> str:
    tag = "" if entry.category == GENERAL else f"[{one_line(entry.category)}] "
    first, *further = entry.content.strip().splitlines() or [""]
    return "\n".join([f"{tag}{first}", *(f"   {line}" for line in further)])


def _is_true(value: object) -> bool:
    return str(value).strip().lower() in _TRUE


def _name(tool: object) -> object:
    if not isinstance(tool, Mapping):
        return getattr(tool, "name", None)
    function = tool.get("function")
    return function.get("name") if isinstance(function, Mapping) else tool.get("name")


def _mark(tool: object, stability: str) -> None:
    tool.__stability__ = stability  # type: ignore[attr-defined]  # a mark of maturity, no member


_mark(make_remember_tool, "stable")
_mark(make_recall_tool, "beta")
