"""``knowledge_status``: which vault and partition the caller is in, and how it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from messages.json_types import JsonObject
from messages.text import clip_utf16, one_line
from messages.tools._base import ToolRequest

GIT_MESSAGE_MAX_CHARS: Final = 500


class StatusRequest(ToolRequest):
    """No arguments: everything follows from the audience."""

    tool: ClassVar[str] = "knowledge_status"


@dataclass(frozen=True, slots=True)
class GitState:
    """The Git checkpoint's state; ``pending`` counts publications without one (decisions.md section 5, status)."""

    state: Literal["current", "pending", "unavailable"]
    pending: int = 0
    message: str | None = None

    @property
    def shown_message(self) -> str | None:
        """The message on one line, which may quote what Git said at length, cut to :data:`GIT_MESSAGE_MAX_CHARS`."""
        return None if self.message is None else clip_utf16(one_line(self.message), GIT_MESSAGE_MAX_CHARS)

    def to_json(self) -> JsonObject:
        shown: JsonObject = {"state": self.state, "pending": self.pending}
        if self.message is not None:
            shown["message"] = self.shown_message
        return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusResponse:
    """The calling agent's view of its partition. ``counts`` is kind -> lifecycle -> number; zeros are left out."""

    vault_id: str
    partition: Literal["private", "conversation"]
    writes_enabled: bool
    live: Literal["watching", "unavailable", "stopped"]
    ontology_fingerprint: str
    counts: Mapping[str, Mapping[str, int]]
    pending: int
    conflict: int
    git: GitState
    index_state: str
    warnings: Sequence[str] = ()

    def to_json(self) -> JsonObject:
        shown: JsonObject = {
            "vaultId": self.vault_id,
            "partition": self.partition,
            "writesEnabled": self.writes_enabled,
            "live": self.live,
            "ontologyFingerprint": self.ontology_fingerprint,
            "counts": {
                kind: {lifecycle: number for lifecycle, number in lifecycles.items() if number}
                for kind, lifecycles in self.counts.items()
            },
            "publications": {"pending": self.pending, "conflict": self.conflict},
            "git": self.git.to_json(),
            "index": {"state": self.index_state},
        }
        if self.warnings:
            shown["warnings"] = list(self.warnings)
        return shown
