"""``flush.plan``: what a host runs before it compacts a session (memory-provider.md, Pre-compaction memory flush).

Pure; any thread.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final

from messages.json_types import JsonObject
from messages.pieces import Bool, Text
from messages.tools import FLUSH_ID_MAX_CHARS, ToolRequest

PERSISTENCE_TOOLS: Final = ("knowledge_remember", "knowledge_save_page")
HELPER_TOOLS: Final = ("knowledge_grep", "knowledge_lookup", "knowledge_record", "knowledge_ontology")
BACKEND_MAX_CHARS: Final = 200

_WORD: Final = re.compile(r"[a-z0-9]+")


class FlushPlanRequest(ToolRequest):
    """Whether and how to flush. ``backend`` is what runs the session, as the host calls it.

    ``flush_id`` stands for this flush and its retries, and goes with every call of a tool in it.
    """

    tool: ClassVar[str] = "flush.plan"
    flush_id: Annotated[str, Text(max_units=FLUSH_ID_MAX_CHARS)]
    backend: Annotated[str, Text(max_units=BACKEND_MAX_CHARS, one_line=True)] | None = None
    native_compaction: Bool = False

    @property
    def never_runs(self) -> bool:
        """Whether the session's backend is one for which there is no flush."""
        return self.native_compaction or (self.backend is not None and is_cli_backend(self.backend))


def is_cli_backend(backend: str) -> bool:
    """Whether a backend says that it is a command line: ``claude-cli/opus``, ``codex-cli``, ``geminicli``.

    A word of it is or ends with ``cli``. One that only sounds so has no flush: better than one that must never run.
    """
    return any(word.endswith("cli") for word in _WORD.findall(backend.casefold()))


def flush_response(prompt: str | None) -> JsonObject:
    """The plan with its prompt; without one, that there is no flush, by files neither."""
    if prompt is None:
        return {"plan": None}
    plan = {"prompt": prompt, "persistenceTools": list(PERSISTENCE_TOOLS), "helperTools": list(HELPER_TOOLS)}
    return {"plan": plan}
