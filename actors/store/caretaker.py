"""Work on a store that no lane has open: one short-lived actor for one task, supervised like every other.

Source: DESIGN.md (The tree), decisions.md sections 4 and 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from actors.supervision import ActorSettings, ChildSpec, Corruption, Envelope, GuardedActor, Request
from messages.errors import InternalError, Quarantined
from messages.vocabulary import Partition
from storage import conversation_erase, relocation
from storage.conversation_erase import Erasable
from storage.conversation_export import Exported, export_conversation
from storage.layout import Layout, StoreLayout
from storage.publication import Adoption
from storage.relocation import Move, Moved
from storage.session import StoreSession
from storage.state.connection import StorageCorrupt
from storage.vault import ScanLimits


@dataclass(frozen=True, slots=True)
class AdoptVault(Request[Adoption]):
    """Take the vault of this store as it is."""

    layout: StoreLayout
    actor: str
    git: bool


@dataclass(frozen=True, slots=True)
class ExportConversation(Request[Exported]):
    """Write a conversation's partition into a folder; ``at`` in UTC milliseconds."""

    layout: StoreLayout
    limits: ScanLimits
    git: bool
    partition: Partition
    target: Path
    agent: str
    at: int


@dataclass(frozen=True, slots=True)
class LookAtConversation(Request[Erasable]):
    """What an erasure of a conversation would take."""

    layout: StoreLayout
    limits: ScanLimits
    git: bool
    partition: Partition


@dataclass(frozen=True, slots=True)
class EraseConversation(Request[bool]):
    """Leave nothing of a conversation in the store."""

    layout: StoreLayout
    limits: ScanLimits
    git: bool
    partition: Partition


@dataclass(frozen=True, slots=True)
class MoveFolder(Request[Moved]):
    """Bring a store's folder to its new place, or leave everything as it was."""

    layout: Layout
    move: Move


@dataclass(frozen=True, slots=True)
class FinishMove(Request[tuple[str, ...]]):
    """The registry has switched: remove the original of a copy. Answers the paths that had to stay."""

    layout: Layout
    move: Move


@dataclass(frozen=True, slots=True)
class UndoMove(Request[bool]):
    """The registry has not switched: the store lies at its old place again."""

    layout: Layout
    move: Move


class Caretaker(GuardedActor):
    """Does what it is asked and holds nothing between two requests."""

    def on_ask(self, message: object, envelope: Envelope) -> object:
        match message:
            case AdoptVault(layout, actor, git):
                with _sound():
                    return StoreSession.adopt(layout, actor=actor, git=git)
            case ExportConversation():
                with _sound():
                    return _export(message)
            case LookAtConversation(layout, limits, git, partition):
                with _sound():
                    return conversation_erase.look(layout, partition, limits=limits, git=git)
            case EraseConversation(layout, limits, git, partition):
                with _sound():
                    conversation_erase.erase(layout, partition, limits=limits, git=git)
                    return True
            case MoveFolder(layout, move):
                return relocation.move_folder(layout, move)
            case FinishMove(layout, move):
                return relocation.finish(layout, move)
            case UndoMove(layout, move):
                relocation.undo(layout, move)
                return True
            case _:
                raise InternalError(f"A caretaker takes no {type(message).__name__}.")


def _export(message: ExportConversation) -> Exported:
    session = StoreSession.open(message.layout, limits=message.limits, git=message.git)
    try:
        return export_conversation(session, message.partition, message.target, agent=message.agent, at=message.at)
    finally:
        session.close()


@contextmanager
def _sound() -> Iterator[None]:
    try:
        yield
    except StorageCorrupt as error:
        raise Corruption(
            Quarantined("The store's database is damaged; restore it from a backup.", reason="damaged")
        ) from error


def caretaker_name(vault_id: str) -> str:
    return f"caretaker {vault_id}"


def caretaker_spec(vault_id: str) -> ChildSpec:
    """Never started again: what it did not finish is found by the next opening."""
    return ChildSpec(caretaker_name(vault_id), Caretaker, restart="temporary", settings=ActorSettings())
