"""The context block of an agent memory: persistent facts by category, then what was remembered lately.

Source: agent-memory.md (Context Building, Pruning Behavior), agent-memory-contract.md sections 4 and 11.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final, TypeAlias

from storage.agent_memory import notes
from storage.agent_memory.daily_logs import LogLine
from storage.agent_memory.directory import MemoryDirectory
from storage.agent_memory.entry import in_utc
from storage.agent_memory.notes import Fact

LONG_TERM: Final = "[Long-term Memory]"
RECENT: Final = "[Recent Memory]"
_CUT: Final = "\n... (truncated)"

Context: TypeAlias = str


@dataclass(frozen=True, slots=True)
class ContextBounds:
    """``max_log_days``: what is pruned first; ``max_entries``: recent lines; ``max_chars``: the whole block."""

    max_log_days: int
    max_entries: int
    max_chars: int | None = None


def first_kept_day(now: datetime, max_days: int) -> date:
    """The first day whose log stays when those of ``max_days`` days before today stay."""
    try:
        return in_utc(now).date() - timedelta(days=max_days)
    except OverflowError:
        return date.min


def build_context(directory: MemoryDirectory, bounds: ContextBounds, now: datetime) -> tuple[Context, int]:
    """The block, empty sections left out, and how many logs were pruned before it."""
    pruned = directory.prune(first_kept_day(now, bounds.max_log_days))
    sections = []
    facts = fact_lines(directory.facts())
    if facts:
        sections.append("\n".join([LONG_TERM, *facts]))
    recent = recent_lines(directory.recent(date.min, bounds.max_entries, transient_only=True))
    if recent:
        sections.append("\n".join([RECENT, *recent]))
    return clipped("\n\n".join(sections), bounds.max_chars), pruned


def clipped(text: str, max_chars: int | None) -> str:
    """The text in at most ``max_chars`` characters, saying so where it is cut and there is room to say it."""
    if max_chars is None or len(text) <= max_chars:
        return text
    if max_chars < len(_CUT):
        return text[: max(max_chars, 0)]
    return text[: max_chars - len(_CUT)] + _CUT


def recent_lines(lines: Iterable[LogLine]) -> list[str]:
    """Log lines as a context shows them; what follows the first line of a text is indented."""
    shown: list[str] = []
    for line in lines:
        head, *further = line.content.strip().splitlines() or [""]
        shown.append(f"- [{line.at:%Y-%m-%d %H:%M}] ({notes.one_line(line.category)}) {head}".rstrip())
        shown += [f"  {text}".rstrip() for text in further]
    return shown


def fact_lines(facts: Iterable[Fact]) -> list[str]:
    """Facts by category, each category once, in the order in which they came."""
    grouped: dict[str, list[str]] = {}
    for fact in facts:
        grouped.setdefault(fact.category, []).append(fact.content)
    shown: list[str] = []
    for category, contents in grouped.items():
        if shown:
            shown.append("")
        if category:
            shown.append(f"## {category}")
        for content in contents:
            shown += notes.bullet(content)
    return shown
