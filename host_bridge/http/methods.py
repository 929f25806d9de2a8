"""Which methods have an HTTP route, and for whom: a list of what may be asked, so that what is new cannot be.

What moves folders, writes to paths of the machine, puts stores back into service or makes keys is for the person at the
machine: the owner's socket alone takes it. Whatever begins with ``steward.`` never comes in here.

Source: decisions.md section 7; tools.md (system memory: steward actions stay on the machine).
"""

from __future__ import annotations

from typing import Final

from host_bridge.dispatch import NoSuchMethod
from host_bridge.http.bearers import AudienceSpeaker, HostSpeaker, OperatorSpeaker, Speaker
from messages.errors import Denied

EVERYBODY: Final = frozenset(("initialize", "tools.list"))
AUDIENCES: Final = frozenset(
    (
        "tools.call",
        "memory.search",
        "memory.read",
        "memory.status",
        "memory.candidates",
        "prompt.build",
        "recall.gate",
        "flush.plan",
        "systemMemory.create",
        "systemMemory.list",
        "systemMemory.fetch",
        "systemMemory.delete",
        "systemMemory.recall",
    )
)
OPERATORS: Final = frozenset(
    (
        "operator.status",
        "operator.diagnostics",
        "operator.record",
        "operator.records",
        "operator.recent",
        "operator.tags",
        "operator.search",
        "operator.lookup",
        "operator.connections",
        "operator.timeline",
        "operator.chronicleDays",
        "operator.chronicleDay",
        "operator.chronicleDue",
        "operator.vocabulary",
        "operator.evidence",
        "operator.original",
        "operator.history",
        "operator.revision",
        "operator.mutation",
        "operator.activity",
        "operator.adopt",
        "operator.health",
        "operator.runMaintenance",
        "operator.maintenance",
        "operator.backupStatus",
        "operator.doctor",
        "operator.health",
        "access.stores.list",
        "access.stores.share",
        "access.stores.join",
        "access.stores.own",
        "access.audit",
        "access.grants.list",
        "access.grants.set",
        "access.grants.remove",
        "access.tokens.revoke",
        "access.tokens.list",
    )
)
HOSTS: Final = frozenset(("access.tokens.mint", "access.runs.end", "sessions.announce"))
"""The host's alone: an operator that could mint an audience could call tools with it."""
AT_THE_MACHINE: Final = frozenset(
    (
        "operator.acceptDeletions",
        "operator.adoptStore",
        "operator.relocateStore",
        "operator.exportConversation",
        "operator.eraseConversation",
        "operator.releaseStore",
        "operator.backup",
        "operator.rebuildRegistry",
        "access.httpKeys.make",
        "access.httpKeys.revoke",
        "access.httpKeys.list",
    )
)
"""Known, and answered as if they were not: only a test reads this list, so that each method stands on one."""


def require_allowed(method: str, speaker: Speaker) -> None:
    """Raise :class:`NoSuchMethod` for what has no route here, ``Denied`` for what this speaker may not ask."""
    if method in EVERYBODY:
        return
    if method not in AUDIENCES | OPERATORS | HOSTS:
        raise NoSuchMethod
    match speaker:
        case HostSpeaker():
            return
        case OperatorSpeaker():
            if method in AUDIENCES:
                raise Denied(f"An operator's key never calls {method}: it has no audience.", reason="operator_key")
            if method in HOSTS:
                raise Denied(f"{method} is the host's alone.", reason="operator_key")
        case AudienceSpeaker():
            if method not in AUDIENCES:
                raise Denied(f"The token of an audience never calls {method}.", reason="audience_token")


__all__ = ["AT_THE_MACHINE", "AUDIENCES", "EVERYBODY", "HOSTS", "OPERATORS", "require_allowed"]
