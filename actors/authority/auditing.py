"""What others did that the audit keeps: each action once, however often it is told.

Source: decisions.md section 6 (An append-only audit ...).
"""

from __future__ import annotations

from dataclasses import dataclass

from actors.supervision import Request
from storage.registry import Registry
from storage.registry_audit import By
from storage.system_memory.database import AuditEntry


@dataclass(frozen=True, slots=True)
class NoteStewardActions(Request[bool]):
    """Actions on system memory, which are durable there already; they may have been told before."""

    entries: tuple[AuditEntry, ...]


def note_actions(registry: Registry, message: NoteStewardActions) -> bool:
    """Append those that the audit does not have. Authority thread."""
    for entry in message.entries:
        registry.note_once(entry.action, entry.subject, By(entry.actor, entry.door, entry.at))
    return True
