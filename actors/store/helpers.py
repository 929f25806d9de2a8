"""The lane's helpers: each does one kind of slow work and asks nobody; upwards they only tell.

Source: DESIGN.md (The tree).
"""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, TypeVar

from actors.store.messages import (
    CatchUp,
    FilesChanged,
    IndexChanged,
    IndexDamaged,
    IndexSynced,
    OwnedDescriptor,
    SyncFiles,
    VerifyEvidence,
    WatchDescriptor,
    WatchWanted,
    WriteCheckpoints,
)
from actors.store.needs import CitationKey
from actors.store.settings import StoreSettings
from actors.store.sources import Passage, ReadPassage
from actors.store.upkeep import Found, LookThroughRepository, MergeSegments
from actors.supervision import ActorContext, Envelope, GuardedActor, Timer
from messages.errors import (
    Cancelled,
    DeadlineExceeded,
    IndexUnavailable,
    InternalError,
    Stopping,
    StorageError,
    StoreUnavailable,
)
from messages.json_types import JsonObject
from messages.vocabulary import Partition
from storage import files
from storage.evidence import Spans, Verdict, VerdictCache, verify
from storage.git import Committed, IndexState, Rebuild, check, commit, sync_index, tidy
from storage.index_builder import APART_FROM_CHANGES, build_apart
from storage.index_feed import IndexFeed
from storage.publication import Synced, sync_files
from storage.recently_used import OPEN_PARTITIONS_MAX, RecentlyUsed
from storage.search import SearchIndex

logger = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.25
"""After telling the lane of changes the watch is looked at again no sooner than this."""

R = TypeVar("R")
IDLE_SECONDS: Final = 4.0
IDLE_SECONDS_MAX: Final = 256.0
STOP_SYNC_SECONDS: Final = 0.8


class Indexer(GuardedActor):
    """Brings keyword indexes up to the catalogue, through connections and files of its own."""

    def __init__(self, context: ActorContext, settings: StoreSettings) -> None:
        super().__init__(context)
        self._settings = settings
        self._feed: IndexFeed | None = None
        self._indexes: RecentlyUsed[Partition, SearchIndex] = RecentlyUsed(
            OPEN_PARTITIONS_MAX, lambda index: index.close()
        )

    def on_ask(self, message: object, envelope: Envelope) -> object:
        match message:
            case CatchUp(partition, change):
                return self._mended(partition, lambda: self._catch_up(partition, change, envelope))
            case MergeSegments(partition):
                return Found({"more": self._mended(partition, self._index(partition).merge_step)})
            case _:
                raise InternalError(f"The indexer takes no {type(message).__name__}.")

    def on_tell(self, message: object) -> None:
        match message:
            case IndexChanged() | IndexDamaged() if self.draining:
                pass  # the index follows when the store is opened again
            case IndexChanged(partition):
                self._mended(partition, lambda: self._catch_up(partition, None, None))
                if self._mended(partition, self._index(partition).merge_step):
                    self.context.tell_self(message)
            case IndexDamaged(partition):
                self._index(partition).reset()
                self._catch_up(partition, None, None)
            case _:
                raise InternalError(f"The indexer takes no {type(message).__name__}.")

    def on_ended(self) -> None:
        self._indexes.close()
        if self._feed is not None:
            self._feed.close()

    def _mended(self, partition: Partition, work: Callable[[], R]) -> R:
        """Do ``work``; where the file turns out to be damaged, begin a new one and do it once more."""
        try:
            return work()
        except IndexUnavailable as error:
            logger.warning("the keyword index is built anew", extra={"reason": error.fields.get("reason")})
            self._index(partition).reset()
            return work()

    def _catch_up(self, partition: Partition, change: int | None, envelope: Envelope | None) -> int:
        """Apply slices until the index has reached ``change`` (``None``: everything there is)."""
        feed = self._open_feed()
        index = self._index(partition)
        position = index.position()
        if feed.end(partition) - position >= APART_FROM_CHANGES and (change is None or change > position):
            self._catch_up_apart(partition, envelope)
            position = index.position()
        while change is None or position < change:
            if envelope is None and self._inbox.leaving():
                break
            if envelope is not None:
                self._check(envelope)
            slice_ = feed.after(partition, position)
            if slice_.position > position:
                index.apply(slice_.changes, slice_.position)
                position = slice_.position
            if position >= slice_.end:
                break
        return position

    def _catch_up_apart(self, partition: Partition, envelope: Envelope | None) -> None:
        def check() -> None:
            if envelope is not None:
                self._check(envelope)
            elif self._inbox.leaving():
                raise _Leaving

        layout = self._settings.layout
        try:
            built = build_apart(
                layout.state_database,
                layout.search_index(partition),
                vault_id=self._settings.vault_id,
                partition=partition,
                check=check,
            )
        except _Leaving:
            return
        if not built:
            logger.warning("the keyword index is caught up beside the requests: no process of its own could do it")

    def _check(self, envelope: Envelope) -> None:
        if self._inbox.leaving():
            raise Stopping("The store is stopping; the keyword index goes on when it is opened again.")
        if envelope.cancellation.requested:
            raise Cancelled("The caller cancelled the search.")
        if envelope.deadline.passed(self.context.clock.monotonic):
            raise DeadlineExceeded("The keyword index did not catch up in time.")

    def _open_feed(self) -> IndexFeed:
        if self._feed is None:
            self._feed = IndexFeed(self._settings.layout.state_database)
        return self._feed

    def _index(self, partition: Partition) -> SearchIndex:
        opened = self._indexes.get(partition)
        if opened is not None and not opened.in_place:
            # Deleted or replaced under us: what we hold open has no name any more.
            self._indexes.drop(partition)
            opened = None
        if opened is None:
            opened = SearchIndex.open(
                self._settings.layout.search_index(partition),
                vault_id=self._settings.vault_id,
                partition=partition.key,
                catalogue=self._open_feed().identity,
            )
            self._indexes.put(partition, opened)
            if opened.rebuilt is not None:
                # A new partition's index is missing too.
                level = logging.INFO if opened.rebuilt == "missing" else logging.WARNING
                logger.log(level, "the keyword index is built anew", extra={"reason": opened.rebuilt})
        return opened


class EvidenceVerifier(GuardedActor):
    """Hashes retained files in a stream and reads passages; keeps verdicts and offsets while a file's stamp is
    unchanged, and never a text."""

    def __init__(self, context: ActorContext, settings: StoreSettings) -> None:
        super().__init__(context)
        self._settings = settings
        self._caches: dict[Partition, VerdictCache] = {}
        self._spans: dict[Partition, Spans] = {}

    def on_ask(self, message: object, envelope: Envelope) -> object:
        match message:
            case VerifyEvidence():
                return self._verify(message, envelope)
            case ReadPassage():
                return self._read(message, envelope)
            case _:
                raise InternalError(f"The verifier takes no {type(message).__name__}.")

    def _read(self, message: ReadPassage, envelope: Envelope) -> Passage:
        spans = self._spans.setdefault(message.partition, Spans())
        root = self._root(message.partition)
        try:
            return Passage(
                spans.window(
                    root,
                    message.path,
                    message.stamp,
                    message.lines,
                    message.point,
                    message.max_chars,
                    lambda: self._check(envelope),
                )
            )
        except OSError as error:
            raise StorageError(f"A retained source cannot be read: {error.strerror}.", path=message.path) from error
        finally:
            files.close(root)

    def _check(self, envelope: Envelope) -> None:
        if self._inbox.leaving():
            raise Stopping("The store is stopping; nothing was done with the evidence.")
        if envelope.cancellation.requested:
            raise Cancelled("The caller cancelled the request.")
        if envelope.deadline.passed(self.context.clock.monotonic):
            raise DeadlineExceeded("The evidence was not verified in time.")

    def _root(self, partition: Partition) -> int:
        try:
            vault = files.open_root(self._settings.layout.vault, at="evidence.folder")
            try:
                return files.open_folder(vault, partition.key, at="evidence.folder")
            finally:
                files.close(vault)
        except OSError as error:
            raise StoreUnavailable("The partition's folder cannot be opened.", reason="missing") from error

    def _verify(self, message: VerifyEvidence, envelope: Envelope) -> Mapping[CitationKey, Verdict]:
        def check() -> None:
            self._check(envelope)

        kept = self._caches.setdefault(message.partition, VerdictCache())
        cache = VerdictCache() if message.fresh else kept
        root = self._root(message.partition)
        try:
            found: dict[CitationKey, Verdict] = {}
            for citation in message.citations:
                found[CitationKey.of(citation)] = verify(citation, root, cache, check, excerpt=message.excerpts)
            if message.fresh:
                kept.take_over(cache)
            return found
        finally:
            files.close(root)


class FileSync(GuardedActor):
    """Makes what a cut names durable; the lane alone prunes."""

    def __init__(self, context: ActorContext) -> None:
        super().__init__(context)
        self._last: Synced | None = None

    def on_ask(self, message: object, envelope: Envelope) -> object:
        match message:
            case SyncFiles(cut, after_loss):
                synced = sync_files(cut)
                if after_loss and self._last is not None:
                    synced = synced.after(self._last)
                self._last = synced
                return synced
            case _:
                raise InternalError(f"The file sync takes no {type(message).__name__}.")


class GitQueue(GuardedActor):
    """Writes commits from history's texts; the queue itself lies in the store's database."""

    def __init__(self, context: ActorContext, settings: StoreSettings) -> None:
        super().__init__(context)
        self._settings = settings
        self._lane = context.tell_handle("../lane")
        self._idle: Timer | None = None
        self._pause = IDLE_SECONDS
        self._suspect = False

    def on_ready(self) -> None:
        # A process that was killed may have left the index behind the last checkpoint.
        if self._settings.git:
            self._wait_for_idle(IDLE_SECONDS)

    def on_ask(self, message: object, envelope: Envelope) -> object:
        match message:
            case WriteCheckpoints(checkpoints, whole_history, look_back, more, restores):
                outcome = commit(
                    self._settings.layout.vault,
                    checkpoints,
                    whole_history=whole_history,
                    look_back=look_back,
                    suspect=self._suspect,
                    restores=restores,
                )
                self._suspect = self._suspect and not isinstance(outcome, Committed | Rebuild)
                if isinstance(outcome, Committed) and not more:
                    self._wait_for_idle(IDLE_SECONDS)
                return outcome
            case LookThroughRepository(tidying):
                return Found(self._look_through(tidying))
            case _:
                raise InternalError(f"The Git queue takes no {type(message).__name__}.")

    def on_drained(self) -> None:
        # A person who looks after a stop shall not see our own commits as changes of theirs.
        if self._idle is not None:
            self._idle.cancel()
            sync_index(self._settings.layout.vault, compare=False, timeout=STOP_SYNC_SECONDS)

    def _look_through(self, tidying: bool) -> JsonObject:
        vault = self._settings.layout.vault
        if not self._settings.git:
            return {"sound": None}
        problem = check(vault)
        if problem is not None:
            logger.error("the vault's repository is damaged", extra={"store": self._settings.vault_id})
            self._suspect = True
            return {"sound": False}
        if not tidying:
            return {"sound": True}
        return {"sound": True, "index": self._sync_index().state, "packed": tidy(vault)}

    def _wait_for_idle(self, seconds: float) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self.context.start_timer(seconds, _Idle())

    def _tidy_up(self) -> None:
        """So that a person's ``git status`` is clean and the packs stay few. While they keep the index to themselves it
        is tried again, more and more rarely, and status says why."""
        vault = self._settings.layout.vault
        state = self._sync_index()
        if state.state == "left_alone":
            self._pause = min(2 * self._pause, IDLE_SECONDS_MAX)
            self._wait_for_idle(self._pause)
        else:
            self._pause = IDLE_SECONDS
        tidy(vault)

    def _sync_index(self) -> IndexState:
        state = sync_index(self._settings.layout.vault)
        self._suspect = self._suspect or state.suspect
        self._lane.tell(IndexSynced(state))
        return state

    def on_tell(self, message: object) -> None:
        match message:
            case _Idle():
                self._idle = None
                self._tidy_up()
            case _:
                raise InternalError(f"The Git queue takes no {type(message).__name__}.")


class Watcher(GuardedActor):
    """Waits until the watch has something to read and tells the lane; reads nothing itself.

    It waits for the descriptor and for its mailbox at once, without a limit: while nothing happens it does not wake.
    """

    def __init__(self, context: ActorContext) -> None:
        super().__init__(context)
        self._lane = context.tell_handle("../lane")
        self._descriptor: OwnedDescriptor | None = None
        self._wake: tuple[int, int] | None = None
        self._resting: Timer | None = None
        self._poll = select.poll()

    def on_ready(self) -> None:
        self._wake = reading, writing = os.pipe()
        for end in self._wake:
            os.set_blocking(end, False)
        self._poll.register(reading, select.POLLIN)
        self._inbox.wake_by(lambda: _write_byte(writing))
        self._lane.tell(WatchWanted())

    def on_tell(self, message: object) -> None:
        match message:
            case WatchDescriptor(descriptor):
                self._let_go()
                self._descriptor = descriptor
                self._poll.register(descriptor.number, select.POLLIN)
            case _Look():
                self._resting = None
                if self._descriptor is not None:
                    self._poll.register(self._descriptor.number, select.POLLIN)
            case _:
                raise InternalError(f"The watcher takes no {type(message).__name__}.")

    def on_ended(self) -> None:
        self._let_go()
        self._inbox.wake_by(None)
        if self._wake is not None:
            for end in self._wake:
                os.close(end)
            self._wake = None

    def wait(self) -> None:
        """Block until there is a message; tell the lane of what the watch has meanwhile."""
        while self._wake is not None and not self._inbox.ready() and not self._inbox.closed:
            readable = {number for number, _ in self._poll.poll()}
            if self._wake[0] in readable:
                _empty(self._wake[0])
            if self._descriptor is not None and self._descriptor.number in readable:
                self._tell_lane(self._descriptor)

    def _tell_lane(self, descriptor: OwnedDescriptor) -> None:
        # Until the lane has read, the descriptor stays readable: look away for a while.
        self._poll.unregister(descriptor.number)
        self._resting = self.context.start_timer(PAUSE_SECONDS, _Look())
        self._lane.tell(FilesChanged(), coalesce="files changed")

    def _let_go(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if self._resting is None:
            self._poll.unregister(descriptor.number)
        else:
            self._resting.cancel()
            self._resting = None
        descriptor.close()


def _write_byte(end: int) -> None:
    # A pipe that is full wakes its reader as well.
    with suppress(BlockingIOError):
        os.write(end, b"w")


def _empty(end: int) -> None:
    with suppress(BlockingIOError):
        while os.read(end, 4_096):
            pass


class _Leaving(Exception):
    """The actor was told to end, and nobody waits for what it does."""


class _Idle:
    """To the Git queue itself: nothing was committed for a while."""


class _Look:
    """To the watcher itself: look again."""
