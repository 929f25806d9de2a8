"""The directory of live stores: started at first use, stopped when idle, never more than a limit at once.

``Directory`` and ``StoreHandle`` are the ports behind which a store may live elsewhere one day; nothing outside
``actors/`` assumes that it lives in this process. Source: DESIGN.md (Ports, The tree).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from actors.store.lane import StoreSettings
from actors.store.tree import store_name, store_spec
from actors.supervision import ActorHandle, InboxLimits, Reply, Request, Timer, Tree
from messages.envelope import Cancellation, Deadline
from messages.errors import Busy, Stopping, StoreOpening
from messages.json_types import JsonObject

SWEEP_SHARE: Final = 4
STOP_DRAIN_SECONDS: Final = 5.0


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
    ) -> None:
        """``wanted`` says of a store that it stays open however long nobody asks it anything."""
        self._tree = tree
        self._clock = tree.environment.clock
        self._inbox = inbox
        self._idle = idle_seconds
        self._max_live = max_live
        self._wanted = wanted
        self._held: set[str] = set()
        # Reentrant: a supervisor that refuses a stop answers at once, on this thread.
        self._lock = threading.RLock()
        self._live: dict[str, _Live] = {}
        self._closed = False
        self._timer: Timer = self._clock.call_later(self._idle / SWEEP_SHARE, self._sweep)

    def open(self, vault_id: str, settings: StoreSettings) -> Reply[StoreHandle]:
        """A reply with the store's handle; it is answered at once for a live store."""
        stopping: Reply[bool] | None = None
        opened: Reply[StoreHandle] = Reply()
        with self._lock:
            if self._closed:
                opened.fail(Stopping("The runtime is stopping; the call did not run."))
                return opened
            if vault_id in self._held:
                opened.fail(
                    StoreOpening("The store is being moved or mended; the call did not run. Try again shortly.")
                )
                return opened
            live = self._live.get(vault_id)
            if live is not None and live.stopping is None:
                live.used_at = self._clock.monotonic()
                return live.opened
            if live is None and len(self._live) >= self._max_live and not self._make_room():
                opened.fail(
                    Busy(f"{self._max_live} stores are in use, as many as runtime.maxLiveStores allows; try again.")
                )
                return opened
            if live is not None:
                stopping = live.stopping
            started = self._live[vault_id] = _Live(opened, self._clock.monotonic())
        if stopping is None:
            self._start(vault_id, settings, started)
        else:
            stopping.add_done_callback(lambda _: self._start(vault_id, settings, started))
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
            if live is not None and live.stopping is None:
                self._stop(vault_id)
            stopping = None if live is None else live.stopping

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

    def entered(self, live: _Live) -> None:
        with self._lock:
            live.unanswered += 1

    def left(self, live: _Live) -> None:
        with self._lock:
            live.unanswered -= 1
            live.used_at = self._clock.monotonic()

    def live_ids(self) -> list[str]:
        """The stores that are started, starting or stopping."""
        with self._lock:
            return sorted(self._live)

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
                live.opened.succeed(_CountedHandle(self, live, self.lane(vault_id)))
            else:
                self._forget(vault_id, live.opened)
                live.opened.fail(error)

        self._tree.root.start_child(store_spec(settings, self._inbox)).add_done_callback(started)

    def _make_room(self) -> bool:
        """Begin to stop the store that was idle longest; whether there was one. Holds the lock."""
        idle = [(live.used_at, vault_id) for vault_id, live in self._live.items() if self._is_idle(live)]
        if not idle:
            return False
        self._stop(min(idle)[1])
        return True

    def _is_idle(self, live: _Live) -> bool:
        return live.unanswered == 0 and live.stopping is None and live.opened.done()

    def _sweep(self) -> None:
        with self._lock:
            if self._closed:
                return
            limit = self._clock.monotonic() - self._idle
            for vault_id, live in list(self._live.items()):
                if self._is_idle(live) and live.used_at <= limit and not self._wanted(vault_id):
                    self._stop(vault_id)
            self._timer = self._clock.call_later(self._idle / SWEEP_SHARE, self._sweep)

    def _let_go(self, vault_id: str) -> None:
        with self._lock:
            self._held.discard(vault_id)

    def _stop(self, vault_id: str) -> None:
        """Holds the lock; the supervisor answers on its own thread."""
        live = self._live[vault_id]
        stopping = self._tree.root.stop_child(store_name(vault_id), drain=STOP_DRAIN_SECONDS)
        live.stopping = stopping
        stopping.add_done_callback(lambda _: self._forget(vault_id, live.opened))

    def _forget(self, vault_id: str, opened: Reply[StoreHandle]) -> None:
        with self._lock:
            live = self._live.get(vault_id)
            if live is not None and live.opened is opened:
                del self._live[vault_id]
