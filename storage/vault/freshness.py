"""Is the partition as we know it? Exact where the kernel tells of every change, a scan where it does not.

Guarantees, while the state is ``watching``: every change that was finished before :meth:`Watch.drain` began is named in
what it returns, whatever its kind and whoever made it on this machine; a lost event is never silent but becomes
``rescan``, and a folder whose watch the system took off is one of those. Two things send no event while they happen:
a write through a memory mapping shows when the file is closed, and a hard link made outside the partition, with what
is written through it, shows at the next scan. A slow look at the bytes of every file finds both, and
:meth:`Watch.self_test`, made from time to time, a watch that has gone deaf (``actors/store/slow_look.py``).

The descriptor belongs to one lane, which drains it inside every query: two readers would split the events. A helper
may wait until :meth:`Watch.fileno` is readable, and must not read it. A conversation has no descriptor of its own: it
hears through the private partition's, whose :meth:`Watch.drain` and its own take the events for both.

Order of use::

    watch = open_watch(vault, PRIVATE)
    known = watch.scan().files                 # sets the watches: complete from before it began
    ...
    changes = watch.drain()                    # at the start of every query
    if changes.rescan:
        compare(known, watch.scan().files)
    elif changes:
        for path, stamp in watch.observe(changes, known_below).items(): ...

Whoever fails between ``drain`` and having applied the changes calls :meth:`Watch.invalidate`.

Source: PERFORMANCE.md (Freshness); DESIGN.md (The tree; rule 10); stores-and-access.md (Runtime).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from messages.errors import ScanIncomplete
from messages.vocabulary import Partition
from storage import files
from storage.files import Stamp
from storage.layout import ARTIFACTS_NAME, MANIFEST_NAME, STAGED_PREFIX
from storage.vault._filesystem import remote_kind
from storage.vault._folders import WatchedFolders
from storage.vault._place import Place
from storage.vault.scan import (
    DEFAULT_LIMITS,
    ScanFinding,
    ScanLimits,
    ScanResult,
    folder_refusal,
    is_passed_over,
    is_utf8,
    look,
    printable,
    scan_partition,
)

if TYPE_CHECKING:
    from storage.vault._inotify import Event, Inotify

FAULT_POINTS: Final = (
    ("watch.root", "opening a vault or partition folder"),
    ("watch.identity", "comparing a folder's path with the folder that is open"),
    ("watch.statfs", "asking which file system a folder is on"),
    ("watch.open", "making an inotify instance"),
    ("watch.add", "adding a watch to a folder"),
    ("watch.remove", "removing a watch"),
    ("watch.queued", "asking how many events wait"),
    ("watch.read", "reading events"),
    ("watch.close", "closing the inotify instance"),
    ("watch.sentinel.open", "creating the file that proves the watch alive"),
    ("watch.sentinel.write", "writing that file"),
    ("watch.sentinel.remove", "removing that file"),
)

GUEST_FOLDERS_MAX: Final = 512
"""Folders that all conversations of a store may have watched together: the system's watches are for everybody."""
_SENTINEL: Final = f"{STAGED_PREFIX}watch"


@dataclass(frozen=True, slots=True)
class Changes:
    """What may differ from what was known; false when nothing does.

    ``paths`` are files to look at, ``folders`` are folders below which every known path is to be looked at, both
    relative to the partition folder; :meth:`Watch.observe` does both. ``rescan`` stands for all of it. ``manifest``
    says that ``vault.json`` was touched. ``replaced`` says that the folder at the vault's or partition's path is
    another one now: nothing may be answered from it; close this watch, check the store's identity, open a new one.
    """

    paths: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()
    rescan: bool = False
    manifest: bool = False
    replaced: bool = False

    def __bool__(self) -> bool:
        return bool(self.paths or self.folders or self.rescan or self.manifest or self.replaced)


NOTHING: Final = Changes()


class Watch:
    """The freshness of one partition. Made by :func:`open_watch`; used by one thread."""

    def __init__(self, place: Place, limits: ScanLimits, host: Watch | None = None) -> None:
        self.reason: str | None = None
        self._place = place
        self._limits = limits
        self._host = host
        self._guests: list[Watch] = []
        self._kernel: Inotify | None = None
        self._vault_watch = -1
        self._watched: WatchedFolders | None = None
        self._findings: dict[str, ScanFinding] = {}
        self._paths: set[str] = set()
        self._folders: set[str] = set()
        self._rescan = True
        self._manifest = True
        self._heard = False

    @property
    def state(self) -> Literal["watching", "unavailable"]:
        """``unavailable``: every :meth:`drain` asks for a scan; :attr:`reason` says why."""
        return "unavailable" if self._kernel is None else "watching"

    @property
    def findings(self) -> tuple[ScanFinding, ...]:
        """What is refused by name at present, by path; kept up to date by scans and observations."""
        return tuple(self._findings[path] for path in sorted(self._findings))

    @property
    def partition(self) -> Partition:
        return self._place.partition

    @property
    def root_fd(self) -> int | None:
        """The open partition folder; ``None`` while a conversation has none yet."""
        return self._place.root_fd

    def fileno(self) -> int | None:
        """A descriptor that is readable when something changed; only to be waited for. ``None`` without events, and
        for a conversation."""
        return None if self._kernel is None or self._host is not None else self._kernel.fd

    @property
    def waiting(self) -> bool:
        """Whether something was heard, or is to be scanned, that no :meth:`drain` has returned yet. Reads no event."""
        return bool(self._paths or self._folders or self._rescan or self._manifest)

    def drain(self) -> Changes:
        """Everything that changed since the last call, without blocking."""
        self._take_queued()
        if not self._place.same():
            self._rescan = True
            return Changes(rescan=True, manifest=True, replaced=True)
        if self._kernel is None:
            self._rescan = self._manifest = True
        elif self._host is not None and not self._rescan and not self._place.same(at_its_start=False):
            self._rescan = True  # nothing is heard of what is done to the conversation's folder itself
        # Losing the other name sends no event either, so these few are looked at each time.
        self._paths |= self._hardlinked()
        if not self.waiting:
            return NOTHING
        if self._rescan:
            changes = Changes(rescan=True, manifest=self._manifest)
        else:
            changes = Changes(frozenset(self._paths), frozenset(self._folders), False, self._manifest)
            self._paths.clear()
            self._folders.clear()
        self._manifest = False
        return changes

    def require_same(self) -> None:
        """At a query's end: raise ``StoreUnavailable`` unless the paths still lead to the folders that are open."""
        if not self._place.same(at_its_start=False):
            self._rescan = True
            raise self._place.gone()

    def scan(self, check: Callable[[], None] = lambda: None) -> ScanResult:
        """A complete scan that also sets the watches; from here on :meth:`drain` tells what changed since it began.

        Until one succeeds, :meth:`drain` goes on asking for it.

        Raises:
            ScanIncomplete: the scan could not finish.
            StoreUnavailable: the folder is gone, or another one stands at its path.
        """
        self._place.reopen_conversation()
        if not self._place.same():
            raise self._place.gone()
        if self._place.root_fd is None:
            self._findings.clear()
            return ScanResult({}, (), 0, 0)
        if self._host is not None and self._kernel is not None and not self._place.on_one_device():
            self._give_up("the conversation's folder is on another file system than the vault")
        self._rescan = True
        self._paths.clear()
        self._folders.clear()
        seen: set[str] = set()

        def enter(folder: str, folder_fd: int) -> None:
            seen.add(folder)
            self._add(folder, folder_fd)

        result = scan_partition(self._place.root_fd, limits=self._limits, check=check, on_folder=enter)
        if not self._place.same():
            raise self._place.gone()
        if self._watched is not None:
            self._watched.keep_only(seen)
        self._findings = {finding.path: finding for finding in result.findings}
        self._rescan = False
        return result

    def observe(self, changes: Changes, known_below: Callable[[str], Iterable[str]]) -> dict[str, Stamp | None]:
        """The stamp, or ``None`` for no note, of everything that ``changes`` names.

        ``known_below(folder)`` gives the paths that the caller knows below a folder, ``""`` being the partition.

        Raises:
            ScanIncomplete: a folder cannot be read; the next :meth:`drain` asks for a scan.
        """
        if self._place.root_fd is None:
            return {}
        paths = set(changes.paths)
        for folder in filter(is_utf8, changes.folders):
            paths.update(known_below(folder))
        with self._or_rescan():
            looked = look(self._place.root_fd, paths, self._limits)
        if looked.linked - self._hardlinked():
            found = self.scan().files
            return {**dict.fromkeys(known_below("")), **dict.fromkeys(filter(is_utf8, paths)), **found}
        stamps: dict[str, Stamp | None] = {}
        for path, seen in looked.found.items():
            self._findings.pop(printable(path), None)
            if isinstance(seen, ScanFinding):
                self._findings[seen.path] = seen
            if is_utf8(path):  # under another name no note was ever known
                stamps[path] = None if isinstance(seen, ScanFinding) else seen
        return stamps

    def invalidate(self) -> None:
        """Drained changes were not applied: the next :meth:`drain` asks for a scan."""
        self._rescan = True

    def self_test(self) -> bool:
        """Whether the watch is alive, proven by a file of ours that it must hear of; a deaf one becomes unavailable.

        Where no file can be made (a read-only or full disk) nothing is proven and the answer is the present state.
        What else was heard meanwhile is kept for :meth:`drain`, and :attr:`waiting` says so: the descriptor is not
        readable because of it any more.
        """
        if self._kernel is None or self._place.root_fd is None:
            return False
        try:
            files.unlink(
                self._place.root_fd, _SENTINEL, at="watch.sentinel.remove"
            )  # left by a process that was killed
            self._take_queued()
            self._heard = False
            files.close(files.create_file(self._place.root_fd, _SENTINEL, b"", mode=0o600, at="watch.sentinel"))
            files.unlink(self._place.root_fd, _SENTINEL, at="watch.sentinel.remove")
        except OSError:
            return self.state == "watching"
        self._take_queued()
        if not self._heard and self.state == "watching":
            self._give_up("the file system does not report changes")
        return self._heard

    def close(self) -> None:
        """Release every descriptor and watch; idempotent. Conversations that heard through it scan from now on."""
        self._stop_hearing("closed")
        self._place.close()

    def _start(self) -> None:
        """Begin to watch, or note why not."""
        if self.partition.session_id is not None:
            self._hear_through_host()
            return
        assert self._place.root_fd is not None
        try:
            for fd in (self._place.vault_fd, self._place.root_fd):
                kind = remote_kind(fd)
                if kind is not None:
                    self.reason = f"changes made elsewhere are not reported on {kind}"
                    return
            # Imported here: only a process that opens a store pays for it, and other systems do not have it.
            from storage.vault._inotify import Inotify

            self._kernel = Inotify()
            self._watched = WatchedFolders(self._kernel)
        except (ImportError, OSError) as error:
            self._give_up(_why(error))
            return
        self._watch_vault()
        self._add("", self._place.root_fd)
        self.self_test()

    def _watch_vault(self) -> None:
        """Watch the vault's own folder, where the manifest lies; at first, and when the system took the watch off."""
        self._rescan = self._manifest = True
        try:
            if self._kernel is not None:
                self._vault_watch = self._kernel.add(self._place.vault_fd)
        except OSError as error:
            self._give_up(_why(error))

    def _hear_through_host(self) -> None:
        """As a guest of the private partition's watch: an instance for each conversation would use up the system's."""
        if self._host is None or self._host._kernel is None:
            self.reason = "conversation partitions are scanned where nothing watches the private one"
            return
        self._kernel = self._host._kernel
        self._watched = WatchedFolders(self._kernel)
        self._host._guests.append(self)

    def _give_up(self, reason: str) -> None:
        self._stop_hearing(reason)
        self._rescan = True

    def _stop_hearing(self, reason: str) -> None:
        kernel, self._kernel = self._kernel, None
        watched, self._watched = self._watched, None
        self.reason = reason
        if kernel is None:
            return
        if self._host is None:
            for guest in self._guests:
                guest._kernel = guest._watched = None
                guest._rescan = True
                guest.reason = reason
            self._guests.clear()
            kernel.close()
        else:
            self._host._guests.remove(self)
            if watched is not None:
                # The host may have met one of these folders meanwhile: it is told that the watch is gone, and looks.
                watched.keep_only(frozenset())

    def _add(self, folder: str, folder_fd: int) -> None:
        if self._watched is None:
            return
        if self._host is not None and sum(map(len, self._host._watches_of_guests())) >= GUEST_FOLDERS_MAX:
            self._give_up("the conversations of this store have too many folders to watch them all")
            return
        try:
            self._watched.add(folder, folder_fd)
        except OSError as error:
            self._give_up(_why(error))

    def _watches_of_guests(self) -> Iterator[WatchedFolders]:
        return (guest._watched for guest in self._guests if guest._watched is not None)

    def _hardlinked(self) -> set[str]:
        return {path for path, finding in self._findings.items() if finding.code == "hardlink"}

    def _drop_findings(self, folder: str) -> None:
        shown = printable(folder)
        for path in [path for path in self._findings if path == shown or path.startswith(f"{shown}/")]:
            del self._findings[path]

    def _take_queued(self) -> None:
        """Handle every event that was queued when this was called. Later ones may wait for the next drain: so a busy
        writer cannot hold a query up."""
        if self._host is not None:
            if self._kernel is not None:
                self._host._take_queued()
            return
        try:
            remaining = 0 if self._kernel is None else self._kernel.queued()
            while remaining > 0 and self._kernel is not None:
                events, size = self._kernel.read()
                if not size:
                    return
                remaining -= size
                for event in events:
                    self._handle(event)
                    for guest in tuple(self._guests):
                        guest._overhear(event)
        except OSError as error:
            self._give_up(_why(error))

    def _overhear(self, event: Event) -> None:
        """As a guest: an event of one of its folders, or of the instance itself, which has lost some then.

        A folder that was moved from one partition to another is known to both until its events are read.
        """
        if event.watch < 0 or (self._watched is not None and self._watched.at(event.watch) is not None):
            self._handle(event)

    def _handle(self, event: Event) -> None:
        from storage.vault import _inotify as kernel

        mask = event.mask
        if mask & (kernel.OVERFLOW | kernel.UNMOUNT):
            self._rescan = True
            # Only a kernel that reports can have more to report than fits; among what is lost may be our own file.
            self._heard = self._heard or bool(mask & kernel.OVERFLOW)
            return
        if event.watch == self._vault_watch and self._host is None:
            if mask & kernel.IGNORED:
                self._watch_vault()
            elif event.name == MANIFEST_NAME.encode():
                self._manifest = True
            return  # anything else in the vault's own folder shows in the identity of the two folders
        folder = None if self._watched is None else self._watched.at(event.watch)
        if folder is None or self._watched is None:
            return
        if mask & (kernel.DELETE_SELF | kernel.IGNORED):
            # Of a folder that was removed the folder around it tells. A watch that ends without that was taken off
            # behind our back: the folder may be there still, and nothing is heard from it any more.
            self._rescan = self._rescan or not mask & kernel.DELETE_SELF
            self._watched.dropped(event.watch)
            return
        if not event.name:
            if mask & kernel.ATTRIB and folder:
                self._folders.add(folder)
            return
        name = os.fsdecode(event.name)
        if name == _SENTINEL and not folder:
            self._heard = True
        if is_passed_over(name):
            return
        path = f"{folder}/{name}" if folder else name
        if not mask & kernel.IS_FOLDER:
            self._paths.add(path)
        elif path != ARTIFACTS_NAME:
            self._folders.add(path)
            # Of its rights alone, whether it can still be read shows when it is looked at.
            if mask & (kernel.CREATE | kernel.MOVED_TO | kernel.DELETE | kernel.MOVED_FROM):
                self._enter(path, name)

    def _enter(self, path: str, name: str) -> None:
        """Another folder, or none, is at the path now. Whichever event said so: of two folders that change places, the
        last event for either path is that it was left."""
        self._drop_findings(path)
        if self._watched is not None:
            self._watched.forget_below(path)
        if self._rescan or self._place.root_fd is None:
            return
        if folder_refusal(name, path.count("/") + 1, self._limits) is not None:
            self._paths.add(path)
            return
        try:
            # The watch comes before the listing: what is made in between is seen twice, never not at all.
            result = scan_partition(self._place.root_fd, below=path, limits=self._limits, on_folder=self._add)
        except ScanIncomplete:
            self._rescan = True  # the full scan that follows says it to the caller
            return
        self._paths.update(result.files)
        self._findings.update((finding.path, finding) for finding in result.findings)

    @contextmanager
    def _or_rescan(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._rescan = True
            raise


def open_watch(
    vault: Path,
    partition: Partition,
    *,
    limits: ScanLimits = DEFAULT_LIMITS,
    events: bool = True,
    host: Watch | None = None,
) -> Watch:
    """The freshness of one partition of the vault at ``vault``; falls back to scans, never to being wrong.

    ``events=False`` scans only. ``host`` is the private partition's watch on the same thread, through which a
    conversation hears; without one it is scanned. The first :meth:`Watch.drain` asks for a scan.

    Raises:
        StoreUnavailable: the vault's folder, or its private folder, is gone.
    """
    watch = Watch(Place(vault, partition), limits, host)
    try:
        if events:
            watch._start()
        else:
            watch.reason = "events are switched off"
    except BaseException:
        watch.close()
        raise
    return watch


def _why(error: ImportError | OSError) -> str:
    if isinstance(error, ImportError):
        return "this system has no inotify"
    match error.errno:
        case errno.EMFILE:
            return "all inotify instances of this user are in use (fs.inotify.max_user_instances)"
        case errno.ENOSPC:
            return "all inotify watches of this user are in use (fs.inotify.max_user_watches)"
        case _:
            return f"inotify failed: {os.strerror(error.errno or errno.EIO)}"
