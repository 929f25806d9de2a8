"""The assignment journal: one change of who uses which store, across ``knowledge.yaml`` and ``registry.sqlite``.

Membership is the configuration's, bindings are the registry's, and a move changes both. The journal makes one of the
two: its row is durable before the file changes and goes in the commit that changes the bindings, so that whoever finds
the row after a crash finishes the change where the file has it, and drops it where the file has not. Between the two
nobody may look: the caller publishes no view meanwhile.

::

    begin(database, assignment)          # durable
    replace_text(path, before, after)    # one rename (storage.replaced_text)
    finish(database, assignment)         # bindings, audit and the row's end in one durable commit

The registry's thread. Source: stores-and-access.md (Manage stores, Storage layout: assignment journal).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final, Literal, TypeAlias

import orjson

from messages.errors import StoreUnavailable
from messages.json_types import JsonObject
from storage import registry_audit
from storage.registry_audit import By
from storage.state.connection import Database

Kind: TypeAlias = Literal["share", "join", "own"]
_ACTIONS: Final[dict[Kind, registry_audit.Action]] = {
    "share": "store.share",
    "join": "store.join",
    "own": "store.own",
}


@dataclass(frozen=True, slots=True)
class Assignment:
    """One move. ``agents``: whose store changes, in order, the first is the one that was asked for.

    ``name`` is the named store that they use afterwards (``None``: each its own); ``binds`` the store that gets this
    name by the move, where it has another holder or none now. ``before`` and ``after`` are the SHA-256 of the
    configuration's text (``None``: no file).
    """

    kind: Kind
    agents: tuple[str, ...]
    name: str | None
    binds: str | None
    before: str | None
    after: str | None
    actor: str
    door: str
    at: int

    @property
    def by(self) -> By:
        return By(self.actor, self.door, self.at)

    def subject(self) -> JsonObject:
        """What the audit says of it."""
        found: JsonObject = {"agents": list(self.agents)}
        if self.name is not None:
            found["name"] = self.name
        if self.binds is not None:
            found["vaultId"] = self.binds
        return found


def begin(database: Database, assignment: Assignment) -> None:
    """Note the move, durably. There is no other: the caller has ended what a crash left."""
    with database.transaction(full=True, point="registry.assignment.begin"):
        database.execute("INSERT INTO assignment VALUES (1, ?)", (orjson.dumps(asdict(assignment)).decode(),))


def pending(database: Database) -> Assignment | None:
    """The move that a crash left, if there is one."""
    found = database.query_one("SELECT body FROM assignment")
    if found is None:
        return None
    try:
        content = orjson.loads(found[0])
        return Assignment(**{**content, "agents": tuple(content["agents"])})
    except (ValueError, TypeError, KeyError) as error:
        raise StoreUnavailable(
            "The registry's note of a move cannot be read; restore registry.sqlite from a backup, or see "
            "`knowledge doctor`.",
            reason="registry_damaged",
        ) from error


def finish(database: Database, assignment: Assignment) -> None:
    """The configuration has the move: bind, say so in the audit, and drop the note, in one durable commit."""
    with database.transaction(full=True, point="registry.assignment.finish"):
        if assignment.binds is not None and assignment.name is not None:
            database.execute("DELETE FROM binding WHERE vault_id = ?", (assignment.binds,))
            database.execute("INSERT INTO binding VALUES ('named', ?, ?)", (assignment.name, assignment.binds))
        registry_audit.note(database, assignment.by, _ACTIONS[assignment.kind], assignment.subject())
        database.execute("DELETE FROM assignment")


def drop(database: Database) -> None:
    """The configuration has not the move: as if it had never begun."""
    with database.transaction(full=True, point="registry.assignment.drop"):
        database.execute("DELETE FROM assignment")


__all__ = ["Assignment", "Kind", "begin", "drop", "finish", "pending"]
