"""The lane of one agent memory: what threads ask of it runs one after another, under a supervisor that restarts it.

Other processes are kept out by the directory's lock, which each operation takes. Only what follows from the entries is
written beside them, so that a lane that crashed is simply started again.

Source: DESIGN.md (rules 1 to 7), agent-memory.md, agent-memory-contract.md sections 7 and 11.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import Final, assert_never

from actors.supervision import (
    ActorContext,
    ActorHandle,
    ActorSettings,
    ChildSpec,
    Envelope,
    GuardedActor,
    Request,
    Tree,
)
from messages.errors import InternalError, KnowledgeError
from storage.agent_memory import (
    Context,
    ContextBounds,
    Fact,
    KnowledgeBackend,
    KnowledgeEntry,
    LogLine,
    MemoryDirectory,
    build_context,
    pack,
)

LANE: Final = "agent memory"


@dataclass(frozen=True, slots=True)
class Raised:
    """What a store or a backend of somebody else raised; the caller gets exactly that."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Remember(Request[str | Raised]):
    """Keep an entry; answers its id, or ``""`` where ``accepts`` refuses its text."""

    entry: KnowledgeEntry
    accepts: Callable[[str], str | None] | None = None


@dataclass(frozen=True, slots=True)
class ReadFacts(Request[list[Fact] | Raised]):
    """The facts of ``MEMORY.md``."""


@dataclass(frozen=True, slots=True)
class ReadRecent(Request[list[LogLine] | Raised]):
    """The latest log lines from a day on."""

    since: date
    limit: int


@dataclass(frozen=True, slots=True)
class BuildContext(Request[Context | Raised]):
    """Prune what is due, then facts and recent lines as a prompt has them."""

    bounds: ContextBounds


@dataclass(frozen=True, slots=True)
class PruneLogs(Request[int | Raised]):
    """Delete the logs of the days before; answers how many there were."""

    first_kept: date


@dataclass(frozen=True, slots=True)
class Clear(Request[bool | Raised]):
    """Forget everything, or only what is not persistent."""

    logs_only: bool = False


@dataclass(frozen=True, slots=True)
class LiveEntries(Request[list[KnowledgeEntry] | Raised]):
    """Copies of the entries that are not expired, in the order of all stores; of the latest at most ``limit``."""

    limit: int


@dataclass(frozen=True, slots=True)
class Flush(Request[bool | Raised]):
    """Save the directory to its backend now."""


MemoryRequest = Remember | ReadFacts | ReadRecent | BuildContext | PruneLogs | Clear | LiveEntries | Flush


class AgentMemory(GuardedActor):
    """One lane for one :class:`~storage.agent_memory.MemoryDirectory`."""

    def __init__(
        self,
        context: ActorContext,
        directory: MemoryDirectory,
        backend: KnowledgeBackend | None,
        now: Callable[[], datetime],
    ) -> None:
        super().__init__(context)
        self._directory = directory
        self._backend = backend
        self._now = now

    def on_ask(self, message: object, envelope: Envelope) -> object:
        if not isinstance(message, MemoryRequest):
            raise InternalError(f"An agent memory answers no {type(message).__name__}.")
        try:
            return self._outcome(message)
        except KnowledgeError:
            raise
        except Exception as error:
            if self._backend is None and self._directory.store_is_ours:
                raise
            return Raised(error)

    def on_ended(self) -> None:
        self._directory.close_thread()

    def _outcome(self, message: MemoryRequest) -> object:
        if self._backend is None:
            return self._done(message)
        # From the change until it is saved: another process that opens this directory restores it from the backend.
        with self._directory.lock.held():
            return self._done(message)

    def _done(self, message: MemoryRequest) -> object:
        match message:
            case Remember(entry, accepts):
                kept = self._directory.remember(entry, accepts=accepts)
                if kept:
                    self._save()
                return kept
            case ReadFacts():
                return self._directory.facts()
            case ReadRecent(since, limit):
                return self._directory.recent(since, limit)
            case BuildContext(bounds):
                context, pruned = build_context(self._directory, bounds, self._now())
                if pruned:
                    self._save()
                return context
            case PruneLogs(first_kept):
                removed = self._directory.prune(first_kept)
                if removed:
                    self._save()
                return removed
            case Clear(logs_only):
                if logs_only:
                    self._directory.clear_logs()
                else:
                    self._directory.clear()
                self._save()
                return True
            case LiveEntries(limit):
                return self._directory.live(limit)
            case Flush():
                self._save()
                return True
            case _:
                assert_never(message)

    def _save(self) -> None:
        if self._backend is not None:
            self._backend.save_bytes(pack(self._directory.lock))


class AgentMemoryLane:
    """A tree with one lane below it. Any thread; close it."""

    def __init__(
        self, directory: MemoryDirectory, backend: KnowledgeBackend | None, now: Callable[[], datetime]
    ) -> None:
        self._tree = Tree(
            [
                ChildSpec(
                    LANE,
                    partial(AgentMemory, directory=directory, backend=backend, now=now),
                    settings=ActorSettings(label="The agent memory"),
                )
            ],
            settings=ActorSettings(label="The agent memory"),
            name=LANE,
        )

    @property
    def handle(self) -> ActorHandle:
        """Asks the lane."""
        return self._tree.handle(LANE)

    def close(self) -> None:
        """Answer what was asked, then end and join; idempotent."""
        self._tree.close()
