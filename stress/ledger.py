"""What a run observed from outside: every call with its answer, every edit, every change of access, every injury.

All times are seconds on the system's monotonic clock, which processes share. Nothing here knows the runtime.
"""

from __future__ import annotations

import itertools
import re
import threading
from dataclasses import dataclass, field
from typing import Final, Literal

from messages.json_types import JsonObject

UNIQUE: Final = re.compile(r"\b[0-9a-f]{16}\b")
"""A word that one text of a run has alone."""
Deed = Literal["in place", "by rename", "rename", "remove", "cut off", "add"]


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf a client calls. ``conversation`` is a session key, None the owner in private."""

    agent: str
    store: str
    conversation: str | None = None

    @property
    def partition(self) -> str:
        """A name for the caller's own partition, unique in a run."""
        return f"{self.store}/{self.conversation or 'private'}"


@dataclass(frozen=True, slots=True)
class Sight:
    """One record as an answer showed it: ``content`` is its full hash, None when it was not found."""

    record: str
    content: str | None
    words: frozenset[str] | None = None
    """Of a page's whole body, those that one text has alone."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a write was answered: id, revision and hash of each record, whether it says that nothing was written, and
    a digest of all in it that must stay the same."""

    records: tuple[tuple[str, int, str], ...]
    nothing: bool
    digest: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One call. ``code`` is ``ok`` or the error's. Of ``arguments`` and answers only what a judge needs is kept, so
    that hours fit into memory: all arguments only while the write may have to be sent again."""

    number: int
    client: str
    door: str
    caller: Caller
    tool: str
    arguments: JsonObject
    began: float
    ended: float
    deadline: float | None
    code: str
    retry: str
    receipt: Receipt | None = None
    """Of a call with a request id that was answered ``ok``."""
    sight: Sight | None = None
    secrets: frozenset[str] = frozenset()
    """The secrets that the answer held."""
    place: tuple[int, int] = (0, 0)
    """Connection, and bytes that it had delivered with the answer."""
    cancelled: bool = False

    @property
    def request_id(self) -> str | None:
        found = self.arguments.get("requestId")
        return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True)
class Edit:
    """What a person did to one file: ``content`` is the hash of the new text, None when the file was taken away.

    ``token`` is a word that only this text has. The edit took effect between ``began`` and ``ended``.
    """

    deed: Deed
    store: str
    path: str
    record: str | None
    token: str | None
    content: str | None
    began: float
    ended: float
    taken: frozenset[str] = frozenset()
    """Tokens that it took out of the text."""


@dataclass(frozen=True, slots=True)
class Access:
    """A change of a conversation's grant that was answered ``ok``. ``granted`` None: it was taken away.

    ``arrived`` are the bytes that each connection had received when a revocation's answer was there.
    """

    agent: str
    conversation: str
    granted: str | None
    began: float
    ended: float
    arrived: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Struck:
    """One injury that took effect."""

    kind: str
    place: str
    at: float
    pid: int = 0


@dataclass(frozen=True, slots=True)
class Ordeal:
    """A damage that was done while clients worked. ``store`` None: all of them had to do with it.

    ``unheard``: until ``ended`` the owner may not know of edits that were made meanwhile.
    """

    name: str
    store: str | None
    began: float
    ended: float
    unheard: bool = False
    record: str | None = None
    """What this record says meanwhile is its file's doing."""


@dataclass(frozen=True, slots=True)
class Life:
    """An actor's incarnation began or ended in the owner's process ``pid``."""

    what: Literal["started", "ended"]
    actor: str
    incarnation: int
    at: float
    pid: int


class Ledger:
    """The record of a run. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self.operations: list[Operation] = []
        self.edits: list[Edit] = []
        self.access: list[Access] = []
        self.struck: list[Struck] = []
        self.ordeals: list[Ordeal] = []
        self.lives: list[Life] = []
        self.surplus = 0

    def until(self, at: float) -> Ledger:
        """What was over by then, as a ledger of its own."""
        found = Ledger()
        with self._lock:
            found.operations = [operation for operation in self.operations if operation.ended <= at]
            found.edits = [edit for edit in self.edits if edit.ended <= at]
            found.access = list(self.access)
            found.struck = [struck for struck in self.struck if struck.at <= at]
            found.ordeals = list(self.ordeals)
            found.lives = list(self.lives)
            found.surplus = self.surplus
        return found

    def number(self) -> int:
        return next(self._numbers)

    def add(self, entry: Operation | Edit | Access | Struck | Ordeal | Life) -> None:
        with self._lock:
            match entry:
                case Operation():
                    self.operations.append(entry)
                case Edit():
                    self.edits.append(entry)
                case Access():
                    self.access.append(entry)
                case Struck():
                    self.struck.append(entry)
                case Ordeal():
                    self.ordeals.append(entry)
                case Life():
                    self.lives.append(entry)

    def count_surplus(self, answers: int) -> None:
        """Answers that nobody asked for."""
        with self._lock:
            self.surplus += answers
