"""The source keeper: hashes finished uploads and copies files of the workspace, in a stream and off the lane.

It names nothing and commits nothing: the lane does, once it has looked again. A copy that the lane has not named a
while after its request's deadline was made in vain and is removed.

Source: DESIGN.md (The tree), knowledge-more-facts.md section 4.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from actors.store.settings import StoreSettings
from actors.store.sources import Complete, CopyFile, HashUpload
from actors.supervision import ActorContext, Envelope, GuardedActor
from messages.errors import (
    Cancelled,
    DeadlineExceeded,
    EvidenceInvalid,
    InternalError,
    InvalidArgument,
    KnowledgeError,
    Stopping,
    StorageError,
    StoreUnavailable,
)
from messages.vocabulary import Partition
from storage import files
from storage.evidence import RunningHashes, Shelf, SourceProblem, SourceRefused, Staged, open_source
from storage.files import Stamp

COPIES_REMEMBERED: Final = 16
UNCLAIMED_SECONDS: Final = 10.0
"""How long after the last deadline a copy is left to the lane, which looks at the deadline before it names it."""

_WORDS: Final[dict[SourceProblem, str]] = {
    "outside": "leads out of the workspace",
    "missing": "names no file of the workspace",
    "symlink": "leads through a symbolic link",
    "hardlink": "names a file that has other names too (a hard link)",
    "not_a_file": "names no regular file",
    "knowledge_state": "lies in a state directory of Knowledge; read it with the knowledge tools",
    "no_workspace": "cannot be looked for: the workspace is not there",
    "changed": "names a file that changed while it was copied; try again when it holds still",
    "hash_mismatch": "is not the hash of the file; hash the file again",
}


@dataclass(frozen=True, slots=True)
class _Unclaimed:
    """To the keeper itself: remove a copy that nobody has named, unless somebody waits for it still."""

    partition: Partition
    request_id: str
    staged: Staged


class SourceKeeper(GuardedActor):
    """A helper of one store; every piece of work ends early when it is cancelled or late."""

    def __init__(self, context: ActorContext, settings: StoreSettings) -> None:
        super().__init__(context)
        self._settings = settings
        self._work = SourceDesk()
        self._wanted_until: dict[Staged, float] = {}

    def on_ask(self, message: object, envelope: Envelope) -> object:
        def check() -> None:
            if self._inbox.leaving():
                raise Stopping("The store is stopping; repeat the identical call when it is there again.")
            if envelope.cancellation.requested:
                raise Cancelled("The caller cancelled the upload; what was received stays.")
            if envelope.deadline.passed(self.context.clock.monotonic):
                raise DeadlineExceeded(
                    "The source was not read to its end in time; repeat the identical call, with a longer deadline "
                    "for a large file.",
                    retry="safe",
                )

        match message:
            case HashUpload() | CopyFile():
                with self._vault() as vault:
                    complete = self._work.do(vault, message, check)
                if complete.staged is not None and complete.staged.copied:
                    self._remove_later(message, complete.staged, envelope)
                return complete
            case _:
                raise InternalError(f"The source keeper takes no {type(message).__name__}.")

    def on_tell(self, message: object) -> None:
        match message:
            case _Unclaimed(partition, request_id, staged):
                if self._wanted_until.get(staged, 0.0) > self.context.clock.monotonic():
                    return  # asked for again meanwhile; that request has a message of its own
                self._wanted_until.pop(staged, None)
                with self._vault() as vault:
                    Shelf(vault, partition, request_id).discard(staged)
            case _:
                raise InternalError(f"The source keeper takes no {type(message).__name__}.")

    def _remove_later(self, work: HashUpload | CopyFile, staged: Staged, envelope: Envelope) -> None:
        until = max(envelope.deadline.at + UNCLAIMED_SECONDS, self._wanted_until.get(staged, 0.0))
        self._wanted_until[staged] = until
        delay = max(0.0, until - self.context.clock.monotonic())
        self.context.start_timer(delay, _Unclaimed(work.partition, work.request_id, staged))

    @contextmanager
    def _vault(self) -> Iterator[int]:
        try:
            vault = files.open_root(self._settings.layout.vault, at="evidence.folder")
        except OSError as error:
            raise StoreUnavailable("The vault's folder cannot be opened.", reason="missing") from error
        try:
            yield vault
        finally:
            files.close(vault)


class SourceDesk:
    """The keeper's work without its thread: hashes that go on, and copies that are not made twice."""

    def __init__(self) -> None:
        self._hashes = RunningHashes()
        self._copied: OrderedDict[str, tuple[Stamp, Staged]] = OrderedDict()

    def do(self, vault_fd: int, work: HashUpload | CopyFile, check: Callable[[], None]) -> Complete:
        """Raises the typed refusals of the two tools, and what ``check`` raises."""
        shelf = Shelf(vault_fd, work.partition, work.request_id)
        with _typed():
            match work:
                case HashUpload():
                    return Complete(self._hashes.hash(shelf, work.name, work.size, check))
                case CopyFile():
                    return Complete(self._copy(shelf, work, check))

    def _copy(self, shelf: Shelf, work: CopyFile, check: Callable[[], None]) -> Staged:
        try:
            with open_source(work.workspace, work.path) as source:
                stamp, staged = self._copied.get(shelf.path, (None, None))
                # Two identical calls at once: the second finds the first one's copy, not yet named.
                if staged is not None and (stamp, staged.sha256) == (source.stamp, work.sha256):
                    if shelf.is_still(staged):
                        return staged
                    del self._copied[shelf.path]
                staged = self._hashes.placed(shelf, work.name, source.stamp.size, work.sha256, check)
                if staged is not None:
                    return staged
                staged = shelf.copy_in(source, work.sha256, check)
                self._copied[shelf.path] = (source.stamp, staged)
                if len(self._copied) > COPIES_REMEMBERED:
                    self._copied.popitem(last=False)
                return staged
        except SourceRefused as refused:
            raise refusal(refused.problem) from None


def refusal(problem: SourceProblem) -> KnowledgeError:
    """The typed form of a file that cannot be retained."""
    if problem == "hash_mismatch":
        return EvidenceInvalid(f"sha256 {_WORDS[problem]}.", field="sha256", reason=problem)
    return InvalidArgument(
        f"filePath {_WORDS[problem]}.",
        field="filePath",
        reason=problem,
        allowed="a regular file with one name inside the host's workspace",
    )


@contextmanager
def _typed() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise StorageError(
            "The source could not be retained: " + ("the disk is full." if full else f"{error.strerror}."),
            reason="full" if full else "file_system",
            errno=error.errno or 0,
        ) from error
