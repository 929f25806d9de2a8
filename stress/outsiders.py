"""Those who work beside the clients: an editor, a person with Git, an operator who grants and revokes, a file of
configuration that is saved again. Each is a thread with its own random source."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from messages.json_types import JsonObject
from stress.doors import SocketDoor, StreamDoor
from stress.ledger import Access, Caller, Deed, Edit, Ledger

LISTED_SECONDS: Final = 2.0
_TOKEN: Final = re.compile(rb"hand[0-9a-f]{16}")
_RECORD_ID: Final = re.compile(rb'^id: "?([0-9a-f-]{36})"?$', re.MULTILINE)


class Outsider:
    """Does something, again and again, with a pause in between."""

    store: str | None = None
    """Whose files it touches, when it does."""

    def __init__(self, chance: random.Random, pause: float) -> None:
        self.chance = chance
        self.done = 0
        self.busy = threading.Lock()
        """Held while something is done; whoever else holds it keeps this one from everything."""
        self._pause = pause

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(self._pause * self.chance.uniform(0.5, 1.5)):
            with self.busy, contextlib.suppress(FileNotFoundError, NotADirectoryError):
                self.act()
                self.done += 1

    def act(self) -> None:
        """One thing. A file that is gone meanwhile ends it."""
        raise NotImplementedError

    def leave(self) -> None:
        """Tidy up after oneself."""


class Editor(Outsider):
    """A person who edits, renames, removes and adds files of one store's private partition."""

    def __init__(
        self, chance: random.Random, pause: float, store: str, folder: Callable[[], Path | None], ledger: Ledger
    ) -> None:
        super().__init__(chance, pause)
        self.store = self._store = store
        self._folder = folder
        self._ledger = ledger
        self._names = 0
        self._files: list[Path] = []
        """As they were listed last, the one that was changed last at the end."""
        self._listed = -LISTED_SECONDS

    def act(self) -> None:
        folder = self._folder()
        if folder is None or not folder.is_dir():
            return
        files = self._seen(folder)
        deeds: tuple[Deed, ...] = ("in place", "by rename", "by rename", "rename", "remove", "cut off", "add")
        deed = self.chance.choice(deeds)
        if deed == "add" or not files:
            self._add(folder)
            return
        path = self._one_of(files)
        match deed:
            case "in place" | "by rename":
                self._rewrite(path, in_place=deed == "in place")
            case "rename":
                self._rename(path)
            case "cut off":
                self._cut_off(path)
            case _:
                # A person removes few files: most of a partition gone at once is another thing.
                if len(files) > 50:
                    self._remove(path, folder)

    def _one_of(self, files: Sequence[Path]) -> Path:
        """Half of the time one that was changed lately: that is where a person and the agents meet."""
        return self.chance.choice(files[-8:] if self.chance.random() < 0.5 else files)

    def _seen(self, folder: Path) -> list[Path]:
        """The files as a person sees them: listed anew once in a while, since an hour's run has many."""
        if time.monotonic() - self._listed >= LISTED_SECONDS:
            self._files = [path for _, path in sorted(_notes(str(folder)))]
            self._listed = time.monotonic()
        return self._files

    def _rewrite(self, path: Path, *, in_place: bool) -> None:
        began = time.monotonic()
        before = path.read_bytes()
        token = self._token()
        after = before.rstrip(b"\n") + b"\n\nBy hand: " + token.encode() + b"\n"
        if in_place:
            with path.open("r+b") as file:
                file.write(after)
                file.truncate()
        else:
            self._names += 1
            other = path.with_name(f".{path.name}.{self._names}.swp")
            other.write_bytes(after)
            os.replace(other, path)
        self._note("in place" if in_place else "by rename", path, _record_id(after), token, after, began)

    def _cut_off(self, path: Path) -> None:
        """The end of a text is lost, in place: what stood there must be in history."""
        began = time.monotonic()
        with path.open("r+b") as file:
            before = file.read()
            start = before.find(b"\n---\n") + len(b"\n---\n\n")
            if len(before) - start < 2:
                return
            file.truncate(self.chance.randrange(start + 1, len(before)))
            file.seek(0)
            after = file.read()
        taken = frozenset(token.decode() for token in set(_TOKEN.findall(before)) - set(_TOKEN.findall(after)))
        self._note("cut off", path, _record_id(after), None, after, began, taken)

    def _rename(self, path: Path) -> None:
        began = time.monotonic()
        text = path.read_bytes()
        self._names += 1
        path.rename(path.with_name(f"{path.stem[:60]}-r{self._names}.md"))
        self._note("rename", path, _record_id(text), None, text, began)

    def _remove(self, path: Path, folder: Path) -> None:
        began = time.monotonic()
        text = path.read_bytes()
        path.unlink()
        self._note("remove", path, _record_id(text), None, None, began)

    def _add(self, folder: Path) -> None:
        began = time.monotonic()
        record, token = str(uuid.UUID(int=self.chance.getrandbits(128), version=4)), self._token()
        at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
        text = (
            f'---\nformat: "knowledge-record-v1"\nid: "{record}"\nrevision: 1\nkind: "page"\n'
            f'title: "By hand {token}"\nrecorded_at: "{at}"\nupdated_at: "{at}"\n'
            f'scope: {{"visibility": "private"}}\nlifecycle: "active"\ntype: "note"\n---\n\nAdded: {token}\n'
        ).encode()
        place = folder / "notes"
        place.mkdir(exist_ok=True)
        path = place / f"by-hand-{token}.md"
        other = place / f".{token}.tmp"
        other.write_bytes(text)
        os.replace(other, path)
        self._note("add", path, record, token, text, began)

    def _note(
        self,
        deed: Deed,
        path: Path,
        record: str | None,
        token: str | None,
        text: bytes | None,
        began: float,
        taken: frozenset[str] = frozenset(),
    ) -> None:
        content = None if text is None else hashlib.sha256(text).hexdigest()
        self._ledger.add(Edit(deed, self._store, str(path), record, token, content, began, time.monotonic(), taken))

    def _token(self) -> str:
        return f"hand{self.chance.getrandbits(64):016x}"


class GitUser(Outsider):
    """A person who uses Git in the vault: looks, commits, and leaves an ``index.lock`` behind for a while."""

    def __init__(
        self,
        chance: random.Random,
        pause: float,
        store: str,
        folder: Callable[[], Path | None],
        environment: dict[str, str],
    ) -> None:
        super().__init__(chance, pause)
        self.store = store
        self._folder = folder
        self._environment = environment

    def act(self) -> None:
        folder = self._folder()
        if folder is None or not (folder / ".git").is_dir():
            return
        deed = self.chance.choice(("status", "log", "commit", "branch", "lock"))
        match deed:
            case "lock":
                lock = folder / ".git" / "index.lock"
                with contextlib.suppress(FileExistsError):
                    lock.touch(exist_ok=False)
                    time.sleep(self.chance.uniform(0.1, 1.5))
                    lock.unlink(missing_ok=True)
            case "commit":
                # In one step: what is staged first and committed later takes back what was committed in between.
                self._git(folder, "commit", "-q", "-a", "-m", "by hand")
            case "branch":
                self._git(folder, "branch", "-f", f"by-hand-{self.chance.randrange(5)}")
            case "log":
                self._git(folder, "log", "--oneline", "-5")
            case _:
                self._git(folder, "status", "--short")

    def leave(self) -> None:
        """Unstage what was staged and not committed: until then the index is this person's."""
        folder = self._folder()
        if folder is not None and self.done:
            self._git(folder, "reset", "-q")

    def _git(self, folder: Path, *arguments: str) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                ["git", "-c", "user.name=Ana", "-c", "user.email=ana@example.org", *arguments],
                cwd=folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=20,
                check=False,
            )


class Granter(Outsider):
    """An operator who lets conversations in and shuts them out again."""

    def __init__(
        self,
        chance: random.Random,
        pause: float,
        conversations: Sequence[Caller],
        door: SocketDoor,
        watched: Sequence[StreamDoor],
        ledger: Ledger,
        asking: Callable[[], Collection[Caller]],
    ) -> None:
        """``asking``: for whom a call is under way, which is when it matters that a right ends."""
        super().__init__(chance, pause)
        self._asking = asking
        self._conversations = conversations
        self._door = door
        self._watched = watched
        self._ledger = ledger
        self._granted: dict[Caller, str] = {}

    def act(self) -> None:
        who, wanted = self._next()
        params: JsonObject = {"agent": who.agent, "sessionKey": str(who.conversation)}
        method = "access.grants.remove" if wanted is None else "access.grants.set"
        if wanted is not None:
            params["access"] = wanted
        began = time.monotonic()
        outcome = self._door.ask(method, params)
        arrived = dict(door.arrived() for door in self._watched)
        if outcome.code != "ok":
            # It may have happened or not: nothing can be said of this conversation before the next answer.
            self._ledger.add(Access(who.agent, str(who.conversation), "unknown", began, time.monotonic(), arrived))
            return
        if wanted is None:
            self._granted.pop(who, None)
        else:
            self._granted[who] = wanted
        self._ledger.add(Access(who.agent, str(who.conversation), wanted, began, time.monotonic(), arrived))

    def _next(self) -> tuple[Caller, str | None]:
        """Mostly whoever is let in and has a call under way is shut out; otherwise one more is let in."""
        caught = [who for who in self._asking() if who in self._granted]
        if caught and self.chance.random() < 0.7:
            return self.chance.choice(caught), None
        who = self.chance.choice(self._conversations)
        shut = who in self._granted and self.chance.random() < 0.2
        return who, None if shut else self.chance.choice(("read", "read-save"))


class Configurer(Outsider):
    """A person who saves the configuration again: the same, with another comment, once in a while broken."""

    def __init__(self, chance: random.Random, pause: float, path: Path) -> None:
        super().__init__(chance, pause)
        self._path = path
        self._text = path.read_text()

    def act(self) -> None:
        broken = self.chance.random() < 0.2
        text = f"{self._text}# saved {self.done} times\n" + ("stores: [\n" if broken else "")
        other = self._path.with_suffix(".tmp")
        other.write_text(text)
        os.replace(other, self._path)
        if broken:
            time.sleep(0.3)
            self._path.write_text(self._text)


def _notes(folder: str) -> Iterator[tuple[int, Path]]:
    """Every note below a folder, with when it was changed; hidden ones are left out."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _notes(entry.path)
            elif entry.name.endswith(".md"):
                yield entry.stat(follow_symlinks=False).st_mtime_ns, Path(entry.path)


def _record_id(text: bytes) -> str | None:
    found = _RECORD_ID.search(text)
    return found[1].decode() if found else None
