"""What the configuration says of the recall gate; the keys and defaults of memory-provider.md (Recall gate)."""

from __future__ import annotations

from dataclasses import dataclass

from messages.provider.gate import CandidateMode, GateMode


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """Characters are UTF-16 units. Without a section in the configuration the gate is off."""

    mode: GateMode = "off"
    candidates: CandidateMode = "keyword"
    max_candidates: int = 10
    high_threshold: float = 0.75
    excerpts: int = 4
    excerpt_chars: int = 1_000
    page_chars: int = 2_800
    medium_threshold: float | None = None
    skip_hint_below: float | None = None
    timeout_ms: int = 1_500
    max_index_chars: int = 24_000
