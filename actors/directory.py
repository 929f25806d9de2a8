"""The directory of live stores: started at first use, stopped when idle, never more than a limit at once.

``Directory`` and ``StoreHandle`` are the ports behind which a store may live elsewhere one day; nothing outside
``actors/`` assumes that it lives in this process. Source: DESIGN.md (Ports, The tree).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from actors.store.settings import StoreSettings
from actors.store.tree import store_name, store_spec
from actors.supervision import ActorHandle, InboxLimits, Reply, Request, Timer, Tree
from messages.envelope import Cancellation, Deadline
from messages.errors import Busy, KnowledgeError, NotFound, Stopping, StoreOpening
from messages.json_types import JsonObject

SWEEP_SHARE: Final = 4
STOP_DRAIN_SECONDS: Final = 5.0

logger = logging.getLogger(__name__)


class StoreHandle(Protocol):
    """What a caller holds of a store, wherever it lives."""

    def ask(
        self,
        message: Request[JsonObject],
        *,
        deadline: Deadline,
        fairness_key: str = "",
        size: int = 0,
        cancellation: Cancellation | None = None,
        correlation_id: str = "",
        request_key: str = "",
    ) -> Reply[JsonObject]: ...


class Directory(Protocol):
    """Store id to handle; opening starts the store if it does not run."""

    def open(self, vault_id: str, settings: StoreSettings) -> Reply[StoreHandle]: ...


@dataclass(slots=True)
class _Live:
    opened: Reply[StoreHandle]
    used_at: float
    unanswered: int = 0
    stopping: Reply[bool] | None = None
    promised: bool = False
    """Its place is another's as soon as it is down."""
    waits_for: _Live | None = None
    """The one whose place it gets; until that is down it is not started."""
    unstopped: bool = False
    """Told to stop and not known to be down: it counts as live, and only its supervisor may start it again."""


class _CountedHandle:
    """A lane's handle that counts unanswered requests, so that a store in use is never called idle."""

    __slots__ = ("_directory", "_lane", "_live")

    def __init__(self, directory: StoreDirectory, live: _Live, lane: ActorHandle) -> None:
        self._directory = directory
        self._live = live
        self._lane = lane

    def ask(
        self,
        message: Request[JsonObject],
        *,
        deadline: Deadline,
        fairness_key: str = "",
        size: int = 0,
        cancellation: Cancellation | None = None,
        correlation_id: str = "",
        request_key: str = "",
    ) -> Reply[JsonObject]:
        self._directory.entered(self._live)
        reply = self._lane.ask(
            message,
            deadline=deadline,
            fairness_key=fairness_key,
            size=size,
            cancellation=cancellation,
            correlation_id=correlation_id,
            request_key=request_key,
        )
        reply.add_done_callback(lambda _: self._directory.left(self._live))
        return reply


class StoreDirectory:
    """The local directory: a store is a supervisor below the root of this process's tree. Any thread."""

    def __init__(
        self,
        tree: Tree,
        *,
        inbox: InboxLimits,
        idle_seconds: float,
        max_live: int,
        wanted: Callable[[str], bool] = lambda _: False,
        reopen: Callable[[str], object] = lambda _: None,
    ) -> None:
        """``wanted`` says of a store that it stays open however long nobody asks it anything; ``reopen`` opens such a
        one again after a hold, and raises nothing.
        """
        self._tree = tree
        self._clock = tree.environment.clock
        self._inbox = inbox
        self._idle = idle_seconds
        self._max_live = max_live
        self._wanted = wanted
        self._reopen = reopen
        self._held: set[str] = set()
        # Reentrant: a supervisor that refuses a stop answers at once, on this thread.
        self._lock = threading.RLock()
        self._live: dict[str, _Live] = {}
        self._closed = False
        self._timer: Timer = self._clock.call_later(self._idle / SWEEP_SHARE, self._sweep)

    def open(self, vault_id: str, settings: StoreSettings) -> Reply[StoreHandle]:
        """A reply with the store's handle; it is answered at once for a live store.

        Where as many stores are live as may be, the one that was idle longest is stopped, and this one is started when
        that is down.
        """
        stopping: Reply[bool] | None = None
        opened: Reply[StoreHandle] = Reply()
        with self._lock:
            if self._closed:
                opened.fail(_runtime_stops())
                return opened
            if vault_id in self._held:
                opened.fail(_held())
                return opened
            live = self._live.get(vault_id)
            if live is not None and live.stopping is None and not live.unstopped:
                live.used_at = self._clock.monotonic()
                return live.opened
            room: _Live | None = None
            if live is None or live.promised:
                room = self._make_room() if self._full() else None
                if room is None and self._full():
                    opened.fail(self._no_room())
                    return opened
            if room is not None:
                stopping = room.stopping
            elif live is not None:
                stopping = live.stopping
            unstopped = live is not None and live.unstopped
            started = _Live(opened, self._clock.monotonic(), waits_for=room, unstopped=unstopped)
            self._live[vault_id] = started

        def after(stopped: Reply[bool]) -> None:
            started.waits_for = None
            if room is not None and stopped.error() is not None:
                self._forget(vault_id, started)
                opened.fail(self._no_room())
                return
            if room is None:
                started.unstopped = stopped.error() is not None
            self._start(vault_id, settings, started)

        if stopping is None:
            self._start(vault_id, settings, started)
        else:
            stopping.add_done_callback(after)
        return opened

    def hold(self, vault_id: str) -> Reply[bool]:
        """Stop a store and open it for nobody until :meth:`release`; answered when it is down.

        Fails, and holds nothing, with ``Busy`` (somebody holds it), ``Stopping``, or when it does not stop.
        """
        held: Reply[bool] = Reply()
        with self._lock:
            if self._closed:
                held.fail(Stopping("The runtime is stopping; nothing was done."))
                return held
            if vault_id in self._held:
                held.fail(Busy("The store is being moved or mended already; try again when that is done."))
                return held
            self._held.add(vault_id)
            live = self._live.get(vault_id)
            stopping = None if live is None else live.stopping or self._stop(vault_id)

        def stopped(reply: Reply[bool]) -> None:
            error = reply.error()
            if error is None:
                held.succeed(True)
            else:
                self._let_go(vault_id)
                held.fail(error)

        if stopping is None:
            held.succeed(True)
        else:
            stopping.add_done_callback(stopped)
        return held

    def release(self, vault_id: str, settings: StoreSettings | None = None) -> Reply[bool]:
        """End a hold; with ``settings`` the store runs by them from now on, out of a quarantine too."""
        released: Reply[bool] = Reply()
        if settings is None:
            self._let_go(vault_id)
            released.succeed(True)
            return released

        def served(_: Reply[bool]) -> None:
            # A store that was never started, or is in no quarantine, has nothing to be released from.
            self._let_go(vault_id)
            released.succeed(True)

        spec = store_spec(settings, self._inbox)
        self._tree.root.release(store_name(vault_id), spec).add_done_callback(served)
        return released

    def lane(self, vault_id: str) -> ActorHandle:
        """The handle on a store's lane, whether it runs or not."""
        return self._tree.handle(f"{store_name(vault_id)}/lane")

    def quarantined(self, vault_id: str) -> bool:
        """Whether the store or its lane was taken out of service."""
        handles = (self._tree.handle(store_name(vault_id)), self.lane(vault_id))
        return any(handle.health().quarantine is not None for handle in handles)

    def entered(self, live: _Live) -> None:
        with self._lock:
            live.unanswered += 1

    def left(self, live: _Live) -> None:
        with self._lock:
            live.unanswered -= 1
            live.used_at = self._clock.monotonic()

    def live_ids(self) -> list[str]:
        """The stores that are started, starting or stopping: at most as many as may be live."""
        with self._lock:
            return sorted(vault_id for vault_id, live in self._live.items() if live.waits_for is None)

    def busy(self) -> bool:
        """Whether any store has unanswered requests."""
        with self._lock:
            return bool(self._held) or any(live.unanswered for live in self._live.values())

    def close(self) -> None:
        """Open nothing more; the tree stops what runs."""
        with self._lock:
            self._closed = True
            self._timer.cancel()

    def _start(self, vault_id: str, settings: StoreSettings, live: _Live) -> None:
        def started(reply: Reply[ActorHandle]) -> None:
            error = reply.error()
            if error is None:
                live.unstopped = False
                live.opened.succeed(_CountedHandle(self, live, self.lane(vault_id)))
            else:
                if not live.unstopped:
                    self._forget(vault_id, live)
                live.opened.fail(error)

        with self._lock:
            # It may have waited for a stop: what was true when it was opened need not be true now.
            refusal = self._refusal_of_start(vault_id, live)
            # Asked under the lock: a hold that comes now has its stop behind this start in the supervisor's mailbox.
            asked = None if refusal else self._tree.root.start_child(store_spec(settings, self._inbox))
        if asked is not None:
            asked.add_done_callback(started)
        elif refusal is not None:
            if live.stopping is None:
                self._forget(vault_id, live)
            live.opened.fail(refusal)

    def _refusal_of_start(self, vault_id: str, live: _Live) -> KnowledgeError | None:
        """Why a store must not be started for this entry any more. Holds the lock."""
        if self._closed:
            return _runtime_stops()
        if vault_id in self._held:
            return _held()
        if self._live.get(vault_id) is not live or live.stopping is not None:
            return StoreOpening("The store was stopped again before it opened; the call did not run. Try again.")
        return None

    def _full(self) -> bool:
        """Whether every place is taken, or promised to a store that waits for it. Holds the lock."""
        return sum(not live.promised for live in self._live.values()) >= self._max_live

    def _make_room(self) -> _Live | None:
        """The store whose place is free as soon as it is down: one that stops anyway, else the one that was idle
        longest; ``None`` when there is none, or when one has ended by itself. Holds the lock."""
        if self._drop_ended():
            return None
        found = next((live for live in self._live.values() if live.stopping is not None and not live.promised), None)
        if found is None:
            idle = [(live.used_at, vault_id) for vault_id, live in self._live.items() if self._is_idle(vault_id, live)]
            if not idle:
                return None
            found = self._live[min(idle)[1]]
            self._stop(min(idle)[1])
            if found.stopping is None:  # refused at once
                return None
        found.promised = True
        return found

    def _no_room(self) -> Busy:
        return Busy(f"{self._max_live} stores are in use, as many as runtime.maxLiveStores allows; try again.")

    def _is_idle(self, vault_id: str, live: _Live) -> bool:
        at_rest = live.unanswered == 0 and live.stopping is None and live.opened.done() and not live.unstopped
        return at_rest and not self._wanted(vault_id)

    def _drop_ended(self) -> bool:
        """Forget the stores that could not be stopped and have ended since; whether there were any. Holds the lock."""
        ended = [
            vault_id
            for vault_id, live in self._live.items()
            if live.unstopped
            and live.stopping is None
            and live.opened.done()
            and not self._tree.handle(store_name(vault_id)).health().live
        ]
        for vault_id in ended:
            del self._live[vault_id]
        return bool(ended)

    def _sweep(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._drop_ended()
            limit = self._clock.monotonic() - self._idle
            for vault_id, live in list(self._live.items()):
                if self._is_idle(vault_id, live) and live.used_at <= limit:
                    self._stop(vault_id)
            self._timer = self._clock.call_later(self._idle / SWEEP_SHARE, self._sweep)

    def _let_go(self, vault_id: str) -> None:
        with self._lock:
            self._held.discard(vault_id)
            closed = self._closed
        if not closed and self._wanted(vault_id):
            self._reopen(vault_id)

    def _stop(self, vault_id: str) -> Reply[bool]:
        """Answered when the store is down. Holds the lock; the supervisor answers on its own thread."""
        live = self._live[vault_id]
        stopping: Reply[bool] = Reply()
        live.stopping = stopping
        asked = self._tree.root.stop_child(store_name(vault_id), drain=STOP_DRAIN_SECONDS)

        def answered(_: Reply[bool]) -> None:
            error = asked.error()
            # The root knows no such child: a start that was refused before it came that far.
            if error is None or isinstance(error, NotFound):
                self._forget(vault_id, live)
                stopping.succeed(True)
                return
            with self._lock:
                live.stopping, live.unstopped, live.promised = None, True, False
            logger.error("a store did not stop", extra={"store": vault_id, "code": error.code})
            stopping.fail(error)

        asked.add_done_callback(answered)
        return stopping

    def _forget(self, vault_id: str, live: _Live) -> None:
        with self._lock:
            if live.waits_for is not None:
                live.waits_for.promised = False
            if self._live.get(vault_id) is live:
                del self._live[vault_id]


def _runtime_stops() -> Stopping:
    return Stopping("The runtime is stopping; the call did not run.")


def _held() -> StoreOpening:
    return StoreOpening("The store is being moved or mended; the call did not run. Try again shortly.")
