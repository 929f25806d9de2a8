"""The host's shared reads over Knowledge records: their requests and answers (memory-provider.md, Shared memory reads).

Plain values in, JSON objects out; any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from messages.json_types import JsonObject
from messages.pieces import Choice
from messages.tools import ToolRequest

Purpose: TypeAlias = Literal["status"]
PURPOSES: Final[tuple[Purpose, ...]] = ("status",)


class MemoryStatusRequest(ToolRequest):
    """How the memory of an audience is; ``purpose: status`` asks for readiness alone. Never creates a store."""

    tool: ClassVar[str] = "memory.status"
    purpose: Annotated[Purpose, Choice(*PURPOSES)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHealth:
    """How one partition's files and ontology fare; ``findings`` counts what diagnostics would name."""

    partition: Literal["private", "conversation"]
    records: int
    findings: int
    ontology_fingerprint: str
    ontology_findings: int
    index_state: str

    def to_json(self) -> JsonObject:
        return {
            "ready": True,
            "partition": self.partition,
            "records": self.records,
            "vault": {"valid": self.findings == 0, "findings": self.findings},
            "ontology": {
                "valid": self.ontology_findings == 0,
                "findings": self.ontology_findings,
                "fingerprint": self.ontology_fingerprint,
            },
            "index": {"state": self.index_state},
        }


def readiness(ready: bool) -> JsonObject:
    """All that ``purpose: status`` learns: no counts, scope, ids or paths."""
    return {"ready": ready}
