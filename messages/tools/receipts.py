"""Receipts: the complete one that is stored, and what an agent sees of it.

The stored receipt is fixed at acceptance and answered byte for byte ever after; an agent's view is a projection of
it (tools.md, Agent response shapes, Receipts; decisions.md section 4). ``git`` stands beside a receipt, never in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from messages.json_types import JsonObject
from messages.tools.status import GitState
from messages.vocabulary import ReceiptState

RejectionReason: TypeAlias = Literal["same_title", "budget"]

# What an agent needs of a stored receipt, in the order it is shown.
_AGENT_KEYS: Final = ("id", "revision", "hash", "ontologyFingerprint", "items", "impact", "kept", "budget")


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A complete receipt. ``id, revision, hash, path`` are absent where a publication has several equal records.

    ``reason`` is the writer's own, where the tool asks for one.
    """

    request_id: str
    operation: str
    at: str
    ontology_fingerprint: str
    state: ReceiptState = "published"
    message: str | None = None
    id: str | None = None
    revision: int | None = None
    hash: str | None = None
    path: str | None = None
    target_id: str | None = None
    items: Sequence[JsonObject] = ()
    reason: str | None = None
    impact: JsonObject | None = None
    kept: Sequence[JsonObject] = ()
    budget: JsonObject | None = None

    def to_json(self) -> JsonObject:
        members: JsonObject = {
            "requestId": self.request_id,
            "operation": self.operation,
            "state": self.state,
            "message": self.message,
            "id": self.id,
            "revision": self.revision,
            "hash": self.hash,
            "path": self.path,
            "targetId": self.target_id,
            "at": self.at,
            "ontologyFingerprint": self.ontology_fingerprint,
            "items": list(self.items) or None,
            "reason": self.reason,
            "impact": self.impact,
            "kept": list(self.kept) or None,
            "budget": self.budget,
            "indexed": False,
        }
        return {key: member for key, member in members.items() if member is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingPage:
    """The page that already bears the title."""

    id: str
    title: str
    revision: int
    hash: str

    def to_json(self) -> JsonObject:
        return {"id": self.id, "title": self.title, "revision": self.revision, "hash": self.hash}


def agent_receipt(complete: JsonObject, git: GitState | None = None) -> JsonObject:
    """What an agent sees of a complete receipt: ids and fences, and a state only when it is not ``published``.

    ``git`` is given only when a checkpoint attempt failed, is late, or Git is off.
    """
    shown: JsonObject = {key: complete[key] for key in _AGENT_KEYS if key in complete}
    if complete.get("state", "published") != "published":
        shown |= {key: complete[key] for key in ("state", "message") if key in complete}
    if git is not None:
        shown["git"] = git_beside(git)
    return shown


def git_beside(git: GitState) -> JsonObject:
    """``{state, message}`` as it stands beside a receipt; the number of pending checkpoints is status's alone."""
    return {"state": git.state} if git.message is None else {"state": git.state, "message": git.shown_message}


def same_title_rejection(existing: ExistingPage) -> JsonObject:
    """A create whose title an active page of the same type already bears: nothing is saved, no receipt is kept."""
    return {
        "state": "rejected",
        "reason": "same_title",
        "id": "",
        "existing": existing.to_json(),
        "message": "An active page of this type already has this title or alias. Edit it with its id, revision and "
        "hash, or send allowSameTitle: true to create another.",
    }


def budget_rejection(
    *, message: str, pages: Sequence[JsonObject], id: str = "", path: str = "", revision: int = 0, hash: str = ""
) -> JsonObject:
    """A body that would grow beyond its page's budget; id, path, revision and hash are the unchanged target's."""
    return {
        "state": "rejected",
        "reason": "budget",
        "id": id,
        "path": path,
        "revision": revision,
        "hash": hash,
        "message": message,
        "budget": {"pages": list(pages)},
    }
