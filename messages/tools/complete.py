"""The complete view of one record, as operators read it: an agent's single read with what that one leaves out.

Built from plain values; bounded as an agent's is, by the limits of what a tool can save. Source: tools.md (Agent
response shapes, Reading records).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from messages.json_types import JsonObject
from messages.tools.records import EvidenceView, RecordView


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteEvidence(EvidenceView):
    """One citation with the verdict on its retained file, as of this very read."""

    size: int | None = None
    verified: bool | None = None
    problem: str | None = None

    def to_json(self) -> JsonObject:
        shown = EvidenceView.to_json(self)
        members: JsonObject = {"size": self.size, "verified": self.verified, "problem": self.problem}
        return {**shown, **{name: member for name, member in members.items() if member is not None}}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteRecord(RecordView):
    """``state`` is lifecycle and eligibility, ``complete`` everything that agents are not shown."""

    state: Mapping[str, bool | str]
    complete: JsonObject
    originals: Sequence[JsonObject] = ()
    connections: Mapping[str, int] = field(default_factory=dict)

    def _members(self) -> JsonObject:
        return {
            **RecordView._members(self),
            **self.state,
            "assertionOrigin": None if self.kind == "page" else self.assertion_origin,
            "fields": dict(self.fields),
            **self.complete,
            "originals": list(self.originals),
            "connections": dict(self.connections),
        }
