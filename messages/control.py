"""What owners and thin clients say to each other: who holds the state directory, and whether it may change hands.

Standard library only, since thin clients import it (decisions.md section 8). ``owner.lock`` holds one JSON object
``{pid, version, socket}``; a reader must expect it half-written, empty or from another release. Pure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

HELLO: Final = "owner.hello"
HAND_OVER: Final = "owner.handOver"
STOP: Final = "owner.stop"
UI: Final = "owner.ui"

OWNER_LOCK_MAX_BYTES: Final = 4096

OwnerMode: TypeAlias = Literal["foreground", "detached"]
Refused: TypeAlias = Literal["foreground", "busy", "stopping", "not_newer"]


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """The content of ``owner.lock``: the process that holds the state directory."""

    pid: int
    version: str
    socket: str

    def encode(self) -> bytes:
        """One line of JSON."""
        return json.dumps({"pid": self.pid, "version": self.version, "socket": self.socket}).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> OwnerRecord | None:
        """The record in ``data``; ``None`` for anything that is not exactly one."""
        try:
            found = json.loads(data) if len(data) <= OWNER_LOCK_MAX_BYTES else None
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, dict):
            return None
        pid, version, socket = found.get("pid"), found.get("version"), found.get("socket")
        if isinstance(pid, bool) or not isinstance(pid, int) or pid <= 0:
            return None
        return cls(pid, version, socket) if isinstance(version, str) and isinstance(socket, str) and socket else None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process that wants to become the owner."""

    version: str
    mode: OwnerMode


@dataclass(frozen=True, slots=True)
class Holder:
    """The present owner, as far as a hand-over needs it."""

    version: str
    mode: OwnerMode
    connected_clients: int
    stopping: bool = False


def hand_over_refusal(holder: Holder, candidate: Candidate) -> Refused | None:
    """Why the holder keeps the directory, or ``None`` when it gives way.

    Only an idle detached owner gives way, and only to a foreground owner or to a newer version.
    """
    if holder.stopping:
        return "stopping"
    if holder.mode == "foreground":
        return "foreground"
    if holder.connected_clients:
        return "busy"
    newer = version_key(candidate.version) > version_key(holder.version)
    return None if candidate.mode == "foreground" or newer else "not_newer"


def version_key(version: str) -> tuple[int, ...]:
    """A release's numbers for comparison: ``1.10.0`` is newer than ``1.9``; what is no number counts as -1."""
    parts = version.split("+")[0].split(".")
    return tuple(int(part) if part.isascii() and part.isdigit() and len(part) <= 9 else -1 for part in parts)
