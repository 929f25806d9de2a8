"""``knowledge memory``: an agent's small memory in a directory, from a terminal. It needs no owner and no vault.

Each word is a module function; the package is imported when one runs.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

from host_bridge.cli import exits, output
from host_bridge.cli.in_process import run_word
from host_bridge.cli.options import Options, UsageError, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from host_bridge.knowledge_memory import KnowledgeMemory
    from messages.json_types import JsonValue

VARIABLE = "KNOWLEDGE_MEMORY_DIR"
DEFAULT_DIR = "./agent_memory"
_COMMON = {"--dir": True, "--json": False}
_DAYS_MAX = 1_000_000
_COUNT_MAX = 1_000_000


def run(arguments: Sequence[str]) -> int:
    return run_word(arguments, _WORDS)


def directory_of(options: Options, name: str = "--dir") -> str:
    """The memory directory that the command line or the environment names."""
    return options.get(name) or os.environ.get(VARIABLE) or DEFAULT_DIR


def _remember(arguments: Sequence[str]) -> int:
    known = {"--category": True, "--persistent": False, "--importance": True, "--ttl-days": True}
    options = parse(arguments, {**_COMMON, **known}, words=1)
    text = _text(options)
    importance = _importance(options)
    ttl_days = options.whole_number("--ttl-days", 0, _DAYS_MAX)
    with opened(options, create=True) as memory:
        kept = memory.remember(
            text,
            options.get("--category") or "general",
            options.has("--persistent"),
            importance=importance,
            ttl_days=ttl_days,
        )
    return _said(options, {"id": kept}, f"Remembered as {kept}.")


def _recall(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_COMMON, "--limit": True, "--ranking": True}, words=1)
    query = options.words[0] if options.words else ""
    limit = options.whole_number("--limit", 1, _COUNT_MAX) or 5
    ranking = options.get("--ranking") or "bm25"
    if ranking not in ("bm25", "tokens"):
        raise UsageError(f"--ranking is bm25 or tokens, not {ranking!r}")
    from host_bridge.memory_tools import found_text
    from storage.agent_memory.entry import to_json
    from storage.agent_memory.recall import recalled

    with opened(options) as memory:
        found = recalled(memory.live_entries(), query, limit, "tokens" if ranking == "tokens" else "bm25")
    return _said(options, {"entries": [to_json(entry) for entry in found]}, found_text(found, query))


def _context(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_COMMON, "--entries": True, "--max-chars": True})
    entries = options.whole_number("--entries", 0, _COUNT_MAX)
    most = options.whole_number("--max-chars", 0, _COUNT_MAX)
    with opened(options, entries=entries, most=most) as memory:
        context = memory.build_context()
    return _said(options, {"context": context}, context)


def _facts(arguments: Sequence[str]) -> int:
    options = parse(arguments, _COMMON)
    with opened(options) as memory:
        facts = memory.get_persistent_facts()
    lines: list[str] = []
    for category, contents in facts.items():
        lines += [f"{category or '(no heading)'}:", *(f"  - {_indented(content)}" for content in contents)]
    value: JsonValue = {category: [*contents] for category, contents in facts.items()}
    return _said(options, {"facts": value}, "\n".join(lines) or "There are no persistent facts.")


def _log(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_COMMON, "--days": True, "--limit": True})
    days, limit = options.whole_number("--days", 0, _DAYS_MAX), options.whole_number("--limit", 1, _COUNT_MAX)
    with opened(options) as memory:
        entries = memory.get_recent_entries(days=7 if days is None else days, limit=limit or 50)
    lines = [
        f"{one['timestamp']}  ({_one_line(one['category'])}) {_indented(one['content'])}"
        f"{'  *' if one['persistent'] else ''}"
        for one in entries
    ]
    return _said(options, {"entries": [*entries]}, "\n".join(lines) or "Nothing was remembered in these days.")


def _prune(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_COMMON, "--days": True})
    days = options.whole_number("--days", 0, _DAYS_MAX)
    with opened(options) as memory:
        removed = memory.prune_logs(days)
    return _said(options, {"removed": removed}, f"Removed {removed} daily log{'' if removed == 1 else 's'}.")


def _clear(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_COMMON, "--logs": False, "--yes": False})
    what = "the daily logs and every note that is not persistent" if options.has("--logs") else "everything"
    with opened(options) as memory:
        if not options.has("--yes") and not _agreed(f"Forget {what} in {memory.directory}? [y/N] "):
            return exits.REFUSED
        if options.has("--logs"):
            memory.clear_logs()
        else:
            memory.clear()
    return _said(options, {"cleared": "logs" if options.has("--logs") else "all"}, f"Forgot {what}.")


def _import(arguments: Sequence[str]) -> int:
    from host_bridge.cli import memory_import

    return memory_import.run(arguments)


_WORDS = {
    "remember": _remember,
    "recall": _recall,
    "context": _context,
    "facts": _facts,
    "log": _log,
    "prune": _prune,
    "clear": _clear,
    "import": _import,
}


@contextmanager
def opened(
    options: Options, *, create: bool = False, entries: int | None = None, most: int | None = None
) -> Iterator[KnowledgeMemory]:
    """The memory that the command line names; where there is none, it is only made with ``create``."""
    from host_bridge.knowledge_memory import CONTEXT_ENTRIES, LOG_DAYS, KnowledgeMemory
    from messages.errors import NotFound

    place = directory_of(options)
    if not create and not os.path.isdir(place):
        raise NotFound(
            f"There is no memory in {place}; name its directory with --dir, or remember something first.", field="dir"
        )
    count = CONTEXT_ENTRIES if entries is None else entries
    with KnowledgeMemory(place, LOG_DAYS, count, max_context_chars=most) as memory:
        yield memory


def _text(options: Options) -> str:
    text = options.words[0] if options.words else ""
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not text.strip():
        raise UsageError("say what to remember: TEXT, or - to read it from stdin")
    return text


def _importance(options: Options) -> float:
    text = options.get("--importance")
    try:
        importance = 0.5 if text is None else float(text)
    except ValueError:
        importance = -1.0
    if not 0.0 <= importance <= 1.0:
        raise UsageError(f"--importance must be a number from 0 to 1, not {text!r}")
    return importance


def _agreed(question: str) -> bool:
    """Whether a person at a terminal says yes. Anybody else must have said ``--yes``."""
    if not sys.stdin.isatty():
        output.complain("knowledge memory clear: say --yes when nobody can be asked; nothing was forgotten")
        return False
    sys.stderr.write(output.printable(question))
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    output.complain("Nothing was forgotten.")
    return False


def _said(options: Options, value: dict[str, JsonValue], words: str) -> int:
    output.emit(output.as_json(value, compact=True) if options.has("--json") else words)
    return exits.OK


def _indented(content: str) -> str:
    return "\n    ".join(content.splitlines())


def _one_line(category: str) -> str:
    return " ".join(category.split())
