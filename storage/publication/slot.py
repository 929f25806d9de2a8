"""One step's two names, its target and its staged name: what they hold, and how a text gets from one to the other.

Guarantees: no function here destroys a text that the journal does not hold. Runs on the lane's thread.

Source: WRITE-PATH.md section 2 (steps 3 and 5, where EXCHANGE is missing).
"""

from __future__ import annotations

from dataclasses import dataclass

from storage import files
from storage.publication.store import NO_FOLDER, READ_LIMIT_BYTES, Folders, StoreState, staging_folder
from storage.publication.table import Holds
from storage.state import journal
from storage.state.journal import JournalEntry, Step, digest
from storage.vault import replace

FAULT_POINTS = (
    ("replay.read", "reading what a name of an unfinished step holds"),
    ("stage.mkdir", "making a missing folder of a target"),
    ("stage.file", "creating and writing a staged text"),
    ("stage.attributes", "copying mode, owner and attributes to a staged text"),
    ("unlink.staged", "removing a staged name whose text is known or has another name"),
    ("unlink.folder", "removing an empty folder that a rejected request made"),
)


@dataclass(frozen=True, slots=True)
class Observed:
    """What a name holds. ``data`` and ``hash`` are ``None`` for nothing, and for what is no plain file."""

    holds: Holds
    name: str
    hash: str | None = None
    data: bytes | None = None
    stamp: files.Stamp | None = None


class Slot:
    """The target and the staged name of one step of one entry."""

    __slots__ = ("_folders", "_state", "entry", "folder", "name", "staged", "staging", "step")

    def __init__(self, state: StoreState, folders: Folders, publication_id: str, step: Step) -> None:
        self._state = state
        self._folders = folders
        self.step = step
        self.folder, self.name = files.split(step.path)
        self.staging = staging_folder(step.path)
        self.staged = state.staged_name(publication_id, step.ordinal)

    @property
    def aside(self) -> str:
        """The third name, for where the file system cannot exchange."""
        return self.staged + replace.OLD_SUFFIX

    def target(self) -> Observed:
        """What the target's name holds now."""
        return self._observe(self.folder, self.name)

    def behind(self) -> Observed:
        """What the staged name holds now: our text before the exchange, the displaced one after it."""
        # Whatever the file system can do now, an earlier opening may have found otherwise.
        displaced = self._observe(self.staging, self.aside)
        return self._observe(self.staging, self.staged) if displaced.holds is Holds.NOTHING else displaced

    def require_current(self) -> None:
        """Raise ``Restarting`` when another opening has taken the store over."""
        self._state.require_current()

    def mend(self) -> None:
        """Where the file system cannot exchange, or move without replacing: end what an interruption left half done,
        so that the two names tell again what happened."""
        staging, folder = self._folders.find(self.staging), self._folders.find(self.folder)
        if staging is None or folder is None:
            return
        target = files.stat_entry(folder, self.name, at="replay.read")
        present = {}
        for name in (self.staged, self.aside):
            status = files.stat_entry(staging, name, at="replay.read")
            if status is None:
                continue
            if target is not None and (status.st_dev, status.st_ino) == (target.st_dev, target.st_ino):
                # Linked to its new name and not yet unlinked from the old one: one text under two names.
                files.unlink(staging, name, at="unlink.staged")
            else:
                present[name] = status
        if target is None and len(present) == 2:
            self.move_back(self.aside)

    def _observe(self, folder: str, name: str) -> Observed:
        try:
            fd = self._folders.open(folder)
        except FileNotFoundError:
            return Observed(Holds.NOTHING, name)
        except OSError as error:
            if error.errno not in NO_FOLDER:
                raise
            return Observed(Holds.OTHER, name)  # a person's link or file where a folder was
        try:
            data, stamp = files.read_file(fd, name, limit=READ_LIMIT_BYTES, at="replay.read")
        except FileNotFoundError:
            return Observed(Holds.NOTHING, name)
        except files.UnsafeFile:
            return Observed(Holds.OTHER, name)
        return self.classify(name, digest(data), data, stamp)

    def classify(self, name: str, text: str, data: bytes, stamp: files.Stamp | None = None) -> Observed:
        """What a text is for this step."""
        if text == self.step.after:
            holds = Holds.AFTER
        elif text == self.step.before:
            holds = Holds.BEFORE
        else:
            holds = Holds.OTHER
        return Observed(holds, name, text, data, stamp)

    def restage(self, text: str) -> None:
        """Write a text of the journal to the staged name again, replacing a known one that stands there."""
        self._folders.make(self.folder)
        folder = self._folders.make(self.staging)
        files.unlink(folder, self.staged, at="unlink.staged")
        files.close(files.create_file(folder, self.staged, journal.blob(self._state.db, text), at="stage.file"))

    def place_new(self) -> None:
        """Move the staged text to its free name. ``FileExistsError`` when the name was taken meanwhile."""
        replace.move(
            self._state.can,
            self._folders.open(self.staging),
            self.staged,
            self._folders.open(self.folder),
            self.name,
            at="place.file",
        )

    def swap(self, source: str) -> str:
        """Exchange the text at ``source`` (a staged name) with the target; the name that holds the displaced one."""
        staging, folder = self._folders.open(self.staging), self._folders.open(self.folder)
        if self._state.can.exchange:
            files.exchange(staging, source, folder, self.name, at="place.file")
            return source
        free = self.aside if source == self.staged else self.staged
        replace.move(self._state.can, folder, self.name, staging, free, at="place.aside")
        replace.move(self._state.can, staging, source, folder, self.name, at="place.file")
        return free

    def move_aside(self, free: str | None = None) -> str:
        """Move the target to the staged name; the name it has now."""
        name = free or self.staged
        replace.move(
            self._state.can,
            self._folders.open(self.folder),
            self.name,
            self._folders.open(self.staging),
            name,
            at="place.aside",
        )
        return name

    def move_back(self, name: str) -> bool:
        """Move a displaced text back to its free name; ``False`` when another text stands there now."""
        try:
            replace.move(
                self._state.can,
                self._folders.open(self.staging),
                name,
                self._folders.make(self.folder),
                self.name,
                at="place.back",
            )
        except FileExistsError:
            return False
        return True

    def look(self, name: str) -> tuple[Observed, bool]:
        """The displaced text at a staged name, and whether somebody has it open for writing."""
        folder = self._folders.open(self.staging)
        try:
            seen = replace.look(folder, name, limit=READ_LIMIT_BYTES)
        except files.UnsafeFile:
            return Observed(Holds.OTHER, name), False
        return self.classify(name, seen.hash, seen.data), bool(seen.busy)

    def discard(self, name: str) -> None:
        """Remove a staged name whose text the journal holds."""
        folder = self._folders.find(self.staging)
        if folder is not None:
            files.unlink(folder, name, at="unlink.staged")


def slots(state: StoreState, folders: Folders, entry: JournalEntry) -> list[Slot]:
    """The slots of an entry, in order."""
    return [Slot(state, folders, entry.publication_id, step) for step in entry.steps]
