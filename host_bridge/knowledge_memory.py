"""``KnowledgeMemory``: long-term memory for an agent in three lines of Python, without a host.

::

    from host_bridge import KnowledgeMemory

    memory = KnowledgeMemory(storage_dir="./agent_memory")
    memory.remember("Preferred language: Python", category="preferences", persistent=True)
    print(memory.build_context())

Source: agent-memory.md; agent-memory-contract.md section 11 decides between the guide and the released package.
"""

from __future__ import annotations

import logging
import os
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from actors.agent_memory import (
    AgentMemoryLane,
    BuildContext,
    Clear,
    Flush,
    LiveEntries,
    PruneLogs,
    Raised,
    ReadFacts,
    ReadRecent,
    Remember,
)
from actors.supervision import Request
from messages.envelope import Deadline
from messages.errors import InvalidArgument
from storage.agent_memory import (
    ContextBounds,
    KnowledgeBackend,
    KnowledgeEntry,
    KnowledgeStore,
    MemoryDirectory,
    PreSaveHook,
    dedupe_against,
    defang_delimiters,
    first_kept_day,
    restore,
    utc_now,
)
from storage.agent_memory.contract import ALL
from storage.agent_memory.entry import GENERAL, in_utc, storable
from storage.agent_memory.notes import one_line

ANSWER_SECONDS: Final = 30.0
RECENT_DAYS: Final = 2
LOG_DAYS: Final = 30
CONTEXT_ENTRIES: Final = 50

logger = logging.getLogger(__name__)

R = TypeVar("R")


class KnowledgeMemory:
    """Facts that outlive a session, in a directory that people can read. Any thread, any number of processes.

    Nothing that was acknowledged is lost, whatever crashes. Close it, use it as a context manager, or leave it to the
    interpreter: no thread of it keeps a program from ending.

    Errors: ``Busy`` (another process is at work for too long), ``StorageError``, ``StoreUnavailable``,
    ``DeadlineExceeded``, ``Stopping`` (closed); what a store, a backend or a hook of the caller raises comes out as it
    is.
    """

    __stability__ = "stable"

    def __init__(
        self,
        storage_dir: str | os.PathLike[str] = "./agent_memory",
        max_log_days: int = LOG_DAYS,
        max_context_entries: int = CONTEXT_ENTRIES,
        *,
        directory: str | os.PathLike[str] | None = None,
        store: KnowledgeStore | None = None,
        backend: KnowledgeBackend | None = None,
        pre_save: PreSaveHook | Sequence[PreSaveHook] | None = None,
        dedupe: bool = False,
        dedupe_threshold: float = 0.9,
        dedupe_window: int = 200,
        max_entries: int | None = None,
        max_context_chars: int | None = None,
        recent_days: int = RECENT_DAYS,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """``directory`` is another name of ``storage_dir``. Daily logs older than ``max_log_days`` go, with the
        entries of those days that are not persistent. ``max_entries``: the least important go beyond it.

        With a ``backend`` the directory is restored from it first, and saved to it after each change. A directory of
        the released package is converted (:mod:`storage.agent_memory.released`).
        """
        for name, number in (
            ("max_log_days", max_log_days), ("max_context_entries", max_context_entries), ("recent_days", recent_days),
            ("dedupe_window", dedupe_window),
        ):  # fmt: skip
            _check_whole(name, number)
        for name, bound in (("max_context_chars", max_context_chars), ("max_entries", max_entries)):
            if bound is not None:
                _check_whole(name, bound)
        self._directory_path = Path(storage_dir if directory is None else directory)
        self._max_log_days = max_log_days
        self._max_context_entries = max_context_entries
        self._max_context_chars = max_context_chars
        self._max_entries = max_entries
        self._recent_days = recent_days
        self._backend = backend
        self._hooks: tuple[PreSaveHook, ...] = (
            () if pre_save is None else (pre_save,) if callable(pre_save) else tuple(pre_save)
        )
        self._dedupe: tuple[float, int] | None = (dedupe_threshold, dedupe_window) if dedupe else None
        self._now: Callable[[], datetime] = lambda: in_utc(now())
        self._given_store = store
        if backend is not None:
            restore(self._directory_path, backend.load_bytes)
        self._directory = self._opened_directory()
        self._directory.convert()
        self._begin()

    # --- the guide's methods ---------------------------------------------------------------------------

    def remember(
        self,
        content: str,
        category: str = GENERAL,
        persistent: bool = False,
        *,
        importance: float = 0.5,
        ttl_days: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Keep a fact; its id, or ``""`` where a hook rejects it. Durable when this returns.

        The hooks see the text alone: one that counts words or rejects repeats is not meant for a label. The category,
        which a prompt shows too, is always one line without delimiters (:func:`defang_delimiters`).
        ``persistent``: also in ``MEMORY.md``, and never pruned. Raises ``TypeError`` or ``ValueError`` for metadata
        that JSON cannot hold, and ``InvalidArgument`` for another field of a wrong type; nothing is kept then.
        """
        for name, value, kind in (("content", content, str), ("category", category, str)):
            if not isinstance(value, kind):
                raise _unfit(name, "text")
        if persistent not in (True, False):
            raise _unfit("persistent", "True or False")
        text = self._through_hooks(content)
        if text is None:
            return ""
        kept = dict(metadata or {})
        created = self._now()
        entry = storable(KnowledgeEntry(
            id=uuid.uuid4().hex,
            content=_storable(text),
            category=_label(category),
            importance=importance,
            persistent=persistent,
            ttl_days=ttl_days,
            created_at=created,
            updated_at=created,
            metadata=kept,
        ))  # fmt: skip
        return self._ask(Remember(entry, self._unlike_others()))

    def build_context(self) -> str:
        """What a prompt should hold: ``[Long-term Memory]`` and ``[Recent Memory]``, each where there is something."""
        bounds = ContextBounds(self._max_log_days, self._max_context_entries, self._max_context_chars)
        return self._ask(BuildContext(bounds))

    def get_persistent_facts(self) -> dict[str, list[str]]:
        """What stands in ``MEMORY.md``, by category."""
        found: dict[str, list[str]] = {}
        for category, content in self._ask(ReadFacts()):
            found.setdefault(category, []).append(content)
        return found

    def get_recent_entries(self, days: int = 7, limit: int = 50) -> list[dict[str, Any]]:
        """The latest ``limit`` entries of today and of the ``days`` days before, oldest first, as their logs have
        them: ``timestamp``, ``category``, ``content``, ``persistent``, ``id``."""
        _check_whole("days", days)
        _check_whole("limit", limit)
        since = first_kept_day(self._now(), days)
        return [line.shown() for line in self._ask(ReadRecent(since, limit))]

    def prune_logs(self, max_days: int | None = None) -> int:
        """Delete the daily logs older than ``max_days`` (by default ``max_log_days``); how many."""
        days = self._max_log_days if max_days is None else max_days
        _check_whole("max_days", days)
        return self._ask(PruneLogs(first_kept_day(self._now(), days)))

    def clear(self) -> None:
        """Forget everything: entries, ``MEMORY.md`` and logs."""
        self._ask(Clear())

    def clear_logs(self) -> None:
        """Forget what is not persistent, and the daily logs."""
        self._ask(Clear(logs_only=True))

    # --- the released package's methods ----------------------------------------------------------------

    def prune_old_logs(self, keep_days: int | None = None) -> int:
        """As :meth:`prune_logs`, but today counts: 1 keeps today's log alone, 0 keeps none."""
        keep = self._recent_days if keep_days is None else keep_days
        _check_whole("keep_days", keep)
        return self._ask(PruneLogs(first_kept_day(self._now(), keep - 1)))

    def get_recent_logs(self, days: int | None = None) -> str:
        """The log of the latest ``days`` days (today counts), newest day first, as text. Further lines of an
        entry are indented: none can pass for another entry or day."""
        wanted = self._recent_days if days is None else days
        _check_whole("days", wanted)
        if wanted < 1:
            return ""
        by_day: dict[str, list[str]] = {}
        for line in self._ask(ReadRecent(first_kept_day(self._now(), wanted - 1), ALL)):
            text = "\n  ".join(line.content.strip().splitlines())
            shown = f"[{line.at:%Y-%m-%d %H:%M:%S}] [{one_line(line.category)}] {text}"
            by_day.setdefault(f"{line.at:%Y-%m-%d}", []).append(shown)
        return "\n".join("\n".join([f"=== {day} ===", *by_day[day]]) for day in sorted(by_day, reverse=True))

    def flush(self) -> None:
        """Save the directory to the backend now: after changes to :attr:`store` or to files in it."""
        if self._backend is not None:
            self._ask(Flush())

    def to_dict(self) -> dict[str, Any]:
        """What :meth:`from_dict` needs; store, backend and hooks are not carried."""
        return {
            "directory": str(self._directory_path),
            "max_log_days": self._max_log_days,
            "max_context_entries": self._max_context_entries,
            "recent_days": self._recent_days,
            "max_context_chars": self._max_context_chars,
            "max_entries": self._max_entries,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> KnowledgeMemory:
        """The memory of such a dict; what it lacks gets its default, what is unknown is passed over."""
        names = ("directory", "max_log_days", "max_context_entries", "recent_days", "max_context_chars", "max_entries")
        return cls(**{name: data[name] for name in names if name in data})

    @property
    def directory(self) -> str:
        """Where it lies."""
        return str(self._directory_path)

    @property
    def store(self) -> KnowledgeStore:
        """Where the entries are kept."""
        return self._directory.store

    @property
    def backend(self) -> KnowledgeBackend | None:
        """Where the directory is saved to."""
        return self._backend

    # --- beyond both -----------------------------------------------------------------------------------

    def live_entries(self, limit: int = ALL) -> list[KnowledgeEntry]:
        """The entries that are not expired, the most important first."""
        _check_whole("limit", limit)
        return self._ask(LiveEntries(limit))

    def close(self) -> None:
        """Finish what was asked and end; idempotent."""
        self._end()

    def __enter__(self) -> KnowledgeMemory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- inside ----------------------------------------------------------------------------------------

    def _opened_directory(self) -> MemoryDirectory:
        return MemoryDirectory(
            self._directory_path, self._given_store, max_entries=self._max_entries, now=self._now
        )

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lane = AgentMemoryLane(self._directory, self._backend, self._now)
        self._end = weakref.finalize(self, _close, self._lane, self._process)

    def _ask(self, request: Request[R | Raised]) -> R:
        if self._process != os.getpid() and self._end.alive:
            # A fork has this object and none of its threads.
            self._end.detach()
            self._directory = self._opened_directory()
            self._begin()
        answer = self._lane.handle.ask(request, deadline=Deadline.after(ANSWER_SECONDS)).result()
        if isinstance(answer, Raised):
            raise answer.error
        return answer

    def _through_hooks(self, text: str) -> str | None:
        for number, hook in enumerate(self._hooks):
            changed = hook(text)
            if changed is None:
                logger.debug("pre_save hook %d rejected an entry", number)
                return None
            if not isinstance(changed, str):
                raise TypeError(f"pre_save hook {number} answers text or None, not {type(changed).__name__}")
            text = changed
        return text

    def _unlike_others(self) -> Callable[[str], str | None] | None:
        """A check for the lane, where nobody saves between it and the save."""
        if self._dedupe is None:
            return None
        threshold, window = self._dedupe
        store = self._directory.store

        def recent() -> list[str]:
            found = store.query(min_importance=float("-inf"), limit=ALL)
            return [one.content for one in sorted(found, key=lambda one: one.created_at, reverse=True)[:window]]

        return dedupe_against(recent, threshold)


def _check_whole(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _unfit(name, "a whole number")


def _unfit(name: str, allowed: str) -> InvalidArgument:
    message = f"A memory takes no such {name}: it must be {allowed}."
    return InvalidArgument(message, field=name, reason="type", allowed=allowed)


def _close(lane: AgentMemoryLane, process: int) -> None:
    """End a lane where its threads are: the child of a fork has none to wait for."""
    if process == os.getpid():
        lane.close()


def _label(category: str) -> str:
    """The category as headings, logs and prompts can show it."""
    return one_line(defang_delimiters(one_line(_storable(category)))) or GENERAL


def _storable(text: str) -> str:
    """The text with U+FFFD for what UTF-8 cannot hold."""
    return text.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")
