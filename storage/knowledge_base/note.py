"""The note that a client puts in front of a model: the best of the knowledge base, when it clearly speaks.

Source: system-memory-contract.md section 6 (the KB note).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from storage.knowledge_base.retrieval import Hit

SCORE_FLOOR: Final = 5
HITS_MAX: Final = 2
BODY_MAX_CHARS: Final = 700

_OPENING: Final = (
    "[From the OpenAgents knowledge base — positions that people have reviewed, and public documentation. Prefer what "
    "they say to what you know in general, and where a thing is parked or planned, say so:"
)
"""The label is the contract's word by word: a reader tells this note from a memory's by it."""


def attached_note(hits: Sequence[Hit]) -> str | None:
    """The note for these hits, which come best first; ``None`` when none has a score of 5."""
    strong = [hit for hit in hits if hit.score >= SCORE_FLOOR][:HITS_MAX]
    if not strong:
        return None
    return "\n".join((_OPENING, *(f"- {hit.title} ({_origin(hit)}): {_clipped(hit.body)}" for hit in strong))) + "]"


def _origin(hit: Hit) -> str:
    if hit.kind == "stance":
        return f"stance, {hit.state}; reviewed {hit.date}"
    return f"doc, {hit.sources[0]}"


def _clipped(body: str) -> str:
    """At most 700 code points, the ellipsis among them."""
    return body if len(body) <= BODY_MAX_CHARS else f"{body[: BODY_MAX_CHARS - 1].rstrip()}…"
